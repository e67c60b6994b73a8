"""The train step and the validation step: pure functions of arrays."""

import functools
import operator
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax.sharding import Mesh

from transformer_jax.base.arrays import Array, Float
from transformer_jax.config import TrainingConfig
from transformer_jax.data.batches.batch import Batch, Target
from transformer_jax.models.build import roles_of
from transformer_jax.models.model import Keys, Model
from transformer_jax.models.multi_token import later, name_of
from transformer_jax.sharding.mesh import compiler_options, on_every_device
from transformer_jax.sharding.rules import active
from transformer_jax.training.adam import AdamState
from transformer_jax.training.loss import Sums, fused_loss_sums
from transformer_jax.training.moved import Reports, gauges, moved, reports, without_reports
from transformer_jax.training.noise import measured_noise, part_of
from transformer_jax.training.other_losses import LOSSES, OF_TOKENS
from transformer_jax.training.schedule_free import mean_of
from transformer_jax.training.selected import Frozen
from transformer_jax.training.state import TrainState


class StepMetrics(NamedTuple):
    """The metrics of a step, or of several, along a first axis."""

    sums: Sums
    grad_norm: Float[Array, ""]  # before clipping
    skipped: Float[Array, ""]  # 1 if the update was not finite and was skipped
    bad_steps: Any  # such updates in a row, this one included
    # As `config.metrics.GAUGES` names them, and what they are measured from.
    gauges: dict[str, Any] = {}  # noqa: RUF012 (nobody changes it)
    reports: Reports = {}  # noqa: RUF012
    noise: dict[str, Any] = {}  # noqa: RUF012 (as `config.metrics.NOISE` names it)


def batch_sums(
    model: Model, config: TrainingConfig, params: Any, batch: Batch, keys: Keys | None
) -> Sums:
    """Return the loss sums of a batch; with keys, in training mode with dropout.

    With several targets, they are those of `batch.main`, and the loss is the sum over all: the
    others' weights say how much they count relative to it.
    """
    each = target_sums(model, config, params, batch, keys)
    loss = functools.reduce(operator.add, (sums.loss for sums in each.values()))
    return each[batch.main]._replace(loss=loss)


def target_sums(
    model: Model, config: TrainingConfig, params: Any, batch: Batch, keys: Keys | None
) -> dict[str, Sums]:
    """Return the loss sums of each target of a batch, and of each piece that a model predicts after
    the next one.
    """
    batch = batch._replace(targets=batch.targets | _further(model, config, batch))
    r_drop = 0.0 if keys is None else config.r_drop or 0.0
    if r_drop:
        batch = jax.tree.map(lambda x: jnp.repeat(x, config.passes, axis=0), batch)
    cross_entropy = functools.partial(
        fused_loss_sums, epsilon=config.label_smoothing, smoothing=config.smoothing, r_drop=r_drop
    )
    taught = functools.partial(
        cross_entropy, teacher=batch.teacher,
        distillation=(config.distillation_weight, config.distillation_temperature),
    )  # fmt: skip
    losses: dict[str, Callable[..., Sums]] = dict(LOSSES)
    if batch.teacher is not None:
        losses["tokens"] = taught
    with active():
        outputs = model.outputs(params, batch, keys)
        return {
            name: losses.get(name, cross_entropy)(
                *outputs[OF_TOKENS.get(name, name)], jnp.asarray(labels), jnp.asarray(weight)
            )
            for name, (labels, weight) in batch.targets.items()
        }


def _further(model: Model, config: TrainingConfig, batch: Batch) -> dict[str, Target]:
    """Return the targets of multi-token prediction: pieces further on in the same text."""
    if model.config.multi_token == "none":
        return {}
    assert batch.tgt is not None
    (labels, weight), seg = map(jnp.asarray, batch.targets["tokens"]), jnp.asarray(batch.tgt.seg)
    count = model.config.future_tokens
    share = config.multi_token_weight / count
    return {
        name_of(depth): Target(
            later(labels, depth), share * later(weight, depth) * (later(seg, depth) == seg)
        )
        for depth in range(1, count + 1)
    }


def make_train_step(
    model: Model,
    tx: optax.GradientTransformation,
    config: TrainingConfig,
    seed: Any,
    frozen: Frozen | None = None,
) -> Callable[[TrainState, Batch], tuple[TrainState, StepMetrics]]:
    """Return the function (state, batch) -> (state, metrics), to be jitted with donated state.

    `seed` is an integer, which may be traced. `frozen` parameters stay as they are, bit for bit,
    and do not count in the gradient's norm.
    """
    gradient = jax.value_and_grad(_mean_loss(model, config, frozen), has_aux=True)
    tx, roles = optax.with_extra_args_support(tx), roles_of(model)

    def train_step(state: TrainState, batch: Batch) -> tuple[TrainState, StepMetrics]:
        keys = keys_of(seed, state.step, model.config.redraw_every)
        learned = functools.partial(without_reports, roles=roles)
        reported_grads, sums, squares = _accumulate(
            gradient, state.params, batch, keys, config.accumulation_steps,
            learned if config.noise_scale else None,
        )  # fmt: skip
        grads = learned(reported_grads)
        norm = optax.tree.norm(grads)
        finite = jnp.isfinite(norm) & jnp.isfinite(sums.loss)
        with active():
            updates, opt_state = tx.update(grads, state.opt_state, state.params, finite=finite)
        params = optax.apply_updates(state.params, updates)
        params = moved(state.params, params, reported_grads, model.config, roles)
        params = _kept(frozen, state.params, params)
        bad_steps = jnp.where(finite, 0, state.bad_steps + 1)

        def keep(new: Any, old: Any) -> Any:
            return new if _keeps_itself(new) else jnp.where(finite, new, old)

        new = TrainState(
            step=state.step + 1,
            bad_steps=bad_steps,
            params=jax.tree.map(keep, params, state.params),
            opt_state=jax.tree.map(keep, opt_state, state.opt_state, is_leaf=_keeps_itself),
        )
        if config.ema_decay is not None:
            average = _running_mean(state, new.params, config.ema_decay)
            new = replace(new, average=_kept(frozen, new.params, average))
        elif state.average is not None:
            new = replace(new, average=mean_of(new.params, new.opt_state))
        reported = reports(reported_grads, roles)
        measured = gauges(reported, roles)
        noise = {} if squares is None else measured_noise(norm, *squares)
        return new, StepMetrics(sums, norm, 1.0 - finite, bad_steps, measured, reported, noise)

    return train_step


