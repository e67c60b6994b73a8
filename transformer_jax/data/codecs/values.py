"""Values: a text is a number, standardised by the mean and deviation of the training set."""

import json
import math
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from transformer_jax.base.errors import UserError
from transformer_jax.config import TokenizerConfig
from transformer_jax.data.codecs.codec import Kind, hashed
from transformer_jax.data.sources.labelled import number


class Values:
    """A text is one id, the bits of a float32; there is no BOS and no EOS."""

    file = "values{}.json"
    special: Mapping[str, int] = {}

    def __init__(self, model: bytes) -> None:
        self.model = model
        self.mean, self.deviation = _read(model)

    @classmethod
    def of(cls, mean: float = 0.0, deviation: float = 1.0) -> "Values":
        """Return the codec of a scale; by default numbers are unchanged."""
        return cls(json.dumps({"mean": mean, "deviation": deviation}).encode())

    @property
    def size(self) -> int:
        """One: a single number is predicted."""
        return 1

    @property
    def digest(self) -> str:
        """A hash of the model's bytes."""
        return hashed(self.model)

    def encode(self, texts: Sequence[str], bos: bool = False, eos: bool = True) -> list[list[int]]:
        """See Codec.

        Raises:
          UserError: if a text is not a number.
        """
        return [[self.piece_id(text)] for text in texts]

    def decode(self, ids: Iterable[int]) -> str:
        """Return the first number, in its original unit."""
        return next(iter(self.pieces(ids)), "")

    def pieces(self, ids: Iterable[int]) -> list[str]:
        """See Codec."""
        scaled = np.array(list(ids), np.int32).view(np.float32).astype(np.float64)
        return [f"{value:.6g}" for value in self.unscaled(scaled).tolist()]

    def unscaled(self, scaled: np.ndarray) -> np.ndarray:
        """Return standardised values in their original unit."""
        return scaled * self.deviation + self.mean

    def piece_id(self, piece: str) -> int:
        """See Codec."""
        value = number(piece)
        if value is None:
            raise UserError(f"{piece!r} is not a number, such as 3.5")
        return int(np.float32((value - self.mean) / self.deviation).view(np.int32))

    def is_text(self, piece: int) -> bool:
        """See Codec."""
        return False

    def word_starts(self) -> None:
        """See Codec."""


def _read(model: bytes) -> tuple[float, float]:
    try:
        fields = json.loads(model)
        mean, deviation = float(fields["mean"]), float(fields["deviation"])
        if math.isfinite(mean) and 0 < deviation < math.inf:
            return mean, deviation
    except (ValueError, TypeError, KeyError, RecursionError):
        pass
    raise ValueError("not the scale of values")


def train(config: TokenizerConfig, texts: Sequence[str], symbols: Sequence[str] = ()) -> Values:
    """Return the codec with the scale of the numbers; `config` and `symbols` are ignored.

    Raises:
      UserError: if a text is not a number, or all are the same.
    """
    values = [number(text) for text in texts]
    known = [value for value in values if value is not None]
    if len(known) < len(values):
        raise UserError(f"config.data.train: {texts[values.index(None)]!r} is not a number")
    mean, deviation = float(np.mean(known)), float(np.std(known))
    # The deviation of equal numbers need not be 0 after rounding.
    if len({*known}) < 2 or not 0 < deviation < math.inf:
        raise UserError(f"config.data.train: all {len(known)} numbers are {mean:g}")
    return Values.of(mean, deviation)


WORDS = {"values": Kind(Values, train, "the scale of values")}
