"""Where config files imported `door` from before: see `config.convert`."""

from transformer_jax.config.convert import door

__all__ = ["door"]