def several_steps(step: Callable, count: int) -> Callable:
    """Return the function (state, batches) -> (state, metrics) that makes `count` steps, one after
    the other: batches and metrics are along a first axis. A single step is returned as it is.
    """
    return step if count == 1 else lambda state, batches: jax.lax.scan(step, state, batches)


def each_step(metrics: StepMetrics, last: int) -> list[tuple[int, StepMetrics]]:
    """Return each step and its metrics, up to step `last`."""
    if not metrics.skipped.ndim:
        return [(last, metrics)]
    count = len(metrics.skipped)
    each = [jax.tree.map(operator.itemgetter(i), metrics) for i in range(count)]
    return [*enumerate(each, last + 1 - count)]


def keys_of(seed: Any, step: Any, redraw_every: int) -> Keys:
    """Return the random keys of the step that follows `step` others."""
    dropout, features = (jax.random.fold_in(jax.random.key(seed), stream) for stream in (1, 2))
    return Keys(
        jax.random.fold_in(dropout, step), jax.random.fold_in(features, step // redraw_every)
    )


def _kept(frozen: Frozen | None, params: Any, changed: Any) -> Any:
    """Return the changed parameters, except frozen ones."""
    if frozen is None:
        return changed
    return jax.tree.map(lambda stays, x, y: x if stays else y, frozen(params), params, changed)


def _running_mean(state: TrainState, params: Any, decay: float) -> Any:
    """Return the running mean of parameters, in which the first ones soon decay."""
    count = state.step.astype(jnp.float32)
    kept = jnp.minimum(decay, (1 + count) / (10 + count))
    return jax.tree.map(lambda mean, x: kept * mean + (1 - kept) * x, state.average, params)


def jit_train_step(step: Any, state: TrainState, mesh: Mesh) -> Any:
    """Jit a train step for states laid out like this one, which it donates.

    The new state has the old one's layout, and metrics are replicated on every device, so that
    every process can read them.
    """
    shardings = jax.tree.map(lambda x: x.sharding, state)
    return jax.jit(
        step,
        donate_argnums=0,
        out_shardings=(shardings, on_every_device(mesh)),
        compiler_options=compiler_options(mesh),
    )


def make_validation_step(
    model: Model, config: TrainingConfig
) -> Callable[[Any, Batch], dict[str, Sums]]:
    """Return the function (params, batch) -> sums of each target, without dropout."""
    return lambda params, batch: target_sums(model, config, params, batch, None)


def _keeps_itself(part: Any) -> bool:
    return isinstance(part, AdamState)  # its update takes `finite` into account


def _mean_loss(model: Model, config: TrainingConfig, frozen: Frozen | None):
    """Return the loss of (part of) a batch, divided by the whole batch's weight, and its sums."""

    def loss(params, batch, keys, weight):
        if frozen is not None:  # their gradients are zeros that are never computed
            params = _kept(frozen, jax.tree.map(jax.lax.stop_gradient, params), params)
        sums = batch_sums(model, config, params, batch, keys)
        return sums.loss / weight, sums

    return loss


def _accumulate(gradient, params, batch: Batch, keys: Keys, slices: int, learned: Callable | None):
    """Sum gradients over slices of the rows: the same batch in less memory. With `learned`, which
    takes reports from them, also return what `measured_noise` needs of the slices.
    """
    weight = jnp.asarray(batch.targets[batch.main].weight)
    weight = jnp.maximum(weight.sum(dtype=jnp.float32), 1)
    if slices == 1:
        (_, sums), grads = gradient(params, batch, keys, weight)
        return grads, sums, None
    # Every slice takes rows from across the batch, so each device keeps its own rows.
    parts = jax.tree.map(
        lambda x: x.reshape(x.shape[0] // slices, slices, *x.shape[1:]).swapaxes(0, 1), batch
    )

    def add(total, item):
        part, number = item
        own = keys._replace(dropout=jax.random.fold_in(keys.dropout, number))
        (_, sums), grads = gradient(params, part, own, weight)
        square = None
        if learned is not None:
            mine = jnp.asarray(part.targets[part.main].weight).sum(dtype=jnp.float32)
            square = part_of(learned(grads), mine, weight), (mine > 0).astype(jnp.float32)
        return jax.tree.map(jnp.add, total, (grads, sums)), square

    shapes = jax.eval_shape(gradient, params, jax.tree.map(lambda x: x[0], parts), keys, weight)
    zeros = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), (shapes[1], shapes[0][1]))
    (grads, sums), squares = jax.lax.scan(add, zeros, (parts, jnp.arange(slices)))
    if squares is not None:
        squares = (*(x.sum() for x in squares), weight)
    return grads, sums, squares
