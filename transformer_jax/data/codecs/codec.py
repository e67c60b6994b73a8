"""The interface of a codec, and helpers for codecs."""

import hashlib
import os
import random
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import takewhile
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np

from transformer_jax.base.errors import UserError
from transformer_jax.base.vocabulary import BOS, EOS, OURS, PAD, UNK, Special
from transformer_jax.config import DataConfig, ModelConfig, SourceConfig, TokenizerConfig
from transformer_jax.data.batches.batch import Ragged, Read
from transformer_jax.data.random import Draw

# The special pieces, by name, of codecs trained here; an imported one has its own ids.
SPECIAL: Mapping[str, int] = {"pad": PAD, "bos": BOS, "eos": EOS, "unk": UNK}
SPELLED = ("<pad>", "<s>", "</s>", "<unk>")  # as `pieces` writes them, by id


@runtime_checkable
class Codec(Protocol):
    """Turns text into ids and back. It is constructed from `model`, the content of its file."""

    file: str  # in the work directory; "{}" is for the side, if there are two
    model: bytes
    special: Mapping[str, int]  # for text at least "pad" and "eos"; none is missing if ours

    def __init__(self, model: bytes) -> None: ...

    @property
    def size(self) -> int:
        """Number of pieces; ids are below it."""

    @property
    def digest(self) -> str:
        """A hash of the model; codecs with equal digests produce equal ids."""

    def encode(self, texts: Sequence, bos: bool = False, eos: bool = True) -> list:
        """Return the ids of each text, with what documents begin with before it, BOS in all that
        are trained here, and EOS after it if requested; for non-text inputs, vectors [L C].
        """

    def decode(self, ids: Iterable[int]) -> str:
        """Return the text before the first EOS, without the other special pieces but unk."""

    def pieces(self, ids: Iterable[int]) -> list[str]:
        """Return the spelling of each id, for display piece by piece."""

    def piece_id(self, piece: str) -> int:
        """Return the id of a piece.

        Raises:
          UserError: if there is no such piece.
        """

    def is_text(self, piece: int) -> bool:
        """Return whether a piece stands for its own characters: is neither special nor a byte."""

    def word_starts(self) -> np.ndarray | None:
        """Return which pieces begin a word, bool [size], or None if pieces do not show that."""


class VectorCodec:
    """Turns non-text inputs, such as pictures, into sequences of vectors: a Codec without pieces.

    The vectors are stored once, without randomness; model inputs are computed from them at each
    read, possibly with random augmentation. There is no BOS and no EOS. `size` is the number of
    channels of the model input.
    """

    special: Mapping[str, int] = {}
    noun = "value"  # what messages call one
    endings: Collection[str] = ()  # of the names of files that it opens, in lower case
    stored: np.dtype
    channels: int  # of the stored vectors

    def reader(self, config: DataConfig | None = None) -> Read:
        """Return the reader of stored vectors: with `config`'s augmentation in training, else
        without. By default they are read as stored.
        """
        return lambda vectors, lengths, numbers, draw: vectors

    def check_read_by(self, model: ModelConfig) -> None:
        """Check that a model reads inputs of this form.

        Raises:
          UserError: if it does not.
        """

    def open(self, path: str) -> Any:
        """Return the value in a file.

        Raises:
          UserError: if this codec has no such files.
        """
        raise UserError(f"{path}: this model reads arrays, not files of single values")

    def is_folder(self, path: Path) -> bool:
        """Return whether a folder is one value, as one of the frames of a clip is."""
        return False

    def opened(self, content: bytes, name: str) -> Any:
        """Return the value in the content of such a file; `name` is for messages.

        Raises:
          UserError: if this codec has no such files.
        """
        raise UserError(f"{name}: this model reads no uploaded files")

    def samples(self, longest: int) -> Iterator[Any]:
        """Yield values of growing length, up to `longest` vectors or the one length that there is,
        for programs to be compiled ahead of use.
        """
        yield from ()

    def is_one(self, given: Any) -> bool:
        """Return whether what is given for prediction is one value, as a file's name or an array
        may be, and not several of them.
        """
        return isinstance(given, str | PathLike)

    def prepared(self, given: Any, name: str, config: DataConfig) -> Any:
        """Return one value that is given for prediction, an array or the name of a file, in the
        form that `encode` takes, as training prepared its own; `name` is for messages.

        Raises:
          UserError: if it is something else.
        """
        return self.open(os.fspath(given)) if isinstance(given, str | PathLike) else given

    def decode(self, ids: Iterable[int]) -> str:
        """See Codec: vectors are never written."""
        raise UserError("vectors can be read but not written; they have no text")

    def pieces(self, ids: Iterable[int]) -> list[str]:
        """See Codec."""
        return [self.decode(ids)]

    def piece_id(self, piece: str) -> int:
        """See Codec: there are none."""
        raise UserError(f"{piece!r} is not a piece: a source side of vectors has none")

    def is_text(self, piece: int) -> bool:
        """See Codec."""
        return False

    def word_starts(self) -> None:
        """See Codec."""


