"""Prompts that are read part by part, of which a directory keeps the parts."""

import functools
import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from transformer_jax.arrays import Array, Int
from transformer_jax.decoding.text.prompt_files import PromptFiles
from transformer_jax.errors import UserError
from transformer_jax.models.model import Model
from transformer_jax.models.network import NetworkStepper

PART = 64  # positions that are read, and kept, at a time
LIMIT = 2**30  # bytes of a directory, unless another number is asked for


class PromptCache:
    """What a model makes of prompts. Whole parts of them are taken from `directory` where they, and
    all before them, are there; what is computed instead is the same to the last bit.

    Raises:
      UserError: if parts of a prompt cannot be read one after another by such a model.
    """

    def __init__(
        self, model: Model, params: Any, tokenizer: str, directory: str | Path,
        limit: int = LIMIT, part: int = PART,
    ) -> None:  # fmt: skip
        _check(model)
        self._model, self._params, self._part = model, params, part
        facts = {
            "model": repr(model), "params": digest(params), "tokenizer": tokenizer, "part": part,
            "backend": jax.default_backend(), "jax": jax.__version__,
        }  # fmt: skip
        self._files = PromptFiles(Path(directory), facts, limit)
        self.computed = self.taken = 0  # parts, so far

    def state(self, ids: Sequence[int], length: int, width: int, room: int, stride: int) -> Any:
        """Return the state behind a prompt, padded to a length, as `Stepper.start` does."""
        parts = -(-max(length, 1) // self._part)
        stepper = self._stepper
        state = _blank(self._model, self._params, parts * self._part, self._part)
        whole, known = len(ids) // self._part, True
        for number in range(-(-len(ids) // self._part)):
            first, last = number * self._part, min((number + 1) * self._part, len(ids))
            kept = self._files.get(ids[:last]) if known and number < whole else None
            before = stepper.part(state, first, first + self._part)
            found = None if kept is None else _like(before, kept)
            known = found is not None
            if found is not None:
                state = stepper.with_part(state, first, last, found)
                self.taken += 1
                continue
            given = np.zeros((1, 1, self._part), np.int32)
            given[0, 0, : last - first] = ids[first:last]
            state = _read(self._model, self._params, state, given, np.int32(first), np.int32(last))
            if number < whole:
                self._files.put(ids[:last], _bytes_of(stepper.part(state, first, last)))
                self.computed += 1
        return stepper.as_prompt(state, len(ids), width, room, stride)

    @property
    def _stepper(self) -> NetworkStepper:
        stepper = self._model.stepper(self._params)
        assert isinstance(stepper, NetworkStepper)
        return stepper


def _check(model: Model) -> None:
    name = model.config.architecture
    if name != "decoder":
        raise UserError(
            f"config.model.architecture={name!r}: a prompt cache keeps what a decoder makes of a "
            "prompt, and such a model has none; leave it out"
        )
    if getattr(model, "order", "causal") != "causal":
        raise UserError(
            "config.objective.name='prefix_lm': such a model reads a prompt in both directions, so "
            "that nothing of its beginning can be kept; leave the prompt cache out"
        )


def digest(params: Any) -> str:
    """Return a hash of parameters, their names, types and shapes."""
    found = hashlib.blake2b(digest_size=32)
    for path, leaf in jax.tree_util.tree_leaves_with_path(params):
        array = np.ascontiguousarray(jax.device_get(leaf))
        found.update(f"{jax.tree_util.keystr(path)} {array.dtype} {array.shape}\n".encode())
        found.update(array.reshape(-1).view(np.uint8).data)
    return found.hexdigest()


def _bytes_of(part: Any) -> list[np.ndarray]:
    return [np.asarray(leaf) for leaf in jax.tree.leaves(jax.device_get(part))]


def _like(part: Any, arrays: Sequence[np.ndarray]) -> Any | None:
    """Return flat bytes as a part of this shape; None if they are of another."""
    leaves, tree = jax.tree.flatten(part)
    if [leaf.nbytes for leaf in leaves] != [array.nbytes for array in arrays]:
        return None
    pairs = zip(leaves, arrays, strict=True)
    return jax.tree.unflatten(
        tree, [jnp.asarray(y.view(x.dtype).reshape(x.shape)) for x, y in pairs]
    )


@functools.partial(jax.jit, static_argnums=(0, 2, 3))
def _blank(model: Any, params: Any, length: int, reach: int) -> Any:
    return model.stepper(params).blank(length, reach)


@functools.partial(jax.jit, static_argnums=0, donate_argnums=2)
def _read(
    model: Any,
    params: Any,
    state: Any,
    ids: Int[np.ndarray | Array, "1 1 P"],
    first: Any,
    last: Any,
) -> Any:
    """Return the state behind one more part, which ends before the position `last`."""
    stepper = model.stepper(params)
    positions = first + jnp.arange(ids.shape[2])[None]
    state = stepper.step(state, ids, positions, jnp.ones(1, bool))[2]
    return stepper.rewind(state, jnp.asarray(last)[None])
