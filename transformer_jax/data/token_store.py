"""Text tokenised once, into memory-mapped arrays that every later run and process shares."""

import fcntl
import hashlib
import shutil
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np

from transformer_jax.config import DataConfig
from transformer_jax.data.batch import Ragged
from transformer_jax.data.codecs.codec import VectorCodec, special_of
from transformer_jax.data.codecs.pair import TokenizerPair
from transformer_jax.data.encoding import CUTS, Encoder, WorkerDied, cores, encoded, jobs_of
from transformer_jax.data.sources import Corpus
from transformer_jax.data.store_files import SIDES, GrowingSide, files_of, finish, intact
from transformer_jax.data.subword_dropout import Sampling
from transformer_jax.data.texts import Texts
from transformer_jax.disk import writing
from transformer_jax.progress import LineProgress
from transformer_jax.vocabulary import OURS, Special

_CHUNK = 100_000  # lines tokenised at a time, by each process: bounds memory
_FORMAT = 2  # part of the key: raise it when the layout below changes


class Lengths(NamedTuple):
    """How many positions of a row each example takes on each side."""

    src: np.ndarray  # [n]
    tgt: np.ndarray  # [n]


class TokenStore(NamedTuple):
    """Sequences of both sides, as many; a corpus without sources has no sequences there."""

    src: Ragged
    tgt: Ragged
    special: Special = OURS  # of the target side

    def __len__(self) -> int:
        return len(self.tgt.lengths)

    @property
    def lengths(self) -> Lengths:
        """What a plan sees of the examples."""
        return Lengths(self.src.lengths, self.tgt.lengths)

    def sides(self, length: int) -> tuple[int, int]:
        """Return how long both sides of a batch are, for examples of at most so many positions on
        each: 0 where there is no side. A side that has one or two positions, as classes and spans,
        or at most half as many as that, needs no more than its longest.
        """
        most = (int(lengths.max(initial=0)) for lengths in self.lengths)
        src, tgt = (x if x <= max(2, length // 2) else length for x in most)
        return src, tgt


class Uneven(TokenStore):
    """Pairs of which one side is by far the shorter, such as texts and names of their classes."""

    def sides(self, length: int) -> tuple[int, int]:
        """See TokenStore: neither side is longer than the longest there is."""
        src, tgt = (min(length, int(lengths.max(initial=0))) for lengths in self.lengths)
        return src, tgt


class Frame(NamedTuple):
    """Which special pieces stand around each text of a store."""

    bos: bool = False
    eos: bool = True
    # Into which sequences a line of the source side is cut: itself, its words, its two texts, or a
    # question and the words and signs of what it is asked about.
    cut: Literal["line", "words", "texts", "questions"] = "line"


def open_store(
    corpus: Corpus,
    tokenizers: TokenizerPair,
    cache: Path,
    sampling: Sampling | None = None,
    frame: Frame = Frame(),  # noqa: B008 (immutable)
    processes: int | None = None,
) -> TokenStore:
    """Return the tokenised corpus, from the cache if its content is there already and intact.

    With `sampling` it is there several times, one after the other, cut into pieces at random.
    `processes` encode, by default one for each core where there is much to do; the store is the
    same. What is in the cache is compared with its CRC-32 each time, all of it; what is not what
    was written is made anew.

    Raises:
      DiskError: if the cache cannot be written.
      WorkerDied: if one of the processes was killed.
    """
    key = f"{_FORMAT} {corpus.fingerprint} {tokenizers.digest}"
    if sampling is not None:
        key += f" {tuple(sampling)}"
    if frame != Frame():
        key += f" {tuple(frame)}"
    name = hashlib.blake2b(key.encode(), digest_size=16).hexdigest()
    directory = cache / "tokens" / name
    store = _read(directory, tokenizers)
    if store is None:
        times = 1 if sampling is None else sampling.times
        need = _need(corpus) * (1 + (frame.cut != "line")) * times
        with writing(f"tokenised text in the cache {cache}", cache, need):
            directory.parent.mkdir(parents=True, exist_ok=True)
            with open(directory.with_suffix(".lock"), "w") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)  # ends with the process
                store = _read(
                    directory, tokenizers
                )  # another process may have written it meanwhile
                if store is None:
                    _write(corpus, tokenizers, directory, sampling, frame, processes)
                    store = _read(directory, tokenizers)
        assert store is not None, f"{directory} is unreadable just after it was written"
    return TokenStore(store.src, store.tgt, special_of(tokenizers.tgt))


def _need(corpus: Corpus) -> int:
    """Return a bound of the bytes that a store takes: a piece is at least a byte, EOS one more. 0:
    it is not known, of texts that are not held.
    """
    if any(isinstance(side, Texts) for side in (corpus.src, corpus.tgt)):
        return 0
    values = (*corpus.src, *corpus.tgt)
    sizes = (x.nbytes if isinstance(x, np.ndarray) else 4 * len(x.encode()) for x in values)
    return sum(sizes) + 16 * len(values)


def _write(
    corpus: Corpus,
    tokenizers: TokenizerPair,
    directory: Path,
    sampling: Sampling | None,
    frame: Frame,
    processes: int | None,
) -> None:
    """Write a store, or the rest of one: what a killed process has written is kept and checked."""
    partial = directory.with_suffix(".partial")
    partial.mkdir(exist_ok=True)
    src: Sequence = corpus.src
    try:
        if frame.cut != "line":
            src = [part for line in src for part in CUTS[frame.cut](line)]
        times = 1 if sampling is None else sampling.times
        with ExitStack() as stack:
            sides = [stack.enter_context(GrowingSide(partial, name)) for name in SIDES]
            encoders = _encoders(tokenizers, sampling, frame)
            _grow(sides, encoders, (src, corpus.tgt), times, processes)
        finish(partial, sides)
        shutil.rmtree(directory, ignore_errors=True)
        partial.rename(directory)
    except WorkerDied:
        raise
    except Exception:
        shutil.rmtree(partial, ignore_errors=True)
        raise


def _grow(
    sides: Sequence[GrowingSide],
    encoders: Iterator[Encoder],
    texts: Sequence[Sequence],
    times: int,
    processes: int | None,
) -> None:
    """Write what is not there yet of each side, and show how far it is."""
    total, done = times * sum(map(len, texts)), sum(side.lines for side in sides)
    with LineProgress(total, hidden=total < 10 * _CHUNK, begin=done) as progress:
        for side, encoder, lines in zip(sides, encoders, texts, strict=True):
            jobs = jobs_of(lines, times, side.lines, _CHUNK)
            many = times * len(lines) - side.lines > 2 * _CHUNK
            for part in encoded(encoder, jobs, processes or (cores() if many else 1)):
                side.append(part)
                done += len(part.lengths)
                progress.reached(done)


def _encoders(
    tokenizers: TokenizerPair, sampling: Sampling | None, frame: Frame
) -> Iterator[Encoder]:
    """Yield how each side becomes ids."""
    for number, codec in enumerate(tokenizers):
        dropout = None
        if sampling is not None:  # the sides draw different numbers
            dropout = sampling.rate, 2 * sampling.seed + number
        words = frame.cut != "line" and number == 0
        yield Encoder(codec, frame.bos, frame.eos, words, dropout)


def _read(directory: Path, tokenizers: TokenizerPair) -> TokenStore | None:
    """Return the store, or None if there is none or it is not what was written."""
    try:
        if not intact(directory):
            return None
        sides = []
        for name, codec in zip(SIDES, tokenizers, strict=True):
            ids_path, offsets_path = files_of(directory, name)
            offsets = np.asarray(np.memmap(offsets_path, np.int64, "r"))
            dtype = codec.stored if isinstance(codec, VectorCodec) else np.dtype(np.int32)
            total = int(offsets[-1])
            # An empty file cannot be mapped; there are no ids without sources, or if all are empty.
            ids = np.zeros(0, dtype)
            if total:
                ids = np.asarray(np.memmap(ids_path, dtype, "r"))
            read = None
            if isinstance(codec, VectorCodec):
                ids, read = ids.reshape(total, codec.channels), codec.reader()
            sides.append(Ragged.from_offsets(ids, offsets)._replace(read=read))
        return TokenStore(sides[0], sides[1])
    except (OSError, ValueError, LookupError, TypeError, RecursionError):
        return None


class Selection(NamedTuple):
    """The examples that training uses, and how many were left out for which reason."""

    pairs: np.ndarray
    dropped: dict[str, int]


def select(store: TokenStore, config: DataConfig) -> Selection:
    """Leave out pairs that are empty, too long or too uneven, each counted under its first reason.

    Lengths count pieces with EOS, so an empty side has length 1.
    """
    src, tgt = store.src.lengths, store.tgt.lengths
    longer, shorter = np.maximum(src, tgt), np.minimum(src, tgt)
    ratio = config.max_length_ratio
    return without({
        "empty": shorter <= 1,
        f"longer than {config.max_length} pieces": np.maximum(*store.lengths) > config.max_length,
        f"more uneven than {ratio:g}:1": longer > ratio * shorter,
    })  # fmt: skip


def without(reasons: dict[str, np.ndarray]) -> Selection:
    """Leave out the examples that there is a reason to, each counted under its first."""
    keep = np.ones_like(next(iter(reasons.values())))
    dropped = {}
    for reason, bad in reasons.items():
        dropped[reason] = int((bad & keep).sum())
        keep &= ~bad
    return Selection(np.flatnonzero(keep), dropped)
