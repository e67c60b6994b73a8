"""Mixtures of corpora: how often and which items of each part appear in an epoch."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from transformer_jax.config import DataConfig
from transformer_jax.data.store.token_store import TokenStore


class Turns:
    """Units of several kinds, with a fixed number of each kind in every epoch.

    The units of a kind take turns, in passes over all of them, each pass in its own order; an epoch
    continues where the previous one stopped. So after any number of epochs the counts of two units
    of a kind differ by at most one.
    """

    def __init__(self, kinds: np.ndarray, quota: np.ndarray, seed: int) -> None:
        """Take the kind of each unit [units], from 0, and each kind's number per epoch [kinds]."""
        order = np.argsort(kinds, kind="stable")
        self._members = np.split(order, np.cumsum(np.bincount(kinds, minlength=len(quota)))[:-1])
        self._quota, self._seed = quota, seed

    def epoch(self, number: int) -> np.ndarray:
        """Return the units of an epoch, not yet shuffled."""
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
    """How often each item of a training text appears in an epoch."""

    part: np.ndarray  # [items], from 0
    passes: np.ndarray  # [parts], mean occurrences per item, from the configured shares


class Once:
    """Turns in which every epoch has each unit once."""

    def __init__(self, count: int) -> None:
        self._count = count

    def epoch(self, number: int) -> np.ndarray:
        """See Turns."""
        return np.arange(self._count, dtype=np.int32 if self._count < 2**31 else np.int64)


def turns_of(
    mixture: Mixture | None, items: np.ndarray, classes: np.ndarray, seed: int
) -> Turns | Once:
    """Return the turns of items, given the length class of each, from 0.

    Every epoch of a mixture has the same number of items of each part and class, rounded from the
    configured shares and at least one, so all epochs have the same number of batches.
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
    """Return each part's share of an epoch, given its number of items; 0 for an empty part."""
    weights = config.named("weights")
    if weights:
        weight = np.array([float(weights[part]) for part in config.train])
    else:
        limited = np.minimum(counts, config.mixing_limit or counts.max())
        weight = limited ** (1 / config.mixing_temperature)
    weight = np.where(counts > 0, weight, 0.0)
    return weight / weight.sum()


def part_of(sizes: Sequence[int], texts: TokenStore, items: TokenStore) -> np.ndarray:
    """Return the part [items] that each item belongs to.

    `sizes` are the numbers of texts of the parts, `texts` their store, which may repeat all of them
    several times, and `items` what an objective made of it. An item that spans several texts
    belongs to the part in which it begins.
    """
    side = items.tgt if len(items.tgt.ids) else items.src
    text = np.searchsorted(texts.tgt.starts, side.starts, side="right") - 1
    owner = np.repeat(np.arange(len(sizes)), sizes)
    return owner[text % len(owner)]


def mixture_of(config: DataConfig, part: np.ndarray, items: np.ndarray) -> Mixture | None:
    """Return the mixture of a config, or None; `items` are those selected for training."""
    if not config.mixes:
        return None
    counts = np.bincount(part[items], minlength=len(config.train))
    return Mixture(part, shares(config, counts) * counts.sum() / np.maximum(counts, 1))


def describe(config: DataConfig, found: Mixture | None, pairs: np.ndarray) -> list[str]:
    """Return a log line for each part of a mixture."""
    if found is None:
        return []
    counts = np.bincount(found.part[pairs], minlength=len(found.passes))
    share = counts * found.passes / len(pairs)
    return [
        f"mixture: {part}: {count:,} items, {100 * part_share:.1f} % of an epoch, each appearing "
        f"{times:.3g} times"
        for part, count, part_share, times in zip(
            config.train, counts, share, found.passes, strict=True
        )
    ]
