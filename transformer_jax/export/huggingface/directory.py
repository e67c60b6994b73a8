"""Directories that `AutoModel.from_pretrained` and `AutoTokenizer.from_pretrained` load."""

import contextlib
import json
import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import flax.linen as nn
import jax
import numpy as np

from transformer_jax.base.disk import write_bytes, write_text, writing
from transformer_jax.base.errors import UserError
from transformer_jax.config import DecodingConfig, Experiment, ModelConfig
from transformer_jax.config.allowed import refused
from transformer_jax.data.codecs.chat import FILE, ChatTemplate
from transformer_jax.data.codecs.codec import Codec, special_of
from transformer_jax.data.codecs.pair import TokenizerPair
from transformer_jax.data.codecs.subwords import Subwords
from transformer_jax.export.huggingface import generation, settings, tensors, tokenizer_json
from transformer_jax.export.huggingface.families import FAMILIES
from transformer_jax.export.huggingface.family import Family, Word, from_words, problems, to_words
from transformer_jax.models.build import abstract_params, build

log = logging.getLogger("transformer_jax")


def family_of(
    config: ModelConfig, predicts: tuple[str, ...] = ("tokens",), kind: str | None = None
) -> Family:
    """Return the first family that can express the model and what its objective predicts.

    `kind` is a model_type, for a model that several families can express.

    Raises:
      UserError: if there is none; names a field that the closest one does not support.
    """
    return expressible(config, predicts, kind)[0]


def expressible(
    config: ModelConfig,
    predicts: tuple[str, ...],
    kind: str | None = None,
    families: Sequence[Family] = tuple(FAMILIES.values()),
) -> tuple[Family, ModelConfig]:
    """Return the first of the families that can express the model, and the model as it does: if
    none scales its embedding, the scale becomes a part of the table.

    Raises:
      UserError: if there is none; names a field that the closest one does not support.
    """
    try:
        return _first_family(config, predicts, kind, families), config
    except UserError:
        folded = tensors.folded(config)
        if folded == config:
            raise
        with contextlib.suppress(UserError):
            return _first_family(folded, predicts, kind, families), folded
        raise


def _first_family(
    config: ModelConfig, predicts: tuple[str, ...], kind: str | None, families: Sequence[Family]
) -> Family:
    families = [family for family in families if family.predicts == predicts]
    families = [family for family in families if kind in (None, family.model_type)]
    if not families:
        raise UserError(
            f"--family={kind}: no such family that predicts {' and '.join(predicts)}; choose from "
            f"{_kinds()}"
        )
    by_distance = sorted(families, key=lambda f: len(refused(config, f.supported)))
    for family in by_distance:
        try:
            to_words(family, config)
        except UserError:
            continue
        return family
    to_words(by_distance[0], config)
    raise AssertionError("refused once and not twice")


def export(
    experiment: Experiment,
    params: Any,
    tokenizers: TokenizerPair,
    output: Path,
    kind: str | None = None,
) -> Family:
    """Write a directory with weights, configs and the tokenizer; return the family, which has the
    model_type `kind` if that is given.

    Raises:
      UserError: if no family can express the model, or output exists.
    """
    if output.exists():
        raise UserError(f"--output={output}: already exists; name a new directory")
    settings.refuse(experiment)
    family, model = expressible(experiment.model, settings.predicted(experiment), kind)
    if model != experiment.model:
        params = tensors.fold(experiment.model, params)
        experiment = replace(experiment, model=model)
    for warning in settings.lacks(family, experiment):
        log.warning("%s", warning)
    codec = tokenizers.src  # also the target side's, except with labels
    files = tokenizer_json.files(codec, experiment)
    words = config_words(family, experiment.model, codec)
    words |= settings.label_words(family.predicts, tokenizers.tgt)
    files["config.json"] = _json(words)
    if family.writes:
        files["generation_config.json"] = _json(generation.write(experiment, codec))
    if tokenizers.template is not None:
        files = _with_template(files, tokenizers, experiment)
    params = tensors.in_own_unit(jax.device_get(params), tokenizers.tgt)
    found = tensors.to_tensors(family, params) | family.besides(model)
    if family.logits_bias:
        found.setdefault(family.logits_bias, np.zeros((1, codec.size), np.float32))
    if family.saves_sinusoids:
        table = tensors.sinusoids(experiment.model.max_positions, experiment.model.d_model)
        found |= {name: table.copy() for name in family.sinusoids}
    with writing(str(output), output.absolute().parent):
        output.mkdir(parents=True)
        for name, text in files.items():
            write_text(output / name, text)
        for name, content in tokenizer_json.models(codec).items():
            write_bytes(output / name, content)
        if isinstance(codec, Subwords) and model.architecture == "decoder":
            write_bytes(output / "tokenizer.model", codec.model)  # which llama.cpp converts
        tensors.save(output, found)
    return family


