"""What everybody may ask of a codec."""

import hashlib
import random
from collections.abc import Iterable, Mapping, Sequence
from itertools import takewhile
from typing import Any, Protocol, runtime_checkable

import numpy as np

from transformer_jax.config import DataConfig
from transformer_jax.data.batch import Ragged, Read
from transformer_jax.data.random import Draw
from transformer_jax.errors import UserError
from transformer_jax.vocabulary import BOS, EOS, OURS, PAD, UNK, Special

# The special pieces, by name, of the codecs that we train; one that is imported has its own ids.
SPECIAL: Mapping[str, int] = {"pad": PAD, "bos": BOS, "eos": EOS, "unk": UNK}
SPELLED = ("<pad>", "<s>", "</s>", "<unk>")  # as `pieces` writes them, in the order of their ids


@runtime_checkable
class Codec(Protocol):
    """Turns text into ids and back. It is made from `model`, the content of its file."""

    file: str  # in the work directory; "{}" is for the side, where there are two
    model: bytes
    special: Mapping[str, int]  # of text at least "pad", "bos", "eos" and "unk"

    def __init__(self, model: bytes) -> None: ...

    @property
    def size(self) -> int:
        """Number of pieces; ids are below it."""

    @property
    def digest(self) -> str:
        """A hash of the model: equal digests, equal ids."""

    def encode(self, texts: Sequence, bos: bool = False, eos: bool = True) -> list:
        """Return the ids of each text, BOS before it and EOS after it where asked; of what is no
        text, vectors [L C].
        """

    def decode(self, ids: Iterable[int]) -> str:
        """Return the text before the first EOS, without the other special pieces but unk."""

    def pieces(self, ids: Iterable[int]) -> list[str]:
        """Return how each id is written where pieces are shown one by one."""

    def piece_id(self, piece: str) -> int:
        """Return the id of a piece.

        Raises:
          UserError: if there is no such piece.
        """

    def is_text(self, piece: int) -> bool:
        """Whether a piece stands for its own characters: is neither special nor a byte."""

    def word_starts(self) -> np.ndarray | None:
        """Return which pieces begin a word, bool [size]; None where a piece does not say."""


class VectorCodec:
    """Turns what is no text, such as pictures, into sequences of vectors: a Codec without pieces.

    They are stored as they are, once, and nothing about them is random; what a model reads is made
    of them each time, and may be changed at random then. There is no BOS and no EOS. `size` is the
    number of channels of what is read.
    """

    special: Mapping[str, int] = {}
    stored: np.dtype
    channels: int  # of what is stored

    def reader(self, config: DataConfig | None = None) -> Read:
        """Return how stored vectors are read: in training as `config` says, else as they are."""
        raise NotImplementedError

    def open(self, path: str) -> Any:
        """Return the value that a file holds.

        Raises:
          UserError: if it holds none.
        """
        raise UserError(f"{path}: such a model reads arrays, and no files of single values")

    def decode(self, ids: Iterable[int]) -> str:
        """See Codec: vectors are read, and never written."""
        raise UserError("vectors are read, and not written; there is no text of them")

    def pieces(self, ids: Iterable[int]) -> list[str]:
        """See Codec."""
        return [self.decode(ids)]

    def piece_id(self, piece: str) -> int:
        """See Codec: there are none."""
        raise UserError(f"{piece!r} is no piece: a source side of vectors has none")

    def is_text(self, piece: int) -> bool:
        """See Codec."""
        return False

    def word_starts(self) -> None:
        """See Codec."""


def encoded(codec: Codec, values: Sequence) -> Ragged:
    """Return values as a codec encodes them, and how they are read."""
    read = codec.reader() if isinstance(codec, VectorCodec) else None
    return Ragged.from_lists(codec.encode(values))._replace(read=read)


def read_whole(codec: Codec, values: Sequence) -> list:
    """Return of each value what a model reads of it: its ids, or vectors [L C] of float32."""
    found, where = codec.encode(values), np.zeros(1, np.int64)
    if not isinstance(codec, VectorCodec):
        return found
    read = codec.reader()
    return [read(x, np.array([len(x)]), where, Draw()) for x in found]


def with_symbols(symbols: Sequence[str], first: int) -> dict[str, int]:
    """Return the special pieces of a codec whose further ones, "<mask>", count from `first` on."""
    return {**SPECIAL, **{name[1:-1]: first + i for i, name in enumerate(symbols)}}


def symbols_of(special: Mapping[str, int]) -> list[str]:
    """Return how the further special pieces are written, in the order of their ids."""
    return [f"<{name}>" for name in special if name not in SPECIAL]


def special_of(codec: Codec | None) -> Special:
    """Return where texts begin and end; -1 stands for what there is not, as of classes."""
    if codec is None:
        return OURS
    return Special(*(codec.special.get(name, -1) for name in Special._fields))


def sampled(lines: Sequence[str], most: int) -> Sequence[str]:
    """Return so many of the lines, always the same, in their order; all if there are no more."""
    if len(lines) <= most:
        return lines
    return [lines[i] for i in sorted(random.Random(0).sample(range(len(lines)), most))]


def hashed(model: bytes) -> str:
    """Return the digest of a codec."""
    return hashlib.blake2b(model, digest_size=16).hexdigest()


def before_eos(ids: Iterable[int]) -> list[int]:
    """Return the ids of the text itself: up to the first EOS, without PAD and BOS."""
    return [int(i) for i in takewhile(lambda i: i != EOS, ids) if i not in (PAD, BOS)]


def framed(ids: list[int], bos: bool, eos: bool) -> list[int]:
    """Put BOS before and EOS after, where asked."""
    return [BOS] * bos + ids + [EOS] * eos


def shortened(ids: list[int], most: int) -> list[int]:
    """Return the first of some pieces and the last, EOS, at most so many; Ragged.cut for texts."""
    return ids if len(ids) <= most else [*ids[: most - 1], ids[-1]]
