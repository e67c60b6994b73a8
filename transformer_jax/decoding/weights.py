"""Models and parameters as searches hold them."""

import dataclasses
import functools
import logging
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp

from transformer_jax.base import processor
from transformer_jax.base.arrays import on_cpu
from transformer_jax.config.choices.dtypes import DTYPES
from transformer_jax.models.build import roles_of
from transformer_jax.models.model import Model
from transformer_jax.nn.embedding import COLUMNS
from transformer_jax.nn.roles import EMBEDDING, LOGITS, name_of

log = logging.getLogger("transformer_jax")


def computing_in(word: str, models: Sequence[Model]) -> list[Model]:
    """Return the models with the dtype of matrix products that `decoding.compute_dtype` names;
    of a model that is trained in float8, "model" is that of its activations.
    """
    dtype = _automatic() if word == "auto" else word
    own = [DTYPES[model.config.compute_dtype].activations for model in models]
    dtypes = own if dtype == "model" else [dtype] * len(own)
    return [_with_dtype(*pair) for pair in zip(models, dtypes, strict=True)]


@functools.cache  # said once
def _automatic() -> str:
    if not on_cpu():
        return "model"
    dtype = "bfloat16" if processor.multiplies_bfloat16() else "float32"
    has = ", ".join(processor.instructions()) or "no instructions known"
    log.info("decoding.compute_dtype='auto': %s, on %s (%s)", dtype, processor.name(), has)
    return dtype


def _with_dtype(model: Any, dtype: str) -> Model:
    if model.config.compute_dtype == dtype:
        return model
    config = dataclasses.replace(model.config, compute_dtype=dtype)
    return model.clone(config=config, dtype=jnp.dtype(dtype))


def in_compute_dtype(model: Model, params: Any) -> Any:
    """Return the parameters, with kernels and tables of pieces in the compute dtype.

    A model casts them itself before each use, so that its results are the same, bit for bit; but
    every call of a compiled program then does it again. On CPUs the table that makes logits is
    added in columns, since XLA would transpose it in every call, and lookups read tables at full
    precision: of narrower ones it would make a copy.
    """
    return params if model.config.compute_dtype == "float32" else _cast(model, params)


@functools.partial(jax.jit, static_argnums=0)
def _cast(model: Model, params: Any) -> Any:
    dtype, plain = model.config.compute_dtype, model.config.embedding_norm == "none"

    def cast(path: tuple, x: jax.Array) -> jax.Array:
        role = roles[name_of(path)]
        # Other tables, of relative positions, and routers are read at full precision.
        table = plain and not on_cpu() and role in (EMBEDDING, LOGITS)
        return x.astype(dtype) if table or (role.is_map and role.part != "router") else x

    roles = roles_of(model)
    held = jax.tree_util.tree_map_with_path(cast, params)
    if plain and on_cpu():
        head = model.bind({"params": params}).output.name  # type: ignore[attr-defined]
        held = held | {head: held[head] | {COLUMNS: params[head]["table"].astype(dtype).T}}
    return held
