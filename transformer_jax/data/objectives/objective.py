"""The interface of an objective."""

from typing import Literal, Protocol, runtime_checkable

from transformer_jax.config import DataConfig, ObjectiveConfig
from transformer_jax.data.batches.batch import Batch, Placement
from transformer_jax.data.codecs.codec import Codec
from transformer_jax.data.random import VALIDATION, Draw
from transformer_jax.data.store.token_store import Frame, Selection, TokenStore, select

# Visibility on the target side: "causal", ranks are positions; "all", ranks are 0; "ranked", the
# batch has the ranks.
Order = Literal["all", "causal", "ranked"]


@runtime_checkable
class Objective(Protocol):
    """A way of making examples from encoded texts.

    An item becomes one example: a pair of texts, or a window of a text. A plan groups items into
    batches by their `lengths`, and `examples` makes arrays of the chosen ones.
    """

    order: Order  # of the target side; the source side has order "all"
    strict: bool  # whether predictions see only lower ranks, not the piece's own
    predicts: tuple[str, ...]  # the names of the targets
    noun: str  # what an item is called

    def frame(self, config: ObjectiveConfig) -> Frame:
        """Return the special pieces around each encoded text."""

    def items(
        self, store: TokenStore, config: ObjectiveConfig, codec: Codec | None = None
    ) -> TokenStore:
        """Return the items of the texts; they share the memory of the store.

        `codec` provides special pieces to objectives that insert some into the input.
        """

    def select(self, items: TokenStore, config: DataConfig) -> Selection:
        """Return the items suitable for training."""

    def examples(
        self, items: TokenStore, placement: Placement, rows: int, src_length: int, tgt_length: int,
        draw: Draw = VALIDATION,
    ) -> Batch:  # fmt: skip
        """Return the placed items as a batch of `rows` rows and the given lengths.

        Randomness in an item is a function of `draw` and the item's number.
        """


class BaseObjective:
    """An Objective of pairs, each of which is an example: what subclasses do not say otherwise."""

    order: Order = "causal"
    strict = False
    predicts: tuple[str, ...] = ("tokens",)
    noun = "pair"

    def frame(self, config: ObjectiveConfig) -> Frame:
        """See Objective: EOS ends each text."""
        return Frame()

    def items(
        self, store: TokenStore, config: ObjectiveConfig, codec: Codec | None = None
    ) -> TokenStore:
        """See Objective: each pair is an item."""
        return store

    def select(self, items: TokenStore, config: DataConfig) -> Selection:
        """See Objective: items that are neither too long, nor too uneven, nor empty."""
        return select(items, config)

    def examples(
        self, items: TokenStore, placement: Placement, rows: int, src_length: int, tgt_length: int,
        draw: Draw = VALIDATION,
    ) -> Batch:  # fmt: skip
        """See Objective."""
        return self.batch(items, placement, rows, src_length, tgt_length, draw)

    def batch(
        self, items: TokenStore, placement: Placement, rows: int, src_length: int, tgt_length: int,
        draw: Draw,
    ) -> Batch:  # fmt: skip
        """Return the examples of `placement`; see Objective."""
        raise NotImplementedError
