"""Cross-entropy with label smoothing, as sums: means are made once, over the global batch."""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from transformer_jax.arrays import Array, Float, Int

_CHUNK = 2**22  # logits in memory at a time: 16 MB, which a processor's cache holds


class Sums(NamedTuple):
    """Sums over the real target tokens of a batch; they add up over slices and devices."""

    loss: Float[Array, ""]  # smoothed cross-entropy, nats
    nll: Float[Array, ""]  # cross-entropy without smoothing, nats
    correct: Float[Array, ""]  # tokens whose logit is the greatest
    tokens: Float[Array, ""]


def smoothing_weights(epsilon: float, vocab_size: int, smoothing: str) -> tuple[float, float]:
    """Return (a, b) such that the target distribution is a [gold] + b everywhere.

    "tensor2tensor" gives epsilon to the V-1 other pieces, "uniform" to all V (Szegedy et al. 2016,
    arXiv:1512.00567).
    """
    if smoothing == "tensor2tensor":
        rest = epsilon / (vocab_size - 1)
        return 1 - epsilon - rest, rest
    return 1 - epsilon, epsilon / vocab_size


def loss_sums(
    logits: Float[Array, "B T V"],
    targets: Int[Array, "B T"],
    segments: Int[Array, "B T"],
    epsilon: float,
    smoothing: str,
) -> Sums:
    """Return the sums over positions whose segment is not 0: the plain form, for reference."""
    gold, rest = smoothing_weights(epsilon, logits.shape[-1], smoothing)
    return _sums(logits, targets, segments, gold, rest)[0]


def fused_loss_sums(
    x: Float[Array, "B T D"],
    table: Float[Array, "V D"],
    targets: Int[Array, "B T"],
    segments: Int[Array, "B T"],
    epsilon: float,
    smoothing: str,
) -> Sums:
    """Return `loss_sums` of the logits x table^T, which never exist all at once.

    Their gradient, softmax - target distribution, is known as soon as they are; so, if it is
    wanted, a chunk's logits turn into gradients of x and table on the spot: nothing is stored or
    computed again for the way back. Products have the dtype of x, sums are at least float32.
    """
    gold, rest = smoothing_weights(epsilon, table.shape[0], smoothing)
    return _fused(x, table, targets, segments, gold, rest)


@functools.partial(jax.custom_vjp, nondiff_argnums=(4, 5))
def _fused(x, table, targets, segments, gold: float, rest: float) -> Sums:
    across = table.astype(x.dtype).T

    def add(total: Sums, chunk: Any) -> tuple[Sums, None]:
        x, targets, segments = chunk
        sums, _ = _sums(_logits(x, across), targets, segments, gold, rest)
        return jax.tree.map(jnp.add, total, sums), None

    return jax.lax.scan(add, _zeros(x.dtype), _chunks(x, targets, segments, table.shape[0]))[0]


def _forward(x, table, targets, segments, gold: float, rest: float):
    down = table.astype(x.dtype)
    across = down.T
    wide = jnp.promote_types(x.dtype, jnp.float32)

    def add(total, chunk):
        x, targets, segments = chunk
        logits = _logits(x, across)
        sums, log_sum = _sums(logits, targets, segments, gold, rest)
        is_gold = jax.lax.broadcasted_iota(targets.dtype, logits.shape, 2) == targets[..., None]
        slope = jnp.exp(logits - log_sum[..., None]) - rest - jnp.where(is_gold, gold, 0)
        slope = (slope * (segments > 0)[..., None]).astype(x.dtype)
        dx = jnp.einsum("BTV,VD->BTD", slope, down, preferred_element_type=wide)
        # [D V], not [V D]: the other way round the slopes would have to be transposed.
        da = jnp.einsum("BTD,BTV->DV", x, slope, preferred_element_type=wide)
        return jax.tree.map(jnp.add, total, (sums, da)), dx

    chunks = _chunks(x, targets, segments, table.shape[0])
    start = _zeros(x.dtype), jnp.zeros(across.shape, wide)
    (sums, da), dx = jax.lax.scan(add, start, chunks)
    da = jax.lax.optimization_barrier(da)  # or a single chunk's product would be turned round too
    return sums, (dx.swapaxes(0, 1).reshape(x.shape).astype(x.dtype), da.T.astype(table.dtype))


def _backward(gold, rest, slopes, gradients: Sums):
    dx, dtable = slopes
    scale = gradients.loss
    return dx * scale.astype(dx.dtype), dtable * scale.astype(dtable.dtype), None, None


_fused.defvjp(_forward, _backward)


def _logits(x, across):
    wide = jnp.promote_types(x.dtype, jnp.float32)
    return jnp.einsum("BTD,DV->BTV", x, across, preferred_element_type=wide)


def _chunks(x, targets, segments, vocab_size: int):
    """Cut the rows into equal chunks, each with rows from all over the batch (and all devices)."""
    rows, length = targets.shape
    wanted = max(1, rows * length * vocab_size // _CHUNK)
    count = next(n for n in range(min(wanted, rows), 0, -1) if rows % n == 0)

    def cut(array):
        return array.reshape(rows // count, count, *array.shape[1:]).swapaxes(0, 1)

    return cut(x), cut(targets), cut(segments)


def _zeros(dtype) -> Sums:
    zero = jnp.zeros((), jnp.promote_types(dtype, jnp.float32))
    return Sums(zero, zero, zero, zero)


def _sums(logits, targets, segments, gold: float, rest: float):
    """Return the sums, and the logarithm of the sum of exponentials [B T]."""
    greatest = jax.lax.stop_gradient(logits.max(-1))
    log_sum = greatest + jnp.log(jnp.exp(logits - greatest[..., None]).sum(-1))
    chosen = jnp.take_along_axis(logits, targets[..., None], axis=-1)[..., 0]
    nll = log_sum - chosen
    loss = gold * nll + rest * (logits.shape[-1] * log_sum - logits.sum(-1))
    correct = (chosen >= greatest).astype(logits.dtype)  # cheaper than argmax
    real = (segments > 0).astype(logits.dtype)
    return Sums(*((real * term).sum() for term in (loss, nll, correct, real))), log_sum
