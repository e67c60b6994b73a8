"""Every field, with the paper's base model as the default: see config/manual.py.

An experiment file starts from here and sets only what differs.
"""

from transformer_jax.config import Experiment
from transformer_jax.config.convert import door


def get_config():
    """Return all fields as a locked ConfigDict."""
    return door(Experiment())
