"""RWKV-7's time mixing: a state that decays by channel, from which each token erases a key."""

import math
from collections.abc import Sequence
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from transformer_jax.base.arrays import Array, Float, Int, at_least_float32
from transformer_jax.nn.convolutions import ShortConvolution
from transformer_jax.nn.initializers import named, parameter
from transformer_jax.nn.linear import Project
from transformer_jax.nn.mixers import triangular
from transformer_jax.nn.mixers.decaying import Convolved, head_axis
from transformer_jax.nn.mixers.in_order import in_chunks
from transformer_jax.nn.mixers.recurrence import FromBothEnds, Step
from transformer_jax.nn.norm import standardised
from transformer_jax.nn.roles import INWARD, OUTWARD, OWN_MAP, PLAIN

CHUNK = 16  # tokens between two states

Tokens = tuple[Array, ...]  # queries, decays, keys, values, what is erased, what replaces it

_EPSILON = 64e-5  # of the norm of heads
_ZERO = nn.initializers.zeros
# How a channel's place, from 0 to 1, weights the position before: 1 - place^power, as in the
# authors' first layer; for queries, decays, keys, values, rates and gates.
_POWERS = 0.2, 0.9, 0.7, 0.7, 0.9, 0.2


class Before(ShortConvolution):
    """The input of the position before, 0 at the beginning of a segment."""

    def setup(self) -> None:
        """It has no parameters."""

    def _summed(self, lags: Sequence[Array]) -> Array:
        return lags[0]


class Rwkv7(Convolved):
    """S = diag(w) S - (a u) (u S) + k v, y = r S for each head, with decays w, rates a and erased
    keys u, k normalised, all from maps of x and of the position before (Peng et al. 2025,
    arXiv:2503.14456). A norm of each head, what the token gives itself, a gate and a map follow.
    Causal only.

    Values are not mixed with those of the first layer, as the paper's are: a layer sees no other.
    """

    def setup(self) -> None:
        c, axis = self.config, head_axis(self.config)
        self.shape = c.inner_heads, c.d_model // c.inner_heads
        inward = (c.d_model,), self.shape, ("embed", axis, None), self.dtype, False, INWARD
        self.query, self.key, self.value = (Project(*inward) for _ in range(3))
        few, more = _rank(1.8 * c.d_model**0.5), _rank(0.6 * c.d_model**0.8)
        self.decay_latent, self.decay = self._by_way_of(few)
        self.rate_latent, self.rate = self._by_way_of(few)
        self.gate_latent, self.gate = self._by_way_of(more)
        outward = self.shape, (c.d_model,), (axis, None, "embed"), self.dtype, False, OUTWARD
        self.output = Project(*outward)
        self.before = Before(2, (c.d_model,), ("embed",), self.dtype)
        mixtures = named(_mixtures, None, "embed", role=PLAIN)
        self.mixtures = parameter(self, "mixtures", mixtures, (len(_POWERS), c.d_model))
        starts = {
            "decay_bias": _decays, "rate_bias": _ZERO, "erased": nn.initializers.constant(0.71),
            "replaced": nn.initializers.ones, "bonus": nn.initializers.constant(-0.04),
            "scale": nn.initializers.ones, "bias": _ZERO,
        }  # fmt: skip
        for name, init in starts.items():
            init = named(init, axis, None, role=PLAIN)
            setattr(self, name, parameter(self, name, init, self.shape))

    def _by_way_of(self, rank: int) -> tuple[Project, Project]:
        names, options = (None, head_axis(self.config), None), (self.dtype, False, OWN_MAP)
        inward = (self.config.d_model,), (rank,), ("embed", None), *options, _ZERO
        return Project(*inward), Project((rank,), self.shape, names, *options)

    @property
    def convolutions(self) -> Sequence[ShortConvolution]:
        """See Convolved."""
        return (self.before,)

    def enter(self, x: Float[Array, "B T D"]) -> tuple[tuple[Array], Array]:
        """See Convolved."""
        return (x,), x

    def tokens(self, convolved: Sequence[Array], rest: Array) -> tuple[Tokens, Any]:
        """See Convolved; the rest are what tokens give themselves, and gates [B T N H]."""
        away = convolved[0] - rest
        mixed = (rest + away * at_least_float32(mix)[None, None] for mix in self.mixtures)
        xr, xw, xk, xv, xa, xg = (x.astype(self.dtype) for x in mixed)
        r, k, v = (
            at_least_float32(of(x))
            for of, x in ((self.query, xr), (self.key, xk), (self.value, xv))
        )
        decay = self._biased(self.decay(jnp.tanh(self.decay_latent(xw))), self.decay_bias)
        rate = jax.nn.sigmoid(self._biased(self.rate(self.rate_latent(xa)), self.rate_bias))
        gate = self.gate(jax.nn.sigmoid(self.gate_latent(xg)))
        erased, replaced, bonus = (
            at_least_float32(x)[None, None] for x in (self.erased, self.replaced, self.bonus)
        )
        u = k * erased
        u = u * jax.lax.rsqrt(jnp.maximum(jnp.square(u).sum(-1, keepdims=True), 1e-24))
        k = k * (1 + (rate - 1) * replaced)
        own = (r * k * bonus).sum(-1, keepdims=True) * v
        return (r, -math.exp(-0.5) * jax.nn.sigmoid(decay), k, v, u, rate * u), (own, gate)

    @nn.nowrap
    def _biased(self, x: Array, bias: Array) -> Array:
        return at_least_float32(x) + at_least_float32(bias)[None, None]

    def blank_memory(self, batch: int) -> Float[Array, "B N H H"]:
        """See Convolved."""
        wide = jnp.promote_types(self.dtype, jnp.float32)
        return jnp.zeros((batch, *self.shape, self.shape[1]), wide)

    def step(self) -> Step:
        """See Recurrence."""

        def step(state: Array, token: tuple[Tokens, Any]) -> tuple[Array, Any]:
            (r, decay, k, v, u, b), rest = token
            found = jnp.einsum("BNF,BNFP->BNP", u, state)
            state = jnp.exp(decay)[..., None] * state - b[..., None] * found[:, :, None]
            state = state + k[..., None] * v[:, :, None]
            return state, (jnp.einsum("BNF,BNFP->BNP", r, state), rest)

        return step

    def sequence(self, tokens: tuple[Tokens, Any], seg: Int[Array, "B T"]) -> tuple[Any, Array]:
        """See Convolved: in chunks."""
        entering, rest = tokens
        start = self.blank_memory(len(seg)), jnp.zeros_like(seg[:, 0])
        (state, _), out = in_chunks(jax.checkpoint(erase), start, (*entering, seg), CHUNK)
        return (out, rest), state

    def leave(self, out: tuple[Array, tuple[Array, Array]]) -> Float[Array, "B T D"]:
        """See Recurrence."""
        mixed, (own, gate) = out
        normal = standardised(mixed, _EPSILON) * at_least_float32(self.scale)[None, None]
        mixed = self._biased(normal, self.bias) + own
        return self.output((mixed * at_least_float32(gate)).astype(self.dtype))