def check(codec: Codec, texts: Sequence[str], place: Callable[[int], str]) -> None:
    """Check that a codec can encode texts; `place` gives a text's location.

    Raises:
      UserError: if not.
    """
    for number, text in enumerate(texts, 1):
        try:
            codec.encode([text])
        except UserError as error:
            raise UserError(f"{place(number)}: {error}") from None


def as_array(given: Any, name: str) -> np.ndarray:
    """Return an array of what is given for prediction; `name` is for messages.

    Raises:
      UserError: if it cannot be one.
    """
    try:
        return given if isinstance(given, np.ndarray) else np.asarray(given)
    except (ValueError, TypeError):  # rows of different lengths, for example
        raise UserError(f"{name}: is {given!r:.40}, which is not an array of numbers") from None


def encoded(codec: Codec, values: Sequence) -> Ragged:
    """Return values as encoded by a codec, with their reader."""
    read = codec.reader() if isinstance(codec, VectorCodec) else None
    return Ragged.from_lists(codec.encode(values))._replace(read=read)


def read_whole(codec: Codec, values: Sequence) -> list:
    """Return the model input for each value: its ids, or float32 vectors [L C]."""
    vectors, where = codec.encode(values), np.zeros(1, np.int64)
    if not isinstance(codec, VectorCodec):
        return vectors
    read = codec.reader()
    return [read(x, np.array([len(x)]), where, Draw()) for x in vectors]


def with_symbols(symbols: Sequence[str], first: int) -> dict[str, int]:
    """Return the special pieces of a codec; further ones, like "<mask>", have ids from `first`."""
    return {**SPECIAL, **{name[1:-1]: first + i for i, name in enumerate(symbols)}}


def symbols_of(special: Mapping[str, int]) -> list[str]:
    """Return the spellings of the further special pieces, by id."""
    return [f"<{name}>" for name in special if name not in SPECIAL]


def special_of(codec: Codec | None) -> Special:
    """Return the ids that delimit texts, of which a codec may lack some: for classes, all."""
    if codec is None:
        return OURS
    bos, eos = codec.special.get("bos"), codec.special.get("eos")
    return Special(codec.special.get("pad", PAD if eos is None else eos), bos, eos)


def sampled(lines: Sequence[str], most: int) -> Sequence[str]:
    """Return a fixed random sample of at most `most` lines, in their order."""
    if len(lines) <= most:
        return lines
    return [lines[i] for i in sorted(random.Random(0).sample(range(len(lines)), most))]


def settled(codec: Codec, ids: Sequence[int]) -> str:
    """Return as much of the text of pieces as no pieces behind them can change. A codec whose text
    does not simply grow has a method `settled`; the last character may still lack bytes.
    """
    own = getattr(codec, "settled", None)
    return codec.decode(ids).rstrip("\ufffd") if own is None else own(ids)


def hashed(model: bytes) -> str:
    """Return the digest of a codec's model."""
    return hashlib.blake2b(model, digest_size=16).hexdigest()


def before_eos(ids: Iterable[int]) -> list[int]:
    """Return the ids of the text itself: up to the first EOS, without PAD and BOS."""
    return [int(i) for i in takewhile(lambda i: i != EOS, ids) if i not in (PAD, BOS)]


def framed(ids: list[int], bos: bool, eos: bool) -> list[int]:
    """Add BOS before and EOS after, if requested."""
    return [BOS] * bos + ids + [EOS] * eos


def shortened(ids: list[int], most: int) -> list[int]:
    """Truncate pieces to at most `most`, keeping the last, EOS; like Ragged.cut."""
    return ids if len(ids) <= most else [*ids[: most - 1], ids[-1]]


class Kind(NamedTuple):
    """A way of turning text into ids, or non-text inputs into vectors."""

    codec: type[Codec]
    # Takes a TokenizerConfig, texts and named pieces; for vectors a SourceConfig and values.
    train: Callable[..., Any]
    holds: str  # description of its file
    vectors: bool = False

    def fit(
        self,
        config: TokenizerConfig,
        source: SourceConfig,
        values: Sequence,
        symbols: Sequence[str],
    ) -> Codec:
        """Return the codec fitted to one side of a training split."""
        arguments = (source, values) if self.vectors else (config, values, symbols)
        return self.train(*arguments)
