"""Cross-entropy with label smoothing, as sums: means are taken once, over the global batch."""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from transformer_jax.base.arrays import Array, Float, Int, on_cpu
from transformer_jax.base.shares import add_up, joined, on_each_device
from transformer_jax.data.batches.batch import Teacher
from transformer_jax.nn.embedding import Head, capped

# Target positions whose logits a device holds in memory at a time: enough for fast products, few
# enough for a CPU's cache. An accelerator, which does not need that, gets 1 GB of logits.
_POSITIONS = 256
_LOGITS = 2**28


class Sums(NamedTuple):
    """Sums over the predicted tokens of a batch; they add up over slices and devices. All labels of
    a position are one token, which is correct if the likeliest is among them.
    """

    # weighted, nats: smoothed cross-entropy, plus a teacher's term and R-Drop's
    loss: Float[Array, ""]
    nll: Float[Array, ""]  # weighted: cross-entropy without smoothing, nats
    correct: Float[Array, ""]  # weighted: tokens whose logit is the largest
    tokens: Float[Array, ""]  # those whose weight is not 0
    weight: Float[Array, ""]  # the denominator for means of the weighted sums


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
    targets: Int[Array, "B T *K"],
    weight: Float[Array, "B T *K"],
    epsilon: float,
    smoothing: str,
) -> Sums:
    """Return the weighted sums over positions: the reference implementation."""
    gold, rest = smoothing_weights(epsilon, logits.shape[-1], smoothing)
    rows = _row_sums(logits)
    return _sums(logits, rows, *_several(targets, weight), _Terms(gold, rest))[0]


def fused_loss_sums(
    x: Float[Array, "B T D"],
    head: Head,
    targets: Int[Array, "B T *K"],
    weight: Float[Array, "B T *K"],
    epsilon: float,
    smoothing: str,
    r_drop: float = 0.0,
    teacher: Teacher | None = None,
    distillation: tuple[float, float] = (0.0, 1.0),
) -> Sums:
    """Return `loss_sums` of the logits of x, which never exist all at once.

    Their gradient, softmax - target distribution, is known as soon as they are; so, if it is
    needed, a chunk's logits turn into gradients of x and the head immediately: nothing is stored or
    recomputed for the backward pass. Products have the dtype of x, sums are at least float32.

    With r_drop, rows 2i and 2i+1 are two passes of one row with different dropout (R-Drop, Liang
    et al. 2021, arXiv:2106.14448). Sums are then means over the two passes, and the loss also has
    r_drop / 2 x (KL(p, q) + KL(q, p)) / 2: half the paper's loss, which counts both passes.

    With a teacher, whose log-probabilities are those at temperature T, and (a, T) for
    `distillation`, the loss is (1 - a) x cross-entropy + a x T^2 KL(teacher, softmax(logits / T))
    (Hinton et al. 2015, arXiv:1503.02531); pieces that the teacher does not name count as one.
    """
    gold, rest = smoothing_weights(epsilon, head.table.shape[0], smoothing)
    taught, temperature = (0.0, 1.0) if teacher is None else distillation
    terms = _Terms(
        (1 - taught) * gold, (1 - taught) * rest, r_drop, taught, temperature, head.softcap
    )  # fmt: skip
    head = head._replace(softcap=None)
    passes = 2 if r_drop else 1
    given = x, *_several(targets, weight), teacher
    x, targets, weight, teacher = jax.tree.map(
        lambda a: jnp.asarray(a).reshape(-1, passes, *a.shape[1:]), given
    )
    sums = _fused(x, head, targets, weight, teacher, terms)
    return jax.tree.map(lambda total: total / passes, sums)


def _several(targets: Array, weight: Array) -> tuple[Array, Array]:
    """Return targets and weights [B T K], where K is 1 for a single correct label."""
    return (targets, weight) if targets.ndim == 3 else (targets[..., None], weight[..., None])


class _Terms(NamedTuple):
    """The weight of each term of the loss; see `smoothing_weights`."""

    gold: float
    rest: float
    r_drop: float = 0.0
    taught: float = 0.0
    temperature: float = 1.0  # of the teacher
    softcap: float | None = None  # of the logits


