"""The optimizers, through optax: Adam with the paper's constants (section 5.3), and others."""

import math
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import optax

from transformer_jax.base.arrays import Array
from transformer_jax.config import OptimizerConfig, TrainingConfig
from transformer_jax.config.registry import pick
from transformer_jax.models.parametrization import Widths
from transformer_jax.nn.roles import Role, Roles, name_of
from transformer_jax.training.adafactor import adafactor
from transformer_jax.training.adam import adam
from transformer_jax.training.muon import muon
from transformer_jax.training.preconditioned import Numbers, shampoo, soap
from transformer_jax.training.schedule_free import schedule_free
from transformer_jax.training.selected import Frozen, rate_factors


def make_optimizer(
    config: OptimizerConfig,
    schedule: optax.Schedule,
    roles: Roles,
    frozen: Frozen | None = None,
    widths: Widths | None = None,
) -> optax.GradientTransformation:
    """Return the optimizer: clipping, the algorithm and weight decay as configured, learning rate.
    The roles of parameters decide which of them decay, and which of them an optimizer of matrices
    moves.

    Frozen parameters have no state here, and do not count in the clipped norm. `widths` is what
    the model's parametrization says of its size.
    """
    parts = [pick(ALGORITHMS, config.algorithm, "config.optimizer.algorithm")(config, roles)]
    if widths is not None:
        sized = optax.stateless(lambda updates, _: _by_name(updates, widths.rates))
        parts = [optax.scale(widths.gradients), *parts, sized]
    if config.clip_norm is not None:
        parts.insert(0, optax.clip_by_global_norm(config.clip_norm))
    if config.weight_decay:
        decaying = _by_role(roles, lambda role: role.decays)
        parts.append(optax.add_decayed_weights(config.weight_decay, mask=decaying))
    rate = [optax.scale_by_learning_rate(schedule)]
    if config.rate_factors or config.layer_decay != 1:
        rate.append(optax.stateless(lambda updates, _: _scaled(updates, config)))
    if config.record.averages:  # not linear in its steps
        rate = [*rate[1:], schedule_free(schedule, config.b1)]
    moving = optax.chain(*parts, *rate)
    if frozen is None:
        return moving
    return optax.partition({False: moving, True: optax.set_to_zero()}, frozen)


def averaged(config: OptimizerConfig, training: TrainingConfig) -> bool:
    """Return whether validation and saved models have a mean of the parameters."""
    return config.record.averages or training.ema_decay is not None


def _by_name(updates: Any, factors: Mapping[str, float]) -> Any:
    return jax.tree_util.tree_map_with_path(lambda path, x: factors[name_of(path)] * x, updates)


def _scaled(updates: Any, config: OptimizerConfig) -> Any:
    return jax.tree.map(lambda x, factor: factor * x, updates, rate_factors(config, updates))


def _adam(config: OptimizerConfig, roles: Roles) -> optax.GradientTransformation:
    return adam(config.b1, config.b2, config.epsilon)


def _muon(config: OptimizerConfig, roles: Roles) -> optax.GradientTransformation:
    """Muon for the kernels of linear maps; Adam for embeddings, biases and norms."""
    kernels = muon(config.momentum, config.update_rms, roles, config.orthogonalization)
    return _of_kernels(kernels, config, roles)


def _shampoo(config: OptimizerConfig, roles: Roles) -> optax.GradientTransformation:
    return _of_kernels(shampoo(_numbers(config), roles), config, roles)


def _soap(config: OptimizerConfig, roles: Roles) -> optax.GradientTransformation:
    return _of_kernels(soap(_numbers(config), roles), config, roles)


def _numbers(config: OptimizerConfig) -> Numbers:
    return Numbers(config.b1, config.b2, config.epsilon, config.precondition_every)


def _of_kernels(
    kernels: optax.GradientTransformation, config: OptimizerConfig, roles: Roles
) -> optax.GradientTransformation:
    """Return an optimizer for the kernels of linear maps, with Adam for the rest."""
    # The words are in the paths of optimizer state, and thus in checkpoints.
    parts = {"kernel": kernels, "other": _adam(config, roles)}
    return optax.partition(parts, _by_role(roles, lambda x: "kernel" if x.is_map else "other"))


def _sgd(config: OptimizerConfig, roles: Roles) -> optax.GradientTransformation:
    return optax.trace(config.momentum)


def _lion(config: OptimizerConfig, roles: Roles) -> optax.GradientTransformation:
    return optax.scale_by_lion(config.b1, config.b2)


def _adafactor(config: OptimizerConfig, roles: Roles) -> optax.GradientTransformation:
    return adafactor(roles)


def _ademamix(config: OptimizerConfig, roles: Roles) -> optax.GradientTransformation:
    """The weight of the slower mean rises linearly, and so does its half-life, from that of the
    other (Pagliardini et al. 2024, section 3).
    """
    lives = [math.log(0.5) / math.log(max(b, 1e-9)) for b in (config.b1, config.b3)]

    def risen(count: Array) -> Array:
        return jnp.minimum((jnp.asarray(count, float) + 1) / config.slow_warmup, 1)

    def decay(count: Array) -> Array:
        return 0.5 ** (1 / (lives[0] + risen(count) * (lives[1] - lives[0])))

    return optax.contrib.scale_by_ademamix(
        config.b1, config.b2, decay, lambda count: config.slow_weight * risen(count), config.epsilon
    )


def _schedule_free(config: OptimizerConfig, roles: Roles) -> optax.GradientTransformation:
    """Adam without momentum, the steps of `schedule_free`."""
    return optax.scale_by_rms(config.b2, config.epsilon, eps_in_sqrt=False, bias_correction=True)


def _by_role(roles: Roles, of: Callable[[Role], Any]) -> Callable[[Any], Any]:
    """Return the function from parameters, of which some may be masked, to `of` their roles."""
    return lambda params: jax.tree_util.tree_map_with_path(
        lambda path, _: of(roles[name_of(path)]), params
    )


Algorithm = Callable[[OptimizerConfig, Roles], optax.GradientTransformation]
ALGORITHMS: dict[str, Algorithm] = {
    "adam": _adam,
    "muon": _muon,
    "sgd": _sgd,
    "lion": _lion,
    "adafactor": _adafactor,
    "ademamix": _ademamix,
    "schedule_free": _schedule_free,
    "shampoo": _shampoo,
    "soap": _soap,
}
