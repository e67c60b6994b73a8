"""The batch plan: batch i of epoch e is a pure function of (seed, e, i) and the lengths.

The only state of the input pipeline is one integer, the number of batches seen, so resuming is
exact, and the order of the data does not depend on the number of processes.
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np

from transformer_jax.base.errors import UserError
from transformer_jax.config import DataConfig
from transformer_jax.data.batches.batch import Batch, Channels, Placement, Ragged, one_per_row
from transformer_jax.data.batches.mixing import Mixture, apart, turns_of
from transformer_jax.data.batches.packing import Rows, first_fit
from transformer_jax.data.objectives.objective import Objective
from transformer_jax.data.random import Draw
from transformer_jax.data.store.token_store import TokenStore


class Shape(NamedTuple):
    """The shape of one batch."""

    rows: int
    src_length: int  # 0: no source side
    tgt_length: int


@runtime_checkable
class Plan(Protocol):
    """The assignment of pairs to batches."""

    shapes: list[Shape]  # every shape that occurs; each is compiled once
    seed: int

    def __len__(self) -> int:
        """The number of batches in an epoch."""

    def batch(self, index: int) -> tuple[Shape, Placement]:
        """Return batch number `index`, counted across epochs."""


class BucketPlan:
    """Batches pairs of similar length, one per row."""

    def __init__(
        self, store: TokenStore, pairs: np.ndarray, config: DataConfig, seed: int,
        mixture: Mixture | None = None,
    ) -> None:  # fmt: skip
        length = np.maximum(*store.lengths)[pairs]
        bounds = choose_bounds(length, config.num_buckets)
        self.shapes = [Shape(rows_for(config, b), *store.sides(b)) for b in bounds]
        self._pairs, self.seed = pairs, seed
        self._bucket = np.searchsorted(bounds, np.arange(bounds[-1] + 1)).astype(np.uint16)[length]
        self._turns = turns_of(mixture, pairs, self._bucket, seed)
        counts = np.bincount(self._bucket[self._turns.epoch(0)], minlength=len(bounds))
        self._length = sum(
            -(-int(n) // shape.rows) for n, shape in zip(counts, self.shapes, strict=True)
        )
        self._epoch = lru_cache(maxsize=2)(self._make_epoch)

    def __len__(self) -> int:
        return self._length

    def batch(self, index: int) -> tuple[Shape, Placement]:
        epoch, index = divmod(index, len(self))
        bucket, members = self._epoch(epoch)[index]
        return self.shapes[bucket], one_per_row(self._pairs[members])

    def _make_epoch(self, epoch: int) -> list[tuple[int, np.ndarray]]:
        generator = np.random.default_rng([self.seed, epoch])
        order = generator.permutation(self._turns.epoch(epoch))
        bucket = self._bucket[order]
        order = order[np.argsort(bucket, kind="stable")]  # radix sort, as they are small integers
        batches, first = [], 0
        for number, count in enumerate(np.bincount(bucket, minlength=len(self.shapes)).tolist()):
            last, rows = first + count, self.shapes[number].rows
            for start in range(first, last, rows):
                batches.append((number, order[start : min(start + rows, last)]))
            first = last
        return [batches[i] for i in generator.permutation(len(batches))]


class PackPlan:
    """Packs several pairs into each row, in segments that do not see each other.

    Pairs are packed first-fit in one seeded order; epochs shuffle the rows. So every epoch has the
    same number of batches, at the cost that the pairs of a row stay together. In a mixture, all
    pairs of a row belong to one part.
    """

    def __init__(
        self, store: TokenStore, pairs: np.ndarray, config: DataConfig, seed: int,
        mixture: Mixture | None = None,
    ) -> None:  # fmt: skip
        longest = config.max_length
        self.seed = seed
        order = pairs[np.random.default_rng([seed]).permutation(len(pairs))]
        lengths = self._lengths = store.lengths
        packed = (first_fit(part, *lengths, longest) for part in apart(mixture, order))
        self._rows = Rows.joined(packed)
        # If all items have one or two positions, a row is only as long as its items need.
        items = int(np.diff(self._rows.first).max(initial=0))
        most = [0, items, 2 * items, longest]
        sides = (min(most[min(int(side.max(initial=0)), 3)], longest) for side in lengths)
        self.shapes = [Shape(rows_for(config, longest), *sides)]
        first = self._rows.pairs[self._rows.first[:-1]]  # determines the part of the row
        turns = turns_of(mixture, first, np.zeros_like(first), seed)
        self._length = -(-len(turns.epoch(0)) // self.shapes[0].rows)
        self._epoch = lru_cache(maxsize=2)(
            lambda epoch: np.random.default_rng([seed, epoch]).permutation(turns.epoch(epoch))
        )

    def __len__(self) -> int:
        return self._length

    def batch(self, index: int) -> tuple[Shape, Placement]:
        epoch, index = divmod(index, len(self))
        (shape,) = self.shapes
        rows = self._epoch(epoch)[index * shape.rows : (index + 1) * shape.rows]
        return shape, self._rows.placed(rows, *self._lengths)


class GroupPlan:
    """Batches as many rows of one length for each item as a group has answers."""

    def __init__(
        self, items: np.ndarray, group: int, length: int, config: DataConfig, seed: int
    ) -> None:
        self._items, self._group, self.seed = items, group, seed
        self.most = max(rows_for(config, length) // group, 1)  # items of a batch
        self.shapes = [Shape(self.most * group, 0, length)]
        self._epoch = lru_cache(maxsize=2)(
            lambda epoch: np.random.default_rng([seed, epoch]).permutation(items)
        )

    def __len__(self) -> int:
        return -(-len(self._items) // self.most)

    def chosen(self, index: int) -> np.ndarray:
        """Return the items of batch number `index`, each once."""
        epoch, index = divmod(index, len(self))
        return self._epoch(epoch)[index * self.most : (index + 1) * self.most]

    def batch(self, index: int) -> tuple[Shape, Placement]:
        return self.shapes[0], one_per_row(np.repeat(self.chosen(index), self._group))


PLANS: dict[str, type[BucketPlan] | type[PackPlan]] = {"bucket": BucketPlan, "pack": PackPlan}


def rows_for(config: DataConfig, length: int) -> int:
    """Return the number of rows of a length that fit into a batch."""
    rows = config.tokens_per_batch // length
    return max(rows - rows % config.rows_divisible_by, config.rows_divisible_by)


def choose_bounds(lengths: np.ndarray, count: int) -> list[int]:
    """Return at most `count` bucket lengths with the least padding (dynamic programming over the
    lengths that occur, in memory proportional to their number).
    """
    bounds, counts = np.unique(lengths, return_counts=True)
    below = np.cumsum(counts)  # below[b]: sequences of length at most bounds[b]
    cost = below * bounds.astype(np.float64)  # [b]: fewest positions for all up to bounds[b]
    history = []
    for _ in range(min(count, len(bounds)) - 1):
        costs = (cost[:b] + (below[b] - below[:b]) * bounds[b] for b in range(1, len(bounds)))
        best, least = zip((0, np.inf), *((c.argmin(), c.min()) for c in costs), strict=True)
        history.append(best)  # the previous bound, which is smaller
        cost = np.array(least)
    chosen = [len(bounds) - 1]
    for best in reversed(history):
        chosen.append(int(best[chosen[-1]]))
    return bounds[chosen[::-1]].tolist()


class BatchSource:
    """Random access to batches by number, across epochs, for a prefetcher.

    With several processes, each gets its own rows of the same global batch.
    """

    def __init__(
        self,
        store: TokenStore,
        plan: Plan,
        objective: Objective,
        process_index: int = 0,
        process_count: int = 1,
    ) -> None:
        for shape in plan.shapes:
            if shape.rows % process_count:
                raise UserError(
                    f"config.data.rows_divisible_by: batches of {shape.rows} rows cannot be "
                    f"divided among {process_count} processes; make it a multiple of that number"
                )
        self._store, self._plan, self._objective = store, plan, objective
        self._process_index, self._process_count = process_index, process_count

    def __len__(self) -> int:
        return 2**62  # effectively infinite

    def __getitem__(self, index: int) -> Batch:
        shape, placement = self._plan.batch(index)
        share = shape.rows // self._process_count
        mine = placement.rows // share == self._process_index
        placement = Placement(*(field[mine] for field in placement))
        placement = placement._replace(rows=placement.rows % share)
        draw = Draw(self._plan.seed, index // len(self._plan))
        return self._objective.examples(self._store, placement, share, *shape[1:], draw)


def blank(
    objective: Objective, shape: Shape, channels: Channels = (None, None), most: int = 1
) -> Batch:
    """Return a batch without examples: with `channels` of vectors, or `most` labels per text."""
    nothing = Ragged.from_lists([])
    src, tgt = (
        other if count is None
        else Ragged(np.zeros((0, count), np.float32), *nothing[1:3], lambda x, *_: x)
        for count, other in zip(channels, (nothing, Ragged.from_lists([[0] * most])), strict=True)
    )  # fmt: skip
    store, nowhere = TokenStore(src, tgt), np.zeros(0, np.int64)
    return objective.examples(store, one_per_row(nowhere), *shape)


def shapes_from(plan: Plan, start: int, stop: int) -> list[Shape]:
    """Return the shapes of batches `start` to `stop` (exclusive), in order of first use."""
    shapes: dict[Shape, None] = {}
    for index in range(start, min(stop, start + 2 * len(plan))):  # contains a whole epoch
        shapes[plan.batch(index)[0]] = None
        if len(shapes) == len(plan.shapes):
            break
    return list(shapes)


def items_of(plan: Plan, items: int, index: int) -> list[int]:
    """Return the numbers, from 1, of the training data's `items` that make up batch `index`."""
    return sorted((plan.batch(index)[1].pairs % items + 1).tolist())