@functools.partial(jax.custom_vjp, nondiff_argnums=(5,))
def _fused(x, head: Head, targets, weight, teacher: Teacher | None, terms: _Terms) -> Sums:
    across = head.table.astype(x.dtype).T

    def add(total: Sums, chunk: Any) -> tuple[Sums, None]:
        x, targets, weight, *teacher = chunk
        logits = _logits(x, across, head.bias, terms.softcap)
        sums, *_ = _sums(logits, _row_sums_at_once(logits), targets, weight, terms, *teacher)
        return jax.tree.map(jnp.add, total, sums), None

    def on_device(x, targets, weight, *teacher) -> Sums:
        chunks = _chunks(x, targets, weight, head.table.shape[0], *teacher)
        return jax.lax.scan(add, _zeros(x.dtype), chunks)[0]

    shares = on_each_device(on_device, x, targets, weight, *(teacher or ()), positions=2)
    return add_up(shares)


def _forward(x, head: Head, targets, weight, teacher: Teacher | None, terms: _Terms):
    down = head.table.astype(x.dtype)
    across = down.T
    wide = jnp.promote_types(x.dtype, jnp.float32)

    def add(total, chunk):
        x, targets, weight, *teacher = chunk
        logits = _logits(x, across, head.bias, terms.softcap)
        rows = _row_sums_at_once(logits)
        sums, log_sum, p = _sums(logits, rows, targets, weight, terms, *teacher)
        slope = (1 - terms.taught) * p if teacher else p
        slope = slope - terms.rest - terms.gold * _distribution(targets, weight, logits)
        if teacher:
            slope += terms.taught * _taught(logits, Teacher(*teacher), terms.temperature)[1]
        if terms.r_drop:
            slope += terms.r_drop * _symmetric_kl(logits, log_sum)[1]
        if terms.softcap is not None:
            slope *= 1 - jnp.square(logits / terms.softcap)
        slope = slope * weight.sum(-1, keepdims=True).astype(slope.dtype)
        dbias = None if head.bias is None else slope.sum((0, 1, 2))
        slope = slope.astype(x.dtype)
        dx = jnp.einsum("BPTV,VD->BPTD", slope, down, preferred_element_type=wide)
        # [D V], not [V D]: otherwise the slopes would have to be transposed.
        da = jnp.einsum("BPTD,BPTV->DV", x, slope, preferred_element_type=wide)
        return jax.tree.map(jnp.add, total, (sums, da, dbias)), dx

    def on_device(x, targets, weight, *teacher):
        dbias = None if head.bias is None else jnp.zeros(head.bias.shape, wide)
        start = _zeros(x.dtype), jnp.zeros(across.shape, wide), dbias
        chunks = _chunks(x, targets, weight, head.table.shape[0], *teacher)
        total, dx = jax.lax.scan(add, start, chunks)
        return total, dx.swapaxes(0, 1).reshape(x.shape).astype(x.dtype)

    given = x, targets, weight, *(teacher or ())
    total, dx = on_each_device(on_device, *given, positions=2)
    sums, da, dbias = add_up(total)
    da = jax.lax.optimization_barrier(da)  # or a single chunk's product would be transposed too
    return sums, (joined(dx, len(x), 2), Head(da.T.astype(head.table.dtype), dbias))


def _backward(terms, slopes, gradients: Sums):
    dx, dhead = jax.tree.map(lambda slope: slope * gradients.loss.astype(slope.dtype), slopes)
    return dx, dhead, None, None, None


_fused.defvjp(_forward, _backward)


def _shares(weight: Float[Array, "... K"]) -> Float[Array, "... K"]:
    """Return the share of each label in the weight of its position."""
    total = weight.sum(-1, keepdims=True)
    return weight / jnp.where(total == 0, 1, total)


def _distribution(
    targets: Int[Array, "B P T K"], weight: Float[Array, "B P T K"], logits: Float[Array, "B P T V"]
) -> Float[Array, "B P T V"]:
    """Return the target distribution of each position, with labels weighted by their shares."""
    every = jax.lax.broadcasted_iota(targets.dtype, (*logits.shape, 1), 3)
    shares = _shares(weight.astype(logits.dtype))[..., None, :]
    return jnp.where(every == targets[..., None, :], shares, 0).sum(-1)


def _symmetric_kl(logits: Float[Array, "B 2 T V"], log_sum: Float[Array, "B 2 T"]):
    """Return (KL(p, q) + KL(q, p)) / 2 of the two passes [B T], and its slopes [B 2 T V]."""
    logs = logits - log_sum[..., None]
    p, off = jnp.exp(logs), logs - logs[:, ::-1]
    kl = (p * off).sum(-1)  # [B 2 T]: KL(p, q) and KL(q, p)
    return kl.mean(1), (p * (off - kl[..., None]) + p - p[:, ::-1]) / 2


