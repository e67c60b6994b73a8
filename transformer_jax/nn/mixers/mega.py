"""MEGA: attention whose queries, keys and gates come from a moving average along the text."""

from dataclasses import replace
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
from flax import struct

from transformer_jax.base.arrays import Array, Bool, Float, Int, at_least_float32
from transformer_jax.nn.cache import KeysValues, Lanes, Slots
from transformer_jax.nn.dropout import Dropout
from transformer_jax.nn.initializers import named, parameter
from transformer_jax.nn.linear import Project, project_together
from transformer_jax.nn.mixers.attention import Attention, keys_values
from transformer_jax.nn.mixers.diagonal import Diagonal, System
from transformer_jax.nn.mixers.heads import heads_first
from transformer_jax.nn.mixers.local import Blocks
from transformer_jax.nn.mixers.mixer import Cache
from transformer_jax.nn.relative_positions import scheme_of
from transformer_jax.nn.ring import Ring
from transformer_jax.nn.roles import INWARD, OUTWARD, PLAIN
from transformer_jax.nn.view import View

_CHUNKS = 2**15  # more than any text has


class MovingAverage(Diagonal):
    """h = (1 - p d) h + p b u, y = silu(sum of g h / sqrt(n) + w u) for each channel, with p and d
    between 0 and 1, and n = `state_size` numbers h: damped exponential moving averages.
    """

    sides = ("",)  # prefixes of parameters, for each end that a text is read from

    def setup(self) -> None:
        c = self.config
        self.numbers = c.state_size
        little, normal = jax.nn.initializers.normal(0.2), jax.nn.initializers.normal(1.0)
        starts = {"weight": little, "damping": little, "expansion": _signs, "projection": normal}
        for side in self.sides:
            for name, init in starts.items():
                init = named(init, "embed", None, role=PLAIN)
                shape = c.d_model, self.numbers
                setattr(self, side + name, parameter(self, side + name, init, shape))
        self.skip = parameter(self, "skip", named(normal, "embed", role=PLAIN), (c.d_model,))

    def systems(self) -> list[System]:
        """See Diagonal."""
        return [self._system(side) for side in self.sides]

    def _system(self, side: str) -> System:
        weight, damping, expansion, projection = (
            at_least_float32(getattr(self, side + name))
            for name in ("weight", "damping", "expansion", "projection")
        )
        weight = jax.nn.sigmoid(weight)
        kept = jnp.maximum(1 - weight * jax.nn.sigmoid(damping), 1e-6)  # its logarithm is finite
        return jnp.log(kept) + 0j, weight * expansion * projection * self.numbers**-0.5 + 0j

    def leave(self, out: tuple[Array, Array]) -> Float[Array, "B T D"]:
        """See Recurrence."""
        mixed, u = out
        return jax.nn.silu(mixed + at_least_float32(self.skip)[None, None] * u).astype(self.dtype)


class BothAverages(MovingAverage):
    """Moving averages from both ends; a token is in both of its own."""

    sides = "", "backward_"  # type: ignore[assignment]


@struct.dataclass
class Averaged:
    """The states of moving averages, and keys and values: a Cache."""

    states: Cache
    memory: Cache

    def _each(self, method: str, *given: Any) -> "Averaged":
        return Averaged(*(getattr(one, method)(*given) for one in (self.states, self.memory)))

    def grow(self, before: Lanes, after: Lanes) -> "Averaged":
        """See Cache."""
        return self._each("grow", before, after)

    def reorder(self, parents: Array) -> "Averaged":
        """See Cache."""
        return self._each("reorder", parents)

    def rewind(self, position: Array) -> "Averaged":
        """See Cache."""
        return self._each("rewind", position)

    def keep(self, tokens: int) -> "Averaged":
        """See Cache."""
        return self._each("keep", tokens)

    def part(self, first: Any, size: int) -> tuple[Any, Any]:
        """See Cache."""
        return self.states.part(first, size), self.memory.part(first, size)

    def with_part(self, first: Any, size: int, part: tuple[Any, Any]) -> "Averaged":
        """See Cache."""
        states = self.states.with_part(first, size, part[0])
        return Averaged(states, self.memory.with_part(first, size, part[1]))

    def as_prompt(self, lanes: Lanes, reach: int) -> "Averaged":
        """See Cache."""
        return self._each("as_prompt", lanes, reach)


