"""Conversion of parameters to and from the tensors of a family, and their files."""

import json
import logging
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
from flax.traverse_util import flatten_dict, unflatten_dict
from safetensors.numpy import load_file, save_file

from transformer_jax.base.errors import UserError
from transformer_jax.config import ModelConfig
from transformer_jax.data.codecs.codec import Codec
from transformer_jax.data.codecs.values import Values
from transformer_jax.export.huggingface.family import LOGITS_BIAS, Family
from transformer_jax.nn.positions import Sinusoidal

log = logging.getLogger("transformer_jax")
Tensors = dict[str, np.ndarray]
_FILE = "model.safetensors"
_NUMBERED = r"\b([a-z]+)"  # what a path numbers: a layer, an expert
_OTHER_FORMATS = (
    ".bin",
    ".bin.index.json",
    ".h5",
    ".msgpack",
    ".ckpt.index",
    ".gguf",
    ".pth",
    ".pt",
)
# Heads of encoders.
HEADS = (
    "piece_head", "pooler", "next_sentence_head", "class_head", "tags_head", "span_head",
    "value_head",
)  # fmt: skip
# Names of the first version of BERT, which files of every family may have.
_RENAMED = {"LayerNorm.gamma": "LayerNorm.weight", "LayerNorm.beta": "LayerNorm.bias"}
# Suffixes of what older versions saved in every family, although it follows from the config.
_BUFFERS = ("rotary_emb.inv_freq", "position_ids")
_LEAVES = {
    "kernel": ".weight", "scale": ".weight", "table": ".weight", "bias": ".bias",
    "channels": ".weight", "itself": "",
}  # fmt: skip
_INWARD = ("query", "key", "value", "gate", "up", "router")  # maps that read the residual stream


def names(family: Family, shapes: Any) -> dict[str, list[str]]:
    """Return {their name: our paths}; several paths if their tensor joins several of ours."""
    modules = list(family.modules)

    def module(path: str) -> str:
        return re.sub(rf"{_NUMBERED}_\d+", r"\1_{}", path.rpartition("/")[0])

    found: dict[str, list[str]] = {}
    paths = family.layout.apart(flatten_dict(shapes, sep="/"))
    for path in sorted(paths, key=lambda path: modules.index(module(path))):
        numbers = [number for _, number in re.findall(rf"{_NUMBERED}_(\d+)", path)]
        name = family.modules[module(path)].format(*numbers)
        own = family.logits_bias is not None and _of_logits(path)
        leaf = "" if own else _LEAVES[path.rpartition("/")[2]]
        found.setdefault(f"{name}{leaf}", []).append(path)
    return found


def _of_logits(path: str) -> bool:
    """Whether a parameter is the bias of logits: in fairseq's families no module's, and [1 V]."""
    return path == "logits_bias/bias"


def to_tensors(family: Family, params: Any) -> Tensors:
    """Return the tensors of a file.

    Raises:
      UserError: if tables differ that are shared in this family, or the family lacks a parameter.
    """
    leaves = {k: np.asarray(v) for k, v in flatten_dict(params, sep="/").items()}
    flat: Tensors = family.layout.apart(leaves)
    if family.halves:
        flat = {path: _permuted(path, array, _halves) for path, array in flat.items()}
    found = {}
    for name, paths in names(family, params).items():
        parts = [_matrix(path, flat[path]) for path in paths]
        if family.offset and paths[0].endswith("positions/table"):
            parts = [np.concatenate([np.zeros_like(parts[0][: family.offset]), parts[0]])]
        if paths[0].endswith("table"):
            if not all(np.array_equal(parts[0], part) for part in parts):
                raise UserError(
                    f"{' and '.join(paths)}: differ, but {family.model_type!r} of {family.engine} "
                    "has a single table for them"
                )
            whole = parts[0]
        else:
            heads = flat[paths[0]].shape[-2] if family.per_head and len(paths) > 1 else 1
            cut = [part.reshape(heads, -1, *part.shape[1:]) for part in parts]
            whole = np.concatenate(cut, axis=1).reshape(-1, *parts[0].shape[1:])
        turned = family.in_out and paths[0].endswith("kernel")
        # A strided view would silently be written with wrong contents.
        found[name] = np.ascontiguousarray(whole.T if turned else whole)
    return {name: x[None] if name == family.logits_bias else x for name, x in found.items()}


def in_own_unit(params: Any, codec: Codec) -> Any:
    """Return parameters that predict a number in its own unit: only a linear map precedes the
    scaling of values, which is folded into it.
    """
    if not isinstance(codec, Values):
        return params
    head = {name: np.asarray(array, np.float64) for name, array in params["value_head"].items()}
    head = {"table": head["table"] * codec.deviation, "bias": codec.unscaled(head["bias"])}
    return {**params, "value_head": {name: x.astype(np.float32) for name, x in head.items()}}


