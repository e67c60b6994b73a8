"""Export of a model's programs as StableHLO, which XLA runs without this package: `jax.export`.

The directory holds a file per program, for `jax.export.deserialize`; the parameters, in
model.safetensors; the tokenizer; and README.json, which describes inputs and outputs.
"""

import dataclasses
import json
import logging
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.export
import jax.numpy as jnp
import numpy as np
from flax.traverse_util import flatten_dict, unflatten_dict
from safetensors.numpy import save_file

from transformer_jax.base.arrays import Array, at_least_float32
from transformer_jax.base.disk import write_bytes, write_text, writing
from transformer_jax.base.errors import UserError
from transformer_jax.base.vocabulary import Special
from transformer_jax.config import Experiment
from transformer_jax.data.batches.batch import Batch, Side
from transformer_jax.data.codecs.codec import special_of
from transformer_jax.data.codecs.pair import TokenizerPair
from transformer_jax.data.objectives import objective_named
from transformer_jax.decoding.stepper import stepper_of
from transformer_jax.decoding.text.generate import MAX_TOKENS
from transformer_jax.decoding.text.prompts import forbidden
from transformer_jax.models.build import build

log = logging.getLogger("transformer_jax")
READ = ("translate", "language_model", "masked_lm", "classify")  # fully described by ids


class Program(NamedTuple):
    """A function of parameters {path: array} and named inputs."""

    function: Callable[..., Any]
    inputs: Mapping[str, Any]  # shapes
    outputs: Sequence[str]


def export(
    experiment: Experiment,
    params: Any,
    tokenizers: TokenizerPair,
    output: Path,
    length: int | None = None,
    max_tokens: int | None = None,
    platforms: Sequence[str] = ("cpu", "cuda", "tpu"),
) -> None:
    """Write the directory.

    `length` is that of sources and prompts, and of all texts if a program needs a fixed length;
    None: the length used in training. `max_tokens` is the capacity of the decoding state in pieces;
    None: 256, or the model's number of positions if that is smaller.

    Raises:
      UserError: if the output exists, or the model reads more than pieces.
    """
    if output.exists():
        raise UserError(f"--output={output}: already exists; name a new directory")
    refuse(experiment)
    _check(experiment, length, max_tokens, platforms)
    flat = {k: np.ascontiguousarray(v) for k, v in flatten_dict(params, sep="/").items()}
    shapes = {name: jax.ShapeDtypeStruct(array.shape, array.dtype) for name, array in flat.items()}
    longest = experiment.objective.window if experiment.objective.windowed else None
    length = length or longest or experiment.data.max_length
    limit = experiment.model.position_limit
    max_tokens = max_tokens or min(MAX_TOKENS, limit or MAX_TOKENS)
    files, words = {}, {}
    for name, choices in programs(experiment, tokenizers, shapes, length, max_tokens).items():
        program, exported = _first(choices, shapes, platforms)
        files[f"{name}.stablehlo"] = bytes(exported.serialize())
        shown = zip(program.outputs, exported.out_avals, strict=False)
        words[name] = {
            "file": f"{name}.stablehlo",
            "inputs": {"parameters": "the tensors of model.safetensors by their names",
                       **{key: _shape(value) for key, value in program.inputs.items()}},
            "outputs": {key: _shape(value) for key, value in shown},
        }  # fmt: skip
    with writing(str(output), output.absolute().parent):
        output.mkdir(parents=True)
        for name, content in files.items():
            write_bytes(output / name, content)
        save_file(flat, output / "model.safetensors")
        tokenizers.save(output)
        write_text(output / "README.json", _readme(words, experiment, tokenizers, platforms))


