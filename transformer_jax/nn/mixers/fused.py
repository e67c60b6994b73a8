"""Scaled dot-product attention in one fused kernel: for short sequences `short.attend`, for others
`jax.nn.dot_product_attention`.
"""

import functools
import logging
from collections.abc import Callable

import jax
import jax.numpy as jnp

from transformer_jax.base.arrays import Array, Float, compute_capability
from transformer_jax.nn.mixers import dense
from transformer_jax.nn.view import View

log = logging.getLogger("transformer_jax")


def mix(
    q: Float[Array, "B N T H"],
    k: Float[Array, "B K H S"],
    v: Float[Array, "B K S Hv"],
    view: View,
    dropout: Callable[[Array], Array],
    scale: float | None = None,
    softcap: float | None = None,
) -> tuple[Float[Array, "B N T Hv"], Float[Array, "B N T S"]]:
    """Return what `dense.mix` does. Its weights are computed only where they are used.

    `dropout` must do nothing. Cached decoding, with few queries and its own layout, uses `dense`,
    as do types wider than float32, and scores with a softcap, which no kernel has.
    """
    mixed, weights = dense.mix(q, k, v, view, dropout, scale, softcap)
    if softcap is not None:
        _warn_of_softcap(softcap)
        return mixed, weights
    # The kernel's XLA form computes the softmax in float32, whatever the input.
    if view.visible is not None or jnp.promote_types(q.dtype, jnp.float32) != jnp.float32:
        return mixed, weights
    assert view.values is None, "the kernel adds nothing to its own products with values"
    why = why_not_here(q.shape[-1], q.dtype)
    if why is not None:
        _warn(why)
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    bias = None if view.bias is None else view.bias(view, q, k, scale)
    if bias is not None and why is None:
        bias = bias.astype(q.dtype)  # as cuDNN requires
    q, k, v = q.swapaxes(1, 2), k.transpose(0, 3, 1, 2), v.swapaxes(1, 2)
    if why is None and bias is None:
        from transformer_jax.nn.mixers import short  # here: it takes 0.2 s, for GPUs alone

        if short.fits(q, k, v):
            return short.attend_on_mesh(q, k, v, view.mask()[:, 0], scale).swapaxes(1, 2), weights
    fuse = functools.partial(
        jax.nn.dot_product_attention,
        implementation="cudnn" if why is None else "xla",
        scale=scale,
    )
    by_lengths = lengths_say_it(view)
    mixed = _by_lengths(fuse, q, k, v, view) if by_lengths else _by_mask(fuse, q, k, v, view, bias)
    return mixed.swapaxes(1, 2), weights


def lengths_say_it(view: View) -> bool:
    """Whether lengths, order and window describe the view, so that no mask [T S] is needed. cuDNN
    does not support windows that reach ahead.
    """
    plain = view.bias is None and view.dilation == 1 and not view.everywhere
    behind = view.window is None or view.order == "causal"
    return view.single and view.order != "ranked" and plain and behind


def _by_lengths(fuse: Callable, q: Array, k: Array, v: Array, view: View) -> Array:
    """Call the kernel with the length of each row; queries beyond it see the row too."""
    lengths = jnp.maximum((view.k_seg > 0).sum(1, dtype=jnp.int32), 1)
    window = None if view.window is None else (view.window - 1, 0)
    queries = q.shape[1]
    q, k, v = (_even(x, 1) for x in (q, k, v))
    return fuse(
        q, k, v,
        is_causal=view.order == "causal",
        query_seq_lengths=jnp.full_like(lengths, q.shape[1]),
        key_value_seq_lengths=lengths,
        local_window_size=window,
    )[:, :queries]  # fmt: skip


def _by_mask(fuse: Callable, q: Array, k: Array, v: Array, view: View, bias: Array | None) -> Array:
    queries = q.shape[1]
    q, k, v = (_even(x, 1) for x in (q, k, v))
    mask = _even(_even(view.mask(), 2), 3)
    # A query that sees nothing is made to see everything: its output is unused, and for a fully
    # masked row cuDNN's backward pass can produce NaN, which spreads to every gradient
    # (https://github.com/pytorch/pytorch/issues/196678).
    mask |= ~mask.any(-1, keepdims=True)
    if bias is not None:
        bias = _even(_even(bias, 2), 3)
    return fuse(q, k, v, mask=mask, bias=bias)[:, :queries]


def _even(x: Array, axis: int) -> Array:
    """Return x with one more position, which none sees, if their number is odd: cuDNN's backward
    pass needs even ones.
    """
    widths = [(0, x.shape[axis] % 2 if i == axis else 0) for i in range(x.ndim)]
    return jnp.pad(x, widths) if x.shape[axis] % 2 else x


def why_not_here(head_dim: int, dtype: jnp.dtype) -> str | None:
    """Return the reason why cuDNN's flash attention cannot run on this machine, or None."""
    return why_not_cudnn(head_dim, dtype, compute_capability())


def why_not_cudnn(head_dim: int, dtype: jnp.dtype, capability: float | None) -> str | None:
    """Return the reason why cuDNN's flash attention cannot run, or None if it can.

    `capability` is the GPU's compute capability, such as 9.0; None if there is no NVIDIA GPU.
    """
    largest = 256 if (capability or 0) >= 9 else 128
    checks = (
        (capability is not None, "there is no NVIDIA GPU"),
        ((capability or 8) >= 8, f"compute capability {capability} is below 8.0"),
        (dtype in (jnp.bfloat16, jnp.float16), f"model.compute_dtype is {jnp.dtype(dtype).name}"),
        (head_dim % 8 == 0, f"head_dim {head_dim} is not a multiple of 8"),
        (head_dim <= largest, f"head_dim {head_dim} is above {largest}"),
    )
    return next((reason for holds, reason in checks if not holds), None)


@functools.cache
def _warn_of_softcap(softcap: float) -> None:
    log.warning(
        "model.attention='fused': computes as 'dense' does because of model.attention_softcap=%g",
        softcap,
    )


@functools.cache
def _warn(reason: str) -> None:
    log.warning("model.attention='fused': uses XLA instead of cuDNN because %s", reason)
