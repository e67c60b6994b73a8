"""Low-rank adaptation (LoRA: Hu et al. 2021, arXiv:2106.09685)."""

import dataclasses
import math
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from transformer_jax.base.arrays import Array
from transformer_jax.config import ModelConfig
from transformer_jax.data.batches.batch import Batch
from transformer_jax.models.core import Core
from transformer_jax.models.model import Keys, Model, Output, Stepper
from transformer_jax.nn.initializers import named
from transformer_jax.nn.roles import EMBEDDING, PLAIN, Role, roles_in

A, B = "lora_a", "lora_b"  # next to the matrix that they adapt


class Lora:
    """A Model that wraps another, with W + alpha / rank x A B in place of some matrices W: kernels
    of maps, and tables of embeddings.

    A [in..., rank] starts uniform within 1 / sqrt(in) of 0, B [rank, out...] at 0, so the model
    starts equal to the adapted one. For a table, whose inputs are pieces, A starts at 0 and B from
    N(0, 1 / d_model), like tables. Everything else sees the sums, whose cost is negligible compared
    with a batch's: x W + x A B is x (W + A B).
    """

    def __init__(self, model: Core) -> None:
        self.model, self.config = model, model.config
        self.src_vocab_size, self.tgt_vocab_size = model.src_vocab_size, model.tgt_vocab_size

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Lora) and self.model == other.model

    def __hash__(self) -> int:
        return hash((Lora, self.model))

    def example(self) -> Batch:
        """See Model."""
        return self.model.example()

    def init(self, rngs: Any, *args: Any, **kwargs: Any) -> Any:
        """See Model."""
        params = self.model.init(rngs, *args, **kwargs)["params"]
        return {"params": _adapted(params, self.config, jax.random.fold_in(rngs, 1))}

    def outputs(self, params: Any, batch: Batch, keys: Keys | None) -> dict[str, Output]:
        """See Model."""
        return self.model.outputs(merged(params, self.config), batch, keys)

    def stepper(self, params: Any) -> Stepper | None:
        """See Model."""
        return self.model.stepper(merged(params, self.config))


def plain(model: Model) -> Model:
    """Return the adapted model, for `merged` parameters; without LoRA the same model.

    Searches and files hold this one: they prepare kernels once, which must then be whole.
    """
    if not isinstance(model, Lora):
        return model
    return model.model.clone(config=without(model.config))


def merged(params: Any, config: ModelConfig) -> Any:
    """Return the parameters of the adapted model, with A and B merged into its matrices."""
    if not isinstance(params, dict):
        return params
    if A not in params:
        return {name: merged(part, config) for name, part in params.items()}
    assert config.lora_rank is not None
    change = jnp.tensordot(params[A], params[B], 1) * (config.lora_alpha / config.lora_rank)
    rest = {name: part for name, part in params.items() if name not in (A, B)}
    matrix = "kernel" if "kernel" in rest else "table"
    return rest | {matrix: rest[matrix] + change}


def without(config: ModelConfig) -> ModelConfig:
    """Return the config of the adapted model, without LoRA."""
    fields = ("lora_rank", "lora_alpha", "lora_maps")
    defaults = {name: ModelConfig.__dataclass_fields__[name].default for name in fields}
    return dataclasses.replace(config, **defaults)  # type: ignore[arg-type]


def _adapted(params: Any, config: ModelConfig, key: Array) -> Any:
    """Return boxed parameters with A and B next to the matrices of `config.lora_maps`."""
    adapted = {}
    for number, (name, part) in enumerate(sorted(params.items())):
        here = jax.random.fold_in(key, number)
        map_name = name.removeprefix("src_").removeprefix("tgt_")  # of separate embeddings
        if isinstance(part, dict):
            roles = roles_in({name: part}) if map_name in config.lora_maps else {}
            matrix = next((x for x, role in roles.items() if _adapts(role)), None)
            if matrix is None:
                part = _adapted(part, config, here)
            else:
                box = part[matrix.removeprefix(f"{name}/")]
                part = part | _beside(box, roles[matrix], config.lora_rank, here)
        adapted[name] = part
    return adapted


def _adapts(role: Role) -> bool:
    return role.kind == "map" or role == EMBEDDING


def _beside(matrix: Any, role: Role, rank: int | None, key: Array) -> dict[str, Any]:
    """Return A and B; only a map that leads inward may have an output of several axes."""
    shape, names = matrix.value.shape, matrix.names
    ins = 1 if role.leads_inward else len(shape) - 1
    bound = math.prod(shape[:ins]) ** -0.5

    def uniform(key: Array, shape: tuple[int, ...], dtype: Any = jnp.float32) -> Array:
        return jax.random.uniform(key, shape, dtype, -bound, bound)

    zeros = nn.initializers.zeros
    starts = (uniform, zeros)
    if role == EMBEDDING:  # its inputs are pieces
        starts = (zeros, nn.initializers.normal(shape[-1] ** -0.5))
    a = named(starts[0], *names[:ins], "rank", role=PLAIN)(key, (*shape[:ins], rank))
    b = named(starts[1], "rank", *names[ins:], role=PLAIN)(key, (rank, *shape[ins:]))
    return {A: a, B: b}
