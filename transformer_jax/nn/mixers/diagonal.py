"""What S4D and MEGA's moving averages share: a linear state space for each channel, with a diagonal
matrix, so that what becomes of a whole text is a convolution.
"""

import math
from typing import Any

import jax
import jax.numpy as jnp

from transformer_jax.base.arrays import Array, Float, Int, at_least_float32
from transformer_jax.nn.mixers import in_order
from transformer_jax.nn.mixers.recurrence import Recurrence, Step, renumbered
from transformer_jax.nn.view import View

CHUNK = 64  # tokens between two states, where rows hold several segments

System = tuple[Array, Array]  # complex: exponents [D M], and weights of states in the output [D M]


class Diagonal(Recurrence):
    """h = exp(a) h + u, y = Re sum of w h over the M complex numbers in the state of a channel.

    As nothing depends on the input, rows of one text are one convolution, by FFT; those of several
    segments pass a state from chunk to chunk. States are kept as pairs of real numbers.
    """

    numbers = 1  # M
    first = 0  # how many positions after a token the first is that it reads from the end

    def systems(self) -> list[System]:
        """Return the system that reads a text from its beginning, and, if it is read from both
        ends, that which reads it from its end.
        """
        raise NotImplementedError

    def _systems(self) -> list[System]:
        """Return them in the dtype of the state, whatever that of the parameters is."""
        wide = jnp.promote_types(self.dtype, jnp.complex64)
        return [(exponents.astype(wide), w.astype(wide)) for exponents, w in self.systems()]

    def enter(self, x: Float[Array, "B T D"]) -> Float[Array, "B T D"]:
        """See Recurrence."""
        return at_least_float32(x)

    def blank(self, batch: int) -> Float[Array, "B D M 2"]:
        """See Recurrence."""
        wide = jnp.promote_types(self.dtype, jnp.float32)
        return jnp.zeros((batch, self.config.d_model, self.numbers, 2), wide)

    def step(self) -> Step:
        """See Recurrence."""
        ((exponents, weights),) = self._systems()
        factor = jnp.exp(exponents)[None]

        def step(state: Array, u: Float[Array, "B D"]) -> tuple[Array, Any]:
            state = _times(state, factor).at[..., 0].add(u[..., None])
            return state, (_times(state, weights[None])[..., 0].sum(-1), u)

        return step

    def mix(self, x: Float[Array, "B T D"], view: View, train: bool) -> tuple[Array, None]:
        """See Mixer."""
        systems = self._systems()
        order = "causal" if len(systems) == 1 else "all"
        assert view.order == order, "a text being generated has no end to start from"
        u, seg, length = self.enter(x), view.q_seg, x.shape[1]
        if view.single:
            kernels = [lags(*system, length) for system in systems]
            out = convolved(jnp.where(seg[..., None] > 0, u, 0), self._two_sided(kernels))
        else:
            out, _ = packed(u, seg, *systems[0])
            if len(systems) == 2:
                behind, _ = packed(u[:, ::-1], renumbered(seg)[:, ::-1], *systems[1])
                out = out + _delayed(behind, self.first, renumbered(seg)[:, ::-1])[:, ::-1]
        return self.leave((out, u)), None

    def _two_sided(self, kernels: list[Array]) -> Float[Array, "S D"]:
        """Return the kernels of the lags from 0 to T - 1 and from -T to -1."""
        ahead, behind = kernels[0], jnp.zeros_like(kernels[0])
        if len(kernels) == 2:
            behind = kernels[1]
            if not self.first:
                ahead = ahead.at[0].add(behind[0])
                behind = jnp.pad(behind[1:], ((0, 1), (0, 0)))
        return jnp.concatenate([ahead, behind[::-1]])

    def through(self, entering: Array, view: View) -> tuple[Any, Array]:
        """See Recurrence."""
        (system,) = self._systems()
        out, state = packed(entering, view.q_seg, *system)
        return (out, entering), state


