"""The internals of a model as it reads a text: hidden states and attention, layer by layer."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from transformer_jax.base.errors import UserError
from transformer_jax.config import ObjectiveConfig
from transformer_jax.data.batches.batch import Batch, Ragged, Side, one_per_row
from transformer_jax.data.codecs.codec import Codec, VectorCodec, encoded
from transformer_jax.data.objectives import OBJECTIVES
from transformer_jax.decoding.loaded import Loaded
from transformer_jax.decoding.text.prompts import PROMPTS
from transformer_jax.decoding.text.teacher_forced import check_positions
from transformer_jax.models.layers import Layer
from transformer_jax.models.network import Network
from transformer_jax.models.stack import Stack
from transformer_jax.nn.mixers.attention import Attention


class Inside(NamedTuple):
    """The internals of one stack as it reads T pieces; float32 except for bfloat16 models."""

    pieces: list[str]
    hidden: np.ndarray  # [L+1 T D]: the input of the first layer, and the output of each
    output: np.ndarray  # [T D]: the output of the stack, after its final norm if it has one
    # [L N T T]: the weights of each head, from each piece, in the layers whose mixer has attention
    # heads; None: there is no such layer.
    attention: np.ndarray | None
    cross_attention: np.ndarray | None  # [L N T S], over what an encoder has read


def inside(loaded: Loaded, source: Any, target: str | None) -> dict[str, Inside]:
    """Return the internals of each stack, "encoder" or "decoder" or both, as it reads a text, or
    what a vector codec takes.

    Raises:
      UserError: if there is no target where the model reads one, or the other way round, if a side
        has more pieces than the model has positions for, or the model does not read its text as it
        is.
    """
    model, objective = loaded.model, loaded.objective
    if objective.record.paired:
        raise UserError("inside: such a model reads two texts at a time; see classify")
    if OBJECTIVES[objective.kind].strict or not isinstance(model, Network):
        raise UserError("inside: such a model reads a text in several orders; see score")
    if model.config.architecture == "perceiver":
        raise UserError("inside: the layers of such a model see latents, not positions of a text")
    if model.config.architecture == "factorised_encoder":
        raise UserError("inside: the layers of such a model see frames one by one, not a clip")
    if objective.record.vectors is not None:
        raise UserError("inside: the layers of such a model see values, not pieces of a text")
    prompting = PROMPTS.get(objective.kind)  # no pair for one that continues what it reads
    pairs = objective.record.searches if prompting is None else not prompting.continued
    if (target is None) == pairs:
        raise UserError(
            "inside: give a text and its translation, or whatever else the model writes"
            if target is None
            else "inside: such a model reads one text; give no translation"
        )
    batch = _batch(loaded, source, target)
    sides = [side for side in (batch.src, batch.tgt) if side is not None]
    for side in sides:
        if not side.inputs.shape[1]:
            raise UserError("inside: the input is empty, or shorter than a frame; give more")
        if side.inputs.ndim == 2:  # pieces, not vectors
            check_positions(model.config, side.inputs.shape[1])
    stacks = _watched(model, loaded.params, batch)
    names = model.config.stacks
    codecs = [loaded.codecs.src if side is batch.src else loaded.codecs.tgt for side in sides]
    return {
        name: Inside(_pieces(codec, side, len(stack[1])), *stack)
        for name, stack, side, codec in zip(names, stacks, sides, codecs, strict=False)
    }


def _pieces(codec: Codec, side: Side, count: int) -> list[str]:
    """Return labels of what is read: pieces, or position numbers for vectors."""
    if isinstance(codec, VectorCodec):
        return [str(place) for place in range(count)]
    pieces = codec.pieces(side.inputs[0])
    return [*map(str, range(count - len(pieces))), *pieces]  # vectors may precede a text


def _batch(loaded: Loaded, source: Any, target: str | None) -> Batch:
    """Return one row without padding; pieces are those of training, and none is hidden."""
    (reads, writes), config = loaded.codecs, loaded.objective
    frame = loaded.task.frame(config)
    # A text that is read as one: the objective truncates it as in training.
    whole = config.labels and frame.cut == "line"
    if isinstance(reads, VectorCodec) or whole:
        tgt = [[0]] if target is None else writes.encode([target])
        return _one(loaded, encoded(reads, [source]), Ragged.from_lists(tgt))
    if target is None:
        (ids,) = reads.encode([source], True, frame.eos)
        row = np.asarray([ids], np.int32)
        side = Side(row, np.arange(row.size, dtype=np.int32)[None], np.ones_like(row))
        if config.kind in PROMPTS:
            return Batch(None, side._replace(rank=np.zeros_like(row)), {})  # as of a prompt
        two = np.ones((1, 2), np.int32)  # for predictions about a text: the two ends of a span
        return Batch(side, Side(two, np.arange(2, dtype=np.int32)[None], two), {})
    if config.record.text:  # nothing is hidden
        loaded = dataclasses.replace(loaded, objective=ObjectiveConfig("translate"))
    return _one(loaded, *map(Ragged.from_lists, (reads.encode([source]), writes.encode([target]))))


def _one(loaded: Loaded, src: Ragged, tgt: Ragged) -> Batch:
    """Return the only example of a source and a target, without padding."""
    items = loaded.items(src, tgt)
    lengths = [int(side[0]) for side in items.lengths]
    return loaded.task.examples(items, one_per_row(np.arange(1)), 1, lengths[0], lengths[1])


def _watched(model: Network, params: Any, batch: Batch) -> list[tuple]:
    """Return (hidden, output, attention, cross-attention) of each stack, in turn.

    The layers run one by one, outside any compiled loop, and their inputs and outputs are recorded.
    """
    config = dataclasses.replace(
        model.config, layer_loop="unrolled", remat="none", attention="dense"
    )
    plain = model.clone(config=config)
    layers: list[tuple] = []
    hidden: list[Any] = []
    weights: dict[str, list[Any]] = {"mix": [], "recall": []}

    def watch(call: Callable, args: Sequence[Any], kwargs: Any, context: Any) -> Any:
        out, method = call(*args, **kwargs), context.method_name
        if isinstance(context.module, Layer) and method == "__call__":
            hidden.extend([out] if hidden else [args[0], out])
        elif isinstance(context.module, Attention) and method in weights:
            weights[method] += [] if out[1] is None else [out[1]]
        elif isinstance(context.module, Stack) and method == "__call__":
            at, across = (_stacked(rows) for rows in weights.values())
            layers.append((_stacked(hidden), np.asarray(out[0]), at, across))
            for rows in (hidden, *weights.values()):
                rows.clear()
        return out

    with nn.intercept_methods(watch):
        plain.outputs(params, jax.tree.map(jnp.asarray, batch), None)
    return layers


def _stacked(rows: Sequence[Any]) -> np.ndarray | None:
    """Return what each layer has for the first row of a batch."""
    return np.stack([np.asarray(row[0]) for row in rows]) if rows else None
