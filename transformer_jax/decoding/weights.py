"""Parameters as searches hold them."""

import functools
from typing import Any

import jax

from transformer_jax.models.model import Model

# Tables of pieces; others, of relative positions, are read at full precision.
_PIECES = ("embedding", "src_embedding", "tgt_embedding", "output")


def in_compute_dtype(model: Model, params: Any) -> Any:
    """Return the parameters, with kernels and tables of pieces in the compute dtype.

    A model casts them itself before each use, so that its results are the same, bit for bit; but
    every call of a compiled program then does it again.
    """
    return params if model.config.compute_dtype == "float32" else _cast(model, params)


@functools.partial(jax.jit, static_argnums=0)
def _cast(model: Model, params: Any) -> Any:
    plain = model.config.embedding_norm == "none"

    def cast(path: tuple, x: jax.Array) -> jax.Array:
        names = [getattr(key, "key", None) for key in path[-2:]]
        table = plain and names[-1] == "table" and names[0] in _PIECES
        return x.astype(model.config.compute_dtype) if names[-1] == "kernel" or table else x

    return jax.tree_util.tree_map_with_path(cast, params)