def filled(store: TokenStore, plan: Plan) -> tuple[int, int]:
    """Return the number of positions of the longer side in the first epoch, and how many of them
    are tokens rather than padding; of equally long sides, the target counts.
    """
    side, positions, tokens = longer_side(plan), 0, 0
    lengths = store.lengths[side]
    for index in range(len(plan)):
        shape, placement = plan.batch(index)
        positions += shape.rows * shape[1 + side]
        tokens += int(lengths[placement.pairs].sum())
    return positions, tokens


def longer_side(plan: Plan) -> int:
    """Return 0 if batches are longer on the source side than on the target side, else 1."""
    return int(plan.shapes[-1].src_length <= plan.shapes[-1].tgt_length)


def fixed_batches(
    store: TokenStore, lengths: Sequence[int], tokens_per_batch: int, rows_divisible_by: int
) -> list[tuple[Shape, Placement]]:
    """Return batches over the whole store in order of length, for validation.

    `lengths` are the allowed lengths; each batch takes the smallest that fits its longest side.
    Pairs longer than all of them are omitted.
    """
    longest = np.maximum(*store.lengths)
    order = np.argsort(longest, kind="stable")
    bucket = np.searchsorted(lengths, longest[order])
    batches = []
    for number, length in enumerate(lengths):
        members = order[bucket == number]
        rows = max(tokens_per_batch // length // rows_divisible_by, 1) * rows_divisible_by
        for start in range(0, len(members), rows):
            shape = Shape(rows, *store.sides(length))
            batches.append((shape, one_per_row(members[start : start + rows])))
    return batches
