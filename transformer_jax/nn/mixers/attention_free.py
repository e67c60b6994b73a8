"""The attention-free transformer (Zhai et al. 2021, arXiv:2105.14103): weights per channel.

A query does not choose among positions but gates, channel by channel, what keys have weighted:
sigmoid(q_t) sum_s exp(k_s + w_ts) v_s / sum_s exp(k_s + w_ts), with trained w.
"""

from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp

from transformer_jax.base.arrays import Array, Bool, Float, at_least_float32
from transformer_jax.nn.cache import KeysValues
from transformer_jax.nn.initializers import named, parameter
from transformer_jax.nn.mixers.attention import Attention
from transformer_jax.nn.mixers.heads import Heads
from transformer_jax.nn.mixers.local import Blocks
from transformer_jax.nn.mixers.recurrence import Recurrence, Step
from transformer_jax.nn.roles import PLAIN
from transformer_jax.nn.view import View

_MOST = 60.0  # e^60, times any sum of values, is far from the largest float32
_NOWHERE = -1e30  # in place of -inf, whose differences are NaN


class AftFull(Attention):
    """w_ts is the product of a vector for each position, of `config.position_rank` numbers."""

    gates = False

    def setup(self) -> None:
        super().setup()
        c = self.config
        small = named(nn.initializers.normal(0.01), "length", "rank", role=PLAIN)
        shape = c.max_positions, c.position_rank
        self.queries_places = parameter(self, "query_places", small, shape)
        self.keys_places = parameter(self, "key_places", small, shape)

    def weights(self, view: View) -> Float[Array, "B N T S"]:
        """Return w, one for all heads."""
        q, k = self.queries_places[view.q_pos], self.keys_places[view.k_pos]
        return jnp.einsum("BTR,BSR->BTS", q, k)[:, None]

    def _gather(
        self, q: Float[Array, "B N T H"], memory: KeysValues, view: View, train: bool
    ) -> tuple[Float[Array, "B T D"], None]:
        q, k, v = map(at_least_float32, (q, *memory))
        w = jnp.where(view.mask(), at_least_float32(self.weights(view)), -jnp.inf)
        # A query's weights may all be divided by the largest that it sees. For keys, any such
        # number would depend on the future, so the largest keys are clipped.
        most = jax.lax.stop_gradient(jnp.maximum(w.max(-1, keepdims=True), _NOWHERE))
        w = jnp.broadcast_to(jnp.exp(w - most), (*q.shape[:3], w.shape[-1]))
        k = jnp.exp(jnp.minimum(k, _MOST))
        total = jnp.einsum("BNTS,BNHS->BNTH", w, k)
        mixed = jnp.einsum("BNTS,BNHS->BNTH", w, k * v.swapaxes(2, 3))
        mixed = jax.nn.sigmoid(q) * mixed / jnp.where(total == 0, 1, total)
        return self._joined(mixed.astype(self.dtype)), None


class _Near(AftFull):
    """w is 0 for keys `config.window` positions away or more, which are still seen.

    So all seen keys weigh exp(k), in two sums per channel, and exp(w) - 1 times that is added for
    near ones: in blocks of keys around blocks of queries, without a weight for every pair.
    """

    def _gather(
        self, q: Float[Array, "B N T H"], memory: KeysValues, view: View, train: bool
    ) -> tuple[Float[Array, "B T D"], None]:
        size, (batch, _, length, _) = self.config.window, q.shape
        assert size is not None
        if view.visible is not None or view.order == "ranked" or length <= 2 * size:
            return super()._gather(q, memory, view, train)
        q, k, v = map(at_least_float32, (q, memory.keys.swapaxes(2, 3), memory.values))
        k = jnp.where(view.k_seg[:, None, :, None] > 0, jnp.exp(jnp.minimum(k, _MOST)), 0)
        added = Sums(jnp.zeros_like(k), k * v, k)
        tokens = jax.tree.map(lambda x: x.swapaxes(1, 2), added)  # [B T N H]
        whole = _seen(tokens, view, jax.tree.map(jnp.zeros_like, tokens))[0]
        blocks = Blocks(batch, length, size, 1, view.order == "all")
        near = blocks.view(view)
        seen = near.mask() & (jnp.abs(near.distance()) < size)[:, None]
        w = jnp.where(seen, at_least_float32(self.weights(near)), 0)
        most = jax.lax.stop_gradient(jnp.maximum(w.max(-1, keepdims=True), 0))
        more = jnp.where(seen, jnp.exp(w - most) - jnp.exp(-most), 0)
        more = jnp.broadcast_to(more, (more.shape[0], q.shape[1], *more.shape[2:]))
        less = jnp.exp(-blocks.whole(jnp.broadcast_to(most, (*more.shape[:3], 1))))

        def gathered(far: Array, x: Array) -> Array:
            beside = jnp.einsum("BNTS,BNSH->BNTH", more, blocks.around(x, 2))
            return less * far.swapaxes(1, 2) + blocks.whole(beside)

        mixed, total = gathered(whole.mixed, added.mixed), gathered(whole.total, added.total)
        mixed = jax.nn.sigmoid(q) * mixed / jnp.where(total == 0, 1, total)
        return self._joined(mixed.astype(self.dtype)), None


