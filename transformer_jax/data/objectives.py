"""How encoded pairs become examples: what is read, what is predicted, and in which order."""

from typing import Literal, Protocol

import numpy as np

from transformer_jax.data.batch import Batch, Placement, Target, lay_out, shifted
from transformer_jax.data.token_store import TokenStore
from transformer_jax.vocabulary import BOS

# Who may see whom on the target side: "causal", ranks are positions; "all", ranks are 0;
# "ranked", the batch's ranks say it.
Order = Literal["all", "causal", "ranked"]


class Objective(Protocol):
    """One way of making examples. `lengths` and `examples` speak of the same items."""

    order: Order  # of the target side; the source side is read in order "all"

    def examples(
        self, items: TokenStore, placement: Placement, rows: int, src_length: int, tgt_length: int
    ) -> Batch:
        """Return the placed items as a batch of `rows` rows and such lengths."""


class Translate:
    """Read the source, write the target: teacher forcing (paper 3)."""

    order: Order = "causal"

    def examples(
        self, items: TokenStore, placement: Placement, rows: int, src_length: int, tgt_length: int
    ) -> Batch:
        """See Objective."""
        src = lay_out(items.src, placement, placement.src_offset, (rows, src_length))
        tgt = lay_out(items.tgt, placement, placement.tgt_offset, (rows, tgt_length))
        weight = (tgt.seg > 0).astype(np.float32)
        return Batch(src, shifted(tgt, BOS), {"tokens": Target(tgt.inputs, weight)})


OBJECTIVES: dict[str, Objective] = {"translate": Translate()}
