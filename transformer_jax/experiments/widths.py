"""The coordinate check: how much a few updates change what is inside models of several sizes.

With muP (Yang et al. 2022, arXiv:2203.03466, appendix D.1) no change grows with the width, and with
CompleteP none with the depth; a factor that is missing somewhere shows as a slope.
"""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax

from transformer_jax.base.errors import UserError
from transformer_jax.config import Experiment, ModelConfig
from transformer_jax.data.batches.batch import Batch
from transformer_jax.data.batches.batching import BatchSource
from transformer_jax.experiments.prepare import prepare
from transformer_jax.models.build import build_for, init_params, roles_of, widths_of
from transformer_jax.nn.linear import Project
from transformer_jax.nn.residual import RESIDUALS
from transformer_jax.runs.workdir import WorkDir
from transformer_jax.training.optimizer import make_optimizer
from transformer_jax.training.selected import frozen_of
from transformer_jax.training.step import batch_sums

Axis = Literal["width", "depth"]
Changes = Mapping[str, float]  # what is measured -> root mean square of its change
_GROWS = 0.25  # a slope above it means a factor is missing: doubled sizes change by a fifth more


class Batches(NamedTuple):
    """What models of all sizes read: one batch, and the sizes of the vocabularies."""

    batch: Batch
    sizes: tuple[int, int]


def first_batch(experiment: Experiment) -> Batches:
    """Return the first batch of an experiment's training."""
    prepared = prepare(experiment, WorkDir(Path("no work directory")))
    source = BatchSource(prepared.train, prepared.plan, prepared.objective)
    return Batches(source[0], prepared.tokenizers.sizes)


def resized(model: ModelConfig, axis: Axis, size: int) -> ModelConfig:
    """Return a model of another width, with heads of the same size and all else in proportion, or
    of another depth.

    Raises:
      UserError: if it would not have whole heads.
    """
    if axis == "depth":
        layers: dict[str, Any] = {f"num_{name}_layers": size for name in model.stacks}
        return dataclasses.replace(model, **layers)
    fields: dict[str, Any] = {"d_model": size}
    for name in ("d_ff", "num_heads", "num_kv_heads"):
        value = getattr(model, name)
        if value is None or (name == "num_kv_heads" and value != model.num_heads):
            continue
        if value * size % model.d_model:
            raise UserError(
                f"--widths={size}: model.{name}={value} of d_model={model.d_model} would be "
                f"{value * size / model.d_model:g}; choose widths in proportion"
            )
        fields[name] = value * size // model.d_model
    return dataclasses.replace(model, **fields)


def changes(experiment: Experiment, batches: Batches, steps: int) -> Changes:
    """Return how much some updates at the peak of the learning rate, without dropout, change the
    outputs of maps, the stream after each residual part, and the logits: root mean squares, means
    over layers.
    """
    plain = dataclasses.replace(experiment.model, layer_loop="unrolled", remat="none")
    experiment = dataclasses.replace(experiment, model=plain)
    model = build_for(experiment, *batches.sizes)
    optimizer = dataclasses.replace(experiment.optimizer, schedule="constant", warmup_steps=1)
    frozen = frozen_of(optimizer, plain)
    rate = optimizer.learning_rate
    tx = make_optimizer(optimizer, lambda _: rate, roles_of(model), frozen, widths_of(model))
    batch = jax.device_put(batches.batch)

    def loss(params: Any) -> Any:
        sums = batch_sums(model, experiment.training, params, batch, None)
        return sums.loss / jnp.maximum(sums.weight, 1)

    @jax.jit
    def measured(key: Any) -> dict[str, Any]:
        params = nn.unbox(init_params(model, key))
        first, state = _inside(model, params, batch), tx.init(params)

        def step(carry: Any, _: None) -> tuple[Any, None]:
            params, state = carry
            updates, state = tx.update(jax.grad(loss)(params), state, params)
            return (optax.apply_updates(params, updates), state), None

        (params, _), _ = jax.lax.scan(step, (params, state), length=steps)
        last = _inside(model, params, batch)
        return {name: _size(jnp.subtract(last[name], first[name])) for name in first}

    groups: dict[str, list[float]] = {}
    each = jax.device_get(measured(jax.random.key(experiment.seed)))
    for name in sorted(each, key=lambda name: int(name.partition(" ")[0])):
        groups.setdefault(name.partition(" ")[2], []).append(float(each[name]))
    return {name: float(np.mean(values)) for name, values in groups.items()}


def slopes(found: Mapping[int, Changes]) -> dict[str, float]:
    """Return by what power of the size each change grows."""
    sizes = np.log([*found])
    names = next(iter(found.values()))
    return {
        name: float(np.polyfit(sizes, np.log([max(x[name], 1e-12) for x in found.values()]), 1)[0])
        for name in names
    }


def lines(axis: Axis, found: Mapping[int, Changes]) -> Iterator[str]:
    """Yield a table of changes by size, with slopes, and what they mean."""
    powers = slopes(found)
    width = max(map(len, powers))
    yield f"{'change of':<{width}} " + "".join(f"{size:>9}" for size in found) + "    slope"
    for name, slope in powers.items():
        values = "".join(f"{x[name]:9.3g}" for x in found.values())
        yield f"{name:<{width}} {values} {slope:+8.2f}" + "  grows" * (slope > _GROWS)
    growing = [name for name, slope in powers.items() if slope > _GROWS]
    if growing:
        yield f"the {axis} changes how much an update changes {', '.join(growing)}"
    else:
        yield f"an update changes models of any {axis} alike: no change grows with it"


def _inside(model: Any, params: Any, batch: Batch) -> dict[str, Any]:
    """Return the outputs of maps, the stream and the logits, by a number and what each is."""
    found: list[tuple[str, Any]] = []
    streams = tuple(RESIDUALS.values())

    def note(call: Any, args: Any, kwargs: Any, context: Any) -> Any:
        result, module = call(*args, **kwargs), context.module
        place = [part for part in module.path if not part.startswith("layer_")]
        if isinstance(module, Project) and context.method_name == "__call__":
            found.append(("/".join(place), result))
        if isinstance(module, streams) and context.method_name == "write":
            found.append((f"stream after {place[-1].removesuffix('_residual')}", result))
        return result

    with nn.intercept_methods(note):
        outputs = model.outputs(params, batch, None)
    found += [(f"logits of {name}", x.logits()) for name, x in outputs.items() if _maps(x)]
    return {f"{number} {name}": x for number, (name, x) in enumerate(found)}


def _maps(output: Any) -> bool:
    return hasattr(output, "logits")


def _size(x: Any) -> Any:
    return jnp.sqrt(jnp.square(x.astype(jnp.float32)).mean())


def check(
    experiment: Experiment, axis: Axis, sizes: Sequence[int], steps: int
) -> dict[int, Changes]:
    """Return the changes of models of these sizes.

    Raises:
      UserError: if a size does not fit the model.
    """
    models = {size: resized(experiment.model, axis, size) for size in sizes}
    batches = first_batch(experiment)
    return {
        size: changes(dataclasses.replace(experiment, model=model), batches, steps)
        for size, model in models.items()
    }