def refuse(experiment: Experiment) -> None:
    """Raise a UserError if the programs need inputs other than ids, or cannot be written."""
    name = experiment.objective.name
    if experiment.objective.kind not in READ:
        raise UserError(
            f"config.objective.name={name!r}: such a model reads or predicts more than pieces; the "
            f"export to StableHLO supports {' or '.join(map(repr, READ))}"
        )
    if (stem := experiment.model.stem) != "embedding":
        raise UserError(f"config.model.stem={stem!r}: such a model reads vectors, not pieces")
    try:
        import flatbuffers  # noqa: F401 (needed by jax.export)
    except ImportError:
        raise UserError(
            "the export to StableHLO needs flatbuffers: pip install flatbuffers"
        ) from None


def _check(
    experiment: Experiment,
    length: int | None,
    max_tokens: int | None,
    platforms: Sequence[str],
) -> None:
    """Refuse sizes out of range and unknown platforms."""
    limit = experiment.model.position_limit
    for name, value in (("length", length), ("max_tokens", max_tokens)):
        if value is not None and not 1 <= value <= (limit or 1 << 20):
            raise UserError(f"{name}={value}: must lie between 1 and {limit or 1 << 20}")
    unknown = set(platforms) - {"cpu", "cuda", "rocm", "tpu"}
    if unknown:
        raise UserError(f"platforms: {sorted(unknown)} unknown; there are cpu, cuda, rocm, tpu")


def programs(
    experiment: Experiment,
    tokenizers: TokenizerPair,
    params: Any,
    length: int,
    max_tokens: int,
) -> dict[str, list[Program]]:
    """Return the possible forms of each program by its name, the most general first."""
    config = dataclasses.replace(experiment.model, attention="dense", layer_loop="unrolled")
    objective = objective_named(experiment.objective.name)
    options = {"order": objective.order, "single": True, "predicts": objective.predicts}
    model = build(config, *tokenizers.sizes, **options)  # type: ignore[arg-type]
    two, says = len(config.stacks) == 2, objective.predicts == ("class",)
    reads = says or "decoder" not in config.stacks
    written = _padding(special_of(tokenizers.tgt), objective.order) if not reads else None
    read = _padding(special_of(tokenizers.src), "all", begun=not two) if two or reads else written

    def whole(params: Any, *ids: Array) -> Array:
        source, target = _side(ids[0], read), _side(ids[-1], written)
        batch = Batch(None if config.architecture == "decoder" else source, target, {})
        if reads:
            asked = jnp.ones_like(ids[0][:, :1])
            batch = Batch(source, Side(asked, asked - 1, asked), {})
        (output,) = model.outputs(unflatten_dict(params, sep="/"), batch, None).values()
        found = jax.nn.log_softmax(at_least_float32(output.logits()))
        return found[:, 0] if says else found

    def start(params: Any, ids: Array) -> Any:
        stepper = stepper_of(model, unflatten_dict(params, sep="/"))
        return stepper.start(stepper.context(_side(ids, read)), 1, max_tokens)

    (batch,) = jax.export.symbolic_shape("batch")
    ids, one = _ids(batch, length), _ids(batch)
    names = ("source", "target") if two else ("text",)
    found = {
        "forward": [
            Program(whole, _open(names, config.position_limit), ["log_probs"]),
            Program(whole, dict.fromkeys(names, ids), ["log_probs"]),
        ]
    }
    if reads:
        return found
    trees = []  # the structure of the state, whose leaves are passed as a list

    def prefill(params: Any, ids: Array) -> list[Array]:
        leaves, tree = jax.tree.flatten(start(params, ids))
        trees.append(tree)
        return leaves

    state = jax.eval_shape(prefill, params, ids)

    def step(params: Any, state: list[Array], piece: Array, position: Array) -> Any:
        stepper, everyone = stepper_of(model, unflatten_dict(params, sep="/")), piece >= 0
        given = (jax.tree.unflatten(trees[0], state), piece.reshape(-1, 1, 1),
                 position.reshape(-1, 1))  # fmt: skip
        logits, _, new = stepper.step(*given, jnp.ones_like(everyone))
        return jax.nn.log_softmax(at_least_float32(logits[:, 0, 0])), jax.tree.leaves(new)

    found["prefill"] = [Program(prefill, {"source" if two else "prompt": ids}, ["state ..."])]
    inputs = {"state": state, "piece": one, "position": one}
    found["step"] = [Program(step, inputs, ["log_probs", "state ..."])]
    return found