def erase(carry: tuple[Array, Array], chunk: tuple[Array, ...]) -> tuple[Any, Array]:
    """Return the state and the segment after a chunk, and what its tokens gather.

    What a token finds of the key that it erases, in the state and in what earlier tokens of the
    chunk did to it, is a triangular system of equations.
    """
    (state, last), (r, decay, k, v, u, b, here) = carry, chunk
    real = here > 0
    decay = jnp.where(real[..., None, None], decay, 0)
    same = (here[:, :, None] == here[:, None]) & real[:, None]  # [B T S]
    so_far = jnp.cumsum(decay, axis=1)  # [B T N F]

    def apart(until: Array, seen: Array) -> Array:
        """Return the factors of what token s wrote, until token t [B T S N F]."""
        factors = until[:, :, None] - so_far[:, None]
        return jnp.exp(jnp.where(seen[..., None, None], factors, -jnp.inf))

    earlier = apart(so_far - decay, jnp.tril(same, -1))
    erased_b, erased_k = (jnp.einsum("BTNF,BSNF,BTSNF->BNTS", u, x, earlier) for x in (b, k))
    goes_on = (here == last[:, None])[..., None, None]
    found = jnp.where(goes_on, u * jnp.exp(so_far - decay), 0)
    found = jnp.einsum("BTNF,BNFP->BNTP", found, state)
    found = found + jnp.einsum("BNTS,BSNP->BNTP", erased_k, v)
    found = triangular.solve(erased_b, found)

    until_now = apart(so_far, jnp.tril(same))
    read_b, read_k = (jnp.einsum("BTNF,BSNF,BTSNF->BNTS", r, x, until_now) for x in (b, k))
    out = jnp.einsum("BTNF,BNFP->BTNP", jnp.where(goes_on, r * jnp.exp(so_far), 0), state)
    out = out + jnp.einsum("BNTS,BSNP->BTNP", read_k, v)
    out = out - jnp.einsum("BNTS,BNSP->BTNP", read_b, found)

    final = jnp.maximum(last, here.max(1))
    kept = (real & (here == final[:, None]))[..., None, None]
    left = jnp.where(kept, jnp.exp(so_far[:, -1:] - so_far), 0)
    stays = jnp.where((last == final).reshape(-1, 1, 1), jnp.exp(so_far[:, -1]), 0)
    state = stays[..., None] * state + jnp.einsum("BSNF,BSNP->BNFP", left * k, v)
    state = state - jnp.einsum("BSNF,BNSP->BNFP", left * b, found)
    return (state, final), out


class BiRwkv7(FromBothEnds):
    """RWKV-7's time mixing from both ends."""

    one = Rwkv7


def _rank(size: float) -> int:
    """Return the size of a latent vector: a multiple of 32, as the authors choose it."""
    return max(32, round(size / 32) * 32)


def _mixtures(key: Array, shape: tuple[int, int], dtype: Any = jnp.float32) -> Array:
    place = jnp.arange(shape[1], dtype=dtype)[None] / shape[1]
    return 1 - place ** jnp.asarray(_POWERS, dtype)[:, None]


def _decays(key: Array, shape: tuple[int, int], dtype: Any = jnp.float32) -> Array:
    """Return -6.5 to -1.5, rising with the channel, as the authors' first layer has it."""
    count = shape[0] * shape[1]
    place = jnp.arange(count, dtype=dtype) / max(count - 1, 1)
    return (-6.5 + 5 * place**0.85).reshape(shape)


WORDS = {"rwkv7": Rwkv7, "birwkv7": BiRwkv7}
