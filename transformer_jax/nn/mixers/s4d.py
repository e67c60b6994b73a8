"""S4D: a linear state space for each channel, which is a convolution as long as the text."""

import math
from typing import Any

import jax
import jax.numpy as jnp

from transformer_jax.base.arrays import Array, Float, at_least_float32
from transformer_jax.nn.initializers import log_of, named, parameter, time_steps
from transformer_jax.nn.linear import Project, project_together
from transformer_jax.nn.mixers.diagonal import Diagonal, System
from transformer_jax.nn.roles import INWARD, OUTWARD, PLAIN


class S4D(Diagonal):
    """h = exp(dt A) h + u, y = 2 Re sum of C (exp(dt A) - 1) / A h, + D u for each channel, whose
    state h has `state_size` / 2 complex numbers, with A = -exp(a) + i w; then GELU and a gated
    linear map (Gu et al. 2022, arXiv:2206.11893). A starts as -1/2 + i pi m, S4D-Lin. Causal only.
    """

    def setup(self) -> None:
        c = self.config
        self.numbers = c.state_size // 2
        starts = {
            "time_step": log_of(time_steps), "skip": jax.nn.initializers.normal(1.0),
            "log_decay": jax.nn.initializers.constant(math.log(0.5)), "frequency": _waves,
            **dict.fromkeys(self.sides(), jax.nn.initializers.normal(0.5**0.5)),
        }  # fmt: skip
        for name, init in starts.items():
            one = name in ("time_step", "skip")
            shape, axes = (c.d_model, self.numbers)[: 2 - one], ("embed", None)[: 2 - one]
            setattr(self, name, parameter(self, name, named(init, *axes, role=PLAIN), shape))
        outward = (c.d_model,), (c.d_model,), ("embed", None), self.dtype, True
        self.output, self.gate = Project(*outward, OUTWARD), Project(*outward, INWARD)

    def sides(self) -> tuple[str, ...]:
        """Return the names of C's real and imaginary parts, for each end that it reads from."""
        return "real", "imaginary"

    def systems(self) -> list[System]:
        """See Diagonal."""
        time_step = jnp.exp(at_least_float32(self.time_step))[:, None]
        decay, frequency = at_least_float32(self.log_decay), at_least_float32(self.frequency)
        exponents = time_step * (1j * frequency - jnp.exp(decay))
        inward = 2 * time_step * jnp.expm1(exponents) / exponents
        parts = [at_least_float32(getattr(self, name)) for name in self.sides()]
        pairs = zip(parts[::2], parts[1::2], strict=True)
        return [(exponents, inward * (real + 1j * imaginary)) for real, imaginary in pairs]

    def leave(self, out: tuple[Array, Array]) -> Float[Array, "B T D"]:
        """See Recurrence."""
        mixed, u = out
        mixed = mixed + at_least_float32(self.skip)[None, None] * u
        active = jax.nn.gelu(mixed, approximate=False).astype(self.dtype)
        linear, gate = project_together(active, [self.output, self.gate])
        return linear * jax.nn.sigmoid(gate)


class BiS4D(S4D):
    """S4D from both ends: the kernel of later positions has weights C of its own and begins with
    the next one, as in S4. For encoders only.
    """

    first = 1

    def sides(self) -> tuple[str, ...]:
        """See S4D."""
        return *super().sides(), "backward_real", "backward_imaginary"


def _waves(key: Array, shape: tuple[int, ...], dtype: Any = jnp.float32) -> Array:
    """Return pi m for the m-th number of each state."""
    return jnp.broadcast_to(math.pi * jnp.arange(shape[1], dtype=dtype)[None], shape)


WORDS = {"s4d": S4D, "bis4d": BiS4D}
