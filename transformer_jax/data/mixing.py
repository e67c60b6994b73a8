"""Mixtures of corpora: how often an epoch has the items of each part, and which of them."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from transformer_jax.config import DataConfig
from transformer_jax.data.token_store import TokenStore


class Turns:
    """Units of several kinds, of each of which every epoch has the same number.

    Those of a kind come in turn: in passes over all of them, each in an order of its own, on which
    an epoch goes on where the one before it stopped. So each comes as often as any other of its
    kind, up to one time, after any number of epochs.
    """

    def __init__(self, kinds: np.ndarray, quota: np.ndarray, seed: int) -> None:
        """`kinds` [units] counts from 0 on; of each kind an epoch has so many [kinds]."""
        order = np.argsort(kinds, kind="stable")
        self._members = np.split(order, np.cumsum(np.bincount(kinds, minlength=len(quota)))[:-1])
        self._quota, self._seed = quota, seed

    def epoch(self, number: int) -> np.ndarray:
        """Return the units of an epoch; an order is still to be made."""
        return np.concatenate([self._of(kind, number) for kind in range(len(self._members))])

    def _of(self, kind: int, epoch: int) -> np.ndarray:
        members, quota = self._members[kind], int(self._quota[kind])
        if not len(members):
            return members
        passes, first = divmod(epoch * quota, len(members))
        last = -(-(first + quota) // len(members))
        shuffled = [
            np.random.default_rng([self._seed, kind, passes + i]).permutation(members)
            for i in range(last)
        ]
        return np.concatenate(shuffled)[first : first + quota]


class Mixture(NamedTuple):
    """How often an epoch has each item of a training text."""

    part: np.ndarray  # [items], counted from 0
    passes: np.ndarray  # [parts], mean number of times of an item; the shares that are asked for


class Once:
    """The turns of units of which every epoch has each once."""

    def __init__(self, count: int) -> None:
        self._count = count

    def epoch(self, number: int) -> np.ndarray:
        """See Turns."""
        return np.arange(self._count, dtype=np.int32 if self._count < 2**31 else np.int64)


def turns_of(
    mixture: Mixture | None, items: np.ndarray, classes: np.ndarray, seed: int
) -> Turns | Once:
    """Return the turns of items that are of some class of lengths, from 0 on.

    Every epoch of a mixture has the same number of each part and class, the nearest to what is
    asked for and at least one: so all epochs have the same number of batches.
    """
    if mixture is None:
        return Once(len(items))
    many = int(classes.max(initial=0)) + 1
    kinds = mixture.part[items] * many + classes
    counts = np.bincount(kinds, minlength=len(mixture.passes) * many)
    wanted = np.rint(np.repeat(mixture.passes, many) * counts).astype(np.int64)
    return Turns(kinds, np.where(counts > 0, np.maximum(wanted, 1), 0), seed)


def apart(mixture: Mixture | None, items: np.ndarray) -> list[np.ndarray]:
    """Return the items of each part of a mixture, in their order."""
    if mixture is None:
        return [items]
    return [items[mixture.part[items] == part] for part in range(len(mixture.passes))]


def shares(config: DataConfig, counts: np.ndarray) -> np.ndarray:
    """Return what share of an epoch is of each part, of so many items; of one without any, none."""
    weights = config.named("weights")
    if weights:
        found = np.array([float(weights[part]) for part in config.train])
    else:
        limited = np.minimum(counts, config.mixing_limit or counts.max())
        found = limited ** (1 / config.mixing_temperature)
    found = np.where(counts > 0, found, 0.0)
    return found / found.sum()


def part_of(sizes: Sequence[int], texts: TokenStore, items: TokenStore) -> np.ndarray:
    """Return the part [items] that each item is of.

    `sizes` are the texts of each part, `texts` their store, which may have them several times, one
    after the other, and `items` what an objective has made of that. An item that is of several
    texts is of the part in which it begins.
    """
    side = items.tgt if len(items.tgt.ids) else items.src
    text = np.searchsorted(texts.tgt.starts, side.starts, side="right") - 1
    owner = np.repeat(np.arange(len(sizes)), sizes)
    return owner[text % len(owner)]


def mixture_of(config: DataConfig, part: np.ndarray, items: np.ndarray) -> Mixture | None:
    """Return the mixture that a config asks for, or None; training is on some of the items."""
    if not config.mixes:
        return None
    counts = np.bincount(part[items], minlength=len(config.train))
    return Mixture(part, shares(config, counts) * counts.sum() / np.maximum(counts, 1))


def describe(config: DataConfig, found: Mixture | None, pairs: np.ndarray) -> list[str]:
    """Return a line for the log on each part of a mixture."""
    if found is None:
        return []
    counts = np.bincount(found.part[pairs], minlength=len(found.passes))
    share = counts * found.passes / len(pairs)
    return [
        f"mixture: {part}: {count:,} items, {100 * part_share:.1f} % of an epoch, which has each "
        f"{times:.3g} times"
        for part, count, part_share, times in zip(
            config.train, counts, share, found.passes, strict=True
        )
    ]
