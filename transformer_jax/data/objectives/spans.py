"""Choice of the spans removed from a text (T5: Raffel et al. 2020, arXiv:1910.10683, section
3.1.4).
"""

from typing import NamedTuple

import numpy as np

from transformer_jax.data.objectives.noise import Keys, Texts, parts_of
from transformer_jax.data.random import Draw
from transformer_jax.data.store.token_store import Lengths

_LOST, _KEPT = range(2)  # purposes of random numbers


class Spans(NamedTuple):
    """How much of a text is removed, and what replaces it."""

    density: float = 0.15
    mean_length: float = 3.0
    sentinels: np.ndarray = np.zeros(0, np.int32)  # ids, in the order of the spans

    def of(self, lengths: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return how many pieces texts of these lengths lose, and in how many spans.

        Rounding is in float32 and to even, as in the authors' code. A text of one piece loses none.
        """
        single = np.float32
        lost = np.rint(lengths.astype(single) * single(self.density)).astype(np.int64)
        lost = np.clip(lost, 1, np.maximum(lengths, 2) - 1) * (lengths > 1)
        spans = np.rint(lost.astype(single) / single(self.mean_length)).astype(np.int64)
        return lost, np.clip(spans, 1, np.maximum(np.minimum(lost, lengths - lost), 1))

    def sides(self, lengths: np.ndarray) -> Lengths:
        """Return the source and target lengths for texts of these lengths, including EOS."""
        lost, spans = self.of(lengths)
        return Lengths(lengths - lost + np.minimum(spans, lost) + 1, lost + spans + 1)

    def window(self, most: int) -> int:
        """Return the greatest length of a text with at most `most` pieces on either side."""
        lengths = np.arange(1, 2 * most + 1)  # one side has at least half of a text
        fits = np.maximum(*self.sides(lengths)) <= most
        return int(lengths[fits].max(initial=1))

    def lost(self, texts: Texts, draw: Draw) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return for each piece whether it is lost, the index of the span that it belongs to or
        precedes, and whether it starts a run of lost or kept pieces.
        """
        lengths = texts.lengths
        many, count = self.of(lengths)
        lost, kept = (
            parts_of(total, count, Keys(draw, texts.numbers, purpose))
            for total, purpose in ((many, _LOST), (lengths - many, _KEPT))
        )
        run = np.repeat(np.arange(2 * len(kept)), np.stack([kept, lost], axis=1).ravel())
        span = run // 2 - (np.cumsum(count) - count)[texts.owner]
        return run % 2 == 1, span, np.diff(run, prepend=-1) > 0
