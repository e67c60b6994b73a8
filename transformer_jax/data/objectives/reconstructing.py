"""Reconstruction of pictures by an autoencoder."""

import numpy as np

from transformer_jax.config import DataConfig, ObjectiveConfig
from transformer_jax.data.batches.batch import Batch, Placement, Target, lay_out
from transformer_jax.data.codecs.codec import Codec
from transformer_jax.data.objectives.objective import BaseObjective, Order
from transformer_jax.data.random import Draw
from transformer_jax.data.store.token_store import Frame, Selection, TokenStore, without


class Reconstruct(BaseObjective):
    """Read a picture, predict its patches as they were read, augmentation included."""

    order: Order = "all"
    predicts: tuple[str, ...] = ("pixels",)
    noun = "picture"

    def frame(self, config: ObjectiveConfig) -> Frame:
        """See Objective."""
        return Frame(eos=False)

    def items(
        self, store: TokenStore, config: ObjectiveConfig, codec: Codec | None = None
    ) -> TokenStore:
        """See Objective: the input is stored as the target side."""
        return TokenStore(store.tgt, store.tgt.emptied())

    def select(self, items: TokenStore, config: DataConfig) -> Selection:
        """See Objective."""
        most = config.max_length
        return without({f"longer than {most} pieces": items.src.lengths > most})

    def batch(
        self, items: TokenStore, placement: Placement, rows: int, src_length: int, tgt_length: int,
        draw: Draw,
    ) -> Batch:  # fmt: skip
        """See Objective. Labels are the vectors themselves, [B S C]."""
        src = lay_out(items.src, placement, placement.src_offset, (rows, src_length), draw=draw)
        target = Target(src.inputs, (src.seg > 0).astype(np.float32))
        return Batch(src, None, {"pixels": target})


WORDS = {"reconstruct": Reconstruct()}
