"""Diffusion: what noise hides in a picture."""

import numpy as np

from transformer_jax.config import DataConfig, ObjectiveConfig
from transformer_jax.config.registry import pick
from transformer_jax.data.batches.batch import Batch, Placement, Target, lay_out
from transformer_jax.data.codecs.codec import Codec
from transformer_jax.data.diffusion import TIMES, prediction_of, schedule_of
from transformer_jax.data.objectives.objective import BaseObjective, Order
from transformer_jax.data.random import Draw, normal, uniform
from transformer_jax.data.store.token_store import Selection, TokenStore, Uneven, without

_TIME, _ANGLE, _DROPPED, _NOISE = range(71, 75)  # purposes of random numbers


class Noised(Uneven):
    """Pictures with what they show, and how noise is mixed in."""

    config: ObjectiveConfig = ObjectiveConfig("diffusion")


class Diffuse(BaseObjective):
    """Read a picture with noise, its time, and what it shows, if that is not left out; predict the
    noise, the picture or the velocity from one to the other, in each patch.

    Noise, time and what is left out are drawn for each picture in each epoch.
    """

    order: Order = "all"
    predicts: tuple[str, ...] = ("diffusion",)
    noun = "picture"

    def items(
        self, store: TokenStore, config: ObjectiveConfig, codec: Codec | None = None
    ) -> TokenStore:
        """See Objective: each picture is an item."""
        items = Noised(store.src, store.tgt, store.special)
        items.config = config
        return items

    def select(self, items: TokenStore, config: DataConfig) -> Selection:
        """See Objective: all pictures that are not too long."""
        most = config.max_length
        return without({f"longer than {most} pieces": np.maximum(*items.lengths) > most})

    def batch(
        self, items: TokenStore, placement: Placement, rows: int, src_length: int, tgt_length: int,
        draw: Draw,
    ) -> Batch:  # fmt: skip
        """See Objective. Labels are vectors, [B S C]; the time is 0 in empty rows."""
        config = items.config if isinstance(items, Noised) else Noised.config
        number = placement.pairs
        src = lay_out(items.src, placement, placement.src_offset, (rows, src_length), draw=draw)
        tgt = lay_out(items.tgt, placement, placement.tgt_offset, (rows, tgt_length))
        kept = np.zeros(rows, bool)
        kept[placement.rows] = uniform(*draw, number, _DROPPED) >= config.condition_dropout
        tgt = tgt._replace(seg=tgt.seg * kept[:, None])

        drawn = [uniform(*draw, number, purpose) for purpose in (_TIME, _ANGLE)]
        schedule = schedule_of(config)
        time = np.zeros(rows)
        times = pick(TIMES, config.times, "config.objective.times")
        time[placement.rows] = schedule.training(times(*drawn))
        mixture = schedule.at(time)
        noise = np.zeros((rows, src_length * src.inputs.shape[2]), np.float32)
        noise[placement.rows] = normal(noise.shape[1], *draw, number, _NOISE)
        noise = noise.reshape(src.inputs.shape)

        def mixed(value: np.ndarray, other: np.ndarray) -> np.ndarray:
            one, two = (x.astype(np.float32)[:, None, None] for x in (value, other))
            return one * src.inputs + two * noise

        labels = mixed(*prediction_of(config).of(mixture))
        noisy = src._replace(inputs=mixed(mixture.signal, mixture.noise))
        target = Target(labels, (src.seg > 0).astype(np.float32))
        return Batch(noisy, tgt, {"diffusion": target}, time.astype(np.float32))


WORDS = {"diffusion": Diffuse()}
