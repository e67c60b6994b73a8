"""Reformer: attention among positions that a hash puts near one another."""

import functools
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from transformer_jax.base.arrays import Array, Bool, Float, Int, at_least_float32
from transformer_jax.config import ModelConfig
from transformer_jax.nn.cache import KeysValues, Lanes, Slots
from transformer_jax.nn.embedding import fix_norm
from transformer_jax.nn.linear import Project, project_together
from transformer_jax.nn.mixers.heads import heads_first
from transformer_jax.nn.roles import INWARD, MAP, OUTWARD
from transformer_jax.nn.view import View

_ITSELF = -1e5  # a position's score with itself, which counts only if there is no other


class Lsh(nn.Module):
    """Attention by locality-sensitive hashing (Kitaev et al. 2020, arXiv:2001.04451): a Mixer.

    Queries and keys share one map. Positions of a text are sorted by the bucket that a random
    rotation assigns them, and within a bucket by position; each chunk of `config.block_size`
    attends to itself and to the one before. This is repeated in `config.hash_rounds` with different
    rotations, and rounds are weighted by the sum of the weights that they find. Scores are products
    with keys of length 1. Rotations are drawn like random features.

    Each row holds one text; padding sorts after it. A search attends to all that is cached, as
    within a single chunk: for longer texts, this differs from training.
    """

    config: ModelConfig
    dtype: jnp.dtype

    def setup(self) -> None:
        c = self.config
        heads = "embed", "heads", "head_dim"
        self.query_key = Project(
            (c.d_model,), (c.num_heads, c.key_size), heads, self.dtype, "query" in c.biases, MAP
        )
        self.value = Project(
            (c.d_model,), (c.num_heads, c.value_size), heads, self.dtype, "value" in c.biases,
            INWARD,
        )  # fmt: skip
        self.output = Project(
            (c.num_heads, c.value_size), (c.d_model,), ("heads", "head_dim", "embed"), self.dtype,
            "output" in c.biases, OUTWARD,
        )  # fmt: skip

    def mix(
        self, x: Float[Array, "B T D"], view: View, train: bool
    ) -> tuple[Float[Array, "B T D"], None]:
        """See Mixer."""
        assert view.order != "ranked", "chunks have no ranks"
        qk, v = map(heads_first, project_together(x, [self.query_key, self.value]))
        length, size = x.shape[1], min(self.config.block_size, x.shape[1])
        new = -length % size
        qk, v = (jnp.pad(y, ((0, 0), (0, 0), (0, new), (0, 0))) for y in (qk, v))
        pos, seg = (jnp.pad(y, ((0, 0), (0, new))) for y in (view.q_pos, view.q_seg))
        order = self._sorted(at_least_float32(qk), pos, seg > 0)  # [B N R T]
        rounds = order.shape[2]

        def chunks(y: Array) -> Array:
            """Return data of positions [B N T ...] or [B T], sorted and cut."""
            y = y if y.ndim > 2 else jnp.broadcast_to(y[:, None], (*qk.shape[:2], y.shape[1]))
            y = jnp.broadcast_to(y[:, :, None], (*y.shape[:2], rounds, *y.shape[2:]))
            y = jnp.take_along_axis(y, order.reshape(*order.shape, *(1,) * (y.ndim - 4)), axis=3)
            return y.reshape(*y.shape[:3], -1, size, *y.shape[4:])

        q, values, place, text = map(chunks, (qk, v, pos, seg))
        keys, values, k_place, k_text = map(_with_before, (q, values, place, text))
        seen = (text[..., :, None] == k_text[..., None, :]) & (k_text > 0)[..., None, :]
        away = place[..., :, None] - k_place[..., None, :]
        seen = seen & (away >= 0) if view.order == "causal" else seen
        scores = jnp.einsum(
            "BNRICH,BNRISH->BNRICS",
            q,
            fix_norm(keys).astype(q.dtype),
            preferred_element_type=self._wide,
        )
        scores = _allowed(scores, seen, away == 0)
        total = jax.nn.logsumexp(scores, axis=-1)
        weights = jnp.exp(scores - total[..., None]).astype(self.dtype)
        mixed = jnp.einsum("BNRICS,BNRISH->BNRICH", weights, values)
        back = jnp.argsort(order, axis=-1)
        mixed = jnp.take_along_axis(_whole(mixed), back[..., None], axis=3)
        total = jnp.take_along_axis(total.reshape(*total.shape[:3], -1), back, axis=3)
        share = jax.nn.softmax(total, axis=2)[..., None]
        mixed = (share * at_least_float32(mixed)).sum(2)[:, :, :length]
        return self.output(mixed.swapaxes(1, 2).astype(self.dtype)), None

    def empty(self, lanes: Lanes) -> KeysValues:
        """See Mixer."""
        c = self.config
        batch, _, slots = lanes.seen.shape
        return KeysValues.empty(batch, slots, c.num_heads, c.key_size, c.value_size, self.dtype)

    def extend(
        self, x: Float[Array, "B Q D"], cache: KeysValues, slots: Slots, active: Bool[Array, "B"]
    ) -> tuple[Float[Array, "B Q D"], None, KeysValues]:
        """See Mixer: attends to all that is cached."""
        qk, v = map(heads_first, project_together(x, [self.query_key, self.value]))
        cache = cache.write(slots.number, KeysValues(qk.swapaxes(2, 3), v))
        keys = fix_norm(cache.keys.swapaxes(2, 3)).astype(qk.dtype)
        scores = jnp.einsum("BNQH,BNCH->BNQC", qk, keys, preferred_element_type=self._wide)
        itself = slots.number[:, :, None] == jnp.arange(keys.shape[2])[None, None]
        scores = _allowed(scores, slots.view.mask(), itself[:, None])
        weights = jax.nn.softmax(scores).astype(self.dtype)
        mixed = jnp.einsum("BNQC,BNCH->BNQH", weights, cache.values)
        return self.output(mixed.swapaxes(1, 2)), None, cache

    @property
    def _wide(self) -> Any:
        return jnp.promote_types(self.dtype, jnp.float32)

    def _sorted(
        self, qk: Float[Array, "B N T H"], pos: Int[Array, "B T"], real: Bool[Array, "B T"]
    ) -> Int[Array, "B N R T"]:
        """Return the order of positions, by bucket and position, in each round."""
        c = self.config
        shape = (c.num_heads, c.key_size, c.hash_rounds, c.hash_buckets // 2)
        if self.has_rng("features"):
            turned = jax.random.normal(self.make_rng("features"), shape, qk.dtype)
        else:
            turned = jnp.asarray(_rotations(c.feature_seed, shape), qk.dtype)
        sides = jnp.einsum("BNTH,NHRM->BNRTM", jax.lax.stop_gradient(qk), turned)
        bucket = jnp.argmax(jnp.concatenate([sides, -sides], axis=-1), axis=-1)
        bucket = jnp.where(real[:, None, None], bucket, c.hash_buckets)
        return jnp.argsort(bucket * (pos.shape[1] + 1) + pos[:, None, None], axis=-1, stable=True)


@functools.lru_cache(maxsize=8)
def _rotations(seed: int, shape: tuple[int, int, int, int]) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape)


def _allowed(scores: Array, seen: Array, itself: Array) -> Array:
    scores = jnp.where(itself, jnp.asarray(_ITSELF, scores.dtype), scores)
    return jnp.where(seen, scores, jnp.finfo(scores.dtype).min)


def _with_before(x: Array) -> Array:
    """Return each chunk [B N R I C ...] preceded by the one before it; the first by padding."""
    before = jnp.pad(x, [(0, 0)] * 3 + [(1, 0)] + [(0, 0)] * (x.ndim - 4))[:, :, :, :-1]
    return jnp.concatenate([before, x], axis=4)


def _whole(x: Array) -> Array:
    """Reassemble chunks."""
    return x.reshape(*x.shape[:3], -1, *x.shape[5:])


WORDS = {"lsh": Lsh}