def folded(config: ModelConfig) -> ModelConfig:
    """Return the same model without a scale of its embedding, which then differs from its head; see
    `fold`. Encoders have a head of their own form, and stay as they are.
    """
    if not config.embedding_scale or config.architecture == "encoder":
        return config
    return replace(config, embedding_scale=False, logits_scale=False, tied_embeddings="none")


def fold(config: ModelConfig, params: Any) -> Any:
    """Return the parameters of the model `folded`: inputs are looked up in a table times
    sqrt(d_model), and the table itself becomes the head, as it is.
    """
    names = ("embedding", "src_embedding", "tgt_embedding")
    tables = {name: np.asarray(params[name]["table"]) for name in names if name in params}
    shared = tables.pop("embedding", None)
    if shared is not None:
        apart = ("src_embedding", "tgt_embedding")
        both = config.architecture == "encoder_decoder"
        tables = dict.fromkeys(apart if both else ("embedding",), shared)
    width = np.float32(config.d_model**0.5)
    head = tables["tgt_embedding" if "tgt_embedding" in tables else "embedding"]
    own = {"output": {"table": head / width if config.logits_scale else head}}
    kept = {name: leaves for name, leaves in params.items() if name not in names}
    return {**own, **kept, **{name: {"table": table * width} for name, table in tables.items()}}


def from_tensors(family: Family, tensors: Tensors, shapes: Any) -> Any:
    """Return parameters of the given shapes.

    Raises:
      UserError: if a tensor is missing, left over, or of another shape; names it as the file does.
    """
    given, found = flatten_dict(shapes, sep="/"), {}
    empty = {path: np.broadcast_to(0, leaf.shape) for path, leaf in given.items()}
    leaves = family.layout.apart(empty)
    said = {_short(family, name): name for name in tensors}
    left = {short: tensors[name] for short, name in said.items()}
    wanted = {_short(family, name): (name, paths) for name, paths in names(family, shapes).items()}
    said = {short: name for short, (name, _) in wanted.items()} | said
    _untie(family, left, {short: paths for short, (_, paths) in wanted.items()}, said)
    for short, (name, paths) in wanted.items():
        if short not in left:
            raise UserError(f"{name}: missing")
        whole = _floats(said[short], left.pop(short))
        whole = whole.reshape(-1) if name == family.logits_bias else whole
        whole = whole.T if family.in_out and paths[0].endswith("kernel") else whole
        whole = whole[family.offset :] if paths[0].endswith("positions/table") else whole
        parts = [np.broadcast_to(np.float32(0), _matrix_shape(p, leaves[p].shape)) for p in paths]
        rows = sum(len(part) for part in parts) if not paths[0].endswith("table") else len(parts[0])
        if whole.shape != (rows, *parts[0].shape[1:]):
            raise UserError(
                f"{said[short]}: has the shape {whole.shape}, not {(rows, *parts[0].shape[1:])} as "
                "config.json describes it"
            )
        heads = leaves[paths[0]].shape[-2] if family.per_head and len(paths) > 1 else 1
        cut = _cut(whole, [len(part) for part in parts], paths[0], heads)
        for path, part in zip(paths, cut, strict=True):
            turned = part.T if path.endswith("kernel") else part
            array = turned.reshape(leaves[path].shape)
            found[path] = _permuted(path, array, _alternating) if family.halves else array
    _check_left(family, left, said)
    found = {k: np.ascontiguousarray(v) for k, v in family.layout.together(found, given).items()}
    return unflatten_dict(found, sep="/")


def _short(family: Family, name: str) -> str:
    """Return a tensor's name as it is now, without the prefix, which some files lack."""
    for older, newer in _RENAMED.items():
        if name.endswith(older):
            name = name.removesuffix(older) + newer
    return name.removeprefix(family.prefix)


def _floats(name: str, array: np.ndarray) -> np.ndarray:
    """Return a tensor in float32.

    Raises:
      UserError: if it holds whole numbers, as quantised ones do.
    """
    if not jnp.issubdtype(array.dtype, jnp.floating):
        raise UserError(
            f"{name}: holds {array.dtype} numbers; only float32, float16 and bfloat16 can be "
            "imported: take the model before it was quantised"
        )
    return np.asarray(array, np.float32)


def present(family: Family, tensors: Tensors, shapes: Any) -> Any:
    """Return the parameters of a model without the heads that a file has no tensors for."""
    given = tuple(_short(family, name) for name in tensors)

    def there(part: str) -> bool:
        name = family.modules.get(part, "").removeprefix(family.prefix)
        return part not in HEADS or any(other.startswith(f"{name}.") for other in given)

    return {part: leaves for part, leaves in shapes.items() if there(part)}


