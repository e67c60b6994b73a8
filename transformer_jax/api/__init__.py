"""The API for notebooks: loading and using trained models."""

from transformer_jax.api.ensemble import TrainedEnsemble
from transformer_jax.api.load import load, load_ensemble, save_average
from transformer_jax.api.trained import TrainedModel

__all__ = ["TrainedEnsemble", "TrainedModel", "load", "load_ensemble", "save_average"]
