"""Attention whose scores are products of features, so that the past is a sum of constant size."""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from transformer_jax.base.arrays import Array, Float, Int, at_least_float32
from transformer_jax.nn.linear import Project
from transformer_jax.nn.mixers import triangular
from transformer_jax.nn.mixers.heads import Heads
from transformer_jax.nn.mixers.in_order import in_chunks
from transformer_jax.nn.mixers.recurrence import Recurrence, Step, renumbered
from transformer_jax.nn.roles import MAP
from transformer_jax.nn.view import View

CHUNK = 64  # tokens whose scores are computed at a time

State = Float[Array, "B K F V"]


class LinearAttention(Recurrence, Heads):
    """Attention whose scores are products of elu(q) + 1 and elu(k) + 1, divided by their sum
    (Katharopoulos et al. 2020, arXiv:2006.16236).

    A query is multiplied by the running sum of keys times values; the sum of keys that divides the
    result is one more column of values. Whole sequences are processed in chunks, with the products
    of all pairs inside each.
    """

    def enter(self, x: Float[Array, "B T D"]) -> tuple[Array, ...]:
        """See Recurrence: features of queries [B T K G F], of keys [B T K F], values [B T K V]."""
        q, k, v = map(at_least_float32, self.queries_keys_values(x))
        ones = jnp.ones((*v.shape[:-1], 1), v.dtype)
        q, k = self.features(q.reshape(*k.shape[:3], -1, q.shape[-1]), k)
        return q, k, jnp.concatenate([v, ones], axis=-1)

    def features(
        self, q: Float[Array, "B T K G H"], k: Float[Array, "B T K H"]
    ) -> tuple[Float[Array, "B T K G F"], Float[Array, "B T K F"]]:
        """Return the features of queries and of keys."""
        return jax.nn.elu(q) + 1, jax.nn.elu(k) + 1

    @property
    def feature_count(self) -> int:
        """F."""
        return self.config.key_size

    def blank(self, batch: int) -> State:
        """See Recurrence."""
        c, wide = self.config, jnp.promote_types(self.dtype, jnp.float32)
        return jnp.zeros((batch, c.kv_heads, self.feature_count, c.value_size + 1), wide)

    def step(self) -> Step:
        """See Recurrence."""

        def step(state: State, token: tuple[Array, ...]) -> tuple[State, Array]:
            q, k, v = token
            state = state + k[..., None] * v[:, :, None]
            return state, jnp.einsum("BKGF,BKFV->BKGV", q, state)

        return step

    def through(
        self, entering: tuple[Array, ...], view: View
    ) -> tuple[Float[Array, "B T K G V"], State]:
        """See Recurrence. If all is seen and rows hold several segments, it runs from both ends."""
        blank, seg = self.blank(view.q_seg.shape[0]), view.q_seg
        assert view.order != "ranked", "sums have no ranks"
        if view.order == "all" and view.single:
            q, k, v = entering
            state = jnp.einsum("BSKF,BSKV->BKFV", k * _column(seg > 0, k), v)
            return jnp.einsum("BTKGF,BKFV->BTKGV", q, state), state
        out, state = chunked(_add, entering, seg, blank)
        if view.order == "all":
            backwards = tuple(x[:, ::-1] for x in entering)
            behind, _ = chunked(_add_strictly, backwards, renumbered(seg)[:, ::-1], blank)
            out = out + behind[:, ::-1]
        return out, state

    def leave(self, out: Float[Array, "B T K G V"]) -> Float[Array, "B T D"]:
        """See Recurrence."""
        mixed, total = out[..., :-1], out[..., -1:]
        mixed = mixed / jnp.where(total == 0, 1, total)  # padding gathers nothing
        return self._joined(mixed)

    def _joined(self, mixed: Float[Array, "B T K G V"]) -> Float[Array, "B T D"]:
        return self.output(mixed.reshape(*mixed.shape[:2], -1, mixed.shape[-1]).astype(self.dtype))


class DeltaRule(LinearAttention):
    """Linear attention that first removes what a key has stored: a fast weight, written by the
    delta rule with a separate strength for each token (Schlag et al. 2021, arXiv:2102.11174).
    Features are divided by their sum, the output is not. Causal only.
    """

    def setup(self) -> None:
        super().setup()
        c = self.config
        self.strength = Project(
            (c.d_model,), (c.kv_heads,), ("embed", self.kv_axis), self.dtype, role=MAP
        )

    def enter(self, x: Float[Array, "B T D"]) -> tuple[Array, ...]:
        """See Recurrence; adds strengths [B T K 1]."""
        q, k, v = super().enter(x)
        q, k = (y / y.sum(-1, keepdims=True) for y in (q, k))
        strength = jax.nn.sigmoid(at_least_float32(self.strength(x)))
        return q, k, v[..., :-1], strength[..., None]

    def blank(self, batch: int) -> State:
        """See Recurrence."""
        return super().blank(batch)[..., :-1]

    def step(self) -> Step:
        """See Recurrence."""

        def step(state: State, token: tuple[Array, ...]) -> tuple[State, Array]:
            q, k, v, strength = token
            new = strength * (v - jnp.einsum("BKF,BKFV->BKV", k, state))
            state = state + k[..., None] * new[:, :, None]
            return state, jnp.einsum("BKGF,BKFV->BKGV", q, state)

        return step

    def through(
        self, entering: tuple[Array, ...], view: View
    ) -> tuple[Float[Array, "B T K G V"], State]:
        """See Recurrence."""
        assert view.order == "causal", "what a key has stored depends on what came before"
        return chunked(_correct, entering, view.q_seg, self.blank(view.q_seg.shape[0]))

    def leave(self, out: Float[Array, "B T K G V"]) -> Float[Array, "B T D"]:
        """See Recurrence."""
        return self._joined(out)