def _cut(whole: np.ndarray, rows: list[int], path: str, heads: int) -> list[np.ndarray]:
    if path.endswith("table"):
        return [whole] * len(rows)
    shape = whole.shape[1:]
    parts = np.split(whole.reshape(heads, -1, *shape), np.cumsum(rows)[:-1] // heads, axis=1)
    return [part.reshape(-1, *shape) for part in parts]


def _untie(
    family: Family, left: Tensors, wanted: Mapping[str, list[str]], said: Mapping[str, str]
) -> None:
    """Keep only one of the names under which a tied embedding is saved."""
    table = next(name for name, paths in wanted.items() if paths[0].endswith("embedding/table"))
    for alias in family.tables:
        alias = alias.removeprefix(family.prefix)
        if alias in left and alias not in wanted:
            other = left.pop(alias)
            if not np.array_equal(left.setdefault(table, other), other):
                raise UserError(
                    f"{said[alias]}: differs from {said[table]}, to which it should be tied"
                )


def _check_left(family: Family, left: Tensors, said: Mapping[str, str]) -> None:
    """Raise a UserError that names a tensor without a counterpart in our model, if any."""
    for name, array in left.items():
        full = family.prefix + name
        if name.endswith((*family.drops, *_BUFFERS)):
            continue
        if name.startswith(family.others) and family.others:
            log.info("%s: not imported, it belongs to another head", said[name])
            continue
        if name == family.logits_bias and not np.any(array):
            continue
        if full in family.sinusoids and np.allclose(
            np.asarray(array, np.float32), sinusoids(*array.shape), atol=1e-5
        ):
            continue
        raise UserError(f"{said[name]}: this tensor has no counterpart in our model")


def seen(tensors: Tensors) -> dict[str, Any]:
    """Return what tensors say about a model and its config.json does not, as keys of one."""
    bias = any(np.any(x) for name, x in tensors.items() if name.endswith(LOGITS_BIAS))
    return {"lm_head": _has_own_head(tensors), LOGITS_BIAS: bias}


def _has_own_head(tensors: Tensors) -> bool:
    """Whether there is a pre-softmax table that is not an embedding."""
    heads = ("lm_head.weight", "embed_out.weight")
    head = next((tensors[name] for name in heads if name in tensors), None)
    others = (array for name, array in tensors.items() if name not in heads)
    return head is not None and not any(np.array_equal(array, head) for array in others)


def sinusoids(rows: int, width: int) -> np.ndarray:
    """Return their position table [rows width]: the paper's sines, then its cosines."""
    table = Sinusoidal(ModelConfig(d_model=width, head_dim=1), parent=None).table(rows)
    return np.ascontiguousarray(_halves(table.T).T.astype(np.float32))


def _matrix_shape(path: str, shape: tuple[int, ...]) -> tuple[int, ...]:
    return _matrix(path, np.broadcast_to(np.float32(0), shape)).shape


def _matrix(path: str, array: np.ndarray) -> np.ndarray:
    """Return an array of ours in torch's layout: kernels [out in], heads concatenated."""
    *_, module, leaf = path.split("/")
    if leaf == "kernel":
        inner = array.shape[0] if module in _INWARD else -1
        return array.reshape(inner, -1 if module in _INWARD else array.shape[-1]).T
    return array if leaf in ("table", "channels", "itself") else array.reshape(-1)


def _halves(array: np.ndarray) -> np.ndarray:
    return np.concatenate([array[0::2], array[1::2]])


def _alternating(array: np.ndarray) -> np.ndarray:
    return np.stack(np.split(array, 2), 1).reshape(array.shape)


def _permuted(path: str, array: np.ndarray, order: Any) -> np.ndarray:
    """Return a parameter with the channels of the residual stream in another order."""
    *_, module, leaf = path.split("/")
    inward = module in _INWARD
    if (leaf == "bias" and inward) or _of_logits(path):
        return array
    axis = 0 if leaf == "kernel" and inward else array.ndim - 1
    return np.moveaxis(order(np.moveaxis(array, axis, 0)), 0, axis)


def save(directory: Path, tensors: Tensors) -> None:
    """Write one file."""
    save_file(tensors, directory / _FILE, metadata={"format": "pt"})


def _refuse_others(directory: Path, ours: set[str]) -> None:
    """Raise a UserError that names weights in another format, if there are no others."""
    found = {path.name for path in directory.glob("*")} if directory.is_dir() else set()
    for name in sorted(found) if found.isdisjoint(ours) else ():
        if name.endswith(_OTHER_FORMATS):
            raise UserError(
                f"{directory / name}: only weights in {_FILE} can be imported; load the model with "
                "transformers, and write it to another directory with save_pretrained"
            )


def load(directory: Path) -> Tensors:
    """Read the tensors from one file or from shards.

    Raises:
      UserError: if there are none, or a file cannot be read.
    """
    index = directory / f"{_FILE}.index.json"
    _refuse_others(directory, {_FILE, index.name})
    try:
        files = {_FILE}
        if not (directory / _FILE).exists() and index.exists():
            files = set(json.loads(index.read_bytes())["weight_map"].values())
        return {k: v for file in sorted(files) for k, v in load_file(directory / file).items()}
    except FileNotFoundError as error:
        raise UserError(
            f"{directory}: no {Path(error.filename or _FILE).name} here; save the model with "
            "save_pretrained(..., safe_serialization=True)"
        ) from None
    except Exception as error:  # safetensors has its own exception type
        raise UserError(f"{directory}: the tensors cannot be read ({error})") from None
