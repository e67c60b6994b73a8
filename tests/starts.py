"""Runs that start from random parameters, for which nothing is compiled."""

import jax
import numpy as np
import pytest
from tiny import random_state

from transformer_jax.experiments import train as runs


def random_start(model, tx, seed, mesh, averaged=False):
    """Return what `init_state` returns, with the same random parameters for every seed."""
    state = random_state(model, tx, mesh)
    if not averaged:
        return state
    copies = jax.tree.map(lambda x: jax.device_put(np.array(x), x.sharding), state.params)
    return state.replace(average=copies)


def start_at_random(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(runs, "init_state", random_start)