def chunked(
    rule: Callable[..., tuple[Array, Array, Any]],
    entering: tuple[Array, ...],
    seg: Int[Array, "B T"],
    state: State,
) -> tuple[Float[Array, "B T K _ _"], State]:
    """Process sequences with ascending segment numbers, CHUNK tokens at a time.

    `rule(entering, state, same, goes_on)` returns the output of a chunk, what its tokens add to a
    state, as values [B S K V] of their keys, and the factor of the state, [B K V], [B K] or a
    number; `same` [B T S] says which pairs are in the same segment, `goes_on` [B T] which tokens
    are in that of the state.
    """

    def body(carry: tuple[State, Array], chunk: tuple[Array, ...]) -> tuple[Any, Array]:
        (state, last), (*entering_chunk, here) = carry, chunk
        same = (here[:, :, None] == here[:, None, :]) & (here > 0)[:, None, :]
        goes_on = here == last[:, None]
        out, values, stays = rule(entering_chunk, state, same, goes_on)
        final = jnp.maximum(last, here.max(1))
        keys = entering_chunk[1] * _column((here > 0) & (here == final[:, None]), entering_chunk[1])
        stays = jnp.asarray(stays, state.dtype)
        if stays.ndim < 3:
            stays = jnp.broadcast_to(stays, state.shape[:2])[..., None]
        stays = jnp.where((last == final).reshape(-1, 1, 1), stays, 0)[:, :, None]
        state = stays * state + jnp.einsum("BSKF,BSKV->BKFV", keys, values)
        return (state, final), out

    start = state, jnp.zeros_like(seg[:, 0])
    (state, _), out = in_chunks(body, start, (*entering, seg), CHUNK)
    return out, state


def _add(
    given: Sequence[Array], state: State, same: Array, goes_on: Array, behind: int = 0
) -> tuple[Array, Array, Any]:
    q, k, v = given
    return _gathered(q, k, v, state, same, goes_on, behind), v, 1.0


def _add_strictly(given: Any, state: State, same: Array, goes_on: Array) -> tuple:
    return _add(given, state, same, goes_on, behind=-1)


def fade(given: Sequence[Array], state: State, same: Array, goes_on: Array) -> tuple:
    """Decay earlier tokens by the gates of all tokens after them."""
    q, k, v, gates = given
    so_far = jnp.cumsum(jnp.where(_column(same.any(-1), gates), gates, 0), axis=1)  # [B T K]
    since = (so_far[:, :, None] - so_far[:, None]).transpose(0, 3, 1, 2)  # [B K T S]
    since = jnp.exp(jnp.where(jnp.tril(same)[:, None], since, -jnp.inf))
    scores = jnp.einsum("BTKGF,BSKF->BKGTS", q, k) * since[:, :, None]
    out = jnp.einsum("BKGTS,BSKV->BTKGV", scores, v)
    before = q * jnp.where(_column(goes_on, so_far), jnp.exp(so_far), 0)[..., None, None]
    out = out + jnp.einsum("BTKGF,BKFV->BTKGV", before, state)
    left = jnp.exp(so_far[:, -1:] - so_far)
    return out, v * left[..., None], jnp.exp(so_far[:, -1])


def _correct(given: Any, state: State, same: Array, goes_on: Array) -> tuple:
    """The delta rule for a chunk: each token adds its value minus what its key finds in the state
    and in what earlier tokens of the chunk added, which is a triangular system of equations.
    """
    q, k, v, strength = given
    recalled = jnp.einsum("BTKF,BKFV->BTKV", k * _column(goes_on, k), state)
    pairs = jnp.einsum("BTKF,BSKF->BKTS", k, k) * jnp.tril(same, -1)[:, None]
    strengths = strength.swapaxes(1, 2)  # [B K T 1]
    right = strengths * (v - recalled).swapaxes(1, 2)
    added = triangular.solve(strengths * pairs, right).swapaxes(1, 2)
    return _gathered(q, k, added, state, same, goes_on), added, 1.0


def _gathered(
    q: Array, k: Array, v: Array, state: State, same: Array, goes_on: Array, behind: int = 0
) -> Array:
    """Return what queries gather from the state and from the keys of their chunk before them."""
    scores = jnp.einsum("BTKGF,BSKF->BKGTS", q, k) * jnp.tril(same, behind)[:, None, None]
    out = jnp.einsum("BKGTS,BSKV->BTKGV", scores, v)
    return out + jnp.einsum("BTKGF,BKFV->BTKGV", q * _column(goes_on, q), state)


def _column(condition: Array, like: Array) -> Array:
    """Return a condition [B T] with the number of axes of an array [B T ...]."""
    return condition.reshape(*condition.shape, *(1,) * (like.ndim - 2))


WORDS = {"linear": LinearAttention, "delta_rule": DeltaRule}
