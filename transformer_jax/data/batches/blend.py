"""Multi-task training: each objective has its own texts, and contributes its part of a batch."""

from collections.abc import Sequence

import numpy as np

from transformer_jax.config import DataConfig, ObjectiveConfig
from transformer_jax.data.batches.batch import Batch, Placement, Ragged, Side, Target
from transformer_jax.data.codecs.codec import Codec
from transformer_jax.data.objectives.objective import BaseObjective, Objective, Order
from transformer_jax.data.random import Draw
from transformer_jax.data.store.token_store import Frame, Lengths, Selection, TokenStore


class Blend(TokenStore):
    """Texts, or items, of several objectives, concatenated."""

    members: tuple[TokenStore, ...]

    @classmethod
    def of(cls, members: Sequence[TokenStore]) -> "Blend":
        """Concatenate stores, sharing the memory of the members."""
        nothing = Ragged.from_lists([])
        lengths = np.concatenate([store.tgt.lengths for store in members])
        blend = cls(nothing, Ragged(nothing.ids, 0 * lengths, lengths), members[0].special)
        blend.members = tuple(members)
        return blend

    @property
    def lengths(self) -> Lengths:
        """See TokenStore."""
        return Lengths(*map(np.concatenate, zip(*(x.lengths for x in self.members), strict=True)))

    def sides(self, length: int) -> tuple[int, int]:
        """See TokenStore."""
        src, tgt = zip(*(store.sides(length) for store in self.members), strict=True)
        return max(src), max(tgt)

    @property
    def first(self) -> np.ndarray:
        """The index of each member's first item, and the total [members + 1]."""
        return np.cumsum([0, *map(len, self.members)])


def members_of(store: TokenStore) -> tuple[TokenStore, ...]:
    """Return the stores of a blend, or any other store itself."""
    return store.members if isinstance(store, Blend) else (store,)


class Several(BaseObjective):
    """Objectives of one model that share its batches (multi-task training, as in T5: Raffel et al.
    2020, arXiv:1910.10683, section 3.5.2). The first is the main one.

    Randomness in an item depends on its number among those of its own objective.
    """

    def __init__(self, members: Sequence[tuple[Objective, ObjectiveConfig]]) -> None:
        self._members = members
        first = members[0][0]
        self.predicts, self.noun = first.predicts, "item"
        self.order: Order = first.order

    def frame(self, config: ObjectiveConfig) -> Frame:
        """See Objective: the frame of the first; the others have their own."""
        return self._members[0][0].frame(config)

    def items(
        self, store: TokenStore, config: ObjectiveConfig, codec: Codec | None = None
    ) -> TokenStore:
        """See Objective: from a blend of texts, with each objective's own config."""
        assert isinstance(store, Blend)
        members = zip(self._members, store.members, strict=True)
        return Blend.of([one.items(texts, own, codec) for (one, own), texts in members])

    def select(self, items: TokenStore, config: DataConfig) -> Selection:
        """See Objective."""
        assert isinstance(items, Blend)
        members = zip(self._members, items.members, items.first[:-1], strict=True)
        pairs, dropped = [], dict[str, int]()
        for (objective, _), store, first in members:
            selected = objective.select(store, config)
            pairs.append(selected.pairs + first)
            for reason, count in selected.dropped.items():
                dropped[reason] = dropped.get(reason, 0) + count
        return Selection(np.concatenate(pairs), dropped)

    def batch(
        self, items: TokenStore, placement: Placement, rows: int, src_length: int, tgt_length: int,
        draw: Draw,
    ) -> Batch:  # fmt: skip
        """See Objective: the members' examples, each at its own positions."""
        assert isinstance(items, Blend)
        member = np.searchsorted(items.first, placement.pairs, side="right") - 1
        batches = []
        for number, ((objective, _), store) in enumerate(
            zip(self._members, items.members, strict=True)
        ):
            own = Placement(*(field[member == number] for field in placement))
            own = own._replace(pairs=own.pairs - items.first[number])
            batches.append(objective.examples(store, own, rows, src_length, tgt_length, draw))
        return _together(batches, self.order)


def _together(batches: Sequence[Batch], order: Order) -> Batch:
    """Merge batches with disjoint contents into one."""
    src = [batch.src for batch in batches if batch.src is not None]
    tgt = [_ranked(batch.tgt, order) for batch in batches if batch.tgt is not None]
    targets = [batch.targets["tokens"] for batch in batches]
    labels, weight = (sum(arrays) for arrays in zip(*targets, strict=True))
    return Batch(_sum(src), _sum(tgt), {"tokens": Target(labels, weight)})


def _ranked(side: Side, order: Order) -> Side:
    """Return a side with explicit ranks if another member of the batch needs them."""
    return side._replace(rank=side.pos) if order == "ranked" and side.rank is None else side


def _sum(sides: Sequence[Side]) -> Side | None:
    if not sides:
        return None
    fields = zip(*sides, strict=True)
    return Side(*(None if arrays[0] is None else sum(arrays) for arrays in fields))
