"""Reading prompts part by part, with the parts kept in a directory."""

import functools
import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from transformer_jax.base.arrays import Array, Int
from transformer_jax.base.errors import UserError
from transformer_jax.config.bounds import either
from transformer_jax.config.choices.objectives import OBJECTIVES
from transformer_jax.config.choices.record import with_
from transformer_jax.config.registry import pick
from transformer_jax.decoding.text.prompt_files import PromptFiles
from transformer_jax.models.model import Model
from transformer_jax.nn.mixers.kinds import MIXERS
from transformer_jax.nn.mixers.local import LocalAttention

PART = 32  # positions read and kept at a time
LIMIT = 2**30  # bytes of a directory, by default


class PromptCache:
    """A cache of a model's states for prompts. Whole parts are taken from `directory` if they and
    all before them are there; computing them gives the same to the last bit.

    Raises:
      UserError: if such a model cannot read a prompt part by part.
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
        """Return the state after a prompt, padded to a length, as `Stepper.start` does."""
        size, network = self._part, (self._model, self._params)
        state = _blank(*network, -(-max(length, 1) // size) * size, size)
        whole, known = len(ids) // size, True
        for first in range(0, len(ids), size):
            last, kept = min(first + size, len(ids)), None
            complete = first // size < whole
            if known and complete:
                kept = self._found(state, ids[:last])
                known = kept is not None
            if kept is not None:
                state = _taken(*network, state, np.int32(first), size, kept)
                self.taken += 1
                continue
            new = np.zeros((1, 1, size), np.int32)
            new[0, 0, : last - first] = ids[first:last]
            state, part = _read(*network, state, new, np.int32(first), np.int32(last))
            if complete:
                arrays = [np.asarray(leaf) for leaf in jax.tree.leaves(jax.device_get(part))]
                self._files.put(ids[:last], arrays)
                self.computed += 1
        return _as_prompt(*network, state, np.int32(len(ids)), width, room, stride)

    def _found(self, state: Any, ids: Sequence[int]) -> Any | None:
        """Return the last part of a beginning, if it is there and has the right sizes."""
        arrays = self._files.get(ids)
        leaves, tree = jax.tree.flatten(_part_of(self._model, self._params, state, self._part))
        sizes = [leaf.size * leaf.dtype.itemsize for leaf in leaves]
        if arrays is None or sizes != [array.size for array in arrays]:
            return None
        pairs = zip(leaves, arrays, strict=True)
        return jax.tree.unflatten(tree, [y.view(x.dtype).reshape(x.shape) for x, y in pairs])


def _check(model: Model) -> None:
    name = model.config.architecture
    if name != "decoder":
        raise UserError(
            f"config.model.architecture={name!r}: a prompt cache keeps a decoder's state after a "
            "prompt, and such a model has none; leave it out"
        )
    pattern, field = model.config.decoder_pattern, "config.model.decoder_pattern"
    of_windows = [kind for kind in pattern if issubclass(pick(MIXERS, kind, field), LocalAttention)]
    if of_windows:
        raise UserError(
            f"{field}={pattern}: layers of {of_windows[0]} keep only the end of what they read, no "
            "parts that could be stored; leave the prompt cache out"
        )
    if getattr(model, "order", "causal") != "causal":
        prefixed = either(with_(OBJECTIVES, prefix=True))
        raise UserError(
            f"config.objective.name={prefixed}: such a model reads a prompt in both "
            "directions, so that nothing of its beginning can be kept; leave the prompt cache out"
        )


def digest(params: Any) -> str:
    """Return a hash of parameters, their names, types and shapes."""
    hashed = hashlib.blake2b(digest_size=32)
    for path, leaf in jax.tree_util.tree_leaves_with_path(params):
        array = np.ascontiguousarray(jax.device_get(leaf))
        hashed.update(f"{jax.tree_util.keystr(path)} {array.dtype} {array.shape}\n".encode())
        hashed.update(array.reshape(-1).view(np.uint8).data)
    return hashed.hexdigest()


def _part_of(model: Any, params: Any, state: Any, size: int) -> Any:
    """Return the shapes of a part, computing nothing."""
    return jax.eval_shape(lambda x: model.stepper(params).part(x, 0, size), state)


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
    """Return the state after one more part, which ends before `last`, and the part itself."""
    stepper, size = model.stepper(params), ids.shape[2]
    positions = first + jnp.arange(size)[None]
    state = stepper.step(state, ids, positions, jnp.ones(1, bool))[2]
    state = stepper.rewind(state, jnp.asarray(last)[None])
    return state, stepper.part(state, first, size)


@functools.partial(jax.jit, static_argnums=(0, 4), donate_argnums=2)
def _taken(model: Any, params: Any, state: Any, first: Any, size: int, part: Any) -> Any:
    return model.stepper(params).with_part(state, first, size, part)


@functools.partial(jax.jit, static_argnums=(0, 4, 5, 6))
def _as_prompt(model: Any, params: Any, state: Any, count: Any, *sizes: int) -> Any:
    return model.stepper(params).as_prompt(state, count, *sizes)
