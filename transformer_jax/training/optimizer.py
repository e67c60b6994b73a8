"""Adam with the paper's constants (section 5.3), and Muon beside it, through optax."""

from collections.abc import Callable
from typing import Any

import jax
import optax

from transformer_jax.choices import pick
from transformer_jax.config import OptimizerConfig
from transformer_jax.training.muon import muon


def make_optimizer(
    config: OptimizerConfig, schedule: optax.Schedule
) -> optax.GradientTransformation:
    """Return clipping, if asked for, then the algorithm."""
    algorithm = pick(ALGORITHMS, config.algorithm, "config.optimizer.algorithm")
    step = algorithm(config, schedule)
    if config.clip_norm is None:
        return step
    return optax.chain(optax.clip_by_global_norm(config.clip_norm), step)


def _adam(config: OptimizerConfig, schedule: optax.Schedule) -> optax.GradientTransformation:
    return optax.adam(schedule, b1=config.b1, b2=config.b2, eps=config.epsilon)


def _muon(config: OptimizerConfig, schedule: optax.Schedule) -> optax.GradientTransformation:
    """Muon for the kernels of linear maps; Adam for embeddings, biases and norms."""
    kernels = optax.chain(
        muon(config.momentum, config.update_rms), optax.scale_by_learning_rate(schedule)
    )
    return optax.partition({"kernels": kernels, "others": _adam(config, schedule)}, _labels)


def _labels(params: Any) -> Any:
    def label(path: tuple[Any, ...], _: Any) -> str:
        return "kernels" if jax.tree_util.DictKey("kernel") in path else "others"

    return jax.tree_util.tree_map_with_path(label, params)


Algorithm = Callable[[OptimizerConfig, optax.Schedule], optax.GradientTransformation]
ALGORITHMS: dict[str, Algorithm] = {"adam": _adam, "muon": _muon}
