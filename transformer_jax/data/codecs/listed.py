"""Common base of codecs with an explicit list of pieces."""

from collections.abc import Iterable, Mapping, Sequence

from transformer_jax.base.errors import UserError
from transformer_jax.data.codecs.codec import hashed

UNKNOWN = "[UNK]"  # its spelling in text


class Listed:
    """The part of a codec that needs only its pieces, which are never joined in text."""

    HINT: str  # what pieces look like, for messages about unknown ones

    def __init__(self, model: bytes, pieces: Sequence[str], special: Mapping[str, int]) -> None:
        self.model = model
        self.special = special
        self._all = list(pieces)
        self._ids = {piece: i for i, piece in enumerate(self._all)}

    @property
    def size(self) -> int:
        """Number of pieces."""
        return len(self._all)

    @property
    def digest(self) -> str:
        """A hash of the model's bytes."""
        return hashed(self.model)

    def pieces(self, ids: Iterable[int]) -> list[str]:
        """See Codec."""
        return [self._all[int(i)] for i in ids]

    def piece_id(self, piece: str) -> int:
        """See Codec."""
        if piece not in self._ids:
            raise UserError(f"{piece!r} is not a piece{self.HINT}")
        return self._ids[piece]

    def is_text(self, piece: int) -> bool:
        """See Codec."""
        return False
