"""Noise for texts: infilling, masking, deletion and reordering, vectorised over many texts.

Texts are concatenated. The random numbers of a text depend on its number, not on its neighbours.
"""

from typing import NamedTuple

import numpy as np

from transformer_jax.data.batches.batch import places
from transformer_jax.data.random import Draw, random, uniform


class Texts(NamedTuple):
    """Concatenated texts."""

    ids: np.ndarray  # [n]
    owner: np.ndarray  # [n], the text of each piece, ascending
    numbers: np.ndarray  # [texts], keys of the random numbers of each

    @property
    def lengths(self) -> np.ndarray:
        """Return the number of pieces of each text."""
        return np.bincount(self.owner, minlength=len(self.numbers))


class Keys(NamedTuple):
    """The keys of random numbers: a draw, the number of each text, and their purpose."""

    draw: Draw
    numbers: np.ndarray  # [texts]
    purpose: int

    def of(self, owner: np.ndarray, within: np.ndarray) -> tuple:
        """Return the keys of positions of texts."""
        return *self.draw, self.numbers[owner], within, self.purpose


def some_of(lengths: np.ndarray, counts: np.ndarray, keys: Keys) -> np.ndarray:
    """Choose `counts` positions of each text, all subsets equally likely: bool [positions]."""
    owner, within = places(lengths)
    order = np.lexsort((random(*keys.of(owner, within)), owner))
    rank = np.empty_like(order)
    rank[order] = within
    return rank < counts[owner]


def parts_of(totals: np.ndarray, counts: np.ndarray, keys: Keys) -> np.ndarray:
    """Cut each total into `counts` parts of at least one, all ways equally likely: the lengths of
    the parts [sum of counts]. The parts of a total of 0 are empty.
    """
    owner, within = places(totals)
    begins = within == 0
    begins[~begins] = some_of(np.maximum(totals - 1, 0), counts - 1, keys)
    nothing = np.where(totals > 0, 0, counts)
    part = np.cumsum(begins) - 1 + (np.cumsum(nothing) - nothing)[owner]
    return np.bincount(part, minlength=counts.sum())


def infilled(texts: Texts, rate: float, mean: float, mask: int, draw: Draw, purpose: int) -> Texts:
    """Replace a share of the pieces of each text, rounded, by spans of one MASK each.

    Span lengths are Poisson-distributed, the last one cut to what remains. A span of length 0 is a
    MASK between two pieces; those that would make a text longer than it was are dropped. All
    placements of the spans among the other pieces are equally likely.
    """
    lengths = texts.lengths
    many = np.rint(rate * lengths).astype(np.int64)
    owner, within = places(lengths)
    keys = Keys(draw, texts.numbers, purpose)
    drawn = np.searchsorted(_poisson(mean), uniform(*keys.of(owner, within)), side="right")
    before = _before(drawn, owner)
    span = np.where(before < many[owner], np.minimum(drawn, many[owner] - before), -1)
    spans = np.bincount(owner, span > 0, minlength=len(lengths)).astype(np.int64)
    lost = np.bincount(owner, span.clip(0), minlength=len(lengths)).astype(np.int64)
    empty = (span == 0) & (_before(span == 0, owner) < (lost - spans)[owner])
    used = (span > 0) | empty
    count = np.bincount(owner, used, minlength=len(lengths)).astype(np.int64)
    units = lengths - lost + count
    masked = some_of(units, count, keys._replace(purpose=purpose + 1))
    size = np.ones(len(masked), np.int64)
    size[masked] = span[used]
    start = np.minimum(np.cumsum(size) - size, max(len(texts.ids) - 1, 0))
    ids = np.where(masked, mask, texts.ids[start])
    return Texts(ids, places(units)[0], texts.numbers)


def _poisson(mean: float) -> np.ndarray:
    """Return the cumulative probabilities of 0, 1, 2 and so on, as far as they are below 1."""
    most = int(mean + 12 * mean**0.5 + 20)
    logs = np.arange(most) * np.log(mean) - np.cumsum(np.log(np.maximum(np.arange(most), 1))) - mean
    return np.cumsum(np.exp(logs))


def _before(values: np.ndarray, owner: np.ndarray) -> np.ndarray:
    """Return the exclusive cumulative sum of the values within each text."""
    total = np.cumsum(values) - values
    first = np.diff(owner, prepend=-1) > 0
    return total - total[first][np.cumsum(first) - 1]


def masked(texts: Texts, rate: float, mask: int, draw: Draw, purpose: int) -> Texts:
    """Replace pieces by MASK, each independently with probability `rate`."""
    hit = _hit(texts, rate, draw, purpose)
    return texts._replace(ids=np.where(hit, mask, texts.ids))


def deleted(texts: Texts, rate: float, mask: int, draw: Draw, purpose: int) -> Texts:
    """Delete pieces, each independently with probability `rate`, except MASK."""
    stays = ~_hit(texts, rate, draw, purpose) | (texts.ids == mask)
    return texts._replace(ids=texts.ids[stays], owner=texts.owner[stays])


def _hit(texts: Texts, rate: float, draw: Draw, purpose: int) -> np.ndarray:
    owner, within = places(texts.lengths)
    return uniform(*Keys(draw, texts.numbers, purpose).of(owner, within)) < rate


def permuted(texts: Texts, rate: float, ends: np.ndarray, draw: Draw, purpose: int) -> Texts:
    """Permute a share of the sentences of each text, rounded up, among themselves.

    A sentence ends with the last of consecutive pieces in `ends` [V], or with its text.
    """
    last = np.diff(texts.owner, append=-1) != 0
    end = ends[texts.ids]
    end = last | (end & ~np.roll(end, -1))
    sentence = np.cumsum(end) - end
    owner = texts.owner[end]
    lengths = np.bincount(owner, minlength=len(texts.numbers))
    keys = Keys(draw, texts.numbers, purpose)
    moves = np.flatnonzero(some_of(lengths, np.ceil(rate * lengths).astype(np.int64), keys))
    within = places(lengths)[1][moves]
    value = random(*keys._replace(purpose=purpose + 1).of(owner[moves], within))
    place = np.arange(len(owner))
    place[moves[np.lexsort((value, owner[moves]))]] = moves
    return texts._replace(ids=texts.ids[np.argsort(place[sentence], kind="stable")])


def rotated(texts: Texts, rate: float, draw: Draw, purpose: int) -> Texts:
    """Rotate a share of the texts to begin with a random piece; the pieces before it come last."""
    lengths = texts.lengths
    keys = (*draw, texts.numbers)
    by = np.floor(uniform(*keys, purpose + 1) * lengths).astype(np.int64)
    by = np.where(uniform(*keys, purpose) < rate, by, 0)
    owner, within = places(lengths)
    first = (np.cumsum(lengths) - lengths)[owner]
    return texts._replace(ids=texts.ids[first + (within + by[owner]) % lengths[owner]])