def _with_template(
    files: dict[str, str], tokenizers: TokenizerPair, experiment: Experiment
) -> dict[str, str]:
    """Return files with the chat template; the answers of a chat model end where it ends them."""
    assert tokenizers.template is not None
    files = files | {FILE: tokenizers.template.source}
    if not experiment.objective.record.chats:
        return files
    end = tokenizers.template.end(tokenizers.tgt)
    words = json.loads(files["tokenizer_config.json"])
    words["eos_token"] = tokenizers.tgt.pieces([end])[0]
    search = json.loads(files["generation_config.json"])
    search["eos_token_id"] = [*dict.fromkeys([end, special_of(tokenizers.tgt).end])]
    return files | {"tokenizer_config.json": _json(words), "generation_config.json": _json(search)}


def auto_class(family: Family) -> str:
    """Return the auto class of `transformers` that loads the model."""
    if family.writes:
        return "AutoModelForSeq2SeqLM" if family.encodes else "AutoModelForCausalLM"
    return f"AutoModelFor{family.architecture.partition('For')[2]}"


def config_words(family: Family, config: ModelConfig, codec: Codec) -> dict[str, Any]:
    """Return the content of config.json."""
    special = generation.special_words(codec)
    if family.encodes:  # the output begins with our BOS
        special |= {"is_encoder_decoder": True, "decoder_start_token_id": special_of(codec).begin,
                    "forced_eos_token_id": None}  # fmt: skip
    return {
        "model_type": family.model_type,
        "architectures": [family.architecture],
        "vocab_size": codec.size,
        "dtype": "float32",
        **special,
        **to_words(family, config),
    }


def read(directory: Path, heads: bool = False) -> tuple[Experiment, Any, TokenizerPair]:
    """Return the experiment, the parameters and the codecs of a directory.

    With `heads`, parameters include all heads that an encoder has, to initialise a model that
    predicts something else.

    Raises:
      UserError: if its family cannot be imported; names the key of its config.json.
    """
    words = _words(directory / "config.json")
    with _of(directory / "config.json"):
        settings.refuse_quantized(words)
    given = tensors.load(directory)
    with _of(directory / "config.json"):
        problem = settings.problem(words)
        family, config = _recognised(words | tensors.seen(given) | {"problem_type": problem})
    rows = _rows(family, given)
    labels = settings.labels(words, family.predicts)
    outs = rows if labels is None else labels.size
    names = dict.fromkeys((*family.predicts, *("tokens", "next_sentence") * heads))
    shapes = nn.unbox(abstract_params(build(config, rows, outs, predicts=tuple(names))))
    if heads:
        shapes = tensors.present(family, given, shapes)
    with _of(directory):
        params = tensors.from_tensors(family, given, shapes)
    said = _all_words(directory)
    codec = tokenizer_json.read(directory, said, rows, config.architecture)
    search = _search_words(directory)
    with _of(directory / "generation_config.json"):
        decoding = generation.read(search, codec) if family.writes else DecodingConfig()
    most = said.get("model_max_length")
    experiment = settings.to_experiment(config, decoding, family.predicts, most)
    pair = TokenizerPair(codec, labels) if labels else TokenizerPair.shared(codec)
    return experiment, params, replace(pair, template=_template(directory, config))


