"""What noise makes of texts: spans, masks, and other orders, of many texts at once.

Texts lie one after the other. What is drawn for one of them depends on its number, not on those
that come with it.
"""

from typing import NamedTuple

import numpy as np

from transformer_jax.data.batch import places
from transformer_jax.data.random import Draw, random, uniform


class Texts(NamedTuple):
    """Texts that lie one after the other."""

    ids: np.ndarray  # [n]
    owner: np.ndarray  # [n], to which text each piece belongs, rising
    numbers: np.ndarray  # [texts], what is drawn for each depends on

    @property
    def lengths(self) -> np.ndarray:
        """Return how many pieces each text has."""
        return np.bincount(self.owner, minlength=len(self.numbers))


class Keys(NamedTuple):
    """What random numbers depend on: a draw, the number of each text, and what they are for."""

    draw: Draw
    numbers: np.ndarray  # [texts]
    purpose: int

    def of(self, owner: np.ndarray, within: np.ndarray) -> tuple:
        """Return the keys of places of texts."""
        return *self.draw, self.numbers[owner], within, self.purpose


def some_of(lengths: np.ndarray, counts: np.ndarray, keys: Keys) -> np.ndarray:
    """Return so many of the places of each text, all sets of them alike likely: bool [places]."""
    owner, within = places(lengths)
    order = np.lexsort((random(*keys.of(owner, within)), owner))
    rank = np.empty_like(order)
    rank[order] = within
    return rank < counts[owner]


def parts_of(totals: np.ndarray, counts: np.ndarray, keys: Keys) -> np.ndarray:
    """Return the totals cut into so many parts of at least one each, all ways alike likely: the
    lengths of parts [sum of counts]. A total of 0 has parts of nothing.
    """
    owner, within = places(totals)
    begins = within == 0
    begins[~begins] = some_of(np.maximum(totals - 1, 0), counts - 1, keys)
    nothing = np.where(totals > 0, 0, counts)
    part = np.cumsum(begins) - 1 + (np.cumsum(nothing) - nothing)[owner]
    return np.bincount(part, minlength=counts.sum())


def infilled(texts: Texts, rate: float, mean: float, mask: int, draw: Draw, purpose: int) -> Texts:
    """Return texts of which the nearest number to a share lies in spans, each of which is one MASK.

    Lengths of spans are Poisson's, the last one cut to what remains. A span of none is a MASK
    between two pieces; those that would make a text longer than it was are left out. All ways of
    placing spans among the other pieces are alike likely.
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
    """Return the probabilities of at most 0, 1, 2 and so on, as far as they are below 1."""
    most = int(mean + 12 * mean**0.5 + 20)
    logs = np.arange(most) * np.log(mean) - np.cumsum(np.log(np.maximum(np.arange(most), 1))) - mean
    return np.cumsum(np.exp(logs))


def _before(values: np.ndarray, owner: np.ndarray) -> np.ndarray:
    """Return the sum of the values of the same text before each."""
    total = np.cumsum(values) - values
    first = np.diff(owner, prepend=-1) > 0
    return total - total[first][np.cumsum(first) - 1]


def masked(texts: Texts, rate: float, mask: int, draw: Draw, purpose: int) -> Texts:
    """Return texts of whose pieces a share, each by itself, is MASK."""
    hit = _hit(texts, rate, draw, purpose)
    return texts._replace(ids=np.where(hit, mask, texts.ids))


def deleted(texts: Texts, rate: float, mask: int, draw: Draw, purpose: int) -> Texts:
    """Return texts without a share of their pieces, each by itself, but of MASK none."""
    stays = ~_hit(texts, rate, draw, purpose) | (texts.ids == mask)
    return texts._replace(ids=texts.ids[stays], owner=texts.owner[stays])


def _hit(texts: Texts, rate: float, draw: Draw, purpose: int) -> np.ndarray:
    owner, within = places(texts.lengths)
    return uniform(*Keys(draw, texts.numbers, purpose).of(owner, within)) < rate


def permuted(texts: Texts, rate: float, ends: np.ndarray, draw: Draw, purpose: int) -> Texts:
    """Return texts of whose sentences a share, rounded up, changes places among themselves.

    A sentence ends with the last of pieces in a row that `ends` [V] names, or with its text.
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
    """Return texts of which a share begins with any of its pieces; those before it come last."""
    lengths = texts.lengths
    keys = (*draw, texts.numbers)
    by = np.floor(uniform(*keys, purpose + 1) * lengths).astype(np.int64)
    by = np.where(uniform(*keys, purpose) < rate, by, 0)
    owner, within = places(lengths)
    first = (np.cumsum(lengths) - lengths)[owner]
    return texts._replace(ids=texts.ids[first + (within + by[owner]) % lengths[owner]])
