"""Adam with the paper's constants (section 5.3), and Muon, through optax."""

from collections.abc import Callable
from typing import Any

import jax
import optax

from transformer_jax.choices import pick
from transformer_jax.config import OptimizerConfig
from transformer_jax.training.adam import adam
from transformer_jax.training.muon import muon
from transformer_jax.training.selected import Frozen, rate_factors

_KERNELS = ("kernel", "kernels")  # of a map, and of each expert's


def make_optimizer(
    config: OptimizerConfig,
    schedule: optax.Schedule,
    frozen: Frozen | None = None,
) -> optax.GradientTransformation:
    """Return the optimizer: clipping, the algorithm and weight decay as configured, learning rate.

    Frozen parameters have no state here, and do not count in the clipped norm.
    """
    parts = [pick(ALGORITHMS, config.algorithm, "config.optimizer.algorithm")(config)]
    if config.clip_norm is not None:
        parts.insert(0, optax.clip_by_global_norm(config.clip_norm))
    if config.weight_decay:
        parts.append(optax.add_decayed_weights(config.weight_decay, mask=_decaying))
    parts.append(optax.scale_by_learning_rate(schedule))
    if config.rate_factors or config.layer_decay != 1:
        parts.append(optax.stateless(lambda updates, _: _scaled(updates, config)))
    moving = optax.chain(*parts)
    if frozen is None:
        return moving
    return optax.partition({False: moving, True: optax.set_to_zero()}, frozen)


def _scaled(updates: Any, config: OptimizerConfig) -> Any:
    return jax.tree.map(lambda x, factor: factor * x, updates, rate_factors(config, updates))


def _adam(config: OptimizerConfig) -> optax.GradientTransformation:
    return adam(config.b1, config.b2, config.epsilon)


def _muon(config: OptimizerConfig) -> optax.GradientTransformation:
    """Muon for the kernels of linear maps; Adam for embeddings, biases and norms."""
    parts = {"kernel": muon(config.momentum, config.update_rms), "other": _adam(config)}
    return optax.partition(
        parts, lambda params: _by_name(params, lambda x: "kernel" if x in _KERNELS else "other")
    )


def _decaying(params: Any) -> Any:
    return _by_name(params, lambda name: name in (*_KERNELS, "table"))


def _by_name(params: Any, of: Callable[[str], Any]) -> Any:
    """Apply `of` to the last name of each parameter, such as kernel, bias or table."""

    def at(path: tuple[Any, ...], _: Any) -> Any:
        return of([key.key for key in path if isinstance(key, jax.tree_util.DictKey)][-1])

    return jax.tree_util.tree_map_with_path(at, params)


Algorithm = Callable[[OptimizerConfig], optax.GradientTransformation]
ALGORITHMS: dict[str, Algorithm] = {"adam": _adam, "muon": _muon}
