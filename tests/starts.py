"""Runs that start from random parameters without compiling their initialisation."""

import functools

import jax
import numpy as np
import pytest
from tiny import random_state

from transformer_jax.experiments import train as runs


def start_at_random(patch: pytest.MonkeyPatch) -> None:
    """Make runs start from parameters that are the same for every seed."""
    patch.setattr(runs, "init_state", random_start)


def random_start(model, tx, seed, mesh, averaged=False):
    """Return what `init_state` returns, in fresh arrays, as a step donates them."""
    arrays, shardings = _drawn(model, tx, mesh)
    state = jax.device_put(jax.tree.map(np.array, arrays), shardings)
    if not averaged:
        return state
    copies = jax.tree.map(np.array, arrays.params), shardings.params
    return state.replace(average=jax.device_put(*copies))


@functools.lru_cache(maxsize=8)
def _drawn(model, tx, mesh):
    """Return a state as host arrays, and its shardings."""
    state = random_state(model, tx, mesh)
    return jax.device_get(state), jax.tree.map(lambda x: x.sharding, state)
