"""Bidirectional language modelling: each piece from those before it, and from those after it."""

import numpy as np

from transformer_jax.config import DataConfig, ObjectiveConfig
from transformer_jax.data.batches.batch import Batch, Placement, Target, lay_out
from transformer_jax.data.codecs.codec import Codec, special_of
from transformer_jax.data.objectives.objective import BaseObjective, Order
from transformer_jax.data.random import Draw
from transformer_jax.data.store.token_store import Frame, Selection, TokenStore, without


class BidirectionalLM(BaseObjective):
    """A forward and a backward language model of one text, whose losses are summed (Peters et al.
    2018, arXiv:1802.05365, section 3.1).

    A document is read from BOS to EOS; the forward direction predicts all but BOS, "tokens", the
    other all but EOS, "backward". Windows overlap by one piece, so each is predicted once by each.
    """

    order: Order = "all"
    predicts: tuple[str, ...] = ("tokens", "backward")
    noun = "window"

    def frame(self, config: ObjectiveConfig) -> Frame:
        """See Objective."""
        return Frame(bos=True, eos=config.document == "line")

    def items(
        self, store: TokenStore, config: ObjectiveConfig, codec: Codec | None = None
    ) -> TokenStore:
        """See Objective. Windows are as long as their inputs."""
        texts = store.tgt._replace(lengths=np.maximum(store.tgt.lengths - 1, 0))
        windows = texts.windows(config.window - 1)
        windows = windows._replace(lengths=windows.lengths + 1)
        return TokenStore(windows, windows.emptied(), special_of(codec))

    def select(self, items: TokenStore, config: DataConfig) -> Selection:
        """See Objective: all windows except those of empty lines."""
        ids, starts = items.src.ids, items.src.starts
        bos, eos = items.special[1:]
        return without({"empty": (ids[starts] == bos) & (ids[starts + 1] == eos)})

    def batch(
        self, items: TokenStore, placement: Placement, rows: int, src_length: int, tgt_length: int,
        draw: Draw,
    ) -> Batch:  # fmt: skip
        """See Objective. A label is at the position of the piece adjacent to it."""
        side = lay_out(items.src, placement, placement.src_offset, (rows, src_length))
        goes_on = (side.seg[:, 1:] == side.seg[:, :-1]) & (side.seg[:, 1:] > 0)
        targets = {}
        for name, here, there in (
            ("tokens", slice(None, -1), slice(1, None)),
            ("backward", slice(1, None), slice(None, -1)),
        ):
            labels, weight = np.zeros_like(side.inputs), np.zeros(side.inputs.shape, np.float32)
            labels[:, here] = np.where(goes_on, side.inputs[:, there], 0)
            weight[:, here] = goes_on
            targets[name] = Target(labels, weight)
        return Batch(side, None, targets)


WORDS = {"bidirectional_lm": BidirectionalLM()}