class Scaled(nn.Module):
    """One vector for all heads, times a scale and plus a bias of each."""

    heads: int
    size: int
    dtype: jnp.dtype

    @nn.compact
    def __call__(self, z: Float[Array, "B T H"]) -> Float[Array, "B T N H"]:
        little, shape = nn.initializers.normal(0.02), (self.heads, self.size)
        names = "heads", "head_dim"
        scale = parameter(self, "scale", named(little, *names, role=PLAIN), shape)
        bias = parameter(self, "bias", named(nn.initializers.zeros, *names, role=PLAIN), shape)
        return (z[:, :, None] * scale[None, None] + bias[None, None]).astype(self.dtype)


class Mega(Attention):
    """f = s(W_u x') (silu(W_h x' + U (r a)) - x), where x' is the moving average of x, and a is
    attention to values silu(W_v x) by queries and keys that are z = silu(W_z x'), with gains and
    offsets of their own, and r = silu(W_r x') (Ma et al. 2022, arXiv:2209.10655). With
    residual="post_norm", x + f is the paper's gate between x and what is new; other residuals give
    f the norm of x. The paper has one head, of 64 to 128 channels, values of twice d_model, and
    averages of 16 numbers. Causal only.
    """

    gates = False

    averages = MovingAverage
    in_pages = False

    def setup(self) -> None:
        c = self.config
        self.relative_positions = scheme_of("layer", c)
        self.dropout = Dropout(c.attention_dropout_rate)
        self.average = self.averages(c, self.dtype)
        self.shared = self._inward((c.key_size,), (None,))
        heads = (c.num_heads, c.inner_width // c.num_heads), ("heads", "head_dim")
        self.value, self.reset = self._inward(*heads), self._inward(*heads)
        self.update, self.candidate = (self._inward((c.d_model,), (None,)) for _ in range(2))
        outward = heads[0], (c.d_model,), (*heads[1], "embed"), self.dtype, True
        self.output = Project(*outward, OUTWARD)
        heads_of = c.num_heads, c.key_size, self.dtype
        self.query, self.key = Scaled(*heads_of), Scaled(*heads_of)  # type: ignore[assignment]

    def _inward(self, shape: tuple[int, ...], names: tuple[str | None, ...]) -> Project:
        width = self.config.d_model
        return Project((width,), shape, ("embed", *names), self.dtype, True, INWARD)

    def mix(
        self, x: Float[Array, "B T D"], view: View, train: bool
    ) -> tuple[Float[Array, "B T D"], Float[Array, "B N T S"] | None]:
        """See Mixer."""
        averaged, _ = self.average.mix(x, view, train)
        view = self._view(view)
        q, memory = self._queries(x, averaged, view)
        mixed, weights = self._mixed(q, memory, view, train)
        return self._gated(x, averaged, mixed), weights

    def empty(self, lanes: Lanes) -> Averaged:
        """See Mixer."""
        c = self.config
        batch, _, slots = lanes.seen.shape
        sizes = c.num_heads, c.key_size, c.inner_width // c.num_heads
        return Averaged(
            self.average.empty(lanes), KeysValues.empty(batch, slots, *sizes, self.dtype)
        )

    def extend(
        self, x: Float[Array, "B Q D"], cache: Any, slots: Slots, active: Bool[Array, "B"]
    ) -> tuple[Float[Array, "B Q D"], Float[Array, "B N Q C"] | None, Any]:
        """See Mixer."""
        view = self._view(slots.view)
        averaged, _, states = self.average.extend(x, cache.states, slots, active)
        q, new = self._queries(x, averaged, view)
        memory = cache.memory.write(slots.number, new)
        seen, view = (memory, view) if view.visible is not None else (new, view.on_itself())
        mixed, weights = self._mixed(q, seen, view, False)
        return self._gated(x, averaged, mixed), weights, Averaged(states, memory)

    def _queries(self, x: Array, averaged: Array, view: View) -> tuple[Array, KeysValues]:
        """Return queries, keys and values."""
        z = jax.nn.silu(at_least_float32(self.shared(averaged)))
        query, key = self.query(z), self.key(z)
        if view.rotate is not None:
            query, key = view.rotate(query), view.rotate(key)
        return heads_first(query), keys_values(key, jax.nn.silu(self.value(x)))

    def _gated(
        self, x: Float[Array, "B T D"], averaged: Array, mixed: Float[Array, "B N T P"]
    ) -> Float[Array, "B T D"]:
        """Return the new part, times the gate."""
        update, candidate = project_together(averaged, [self.update, self.candidate])
        reset = jax.nn.silu(self.reset(averaged)) * mixed.swapaxes(1, 2)
        new = jax.nn.silu(candidate + self.output(reset))
        return jax.nn.sigmoid(update) * (new - x.astype(self.dtype))


class BiMega(Mega):
    """MEGA with moving averages from both ends, for encoders."""

    averages = BothAverages


class MegaChunk(Mega):
    """MEGA whose attention stays within chunks of `config.block_size` positions, counted from the
    beginning of each text; the averages go on across them, and so do their gates. Its cost is
    linear in the length, and a search keeps one chunk.
    """

    in_slots = False

    def _view(self, view: View) -> View:
        """Restrict a view of segments to chunks: each becomes a segment of its own."""
        view = super()._view(view)
        if view.visible is not None:  # by `extend`, which knows the slots
            return view
        q_seg, k_seg = (
            jnp.where(seg > 0, seg * _CHUNKS + self._chunk(pos), 0)
            for seg, pos in ((view.q_seg, view.q_pos), (view.k_seg, view.k_pos))
        )
        return replace(view, q_seg=q_seg, k_seg=k_seg, single=False)

    def _chunk(self, pos: Int[Array, "B T"]) -> Int[Array, "B T"]:
        return pos // self.config.block_size

    def _mixed(
        self, q: Float[Array, "B N T H"], memory: KeysValues, view: View, train: bool,
        whole: bool = False,
    ) -> tuple[Float[Array, "B N T Hv"], Float[Array, "B N T S"]]:  # fmt: skip
        """Cut long rows into blocks as long as chunks, which may begin anywhere in them."""
        size, length = self.config.block_size, q.shape[2]
        if view.visible is not None or view.order == "ranked" or length <= 2 * size:
            return super()._mixed(q, memory, view, train)
        blocks = Blocks(q.shape[0], length, size, 1, view.order == "all")
        keys, values = blocks.around(memory.keys, 3), blocks.around(memory.values, 2)
        with blocks.numbered():
            mixed, weights = super()._mixed(
                blocks.own(q, 2), KeysValues(keys, values), blocks.view(view), train
            )
        return blocks.whole(mixed), blocks.spread(weights)

    def empty(self, lanes: Lanes) -> Averaged:
        """See Mixer."""
        c = self.config
        sizes = c.num_heads, c.key_size, c.inner_width // c.num_heads
        ring = Ring.empty(lanes, c.block_size, *sizes, self.dtype)
        return Averaged(self.average.empty(lanes), ring)

    def extend(
        self, x: Float[Array, "B Q D"], cache: Any, slots: Slots, active: Bool[Array, "B"]
    ) -> tuple[Float[Array, "B Q D"], Float[Array, "B N Q C"] | None, Any]:
        """See Mixer."""
        view, ring = self._view(slots.view), cache.memory
        averaged, _, states = self.average.extend(x, cache.states, slots, active)
        q, new = self._queries(x, averaged, view)
        if view.visible is None:  # a prompt
            seen, ring, view = new, ring.prompted(new, view.q_seg), view.on_itself()
        else:
            batch, width, _ = ring.seen.shape
            pos = view.q_pos.reshape(batch, width, -1)
            ring = ring.write(pos[:, 0], new, active)
            held = jnp.repeat(ring.seen, pos.shape[2], axis=1)
            same = self._chunk(view.q_pos)[:, :, None] == self._chunk(ring.k_pos())[:, None]
            seen, view = ring.memory, view.on_slots(held & same, ring.k_pos())
        mixed, weights = self._mixed(q, seen, view, False)
        return self._gated(x, averaged, mixed), weights, Averaged(states, ring)


class BiMegaChunk(MegaChunk):
    """The same with moving averages from both ends, for encoders."""

    averages = BothAverages


def _signs(key: Array, shape: tuple[int, int], dtype: Any = jnp.float32) -> Array:
    """Draw near 1 and -1 in turn."""
    signs = 1 - 2 * (jnp.arange(shape[1], dtype=dtype) % 2)
    return signs[None] + 0.02 * jax.random.normal(key, shape, dtype)


WORDS = {
    "mega": Mega,
    "bimega": BiMega,
    "mega_chunk": MegaChunk,
    "bimega_chunk": BiMegaChunk,
}