def _first(
    choices: Sequence[Program], params: Any, platforms: Sequence[str]
) -> tuple[Program, jax.export.Exported]:
    """Return the first program that can be exported."""
    for number, program in enumerate(choices):
        try:
            write = jax.export.export(jax.jit(program.function), platforms=platforms)
            return program, write(params, *program.inputs.values())
        except Exception as error:  # of many types: often an array needs a concrete length
            if number + 1 == len(choices):
                raise
            log.info("lengths are fixed, as this model does not allow symbolic ones: %s",
                     str(error).partition("\n")[0])  # fmt: skip
    raise AssertionError("no choice")


def _open(names: Sequence[str], limit: int | None) -> dict[str, Any]:
    """Return ids with symbolic batch size and lengths."""
    bounds = [] if limit is None else [f"{name} <= {limit}" for name in names]
    batch, *lengths = jax.export.symbolic_shape(", ".join(["batch", *names]), constraints=bounds)
    return {name: _ids(batch, length) for name, length in zip(names, lengths, strict=True)}


def _ids(*shape: Any) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, jnp.int32)


def _padding(special: Special, order: str, begun: bool = True) -> int | None:
    """Return the piece that no text contains; None: any piece serves at the end of a text that is
    only read from left to right. `begun`: texts begin with BOS.

    Raises:
      UserError: if the model looks ahead, and there is none.
    """
    if special.pad != special.eos and not (begun and special.pad == special.bos):
        return special.pad
    if order != "causal":
        raise UserError(
            f"pad_token_id={special.pad}: also begins or ends texts, so padding cannot be told "
            "from them; a model that reads in both directions needs a piece for padding alone"
        )
    return None


def _side(ids: Array, pad: int | None) -> Side:
    places = jnp.broadcast_to(jnp.arange(ids.shape[1], dtype=jnp.int32)[None], ids.shape)
    return Side(ids, places, (jnp.ones_like(ids) if pad is None else ids != pad).astype(jnp.int32))


def _shape(value: Any) -> Any:
    if isinstance(value, list):
        return [_shape(part) for part in value]
    return f"{value.dtype}[{', '.join(map(str, value.shape))}]"


def _readme(
    words: Any, experiment: Experiment, tokenizers: TokenizerPair, platforms: Sequence[str]
) -> str:
    special = special_of(tokenizers.tgt)
    before: list[int] = []
    if experiment.model.architecture == "decoder":
        bos = experiment.objective.prompts_begin
        (before,) = tokenizers.tgt.encode([""], bos=bos, eos=False)
    never = forbidden(tokenizers.tgt, experiment.objective, experiment.decoding)
    content = {
        "format": "jax.export",
        "jax": jax.__version__,
        "platforms": list(platforms),
        "parameters": "model.safetensors",
        "how": (
            "jax.export.deserialize(bytearray(open(file, 'rb').read())).call(parameters, *inputs); "
            "inputs in the order below. Ids are int32; texts are padded at the end with pad. A "
            "target begins with bos. state: returned by prefill, and anew by each step. The first "
            "piece given to step is bos after a source; after a prompt, which begins with "
            "before_prompt, it is the prompt's last piece, which prefill is not given. Positions "
            "count from 0. The pieces unwritten are never chosen."
        ),
        # Of a text, or of a prompt and its continuation together.
        "positions": experiment.model.position_limit,
        "special": dict(special._asdict()),
        "before_prompt": before,
        "unwritten": sorted(special.unwritten | {*never}),
        "programs": words,
    }
    return json.dumps(content, indent=2) + "\n"
