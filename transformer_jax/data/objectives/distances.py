"""Completion of distances: those of all pairs of points of a chain, from some of them."""

import numpy as np

from transformer_jax.config import DataConfig, ObjectiveConfig
from transformer_jax.data.batches.batch import Batch, Placement, Target, lay_out
from transformer_jax.data.codecs.codec import Codec
from transformer_jax.data.objectives.objective import BaseObjective, Order
from transformer_jax.data.random import Draw, uniform
from transformer_jax.data.store.token_store import Frame, Selection, TokenStore, Uneven, without

_KNOWN, _LENGTH, _ANGLE = range(81, 84)  # purposes of random numbers
UNKNOWN = -1.0  # in place of a distance


class Chains(Uneven):
    """Chains, and how many of their distances are read, how exactly."""

    config: ObjectiveConfig = ObjectiveConfig("distances")


class CompleteDistances(BaseObjective):
    """Read some distances of each chain, drawn in each epoch, predict those of all its pairs."""

    order: Order = "all"
    predicts: tuple[str, ...] = ("distances",)
    noun = "chain"

    def frame(self, config: ObjectiveConfig) -> Frame:
        """See Objective."""
        return Frame(eos=False)

    def items(
        self, store: TokenStore, config: ObjectiveConfig, codec: Codec | None = None
    ) -> TokenStore:
        """See Objective: the input is stored as the target side."""
        items = Chains(store.tgt, store.tgt.emptied())
        items.config = config
        return items

    def select(self, items: TokenStore, config: DataConfig) -> Selection:
        """See Objective."""
        most = config.max_length
        return without({f"longer than {most} points": items.src.lengths > most})

    def batch(
        self, items: TokenStore, placement: Placement, rows: int, src_length: int, tgt_length: int,
        draw: Draw,
    ) -> Batch:  # fmt: skip
        """See Objective. The source side has distances [B T T]; labels are distances, [B T T] as
        one axis, of pairs of different points.
        """
        config = items.config if isinstance(items, Chains) else Chains.config
        src = lay_out(items.src, placement, placement.src_offset, (rows, src_length))
        true = distances_of(src.inputs)
        both = (src.seg > 0)[:, :, None] & (src.seg > 0)[:, None]
        both &= ~np.eye(src_length, dtype=bool)
        # Pairs are numbered so that the padding of a batch does not change what is drawn.
        one, other = np.tril_indices(src_length, -1)
        drawn, length, angle = (
            uniform(*draw, placement.pairs[:, None], purpose, np.arange(len(one)))
            for purpose in (_KNOWN, _LENGTH, _ANGLE)
        )
        drawn = drawn < config.known_share
        normal = np.sqrt(-2 * np.log1p(-length)) * np.cos(2 * np.pi * angle)
        error = config.distance_noise * normal
        noise, kept = np.zeros_like(true), np.zeros(true.shape, bool)
        for row, (known, off) in zip(placement.rows, zip(drawn, error, strict=True), strict=True):
            kept[row, one, other] = kept[row, other, one] = known
            noise[row, one, other] = noise[row, other, one] = off
        read = np.where(kept & both, np.maximum(true + noise, 0), UNKNOWN)
        target = Target(true.reshape(rows, -1), both.reshape(rows, -1).astype(np.float32))
        return Batch(src._replace(inputs=read.astype(np.float32)), None, {"distances": target})


def distances_of(points: np.ndarray) -> np.ndarray:
    """Return the distances between points [... T 3]: float32 [... T T]."""
    return np.linalg.norm(points[..., :, None, :] - points[..., None, :, :], axis=-1)


WORDS = {"distances": CompleteDistances()}
