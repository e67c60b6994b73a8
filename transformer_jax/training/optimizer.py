"""Adam with the paper's constants (section 5.3), and Muon, through optax."""

from collections.abc import Callable
from typing import Any

import jax
import optax

from transformer_jax.config import OptimizerConfig
from transformer_jax.config.registry import pick
from transformer_jax.nn.roles import Role, Roles, name_of
from transformer_jax.training.adam import adam
from transformer_jax.training.muon import muon
from transformer_jax.training.selected import Frozen, rate_factors


def make_optimizer(
    config: OptimizerConfig,
    schedule: optax.Schedule,
    roles: Roles,
    frozen: Frozen | None = None,
) -> optax.GradientTransformation:
    """Return the optimizer: clipping, the algorithm and weight decay as configured, learning rate.
    The roles of parameters decide which of them decay, and which Muon moves.

    Frozen parameters have no state here, and do not count in the clipped norm.
    """
    parts = [pick(ALGORITHMS, config.algorithm, "config.optimizer.algorithm")(config, roles)]
    if config.clip_norm is not None:
        parts.insert(0, optax.clip_by_global_norm(config.clip_norm))
    if config.weight_decay:
        decaying = _by_role(roles, lambda role: role.decays)
        parts.append(optax.add_decayed_weights(config.weight_decay, mask=decaying))
    parts.append(optax.scale_by_learning_rate(schedule))
    if config.rate_factors or config.layer_decay != 1:
        parts.append(optax.stateless(lambda updates, _: _scaled(updates, config)))
    moving = optax.chain(*parts)
    if frozen is None:
        return moving
    return optax.partition({False: moving, True: optax.set_to_zero()}, frozen)


def _scaled(updates: Any, config: OptimizerConfig) -> Any:
    return jax.tree.map(lambda x, factor: factor * x, updates, rate_factors(config, updates))


def _adam(config: OptimizerConfig, roles: Roles) -> optax.GradientTransformation:
    return adam(config.b1, config.b2, config.epsilon)


def _muon(config: OptimizerConfig, roles: Roles) -> optax.GradientTransformation:
    """Muon for the kernels of linear maps; Adam for embeddings, biases and norms."""
    kernels = muon(config.momentum, config.update_rms, roles)
    # The words are in the paths of optimizer state, and thus in checkpoints.
    parts = {"kernel": kernels, "other": _adam(config, roles)}
    return optax.partition(parts, _by_role(roles, lambda x: "kernel" if x.is_map else "other"))


def _by_role(roles: Roles, of: Callable[[Role], Any]) -> Callable[[Any], Any]:
    """Return the function from parameters, of which some may be masked, to `of` their roles."""
    return lambda params: jax.tree_util.tree_map_with_path(
        lambda path, _: of(roles[name_of(path)]), params
    )


Algorithm = Callable[[OptimizerConfig, Roles], optax.GradientTransformation]
ALGORITHMS: dict[str, Algorithm] = {"adam": _adam, "muon": _muon}
