"""Text tokenised once, into memory-mapped arrays that every later run and process shares."""

import fcntl
import hashlib
import json
import shutil
import zlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np

from transformer_jax.config import DataConfig
from transformer_jax.data import labelled
from transformer_jax.data.batch import Ragged
from transformer_jax.data.codecs.codec import Codec, VectorCodec, special_of
from transformer_jax.data.codecs.pair import TokenizerPair
from transformer_jax.data.questions import Asked
from transformer_jax.data.sources import Corpus
from transformer_jax.data.subword_dropout import Sampling, SubwordDropout
from transformer_jax.disk import write_text, writing
from transformer_jax.vocabulary import OURS, Special

_CHUNK = 100_000  # lines tokenised at a time: bounds memory
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
        each: 0 where there is no side. Where all have one or two positions, as classes and spans, a
        row of one example needs no more.
        """
        most = (int(lengths.max(initial=0)) for lengths in self.lengths)
        src, tgt = (length if longest > 2 else longest for longest in most)
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
    # Into which sequences a line of the source side is cut: itself, its words, or a question and
    # the words and signs of what it is asked about.
    cut: Literal["line", "words", "questions"] = "line"


def open_store(
    corpus: Corpus,
    tokenizers: TokenizerPair,
    cache: Path,
    sampling: Sampling | None = None,
    frame: Frame = Frame(),  # noqa: B008 (immutable)
) -> TokenStore:
    """Return the tokenised corpus, from the cache if its content is there already and intact.

    With `sampling` it is there several times, one after the other, cut into pieces at random.

    Raises:
      DiskError: if the cache cannot be written.
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
                    _write(corpus, tokenizers, directory, sampling, frame)
                    store = _read(directory, tokenizers)
        assert store is not None, f"{directory} is unreadable just after it was written"
    return TokenStore(store.src, store.tgt, special_of(tokenizers.tgt))


def _need(corpus: Corpus) -> int:
    """Return a bound of the bytes that a store takes: a piece is at least a byte, EOS one more."""
    values = (*corpus.src, *corpus.tgt)
    sizes = (x.nbytes if isinstance(x, np.ndarray) else 4 * len(x.encode()) for x in values)
    return sum(sizes) + 16 * len(values)


def _write(
    corpus: Corpus,
    tokenizers: TokenizerPair,
    directory: Path,
    sampling: Sampling | None,
    frame: Frame,
) -> None:
    partial = directory.with_suffix(".partial")
    shutil.rmtree(partial, ignore_errors=True)  # of a killed process
    partial.mkdir()
    try:
        sides = (("src", corpus.src, tokenizers.src), ("tgt", corpus.tgt, tokenizers.tgt))
        for name, lines, tokenizer in sides:
            if frame.cut != "line" and name == "src":
                lines = [part for line in lines for part in CUTS[frame.cut](line)]
            _write_side(partial, name, _encoded(lines, tokenizer, sampling, frame, name))
        sums = {path.name: _sum(path) for path in partial.iterdir()}
        write_text(partial / "sums.json", json.dumps(sums))
        shutil.rmtree(directory, ignore_errors=True)
        partial.rename(directory)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


CUTS: dict[str, Callable[[str], list[str]]] = {
    "words": labelled.words_of,
    "questions": lambda line: Asked.read(line).parts(),
}


def encode_words(codec: Codec, words: Sequence[str]) -> list[list[int]]:
    """Return the ids of each word, one at least: UNK, where normalisation leaves nothing."""
    return [ids or [max(codec.special["unk"], 0)] for ids in codec.encode(words, eos=False)]


def _write_side(directory: Path, name: str, chunks: Iterator[list[list[int]]]) -> None:
    offsets = [np.zeros(1, np.int64)]
    total = 0
    with open(directory / f"{name}.ids", "wb") as file:
        for ids in chunks:
            part = Ragged.from_lists(ids)
            file.write(part.ids.tobytes())
            offsets.append(np.cumsum(part.lengths) + total)
            total += len(part.ids)
    (directory / f"{name}.offsets").write_bytes(np.concatenate(offsets).tobytes())


def _encoded(
    lines: Sequence[str], tokenizer: Codec, sampling: Sampling | None, frame: Frame, name: str
) -> Iterator[list[list[int]]]:
    times, encode = 1, lambda part, first: tokenizer.encode(part, frame.bos, frame.eos)
    if frame.cut != "line" and name == "src":
        encode = lambda part, first: encode_words(tokenizer, part)  # noqa: E731
    if sampling is not None:
        # The sides draw different numbers.
        dropout = SubwordDropout(tokenizer, sampling.rate, 2 * sampling.seed + (name == "tgt"))
        times, encode = sampling.times, dropout.encode
    for time in range(times):
        for start in range(0, len(lines), _CHUNK):
            yield encode(lines[start : start + _CHUNK], time * len(lines) + start)


def _sum(path: Path) -> list[int]:
    """Return size and CRC-32 of a file."""
    crc = 0
    with open(path, "rb") as file:
        while chunk := file.read(1 << 20):
            crc = zlib.crc32(chunk, crc)
    return [path.stat().st_size, crc]


def _read(directory: Path, tokenizers: TokenizerPair) -> TokenStore | None:
    """Return the store, or None if there is none or it is not what was written."""
    try:
        sums = json.loads((directory / "sums.json").read_bytes())
        sides = []
        for name, codec in zip(("src", "tgt"), tokenizers, strict=True):
            files = directory / f"{name}.ids", directory / f"{name}.offsets"
            if any(_sum(path) != sums[path.name] for path in files):
                return None
            offsets = np.fromfile(files[1], np.int64)
            total, vectors = int(offsets[-1]), isinstance(codec, VectorCodec)
            dtype = codec.stored if isinstance(codec, VectorCodec) else np.dtype(np.int32)
            # An empty file cannot be mapped; there are no ids without sources, or if all are empty.
            ids = np.memmap(files[0], dtype, "r") if total else np.zeros(0, dtype)
            sides.append(Ragged.from_offsets(ids.reshape(total, -1) if vectors else ids, offsets))
            if isinstance(codec, VectorCodec):
                sides[-1] = sides[-1]._replace(read=codec.reader())
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
