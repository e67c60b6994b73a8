"""A directory with one GGUF file, which llama.cpp and programs made of it run."""

import re
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import jax
import numpy as np

from transformer_jax.base.disk import writing
from transformer_jax.base.errors import UserError
from transformer_jax.config import Experiment, ModelConfig
from transformer_jax.data.codecs.pair import TokenizerPair
from transformer_jax.export.gguf import vocabulary
from transformer_jax.export.gguf.architectures import ARCHITECTURES, PERMUTED, UNTIED
from transformer_jax.export.huggingface import tensors
from transformer_jax.export.huggingface.directory import expressible
from transformer_jax.export.huggingface.family import Family, to_words
from transformer_jax.nn.relative_fixed import ROPE_SCALINGS

OBJECTIVE = "language_model"
# Types of matrices, by our names -> those of llama.cpp; vectors stay float32.
TYPES = {"float32": "F32", "float16": "F16", "bfloat16": "BF16"}
_PRECISE = ("position_embd.weight", "rope_freqs.weight")
_ROUTER = "ffn_gate_inp.weight"


def refuse(experiment: Experiment) -> None:
    """Raise a UserError that names what llama.cpp cannot express, if anything, or if the library
    that writes its files is missing.
    """
    name = experiment.objective.name
    if experiment.objective.kind != OBJECTIVE or experiment.model.architecture != "decoder":
        raise UserError(
            f"config.objective.name={name!r}: the export to llama.cpp supports decoders of "
            f"{OBJECTIVE!r}; for others, choose --to=huggingface or --to=ctranslate2"
        )
    library()


def library() -> ModuleType:
    """Return the library that writes GGUF files.

    Raises:
      UserError: if it is not installed.
    """
    try:
        import gguf
    except ImportError:
        raise UserError("the export to llama.cpp needs gguf: pip install gguf") from None
    return gguf


def export(
    experiment: Experiment,
    params: Any,
    tokenizers: TokenizerPair,
    output: Path,
    dtype: str = "float32",
    license: str = "",
) -> Path:
    """Write a directory with a file for llama.cpp, and return its path. Matrices are of type
    `dtype`; `license` is an identifier of the Hugging Face Hub, or "" if it is not stated.

    Raises:
      UserError: if llama.cpp cannot express the model or its tokenizer, or output exists.
    """
    if output.exists():
        raise UserError(f"--output={output}: already exists; name a new directory")
    if dtype not in TYPES:
        raise UserError(f"--dtype={dtype}: choose {', '.join(TYPES)}")
    refuse(experiment)
    family, model = expressible(experiment.model, ("tokens",), families=ARCHITECTURES)
    words = to_words(family, model)
    read = vocabulary.of(tokenizers.tgt, experiment)
    params = jax.device_get(params)
    if model != experiment.model:
        params = tensors.fold(experiment.model, params)
    found = to_tensors(family, model, params)
    place = output / f"{output.absolute().name}-{TYPES[dtype]}.gguf"
    gguf = library()
    with writing(str(output), output.absolute().parent):
        output.mkdir(parents=True)
        writer = gguf.GGUFWriter(place, family.model_type)
        writer.add_type("model")
        writer.add_name(output.absolute().name)
        if license:
            writer.add_license(license)
        writer.add_file_type(gguf.LlamaFileType[_file_type(dtype)])
        writer.add_quantization_version(gguf.GGML_QUANT_VERSION)
        writer.add_vocab_size(tokenizers.tgt.size)
        _add(writer, family.model_type, words)
        _add_vocabulary(writer, read)
        for name, array in found.items():
            _add_tensor(gguf, writer, name, array, dtype)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
    return place


def to_tensors(family: Family, model: ModelConfig, params: Any) -> tensors.Tensors:
    """Return the tensors of a file, [out in] or [experts out in], in float32."""
    found = tensors.to_tensors(family, params)
    stacked: dict[str, list[np.ndarray]] = {}
    for name, array in found.items():  # the experts of a layer, in order, are one tensor
        expert = re.fullmatch(r"(.*_exps)\.\d+(\.weight)", name)
        stacked.setdefault("".join(expert.groups()) if expert else name, []).append(array)
    found = {
        name: np.stack(arrays) if "_exps" in name else arrays[0]
        for name, arrays in stacked.items()
    }  # fmt: skip
    if family.model_type in PERMUTED:
        heads = {"attn_q": model.num_heads, "attn_k": model.kv_heads}
        for name, array in found.items():
            part = name.split(".")[-2]
            found[name] = _neighbours(array, heads[part]) if part in heads else array
    if family.model_type in UNTIED:
        found.setdefault("output.weight", found["token_embd.weight"])
    if model.rope_scaling == "llama3":
        found["rope_freqs.weight"] = _factors(model)
    return found


def _neighbours(array: np.ndarray, heads: int) -> np.ndarray:
    """Return rows of queries or keys with channels i and i + r/2 of each head side by side."""
    halves = array.reshape(heads, 2, -1, *array.shape[1:])
    return np.ascontiguousarray(np.moveaxis(halves, 1, 2).reshape(array.shape))


def _factors(model: ModelConfig) -> np.ndarray:
    """Return the numbers by which the frequencies of pairs of channels are divided, [H / 2]."""
    half = model.rotated_channels // 2
    plain = model.rope_theta ** (-np.arange(half) / half)
    scaled, _ = ROPE_SCALINGS[model.rope_scaling](model, plain)
    return (plain / scaled).astype(np.float32)


def _file_type(dtype: str) -> str:
    return "ALL_F32" if dtype == "float32" else f"MOSTLY_{TYPES[dtype]}"


def _add(writer: Any, group: str, words: Mapping[str, Any]) -> None:
    """Add keys of metadata by their Python types, which are those of llama.cpp's."""
    for name, value in words.items():
        key = f"{group}.{name}"
        if isinstance(value, dict):
            _add(writer, key, value)
        elif isinstance(value, bool):
            writer.add_bool(key, value)
        elif isinstance(value, int):
            writer.add_uint32(key, value)
        elif isinstance(value, float):
            writer.add_float32(key, value)
        elif isinstance(value, bytes):
            writer.add_array(key, value)
        else:
            writer.add_string(key, value)


def _add_vocabulary(writer: Any, read: vocabulary.Vocabulary) -> None:
    _add(writer, "tokenizer.ggml", read.words)
    writer.add_token_list(read.pieces)
    writer.add_token_types(read.types)
    if read.scores is not None:
        writer.add_token_scores(read.scores)
    if read.merges is not None:
        writer.add_token_merges(read.merges)


def _add_tensor(gguf: ModuleType, writer: Any, name: str, array: np.ndarray, dtype: str) -> None:
    matrix = array.ndim > 1 and name not in _PRECISE and not name.endswith(_ROUTER)
    kind = gguf.GGMLQuantizationType[TYPES[dtype] if matrix else "F32"]
    writer.add_tensor(name, gguf.quants.quantize(array.astype(np.float32), kind), raw_dtype=kind)
