"""What everybody may ask of an objective."""

from typing import Literal, Protocol, runtime_checkable

from transformer_jax.config import DataConfig, ObjectiveConfig
from transformer_jax.data.batch import Batch, Placement
from transformer_jax.data.codecs.codec import Codec
from transformer_jax.data.random import Draw
from transformer_jax.data.token_store import Frame, Selection, TokenStore

# Who may see whom on the target side: "causal", ranks are positions; "all", ranks are 0;
# "ranked", the batch's ranks say it.
Order = Literal["all", "causal", "ranked"]


@runtime_checkable
class Objective(Protocol):
    """One way of making examples out of encoded texts.

    An item is what becomes one example: a pair of texts, a window of a text. A plan puts items
    into batches by their `lengths`, and `examples` makes arrays of those that it chose.
    """

    order: Order  # of the target side; the source side is read in order "all"
    strict: bool  # whether what is predicted is from lower ranks alone: a piece's own is not seen
    predicts: tuple[str, ...]  # the names of the targets
    noun: str  # what an item is called

    def frame(self, config: ObjectiveConfig) -> Frame:
        """Return which special pieces stand around each encoded text."""

    def items(
        self, store: TokenStore, config: ObjectiveConfig, codec: Codec | None = None
    ) -> TokenStore:
        """Return the items of the texts; they share the memory of the store.

        `codec` is asked for special pieces, by whoever puts some into what is read.
        """

    def select(self, items: TokenStore, config: DataConfig) -> Selection:
        """Return the items that are fit for training."""

    def examples(
        self, items: TokenStore, placement: Placement, rows: int, src_length: int, tgt_length: int,
        draw: Draw = Draw(),  # noqa: B008 (immutable)
    ) -> Batch:  # fmt: skip
        """Return the placed items as a batch of `rows` rows and such lengths.

        What is random about an item is a function of `draw` and of its number.
        """
