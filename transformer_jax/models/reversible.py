"""A stack of reversible layers: the backward pass recomputes their inputs."""

from collections.abc import Callable, Sequence
from typing import Any

import jax

from transformer_jax.base.arrays import Array

Step = Callable[[Array, Any], Array]  # (the streams, a layer's parameters) -> the streams


def run(
    forwards: Sequence[Step], backwards: Sequence[Step], x: Array, params: Sequence[Any]
) -> Array:
    """Return x after all layers, saving only the last output for the backward pass (Gomez et al.
    2017, arXiv:1707.04585; Kitaev et al. 2020, arXiv:2001.04451, section 3).

    `backwards[i]` undoes `forwards[i]`, up to rounding; both with the same parameters. Other arrays
    that they close over, such as the memory of cross-attention, get their gradients too.
    """
    # Arrays that layers close over become arguments: the backward pass needs their gradients.
    steps, given = zip(
        *(jax.closure_convert(f, x, p) for f, p in zip(forwards, params, strict=True)), strict=True
    )
    undo, also = zip(
        *(jax.closure_convert(f, x, p) for f, p in zip(backwards, params, strict=True)), strict=True
    )

    @jax.custom_vjp
    def through(x: Array, params: Any, given: Any, also: Any) -> Array:
        for step, own, held in zip(steps, params, given, strict=True):
            x = step(x, own, *held)
        return x

    def forward(x: Array, params: Any, given: Any, also: Any) -> tuple[Array, Any]:
        y = through(x, params, given, also)
        return y, (y, params, given, also)

    def backward(kept: Any, slope: Array) -> tuple[Any, ...]:
        x, params, given, also = kept
        of_params, of_given = [], []
        for i in reversed(range(len(steps))):
            x = undo[i](x, params[i], *also[i])
            _, back = jax.vjp(steps[i], x, params[i], *given[i])
            slope, of_own, *of_held = back(slope)
            of_params.append(of_own)
            of_given.append(of_held)
        nothing = jax.tree.map(lambda leaf: 0 * leaf, also)
        return slope, tuple(reversed(of_params)), tuple(reversed(of_given)), nothing

    through.defvjp(forward, backward)
    return through(x, tuple(params), tuple(map(list, given)), tuple(map(list, also)))
