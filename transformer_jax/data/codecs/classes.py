"""Classes: a text is one of the distinct lines of the training text, sorted, or one of an imported
model's classes, in its order.
"""

import json
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence

from transformer_jax.base.errors import UserError
from transformer_jax.config import TokenizerConfig
from transformer_jax.data.codecs.codec import Codec, Kind, hashed

log = logging.getLogger("transformer_jax")


class Classes:
    """Each class is a piece, from 0, and a text is one piece; there is no BOS and no EOS."""

    file = "classes{}.json"
    special: Mapping[str, int] = {}
    noun = "class"
    origin = " of the training data"

    def __init__(self, model: bytes) -> None:
        self.model = model
        self._names = _read(model)
        self._ids = {name: i for i, name in enumerate(self._names)}

    @classmethod
    def of(cls, names: Sequence[str]) -> "Classes":
        """Return the codec of classes in the order given."""
        return cls(json.dumps({"classes": list(names)}).encode())

    @property
    def size(self) -> int:
        """Number of classes."""
        return len(self._names)

    @property
    def digest(self) -> str:
        """A hash of the model's bytes."""
        return hashed(self.model)

    def encode(self, texts: Sequence[str], bos: bool = False, eos: bool = True) -> list[list[int]]:
        """See Codec.

        Raises:
          UserError: if a text is not a class.
        """
        return [[self.piece_id(text)] for text in texts]

    def decode(self, ids: Iterable[int]) -> str:
        """Return the name of the first class."""
        return next(iter(self.pieces(ids)), "")

    def pieces(self, ids: Iterable[int]) -> list[str]:
        """See Codec."""
        return [self._names[int(i)] for i in ids]

    def piece_id(self, piece: str) -> int:
        """See Codec. Spaces around a class are not part of it."""
        piece = piece if piece in self._ids else piece.strip()
        if piece not in self._ids:
            known = ", ".join(map(repr, self._names[:20]))
            raise UserError(f"{piece!r} is not a {self.noun}{self.origin}, which has {known}")
        return self._ids[piece]

    def is_text(self, piece: int) -> bool:
        """See Codec."""
        return False

    def word_starts(self) -> None:
        """See Codec."""


def _read(model: bytes) -> list[str]:
    try:
        names = json.loads(model)["classes"]
        if names and len(set(names)) == len(names) and all(isinstance(x, str) for x in names):
            return names
    except (ValueError, TypeError, KeyError, RecursionError):
        pass
    raise ValueError("not a list of classes")


def check(codec: Codec, lines: Sequence[str], place: Callable[[int], str]) -> None:
    """Check that each line names a known class, or several; `place` gives a line's location.

    Raises:
      UserError: if not.
    """
    for number, line in enumerate(lines, 1):
        try:
            (ids,) = codec.encode([line])
        except UserError as error:
            raise UserError(f"{place(number)}: {error}") from None
        if not ids:
            raise UserError(f"{place(number)}: names no class; give each text one")


def train(config: TokenizerConfig, texts: Sequence[str], symbols: Sequence[str] = ()) -> Classes:
    """Return the codec of the distinct lines, without the spaces around them; `config` and
    `symbols` are ignored.

    Raises:
      UserError: if there is only one distinct line.
    """
    spaced = sum(text != text.strip() for text in texts)
    if spaced:
        log.warning(
            "config.data.train: spaces around %d of %d classes are not counted as part of them",
            spaced, len(texts),
        )  # fmt: skip
    names = sorted({text.strip() for text in texts})
    if len(names) < 2:
        raise UserError(f"config.data.train: all {len(texts)} texts are of one class, {names}")
    return Classes.of(names)


WORDS = {"classes": Kind(Classes, train, "a list of classes")}