class AftLocal(_Near):
    """w is that of AftFull for near keys."""

    def weights(self, view: View) -> Float[Array, "B N T S"]:
        """See AftFull."""
        return _near(self.config.window, view, super().weights(view))


class AftConv(_Near):
    """w depends only on the distance, for each head, and is 0 beyond the window."""

    def setup(self) -> None:
        Attention.setup(self)
        c = self.config
        assert c.window is not None
        small = named(nn.initializers.normal(0.01), "length", "heads", role=PLAIN)
        self.distances = parameter(self, "distances", small, (2 * c.window - 1, c.num_heads))

    def weights(self, view: View) -> Float[Array, "B N T S"]:
        """See AftFull."""
        reach = self.distances.shape[0] // 2
        row = jnp.clip(-view.distance(), -reach, reach) + reach
        return _near(self.config.window, view, jnp.moveaxis(self.distances[row], -1, 1))


def _near(window: int | None, view: View, w: Array) -> Array:
    assert window is not None
    return jnp.where((jnp.abs(view.distance()) < window)[:, None], w, 0)


class Sums(NamedTuple):
    """Sums of exp(k - most) v and of exp(k - most), with the largest k so far [... N H]."""

    most: Array
    mixed: Array
    total: Array

    def with_(self, other: "Sums") -> "Sums":
        """Return the sums of both."""
        most = jax.lax.stop_gradient(jnp.maximum(self.most, other.most))
        mine, theirs = jnp.exp(self.most - most), jnp.exp(other.most - most)
        mixed = self.mixed * mine + other.mixed * theirs
        return Sums(most, mixed, self.total * mine + other.total * theirs)


class AftSimple(Recurrence, Heads):
    """w is 0 everywhere: two sums per channel hold all of the past."""

    def enter(self, x: Float[Array, "B T D"]) -> tuple[Array, Sums]:
        """See Recurrence: gates [B T N H], and what each token adds."""
        q, k, v = map(at_least_float32, self.queries_keys_values(x))
        # The largest is only a common factor; the gradient flows through the exponent.
        most = jax.lax.stop_gradient(k)
        weight = jnp.exp(k - most)
        return jax.nn.sigmoid(q), Sums(most, weight * v, weight)

    def blank(self, batch: Any) -> Sums:
        """See Recurrence."""
        c, wide = self.config, jnp.promote_types(self.dtype, jnp.float32)
        zeros = jnp.zeros((batch, c.num_heads, c.key_size), wide)
        return Sums(zeros + _NOWHERE, zeros, zeros)

    def step(self) -> Step:
        """See Recurrence."""

        def step(state: Sums, token: tuple[Array, Sums]) -> tuple[Sums, Array]:
            gate, new = token
            state = state.with_(new)
            return state, gate * state.mixed / state.total

        return step

    def through(
        self, entering: tuple[Array, Sums], view: View
    ) -> tuple[Float[Array, "B T N H"], Sums]:
        """See Recurrence: prefix sums, from both ends where all is seen."""
        assert view.order != "ranked", "sums have no ranks"
        (gate, each), seg = entering, view.q_seg
        batch = seg.shape[0]
        whole, sums = _seen(each, view, jax.tree.map(lambda x: x[:, None], self.blank(batch)))
        last = jnp.maximum((seg > 0).sum(1) - 1, 0)  # the last token of each row
        state = jax.tree.map(lambda x: x[jnp.arange(batch), last], sums)
        return gate * whole.mixed / jnp.where(whole.total == 0, 1, whole.total), state

    def leave(self, out: Float[Array, "B T N H"]) -> Float[Array, "B T D"]:
        """See Recurrence."""
        return self.output(out.astype(self.dtype))


def _seen(each: Sums, view: View, nothing: Sums) -> tuple[Sums, Sums]:
    """Return the sums of all that each token sees, and those up to and including it."""
    seg = view.q_seg
    each = _where(seg > 0, each, nothing)
    sums = _prefixes(each, seg)
    if view.order != "all":
        return sums, sums
    backwards = jax.tree.map(lambda x: x[:, ::-1], each)
    behind = jax.tree.map(lambda x: x[:, ::-1], _prefixes(backwards, seg[:, ::-1]))
    after = jax.tree.map(lambda x: jnp.roll(x, -1, axis=1), behind)
    same = seg == jnp.pad(seg, ((0, 0), (0, 1)))[:, 1:]
    return sums.with_(_where(same, after, nothing)), sums


def _where(condition: Bool[Array, "B T"], one: Sums, other: Sums) -> Sums:
    return jax.tree.map(lambda x, y: jnp.where(condition[..., None, None], x, y), one, other)


def _prefixes(each: Sums, seg: Array) -> Sums:
    """Return the sums of each token's segment up to and including it."""
    first = seg != jnp.pad(seg, ((0, 0), (1, 0)))[:, :-1]
    flags = jnp.broadcast_to(first[..., None, None], each.most.shape)

    def then(one: tuple[Sums, Array], other: tuple[Sums, Array]) -> tuple[Sums, Array]:
        (before, begins), (here, anew) = one, other
        both = before.with_(here)
        sums = jax.tree.map(lambda x, y: jnp.where(anew, x, y), here, both)
        return sums, begins | anew

    return jax.lax.associative_scan(then, (each, flags), axis=1)[0]


WORDS = {"aft_full": AftFull, "aft_local": AftLocal, "aft_conv": AftConv, "aft_simple": AftSimple}
