"""Tokenised text, written once to memory-mapped arrays that later runs and processes share."""

import hashlib
import shutil
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np

from transformer_jax.base.disk import locked, writing
from transformer_jax.base.progress import LineProgress
from transformer_jax.base.vocabulary import OURS, Special
from transformer_jax.config import DataConfig
from transformer_jax.data.batches.batch import Ragged
from transformer_jax.data.codecs.codec import VectorCodec
from transformer_jax.data.codecs.pair import TokenizerPair
from transformer_jax.data.codecs.subword_dropout import Sampling
from transformer_jax.data.sources import Corpus
from transformer_jax.data.store.encoding import CUTS, Encoder, WorkerDied, cores, encoded, jobs_of
from transformer_jax.data.store.store_files import SIDES, GrowingSide, files_of, finish, intact
from transformer_jax.data.texts import Texts

_CHUNK = 100_000  # lines each process tokenises at a time, which bounds memory
_FORMAT = 2  # part of the cache key: increment when the layout below changes


class Lengths(NamedTuple):
    """The number of row positions that each example takes on each side."""

    src: np.ndarray  # [n]
    tgt: np.ndarray  # [n]


class TokenStore(NamedTuple):
    """Sequences of both sides, equal in number; without sources the source side has none."""

    src: Ragged
    tgt: Ragged
    special: Special = OURS  # of the target side

    def __len__(self) -> int:
        return len(self.tgt.lengths)

    @property
    def lengths(self) -> Lengths:
        """The lengths of the examples as a plan sees them."""
        return Lengths(self.src.lengths, self.tgt.lengths)

    def sides(self, length: int) -> tuple[int, int]:
        """Return the lengths of both sides of a batch, for examples of at most `length` positions
        on each; 0 for an absent side. A side of at most two positions, as for classes and spans, or
        of at most half of `length`, is only as long as its longest sequence.
        """
        most = (int(lengths.max(initial=0)) for lengths in self.lengths)
        src, tgt = (x if x <= max(2, length // 2) else length for x in most)
        return src, tgt


class Uneven(TokenStore):
    """Pairs with one side much shorter than the other, such as texts and class names."""

    def sides(self, length: int) -> tuple[int, int]:
        """See TokenStore; neither side is longer than its longest sequence."""
        src, tgt = (min(length, int(lengths.max(initial=0))) for lengths in self.lengths)
        return src, tgt


class Frame(NamedTuple):
    """The special pieces around each text of a store."""

    bos: bool = False
    eos: bool = True
    # How a line of the source side is cut into sequences: not at all, into its words, into its two
    # texts, or into a question and the words and signs of its context. "turns": a line of the
    # target side is a conversation, whose predicted pieces are stored as ~id; "preferences": it is
    # a pair of them.
    cut: Literal["line", "words", "texts", "questions", "turns", "preferences"] = "line"

    @property
    def chats(self) -> bool:
        """Whether texts are conversations, or pairs of them."""
        return self.cut in ("turns", "preferences")


def open_store(
    corpus: Corpus,
    tokenizers: TokenizerPair,
    cache: Path,
    sampling: Sampling | None = None,
    frame: Frame = Frame(),  # noqa: B008 (immutable)
    processes: int | None = None,
) -> TokenStore:
    """Return the tokenised corpus, from the cache if it is there and intact.

    With `sampling` the corpus is repeated several times, each with random segmentation. `processes`
    is the number of encoding processes, by default one per core for large corpora; the store does
    not depend on it. Every cached store is fully verified against its CRC-32 when opened, and
    rebuilt if it is damaged.

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
            with locked(directory):
                store = _read(directory, tokenizers)  # another process may have written it by now
                if store is None:
                    _write(corpus, tokenizers, directory, sampling, frame, processes)
                    store = _read(directory, tokenizers)
        assert store is not None, f"{directory} is unreadable just after it was written"
    return TokenStore(store.src, store.tgt, tokenizers.special(frame.chats))


def _need(corpus: Corpus) -> int:
    """Return an upper bound on the bytes of a store: a piece is at least a byte, plus one for EOS.
    0 means unknown, for texts not held in memory.
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
    """Write a store, or finish a partial one: what a killed process wrote is verified and kept."""
    partial = directory.with_suffix(".partial")
    partial.mkdir(exist_ok=True)
    src: Sequence = corpus.src
    try:
        if frame.cut in CUTS:
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
    """Write the missing lines of each side, with a progress report."""
    total, done = times * sum(map(len, texts)), sum(side.lines for side in sides)
    with LineProgress(total, hidden=total < 10 * _CHUNK, begin=done) as progress:
        for side, encoder, lines in zip(sides, encoders, texts, strict=True):
            jobs = jobs_of(lines, times, side.lines, _CHUNK)
            many = times * len(lines) - side.lines > 2 * _CHUNK
            for part in encoded(encoder, jobs, processes or (len(cores()) if many else 1)):
                side.append(part)
                done += len(part.lengths)
                progress.reached(done)


def _encoders(
    tokenizers: TokenizerPair, sampling: Sampling | None, frame: Frame
) -> Iterator[Encoder]:
    """Yield the encoder of each side."""
    for number, codec in enumerate(tokenizers):
        dropout = None
        if sampling is not None:  # the sides draw different numbers
            dropout = sampling.rate, 2 * sampling.seed + number
        words = frame.cut in CUTS and number == 0
        template = None
        if frame.chats and number == 1:
            assert tokenizers.template is not None
            template = tokenizers.template.source
        yield Encoder(codec, frame.bos, frame.eos, words, dropout, template,
                      frame.cut == "preferences")  # fmt: skip


def _read(directory: Path, tokenizers: TokenizerPair) -> TokenStore | None:
    """Return the store, or None if it is missing or damaged."""
    try:
        if not intact(directory):
            return None
        sides = []
        for name, codec in zip(SIDES, tokenizers, strict=True):
            ids_path, offsets_path = files_of(directory, name)
            offsets = np.asarray(np.memmap(offsets_path, np.int64, "r"))
            dtype = codec.stored if isinstance(codec, VectorCodec) else np.dtype(np.int32)
            total = int(offsets[-1])
            # An empty file cannot be mapped: there are no ids without sources, or if all are empty.
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
    """The examples used for training, and the number dropped for each reason."""

    pairs: np.ndarray
    dropped: dict[str, int]


def select(store: TokenStore, config: DataConfig) -> Selection:
    """Drop pairs that are empty, too long or too uneven, each counted under its first reason.

    Lengths include EOS, so an empty side has length 1.
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
    """Drop the examples for which any reason holds, each counted under its first."""
    keep = np.ones_like(next(iter(reasons.values())))
    dropped = {}
    for reason, bad in reasons.items():
        dropped[reason] = int((bad & keep).sum())
        keep &= ~bad
    return Selection(np.flatnonzero(keep), dropped)
