"""S4D: a linear state space for each channel, which is a convolution as long as the text."""

import math
from typing import Any

import jax
import jax.numpy as jnp

from transformer_jax.base.arrays import Array, Float, Int, at_least_float32
from transformer_jax.nn.initializers import log_of, named, parameter, time_steps
from transformer_jax.nn.linear import Project, project_together
from transformer_jax.nn.mixers.recurrence import Recurrence, Step, renumbered
from transformer_jax.nn.roles import INWARD, OUTWARD, PLAIN
from transformer_jax.nn.view import View

CHUNK = 64  # tokens between two states, where rows hold several segments

Weights = Float[Array, "D M"]  # complex; those of the states of a channel in its output


class S4D(Recurrence):
    """h = exp(dt A) h + u, y = 2 Re sum of C (exp(dt A) - 1) / A h, + D u for each channel, whose
    state h has M = `state_size` / 2 complex numbers, with A = -exp(a) + i w; then GELU and a gated
    linear map (Gu et al. 2022, arXiv:2206.11893). A starts as -1/2 + i pi m, S4D-Lin. Causal only.

    As nothing depends on the input, rows of one text are one convolution, by FFT; those of several
    segments pass a state from chunk to chunk. States are kept as pairs of real numbers.
    """

    def setup(self) -> None:
        c = self.config
        shape, axes = (c.d_model, c.state_size // 2), ("embed", None)
        normal = jax.nn.initializers.normal(0.5**0.5)
        starts = {
            "time_step": (log_of(time_steps), 1), "skip": (jax.nn.initializers.normal(1.0), 1),
            "log_decay": (jax.nn.initializers.constant(math.log(0.5)), 2), "frequency": (_waves, 2),
            "real": (normal, 2), "imaginary": (normal, 2),
        }  # fmt: skip
        for name, (init, count) in starts.items():
            init = named(init, *axes[:count], role=PLAIN)
            setattr(self, name, parameter(self, name, init, shape[:count]))
        outward = (c.d_model,), (c.d_model,), ("embed", None), self.dtype, True
        self.output, self.gate = Project(*outward, OUTWARD), Project(*outward, INWARD)

    def enter(self, x: Float[Array, "B T D"]) -> Float[Array, "B T D"]:
        """See Recurrence."""
        return at_least_float32(x)

    def blank(self, batch: int) -> Float[Array, "B D M 2"]:
        """See Recurrence."""
        c, wide = self.config, jnp.promote_types(self.dtype, jnp.float32)
        return jnp.zeros((batch, c.d_model, c.state_size // 2, 2), wide)

    def exponents(self) -> Array:
        """Return dt A, complex [D M]."""
        a = -jnp.exp(at_least_float32(self.log_decay)) + 1j * at_least_float32(self.frequency)
        return jnp.exp(at_least_float32(self.time_step))[:, None] * a

    def weights(self, real: Array, imaginary: Array) -> Array:
        """Return the weights of states in the output, complex [D M]."""
        exponents = self.exponents()
        rate = jnp.exp(at_least_float32(self.time_step))[:, None]
        c = at_least_float32(real) + 1j * at_least_float32(imaginary)
        return 2 * c * jnp.expm1(exponents) * rate / exponents

    def step(self) -> Step:
        """See Recurrence."""
        factor = jnp.exp(self.exponents())[None]
        weights, skip = self.weights(self.real, self.imaginary)[None], self.skip[None]

        def step(state: Array, u: Float[Array, "B D"]) -> tuple[Array, Array]:
            state = _times(state, factor).at[..., 0].add(u[..., None])
            return state, _times(state, weights)[..., 0].sum(-1) + skip * u

        return step

    def mix(self, x: Float[Array, "B T D"], view: View, train: bool) -> tuple[Array, None]:
        """See Mixer."""
        if not view.single:
            return super().mix(x, view, train)
        u = jnp.where(view.q_seg[..., None] > 0, self.enter(x), 0)
        weights, length = self.weights(self.real, self.imaginary), x.shape[1]
        kernel = jnp.pad(lags(self.exponents(), weights, length), ((0, length), (0, 0)))
        return self.leave(convolved(u, kernel) + self.skip[None, None] * u), None

    def through(self, entering: Array, view: View) -> tuple[Array, Array]:
        """See Recurrence."""
        assert view.order == "causal", "it runs from left to right"
        weights = self.weights(self.real, self.imaginary)
        out, state = packed(entering, view.q_seg, self.exponents(), weights)
        return out + self.skip[None, None] * entering, state

    def leave(self, out: Float[Array, "B T D"]) -> Float[Array, "B T D"]:
        """See Recurrence."""
        active = jax.nn.gelu(out, approximate=False).astype(self.dtype)
        linear, gate = project_together(active, [self.output, self.gate])
        return linear * jax.nn.sigmoid(gate)


class BiS4D(S4D):
    """S4D from both ends: the kernel of later positions has weights C of its own and begins with
    the next one, as in S4. For encoders only.
    """

    def setup(self) -> None:
        super().setup()
        normal = named(jax.nn.initializers.normal(0.5**0.5), "embed", None, role=PLAIN)
        shape = self.config.d_model, self.config.state_size // 2
        self.backward_real = parameter(self, "backward_real", normal, shape)
        self.backward_imaginary = parameter(self, "backward_imaginary", normal, shape)

    def mix(self, x: Float[Array, "B T D"], view: View, train: bool) -> tuple[Array, None]:
        """See Mixer."""
        assert view.order == "all", "a text being generated has no end to start from"
        seg, exponents, length = view.q_seg, self.exponents(), x.shape[1]
        u = jnp.where(seg[..., None] > 0, self.enter(x), 0)
        both = (
            self.weights(self.real, self.imaginary),
            self.weights(self.backward_real, self.backward_imaginary),
        )
        if view.single:
            ahead, behind = (lags(exponents, weights, length) for weights in both)
            out = convolved(u, jnp.concatenate([ahead, behind[::-1]]))
        else:
            out, _ = packed(u, seg, exponents, both[0])
            behind, _ = packed(u[:, ::-1], renumbered(seg)[:, ::-1], exponents, both[1])
            after = jnp.pad(behind[:, ::-1], ((0, 0), (0, 1), (0, 0)))[:, 1:]
            goes_on = seg == jnp.pad(seg, ((0, 0), (0, 1)))[:, 1:]
            out = out + jnp.where(goes_on[..., None], after, 0)
        return self.leave(out + self.skip[None, None] * u), None


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
    (state, _), out = jax.lax.scan(jax.checkpoint(body), start, (cut(u), cut(seg)))
    out = out.swapaxes(0, 1).reshape(u.shape)
    back = jnp.minimum(jnp.arange(length)[None] + empty, count * size - 1)
    return jnp.take_along_axis(out, back[..., None], 1), state


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


def _waves(key: Array, shape: tuple[int, ...], dtype: Any = jnp.float32) -> Array:
    """Return pi m for the m-th number of each state."""
    return jnp.broadcast_to(math.pi * jnp.arange(shape[1], dtype=dtype)[None], shape)


WORDS = {"s4d": S4D, "bis4d": BiS4D}