def lags(exponents: Array, weights: Array, length: int) -> Float[Array, "T D"]:
    """Return the kernels of all channels: Re sum of weights exp(dt A n) for n from 0 to T - 1.

    As products of powers of n // q and n % q, so that memory does not grow with T M.
    """
    few = math.isqrt(length - 1) + 1
    many = -(-length // few)
    near = jnp.exp(jnp.arange(few).reshape(-1, 1, 1) * exponents[None])
    far = weights[None] * jnp.exp(few * jnp.arange(many).reshape(-1, 1, 1) * exponents[None])
    kernel = jnp.einsum("IDM,JDM->IJD", far, near).real
    return kernel.reshape(-1, kernel.shape[-1])[:length]


def convolved(u: Float[Array, "B T D"], kernel: Float[Array, "S D"]) -> Float[Array, "B T D"]:
    """Return u convolved with kernels of S = 2 T lags, of which the second half is negative."""
    count, length = kernel.shape[0], u.shape[1]
    waves = jnp.fft.rfft(u, count, axis=1) * jnp.fft.rfft(kernel, axis=0)[None]
    return jnp.fft.irfft(waves, count, axis=1)[:, :length]


def packed(
    u: Float[Array, "B T D"], seg: Int[Array, "B T"], exponents: Array, weights: Array
) -> tuple[Float[Array, "B T D"], Float[Array, "B D M 2"]]:
    """Return the outputs, without the skip, for segments in ascending order, and the last states.

    Each row is moved to the end of a whole number of chunks, so that its last token ends one: a
    state then decays by whole chunks.
    """
    length = seg.shape[1]
    size = min(CHUNK, length)
    count = -(-length // size)
    last = jnp.where(seg > 0, jnp.arange(length)[None], -1).max(1, keepdims=True)
    empty = count * size - 1 - last  # before each row
    place = jnp.arange(count * size)[None] - empty
    at = jnp.maximum(place, 0)
    seg = jnp.where(place >= 0, jnp.take_along_axis(seg, at, 1), 0)
    u = jnp.where((seg > 0)[..., None], jnp.take_along_axis(u, at[..., None], 1), 0)

    steps = jnp.arange(size)
    apart = steps[:, None] - steps[None]
    kernel = lags(exponents, weights, size)
    within = jnp.where((apart >= 0)[..., None], kernel[jnp.maximum(apart, 0)], 0)[None]  # [1 T S D]
    by_step = steps.reshape(-1, 1, 1)
    after = _pairs((weights[None] * jnp.exp((by_step + 1) * exponents[None])).conj())  # [T D M 2]
    left = _pairs(jnp.exp((size - 1 - by_step) * exponents[None]))  # [S D M 2]
    over = jnp.exp(size * exponents)[None]

    def body(carry: tuple[Array, Array], chunk: tuple[Array, Array]) -> tuple[Any, Array]:
        (state, before), (u, here) = carry, chunk
        same = (here[:, :, None] == here[:, None])[..., None]
        out = (within * jnp.where(same, u[:, None], 0)).sum(2)
        goes_on = (here == before[:, None])[..., None]
        out = out + jnp.where(goes_on, jnp.einsum("TDMC,BDMC->BTD", after, state), 0)
        final = jnp.maximum(before, here.max(1))
        new = jnp.where((here == final[:, None])[..., None], u, 0)
        stays = (before == final).reshape(-1, 1, 1, 1)
        state = jnp.where(stays, _times(state, over), 0) + jnp.einsum("SDMC,BSD->BDMC", left, new)
        return (state, final), out

    def cut(x: Array) -> Array:
        return x.reshape(x.shape[0], count, size, *x.shape[2:]).swapaxes(0, 1)

    start = jnp.zeros((len(u), *exponents.shape, 2), u.dtype), jnp.zeros_like(seg[:, 0])
    (state, _), out = in_order.scan(jax.checkpoint(body), start, (cut(u), cut(seg)))
    out = out.swapaxes(0, 1).reshape(u.shape)
    back = jnp.minimum(jnp.arange(length)[None] + empty, count * size - 1)
    return jnp.take_along_axis(out, back[..., None], 1), state


def _delayed(x: Float[Array, "B T D"], count: int, seg: Int[Array, "B T"]) -> Array:
    """Return what was `count` positions earlier in the same segment, 0 at its beginning."""
    length = seg.shape[1]
    before = jnp.pad(x, ((0, 0), (count, 0), (0, 0)))[:, :length]
    same = jnp.pad(seg, ((0, 0), (count, 0)))[:, :length] == seg
    return jnp.where(same[..., None], before, 0)


def _pairs(x: Array) -> Array:
    """Return complex numbers as pairs of real ones."""
    return jnp.stack([x.real, x.imag], axis=-1)


def _times(x: Float[Array, "B D M 2"], factor: Array) -> Float[Array, "B D M 2"]:
    """Return pairs of numbers times complex ones."""
    real, imaginary = x[..., 0], x[..., 1]
    return jnp.stack(
        [
            real * factor.real - imaginary * factor.imag,
            real * factor.imag + imaginary * factor.real,
        ],
        axis=-1,
    )
