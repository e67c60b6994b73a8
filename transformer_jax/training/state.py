"""The training state: everything that a step changes."""

import functools
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax
from flax import struct
from jax.sharding import Mesh

from transformer_jax.models.build import init_params
from transformer_jax.models.model import Model
from transformer_jax.sharding.rules import param_shardings


@struct.dataclass
class TrainState:
    """Parameters, optimizer state and counters. `step` is also the position in the data."""

    # Leaves are arrays, or shapes or shardings in trees that describe a state.
    step: Any  # int32: batches seen
    bad_steps: Any  # int32: updates skipped in a row because they were not finite
    params: Any  # float32
    opt_state: Any
    average: Any = None  # mean of params, if the optimizer or training.ema_decay says so

    @property
    def weights(self) -> Any:
        """The parameters used for validation, saved models and translation."""
        return self.params if self.average is None else self.average

    def to_items(self) -> tuple[Any, dict[str, Any]]:
        """Return the contents of a checkpoint: the weights, and all else that training needs."""
        rest = {"step": self.step, "bad_steps": self.bad_steps, "opt_state": self.opt_state}
        return self.weights, rest if self.average is None else {**rest, "params": self.params}

    def from_items(self, weights: Any, rest: dict[str, Any]) -> "TrainState":
        """Return the state in a checkpoint of a state with this structure."""
        name = "params" if self.average is None else "average"
        return replace(self, **rest, **{name: weights})


def init_state(
    model: Model,
    tx: optax.GradientTransformation,
    seed: int,
    mesh: Mesh,
    averaged: bool = False,
) -> TrainState:
    """Return the state at step 0, on the mesh: optimizer state is laid out like its parameters.

    `averaged`: with a running mean of the parameters.

    Raises:
      UserError: if the mesh does not divide a parameter.
    """
    with jax.set_mesh(mesh):
        return _jitted(model, tx, mesh, averaged)(_key(seed))


@functools.lru_cache(maxsize=8)
def _jitted(
    model: Model, tx: optax.GradientTransformation, mesh: Mesh, averaged: bool
) -> Callable[[jax.Array], TrainState]:
    """Return the cached function from a key to a state: it holds compiled programs."""
    boxed = jax.jit(functools.partial(_boxed, model, tx, averaged))  # traced once
    shardings = param_shardings(boxed.eval_shape(_key(0)), mesh)
    return jax.jit(lambda key: nn.unbox(boxed(key)), out_shardings=shardings)


def abstract_state(
    model: Model, tx: optax.GradientTransformation, averaged: bool = False
) -> TrainState:
    """Return shapes and logical axes of a state without computing one."""
    return jax.eval_shape(functools.partial(_boxed, model, tx, averaged), _key(0))


def abstract(state: TrainState) -> TrainState:
    """Return shapes, dtypes and shardings of a state: the target for restoring a checkpoint."""
    return jax.tree.map(
        lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=x.sharding), state
    )


def _key(seed: int) -> jax.Array:
    return jax.random.fold_in(jax.random.key(seed), 0)


def _boxed(
    model: Model, tx: optax.GradientTransformation, averaged: bool, key: jax.Array
) -> TrainState:
    params = init_params(model, key)
    zero = jnp.zeros((), jnp.int32)
    return TrainState(zero, zero, params, tx.init(params), params if averaged else None)
