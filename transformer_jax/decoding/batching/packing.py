"""Trees of small arrays of 4 or 8 bytes a number, and truth values, as one array of 32-bit words:
transferring an array takes time for itself, on each device, however small it is.
"""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from transformer_jax.base.arrays import Array, Int

ShapeAndType = tuple[tuple[int, ...], np.dtype]  # the shape on each device, and the type


class Layout(NamedTuple):
    """The structure of a tree, and the forms of its arrays."""

    structure: Any
    forms: tuple[ShapeAndType, ...]

    @classmethod
    def of(cls, tree: Any, devices: int) -> "Layout":
        """Return the layout of a tree of arrays, whose first axis is split between devices."""
        leaves, structure = jax.tree.flatten(tree)
        forms = [((len(x) // devices, *x.shape[1:]), np.dtype(x.dtype)) for x in leaves]
        return cls(structure, tuple(forms))

    def split(self, words: Any) -> Any:
        """Return the tree of words [devices words] that `pack` or `joined` returned: NumPy arrays
        of all devices, or JAX arrays of the one that computes.
        """
        ends = np.cumsum([_count(form) for form in self.forms])[:-1].tolist()
        on_host = isinstance(words, np.ndarray)
        parts = np.split(words, ends, 1) if on_host else jnp.split(words, ends, 1)
        parts = [_read(part, *form) for part, form in zip(parts, self.forms, strict=True)]
        return jax.tree.unflatten(self.structure, parts)


def pack(tree: Any, devices: int) -> tuple[np.ndarray, Layout]:
    """Return a tree of NumPy arrays as words [devices words], and its layout."""
    rows = [np.ascontiguousarray(x).reshape(devices, -1) for x in jax.tree.leaves(tree)]
    return np.concatenate([x.view(np.int32) for x in rows], 1), Layout.of(tree, devices)


def joined(leaves: Sequence[Array]) -> Int[Array, "1 words"]:
    """Return arrays of one device as words."""
    return jnp.concatenate([_words(x) for x in leaves])[None]


def _count(form: ShapeAndType) -> int:
    shape, dtype = form
    return math.prod(shape) * max(dtype.itemsize // 4, 1)


def _words(x: Array) -> Int[Array, "words"]:
    x = x.astype(jnp.int32) if x.dtype == jnp.bool else x
    return jax.lax.bitcast_convert_type(x, jnp.int32).reshape(-1)


def _read(words: Any, shape: tuple[int, ...], dtype: np.dtype) -> Any:
    if isinstance(words, np.ndarray):
        words = np.ascontiguousarray(words)
        numbers = words.astype(bool) if dtype.itemsize == 1 else words.view(dtype)
        return numbers.reshape(len(words) * shape[0], *shape[1:])
    if dtype.itemsize == 1:
        return words.reshape(shape).astype(bool)
    wide = dtype.itemsize // 4
    words = words.reshape(*shape, wide) if wide > 1 else words.reshape(shape)
    return jax.lax.bitcast_convert_type(words, dtype)
