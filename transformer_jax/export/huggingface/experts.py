"""Experts in files, which hold each one's matrices by themselves."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from transformer_jax.base.errors import UserError
from transformer_jax.nn.experts import LOAD_BIAS


def apart(leaves: Mapping[str, Any]) -> dict[str, Any]:
    """Return the leaves, by path, with the matrices of each expert as those of its own modules, and
    without the biases by which experts are balanced.

    Raises:
      UserError: if a bias is not 0.
    """
    found = {}
    for path, leaf in leaves.items():
        if path.endswith("/kernels"):
            for number, name in enumerate(_names(path, leaf.shape[0])):
                found[name] = leaf[number] if isinstance(leaf, np.ndarray) else _zeros(leaf)[number]
        elif not path.endswith(LOAD_BIAS):
            found[path] = leaf
        elif isinstance(leaf, np.ndarray) and leaf.any():
            raise UserError(
                f"{path}: is not 0, and experts have no such bias in files of Hugging Face; train "
                "with config.model.balancing_rate=0"
            )
    return found


def together(found: Mapping[str, np.ndarray], shapes: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """Return what `apart` took apart, in leaves of these shapes; biases are 0."""
    joined = {}
    for path, leaf in shapes.items():
        if path.endswith("/kernels"):
            joined[path] = np.stack([found[name] for name in _names(path, leaf.shape[0])])
        else:
            joined[path] = np.array(_zeros(leaf)) if path.endswith(LOAD_BIAS) else found[path]
    return joined


def _names(path: str, count: int) -> list[str]:
    layer, name, _ = path.rsplit("/", 2)
    return [f"{layer}/expert_{number}/{name}/kernel" for number in range(count)]


def _zeros(leaf: Any) -> np.ndarray:
    return np.broadcast_to(np.float32(0), leaf.shape)
