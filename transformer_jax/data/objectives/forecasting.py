"""Forecasting of time series."""

import numpy as np

from transformer_jax.base.errors import UserError
from transformer_jax.config import DataConfig, ObjectiveConfig
from transformer_jax.data.batches.batch import Batch, Placement, Ragged, Target, lay_out
from transformer_jax.data.codecs.codec import Codec
from transformer_jax.data.objectives.objective import BaseObjective, Order
from transformer_jax.data.random import Draw
from transformer_jax.data.store.token_store import Frame, Selection, TokenStore, Uneven


class Forecast(BaseObjective):
    """Read `window` rows of a series, predict the next `horizon`. Items are all such windows of
    each channel, one starting at every row, the last ones included. Item w C + c is channel c of
    window w; with channels together, item w is window w, and the next rows are predicted one after
    another.
    """

    order: Order = "all"
    predicts: tuple[str, ...] = ("forecast",)
    noun = "window"

    def frame(self, config: ObjectiveConfig) -> Frame:
        """See Objective."""
        return Frame(eos=False)

    def items(
        self, store: TokenStore, config: ObjectiveConfig, codec: Codec | None = None
    ) -> TokenStore:
        """See Objective. The data are copied channel by channel.

        Raises:
          UserError: if no series is as long as a window plus a horizon.
        """
        (rows, channels), length = store.tgt.ids.shape, config.window + config.horizon
        count = np.maximum(store.tgt.lengths - length + 1, 0)
        if not count.any():
            raise UserError(
                f"config.objective.window={config.window}, horizon={config.horizon}: no series is "
                f"as long as both, the longest has {store.tgt.lengths.max(initial=0)} rows; lower "
                "them, or provide more rows"
            )
        of = np.repeat(np.arange(len(count)), count)  # the series of each window
        first = store.tgt.starts[of] + np.arange(len(of)) - (np.cumsum(count) - count)[of]
        if config.channels == "together":
            read = Ragged(store.tgt.ids, first, np.full_like(first, config.window))
            said = Ragged(
                store.tgt.ids, first + config.window, np.full_like(first, config.horizon)
            )  # fmt: skip
            return Uneven(read, said)
        starts = (first[:, None] + rows * np.arange(channels)).reshape(-1)
        values = np.ascontiguousarray(store.tgt.ids.T).reshape(-1)
        read = Ragged(values[:, None], starts, np.full_like(starts, config.window))
        said = Ragged(values, starts + config.window, np.full_like(starts, config.horizon))
        return Uneven(read, said)

    def select(self, items: TokenStore, config: DataConfig) -> Selection:
        """See Objective: all windows."""
        return Selection(np.arange(len(items)), {"empty": 0})

    def batch(
        self, items: TokenStore, placement: Placement, rows: int, src_length: int, tgt_length: int,
        draw: Draw,
    ) -> Batch:  # fmt: skip
        """See Objective. Labels are the numbers themselves, float32."""
        src = lay_out(items.src, placement, placement.src_offset, (rows, src_length))
        tgt = lay_out(items.tgt, placement, placement.tgt_offset, (rows, tgt_length))
        channels = src.inputs.shape[2] if src.inputs.ndim == 3 else 1
        said = tgt.inputs  # of a batch without examples, a number for each row
        said = np.repeat(said[..., None], channels, 2) if said.ndim == 2 else said
        labels = said.reshape(rows, -1).astype(np.float32)
        weight = np.repeat((tgt.seg > 0).astype(np.float32), channels, axis=1)
        target = Target(labels, weight)
        nothing = np.zeros_like(tgt.seg)
        return Batch(src, tgt._replace(inputs=nothing), {"forecast": target})


WORDS = {"forecast": Forecast()}
