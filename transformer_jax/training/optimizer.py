"""Adam with the paper's constants (section 5.3), through optax."""

import optax

from transformer_jax.config import OptimizerConfig


def make_optimizer(
    config: OptimizerConfig, schedule: optax.Schedule
) -> optax.GradientTransformation:
    """Return clipping, if asked for, then Adam."""
    adam = optax.adam(schedule, b1=config.b1, b2=config.b2, eps=config.epsilon)
    if config.clip_norm is None:
        return adam
    return optax.chain(optax.clip_by_global_norm(config.clip_norm), adam)
