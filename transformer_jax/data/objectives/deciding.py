"""Decisions: the actions of an agent, from the returns still to come or by imitation alone."""

import math

import numpy as np

from transformer_jax.config import DataConfig, ObjectiveConfig
from transformer_jax.data.batches.batch import Batch, Placement, Target, lay_out
from transformer_jax.data.codecs.codec import Codec
from transformer_jax.data.codecs.states import RETURN
from transformer_jax.data.objectives.objective import BaseObjective
from transformer_jax.data.random import Draw
from transformer_jax.data.store.token_store import Frame, Selection, TokenStore, Uneven


class Windows(Uneven):
    """Windows of trajectories."""

    of: np.ndarray  # the trajectory of each window
    returns: np.ndarray  # of each trajectory, in the unit of the stored vectors


class Decide(BaseObjective):
    """Read the returns still to come, the states and the earlier actions of up to `window` steps,
    predict the action of each. Items are the windows from every step of a trajectory on; later ones
    are shorter. So each epoch has what the paper draws: a trajectory in proportion to its length,
    and any of its steps to begin with (Chen et al. 2021, arXiv:2106.01345, and its code).
    """

    predicts: tuple[str, ...] = ("action",)
    noun = "window"

    def frame(self, config: ObjectiveConfig) -> Frame:
        """See Objective."""
        return Frame(eos=False)

    def items(
        self, store: TokenStore, config: ObjectiveConfig, codec: Codec | None = None
    ) -> TokenStore:
        """See Objective."""
        steps = store.src.lengths
        of = np.repeat(np.arange(len(steps)), steps)  # the trajectory of each window
        first = np.arange(len(of)) - (np.cumsum(steps) - steps)[of]
        lengths = np.minimum(config.window, steps[of] - first)
        src, tgt = (
            side._replace(starts=side.starts[of] + first, lengths=lengths)
            for side in (store.src, store.tgt)
        )
        windows = Windows(src, tgt)
        windows.of, windows.returns = of, np.asarray(store.src.ids)[store.src.starts, RETURN]
        return windows

    def select(self, items: TokenStore, config: DataConfig) -> Selection:
        """See Objective: those of the trajectories with the highest returns, if not all."""
        assert isinstance(items, Windows)
        count = math.ceil(config.best_share * len(items.returns))
        best = np.argsort(-items.returns, kind="stable")[:count]
        kept = np.isin(items.of, best)
        return Selection(np.flatnonzero(kept), {"of lower return": int((~kept).sum())})

    def batch(
        self, items: TokenStore, placement: Placement, rows: int, src_length: int, tgt_length: int,
        draw: Draw,
    ) -> Batch:  # fmt: skip
        """See Objective. Labels are the actions: ids [B T] or float32 vectors [B T A]."""
        src = lay_out(items.src, placement, placement.src_offset, (rows, src_length), draw=draw)
        tgt = lay_out(items.tgt, placement, placement.tgt_offset, (rows, tgt_length), draw=draw)
        target = Target(tgt.inputs, (tgt.seg > 0).astype(np.float32))
        return Batch(src, tgt, {self.predicts[0]: target})


class Clone(Decide):
    """The same without returns: behaviour cloning."""

    predicts: tuple[str, ...] = ("cloned_action",)


WORDS = {"decide": Decide(), "clone": Clone()}