def _taught(logits: Float[Array, "B P T V"], teacher: Teacher, temperature: float):
    """Return T^2 KL(teacher, model) at temperature T [B P T], and its slopes [B P T V].

    A piece that the teacher does not name has a share of the rest of its mass, in proportion to
    what the model gives it: no more is known.
    """
    logs = jax.nn.log_softmax(logits / temperature)
    named, rest = teacher.log_probs[..., :-1], teacher.log_probs[..., -1].astype(logs.dtype)
    found = jnp.put_along_axis(  # 1: not named
        jnp.ones_like(logs), teacher.ids, named.astype(logs.dtype), axis=-1, inplace=False
    )
    known = found <= 0
    wanted = jnp.where(known, jnp.exp(found), 0)
    left = jax.nn.logsumexp(jnp.where(known, -jnp.inf, logs), -1)  # the model's own rest
    mass = jnp.exp(rest)
    kl = jnp.where(wanted > 0, wanted * (found - logs), 0).sum(-1)
    kl += jnp.where(mass > 0, mass * (rest - left), 0)
    wanted = jnp.where(known, wanted, jnp.exp(logs + (rest - left)[..., None]))
    return temperature**2 * kl, temperature * (jnp.exp(logs) - wanted)


def _logits(x, across, bias, softcap: float | None):
    wide = jnp.promote_types(x.dtype, jnp.float32)
    logits = jnp.einsum("BPTD,DV->BPTV", x, across, preferred_element_type=wide)
    return capped(logits if bias is None else logits + bias.reshape(1, 1, 1, -1), softcap)


def _chunks(x, targets, weight, vocab_size: int, *teacher):
    """Split a device's rows into equal chunks."""
    rows = targets.shape[0]
    most = _POSITIONS if on_cpu() else _LOGITS // vocab_size
    wanted = -(-rows * x[0, ..., 0].size // max(most, 1))
    count = next((n for n in range(wanted, rows) if rows % n == 0), rows)

    def cut(array):
        return array.reshape(-1, count, *array.shape[1:]).swapaxes(0, 1)

    return tuple(map(cut, (x, targets, weight, *teacher)))


def _zeros(dtype) -> Sums:
    zero = jnp.zeros((), jnp.promote_types(dtype, jnp.float32))
    return Sums(*[zero] * len(Sums._fields))


def _row_sums(logits):
    """Return each row's greatest logit, the sum of exponentials relative to it, and the sum."""
    greatest = jax.lax.stop_gradient(logits.max(-1))
    return greatest, jnp.exp(logits - greatest[..., None]).sum(-1), logits.sum(-1)


def _row_sums_at_once(logits):
    """Return what `_row_sums` does: on an accelerator, limited by memory, in one pass, without a
    gradient; exponentials are relative to the greatest logit so far.
    """
    if on_cpu():
        return _row_sums(logits)

    def add(one, two):
        greatest = jnp.maximum(one[0], two[0])
        sums = [each[1] * jnp.exp(each[0] - greatest) for each in (one, two)]
        return greatest, sum(sums), one[2] + two[2]

    lowest, zero = (jnp.asarray(x, logits.dtype) for x in (jnp.finfo(logits.dtype).min, 0))
    each = logits, jnp.ones_like(logits), logits
    return jax.lax.reduce(each, (lowest, zero, zero), add, (logits.ndim - 1,))


def _sums(logits, rows, targets, weight, terms: _Terms, *teacher):
    """Return the sums, the logarithm of the sum of exponentials [B P T], and the softmax."""
    greatest, total, plain = rows
    powers = jnp.exp(logits - greatest[..., None])
    log_sum = greatest + jnp.log(total)
    each = jnp.take_along_axis(logits, targets, axis=-1)
    right = (weight != 0) & (each >= greatest[..., None])  # cheaper than argmax
    correct = right.any(-1).astype(logits.dtype)
    weight = weight.astype(logits.dtype)
    nll = log_sum - (_shares(weight) * each).sum(-1)
    weight = weight.sum(-1)
    loss = terms.gold * nll
    loss += terms.rest * (logits.shape[-1] * log_sum - plain)
    if teacher:
        loss += terms.taught * _taught(logits, Teacher(*teacher), terms.temperature)[0]
    if terms.r_drop:
        loss += terms.r_drop / 2 * _symmetric_kl(logits, log_sum)[0][:, None]
    tokens = (weight != 0).astype(logits.dtype).sum()
    return (
        Sums(
            loss=(weight * loss).sum(),
            nll=(weight * nll).sum(),
            correct=(weight * correct).sum(),
            tokens=tokens,
            weight=weight.sum(),
        ),
        log_sum,
        powers * (1 / total)[..., None],
    )