def _template(directory: Path, config: ModelConfig) -> ChatTemplate | None:
    """Return the chat template of a decoder, if there is one that can be used."""
    if config.architecture != "decoder":
        return None
    try:
        return ChatTemplate.beside(directory)
    except UserError as error:
        log.warning("%s; the model is imported without it", error)
        return None


def ignored(directory: Path, config: ModelConfig) -> list[str]:
    """Return a warning for each setting of a directory without which generated text may differ."""
    if config.architecture == "encoder":
        return []
    encodes = config.architecture == "encoder_decoder"
    return generation.ignored(_search_words(directory), encodes, config.position_limit)


def is_directory(place: Path) -> bool:
    """Whether a directory was written by save_pretrained rather than by a run of ours."""
    config = place / "config.json"
    return config.exists() and "model_type" in _words(config)


def _recognised(words: Mapping[str, Any]) -> tuple[Family, ModelConfig]:
    """Return the family that a config.json describes best, and its model.

    Raises:
      UserError: if our model cannot express it; names the key.
    """
    kind, named = words.get("model_type"), words.get("architectures") or ()
    families = [family for family in FAMILIES.values() if family.model_type == kind]
    if not families:
        raise UserError(f"model_type={kind!r}: can import {_kinds()}")
    families.sort(
        key=lambda family: (family.architecture not in named, len(problems(family, words)))
    )
    return families[0], from_words(families[0], _untied(families[0], words))


def _untied(family: Family, words: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a config.json that says so if a file has a pre-softmax table of its own: the file
    counts, as in `transformers`.
    """
    name = "tie_word_embeddings"
    word = dict(family.words).get(name)
    free = isinstance(word, Word) and (False, "none") in word.pairs
    if not (free and words["lm_head"]):
        return words
    if words.get(name, family.defaults[name]):
        log.warning("%s=True: the file has an output table of its own, which is imported", name)
    return {**words, name: False}


@contextlib.contextmanager
def _of(place: Path) -> Iterator[None]:
    """Name a file or a directory in errors about its content."""
    try:
        yield
    except UserError as error:
        raise UserError(f"{place}: {error}") from None


def _kinds() -> str:
    return ", ".join(dict.fromkeys(family.model_type for family in FAMILIES.values()))


def _rows(family: Family, given: tensors.Tensors) -> int:
    """Return the number of rows of the embedding."""
    table = next(theirs for ours, theirs in family.modules.items() if ours == "embedding")
    for name in (f"{table}.weight", *family.tables):
        for full in (name, name.removeprefix(family.prefix)):
            if full in given:
                return len(given[full])
    raise UserError(f"{table}.weight: missing")


def _all_words(directory: Path) -> dict[str, Any]:
    """Return the content of all configs; the generation config takes precedence."""
    paths = [directory / f"{name}config.json" for name in ("tokenizer_", "", "generation_")]
    return {k: v for path in paths if path.exists() for k, v in _words(path).items()}


def _search_words(directory: Path) -> dict[str, Any]:
    """Return what `generate` reads: where there is no generation config, config.json has it."""
    path = directory / "generation_config.json"
    if path.exists():
        return _words(path)
    return {k: v for k, v in _words(directory / "config.json").items() if k in generation.KEYS}


def _words(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_bytes())
    except OSError:
        raise UserError(
            f"{path}: cannot be read; name a directory that save_pretrained wrote"
        ) from None
    except ValueError as error:
        raise UserError(f"{path}: not JSON ({error})") from None
    if not isinstance(found, dict):
        raise UserError(f"{path}: not a JSON object")
    return found


def _json(words: Mapping[str, Any]) -> str:
    return json.dumps(words, indent=2, ensure_ascii=False) + "\n"
