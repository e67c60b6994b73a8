"""Every config field round-trips; every mistake is rejected in one line that names the field."""

import dataclasses
import json
import math
import types
import typing
from typing import Any, Literal

import numpy as np
import pytest

from transformer_jax.base.errors import UserError
from transformer_jax.config import DataConfig, Experiment, average_count
from transformer_jax.config.bounds import HELD_POSITIONS, MOST_ALPHA, computed
from transformer_jax.config.convert import differences, door, from_json, override, parse, to_json
from transformer_jax.decoding.search.penalties import PENALTIES


def leaves(kind: type = Experiment, prefix: str = "") -> dict[str, Any]:
    """Return {path: type} of all fields."""
    found = {}
    for name, hint in typing.get_type_hints(kind).items():
        nested = dataclasses.is_dataclass(hint)
        found |= leaves(hint, f"{prefix}{name}.") if nested else {prefix + name: hint}
    return found


FIELDS = leaves()
BY_TYPE = {bool: False, int: 32, float: 0.5, str: "x"}
# For fields that the value in BY_TYPE does not fit.
SPECIAL = {
    "model.local_rope_theta": 500.0,
    "model.trend_rows": 33,
    "model.shared_expert_gate": True,
    "tokenizer.vocab_size": 300,
    "model.experts_per_token": 3,
    "model.feed_forward_pattern": ("experts", "dense"),
    "tokenizer.max_lines": 200,
    "tokenizer.character_coverage": 0.95,
    "tokenizer.byte_fallback": True,
    "evaluation.lowercase": True,
    "evaluation.metrics": ("TER",),
    "evaluation.rouge_stemmer": False,
    "training.trackers": ("mlflow",),
    "evaluation.checkpoint": "average:3",
    "evaluation.every_steps": 3000,
    "checkpoint.every_steps": 250,
    "data.num_examples": (30, 2, 1),
    "data.max_number": 100_000,
    "data.max_length_ratio": 4.0,
    "training.loss_spike": 3.0,
    "training.accumulation_steps": 4,
    "training.steps_per_execution": 10,
    "training.restarts": (10, 20),
    "model.base_width": 64,
    "training.noise_scale": True,
    "data.tokens_per_batch": 1 << 14,
    "profile.steps": (10, 15),
    "model.num_kv_heads": 2,
    "model.logits_scale": True,
    "model.logits_bias": True,
    "tokenizer.lowercase": True,
    "model.input_norm": True,
    "objective.whole_words": True,
    "objective.mean_span_length": 4.0,
    "objective.like": "translate",
    "model.rope_theta": 500.0,
    "model.rope_factor": 4.0,
    "model.relative_buckets": 8,
    "model.encoder_pattern": ("local", "full"),
    "model.biases": ("query", "key", "value"),
    "model.decoder_pattern": ("local",),
    "model.lora_maps": ("up", "down"),
    "src.codec": "characters",
    "tgt.codec": "characters",
    "init.rename": ("encoder/=decoder/",),
    "optimizer.rate_factors": (".*/kernel=0.5",),
    "objective.fim_spm_rate": 0.25,
    "data.prefixes": ("one=translate English to German:", "two=<2de> <BT>"),
    "data.weights": ("one=0.25", "two=3"),
    "objective.parts": ("two=denoising",),
    "model.hash_buckets": 8,
    "model.architecture": "encoder",
    "model.reverse_source": True,
    "model.source_attention": "additive",
    "data.example_lengths": (50, 60),
    "data.round_numbers": 0.25,
    "model.stem": "linear",
    "model.grid": (4, 5),
    "model.pooler": False,
    "src.patch_size": 8,
    "data.num_digits": 2,
    "model.stem_layers": 3,
    "data.augment": ("crop", "flip"),
    "src.n_fft": 256,
    "src.sample_rate": 8000,
    "model.conv_kernel": 15,
    "data.label_pattern": r"(?P<label>\d)_\w+\.wav",
    "data.label_texts": ("0=zero", "1=one"),
    "data.columns": ("source=translation.de", "target=text"),
    "checkpoint.best_by": "accuracy",
    "objective.name": "classify",
    "data.source": "arrays",
    "data.image_size": (8, 8),
    "model.patch_length": 24,
    "model.patch_stride": 16,
    "model.distribution": "student_t",
    "evaluation.asked_returns": (-5.0, -1.5),
    "training.distillation_weight": 0.25,
    "model.pair_parts": ("outgoing", "transition"),
    "model.outer_width": 8,
    "model.nearest_distance": 1.5,
    "model.farthest_distance": 30.0,
}
MODEL_OF_LINES = {
    "objective.name": "language_model", "model.architecture": "decoder",
    "evaluation.bleu_sentences": 0, "checkpoint.best_by": "loss",
}  # fmt: skip
PREFERENCES = MODEL_OF_LINES | {
    "objective.name": "prefer", "objective.window": 64, "data.max_length": 128,
}  # fmt: skip
REINFORCE = MODEL_OF_LINES | {
    "objective.name": "reinforce", "checkpoint.best_by": "loss", "data.rows_divisible_by": 1,
    "data.tokens_per_batch": 1 << 14, "model.dropout_rate": 0.0,
}  # fmt: skip
CHAT = MODEL_OF_LINES | {"objective.name": "chat"}
INFILLING = MODEL_OF_LINES | {"tgt.codec": "bytes", "objective.window": 64}
MODEL_OF_PREFIXES = {"objective.name": "prefix_lm", "model.architecture": "decoder"}
MODEL_OF_ORDERS = MODEL_OF_LINES | {
    "objective.name": "permutation_lm", "model.architecture": "two_stream",
}  # fmt: skip
MODEL_OF_MASKS = MODEL_OF_LINES | {
    "objective.name": "masked_lm", "model.architecture": "encoder",
}  # fmt: skip
MODEL_OF_SPANS = MODEL_OF_LINES | {
    "objective.name": "span_corruption", "model.architecture": "encoder_decoder",
}  # fmt: skip
MODEL_OF_NOISE = MODEL_OF_SPANS | {"objective.name": "denoising"}
MODEL_OF_CELLS = {
    "model.architecture": "recurrent", "model.encoder_pattern": ("bigru",),
    "model.decoder_pattern": ("gru",), "model.positions": "none",
}  # fmt: skip
MODEL_OF_PARTS = {"data.train": ("one", "two"), "objective.parts": ("two=denoising",)}
MODEL_OF_PAIRS = MODEL_OF_MASKS | {"objective.name": "masked_lm_nsp"}
MODEL_OF_TAGS = MODEL_OF_MASKS | {
    "objective.name": "tag", "tgt.codec": "labels", "tokenizer.joint": False,
}  # fmt: skip
MODEL_OF_CLASSES = MODEL_OF_MASKS | {
    "objective.name": "classify", "tgt.codec": "classes", "tokenizer.joint": False,
}  # fmt: skip
MODEL_OF_PICTURES = MODEL_OF_CLASSES | {
    "model.stem": "linear", "src.codec": "patches", "data.source": "arrays",
}  # fmt: skip
MODEL_OF_CLIPS = MODEL_OF_CLASSES | {
    "model.stem": "linear", "src.codec": "tubelets", "data.source": "moving_digits",
}  # fmt: skip
MODEL_OF_FRAMES = MODEL_OF_CLIPS | {
    "model.architecture": "factorised_encoder", "model.grid": (4, 4, 4),
}  # fmt: skip
MODEL_OF_CONVOLUTIONS = MODEL_OF_PICTURES | {
    "model.stem": "convolution", "model.grid": (4, 5), "model.stem_layers": 3, "src.patch_size": 8,
}  # fmt: skip
MODEL_OF_ELMO = MODEL_OF_LINES | {
    "objective.name": "bidirectional_lm", "model.architecture": "elmo", "model.positions": "none",
    "model.encoder_pattern": ("lstm",),
}  # fmt: skip
MODEL_OF_COMPARED = MODEL_OF_CLASSES | {
    "objective.name": "classify_pairs", "model.architecture": "decomposable_attention",
    "model.positions": "none",
}  # fmt: skip
MODEL_OF_SERIES = MODEL_OF_MASKS | {
    "objective.name": "forecast", "tgt.codec": "series", "data.source": "series",
    "model.stem": "series",
}  # fmt: skip
MODEL_OF_LATENTS = MODEL_OF_CLASSES | {"model.architecture": "perceiver"}
MODEL_OF_CODES = MODEL_OF_PICTURES | {
    "objective.name": "reconstruct", "model.architecture": "autoencoder", "tgt.codec": "patches",
    "tokenizer.joint": True,
}  # fmt: skip
NOISE = MODEL_OF_PICTURES | {
    "objective.name": "diffusion", "model.architecture": "diffusion_transformer",
    "model.grid": (4, 5), "model.residual": "adaptive_norm", "decoding.search": "euler",
}  # fmt: skip
DECISIONS = MODEL_OF_CLASSES | {
    "objective.name": "decide", "model.architecture": "decision_transformer",
    "model.stem": "trajectory", "src.codec": "states", "tgt.codec": "labels",
    "data.source": "environment", "data.environment": "shortest_paths", "data.max_steps": 10,
    "model.num_encoder_layers": 6,
}  # fmt: skip
CONTROL = DECISIONS | {"model.actions": "continuous", "tgt.codec": "actions"}
CHAINS = {
    "objective.name": "distances", "model.architecture": "evoformer", "model.stem": "pairs",
    "model.positions": "none", "tgt.codec": "coordinates", "data.source": "chains",
}  # fmt: skip
TEXTS_OF_PICTURES = {"model.condition": "text", "tgt.codec": "words"}
MODEL_OF_TREES = {
    "tgt.codec": "trees", "tokenizer.joint": False, "model.tied_embeddings": "decoder",
}  # fmt: skip
MODEL_OF_SOUNDS = {
    "objective.name": "ctc", "model.architecture": "encoder", "tokenizer.joint": False,
    "model.stem": "conv1d", "src.codec": "log_mel", "data.source": "wavs",
    "checkpoint.best_by": "wer", "tgt.codec": "characters",
}  # fmt: skip
MODEL_OF_MUSIC = {
    "objective.name": "language_model", "model.architecture": "decoder", "tgt.codec": "notes",
    "evaluation.bleu_sentences": 0, "checkpoint.best_by": "loss", "data.augment": ("transpose",),
}  # fmt: skip
WIDER = {
    "model.parametrization": "completep", "model.residual": "pre_norm",
    "optimizer.schedule": "constant", "optimizer.learning_rate": 0.001,
}  # fmt: skip
HYBRID = MODEL_OF_SOUNDS | {
    "objective.name": "ctc_attention", "model.architecture": "encoder_decoder",
    "model.tied_embeddings": "decoder",
}  # fmt: skip
EXPERTS = {"model.feed_forward_pattern": ("experts",)}
NEEDS = {
    "evaluation.dynamic_rate": MODEL_OF_LINES,
    "evaluation.stride": MODEL_OF_LINES,
    "evaluation.dynamic_decay": MODEL_OF_LINES | {"evaluation.dynamic_rate": 0.1},
    "src.sample_rate": MODEL_OF_SOUNDS,
    "src.n_fft": MODEL_OF_SOUNDS,
    "src.hop_length": MODEL_OF_SOUNDS,
    "src.num_mels": MODEL_OF_SOUNDS,
    "model.conv_kernel": {
        "model.encoder_pattern": ("conformer",),
        "model.residual": "pre_norm",
    },
    "objective.ctc_weight": HYBRID,
    "decoding.ctc_weight": HYBRID,
    "data.label_pattern": MODEL_OF_SOUNDS,
    "data.label_texts": MODEL_OF_SOUNDS,
    "data.frequency_mask_size": MODEL_OF_SOUNDS | {"data.augment": ("frequency_mask",)},
    "data.time_mask_size": MODEL_OF_SOUNDS | {"data.augment": ("time_mask",)},
    "data.time_mask_share": MODEL_OF_SOUNDS | {"data.augment": ("time_mask",)},
    "data.transpose_range": MODEL_OF_MUSIC,
    "data.smiles_variants": MODEL_OF_MUSIC
    | {"data.augment": ("random_smiles",), "tgt.codec": "smiles"},
    "decoding.constraint": MODEL_OF_TREES,
    "model.patch_length": MODEL_OF_SERIES,
    "model.patch_stride": MODEL_OF_SERIES,
    "model.distribution": MODEL_OF_SERIES,
    "objective.horizon": MODEL_OF_SERIES,
    "objective.channels": MODEL_OF_SERIES | {"model.stem": "variates", "model.positions": "none"},
    "model.series_norm": MODEL_OF_SERIES,
    "model.trend_rows": MODEL_OF_SERIES
    | {"model.architecture": "dlinear", "model.positions": "none", "model.dropout_rate": 0.1},
    "model.num_latents": MODEL_OF_LATENTS,
    "model.num_codes": MODEL_OF_CODES,
    "model.code_width": MODEL_OF_CODES,
    "model.commitment": MODEL_OF_CODES,
    "model.kl_weight": MODEL_OF_CODES | {"model.architecture": "variational_autoencoder"},
    "model.stem": MODEL_OF_PICTURES,
    "model.condition": NOISE | {"tgt.codec": "words"},
    "model.actions": CONTROL,
    "data.environment": DECISIONS,
    "data.environment_seed": DECISIONS,
    "data.max_steps": DECISIONS,
    "data.best_share": DECISIONS,
    "model.residual": NOISE,
    "src.pixel_scale": MODEL_OF_PICTURES,
    **dict.fromkeys(
        (
            "model.pair_width",
            "model.pair_heads",
            "model.outer_width",
            "model.pair_parts",
            "model.recycling",
            "model.distance_bins",
            "model.nearest_distance",
            "model.farthest_distance",
            "objective.known_share",
            "objective.distance_noise",
        ),
        CHAINS,
    ),
    "objective.noise_schedule": NOISE,
    "objective.prediction": NOISE,
    "objective.times": NOISE,
    "objective.condition_dropout": NOISE,
    "decoding.search": NOISE,
    "decoding.guidance": NOISE,
    "decoding.sampling_steps": NOISE,
    "model.num_time_layers": MODEL_OF_FRAMES,
    "src.tubelet_frames": MODEL_OF_CLIPS,
    "data.num_frames": MODEL_OF_CLIPS,
    "data.num_digits": MODEL_OF_CLIPS,
    "model.stem_layers": MODEL_OF_CONVOLUTIONS,
    "model.grid": MODEL_OF_CONVOLUTIONS,
    "model.pooler": MODEL_OF_CLASSES,
    "model.grid_positions": MODEL_OF_PICTURES | {"model.grid": (4, 5)},
    "src.patch_size": MODEL_OF_PICTURES,
    "data.source": MODEL_OF_PICTURES,
    "data.augment": MODEL_OF_PICTURES,
    "data.image_size": MODEL_OF_PICTURES | {"data.source": "folders"},
    "data.crop_padding": MODEL_OF_PICTURES | {"data.augment": ("crop",)},
    "data.cutout_size": MODEL_OF_PICTURES | {"data.augment": ("cutout",)},
    "objective.like": {"objective.name": "own.py:Own@sha256:" + 64 * "0"},
    "objective.name": MODEL_OF_CLASSES,
    "tokenizer.joint": {"model.tied_embeddings": "decoder"},
    "optimizer.schedule": {"optimizer.learning_rate": 0.001},
    "model.architecture": MODEL_OF_MASKS,
    "model.token_types": MODEL_OF_MASKS,
    "model.token_dropout": MODEL_OF_MASKS,
    "model.unordered_pieces": {
        "src.codec": "tagged",
        "tokenizer.joint": False,
        "model.tied_embeddings": "decoder",
    },
    "model.pooling": MODEL_OF_CLASSES,
    "checkpoint.best_by": MODEL_OF_CLASSES,
    "model.encoder_pattern": {"model.window": 3},
    "model.decoder_pattern": {"model.window": 3},
    "model.window": {"model.decoder_pattern": ("local",)},
    "model.latent_size": {"model.decoder_pattern": ("latent",)},
    "model.query_latent_size": {"model.decoder_pattern": ("latent",)},
    "model.num_experts": EXPERTS,
    "model.experts_per_token": EXPERTS,
    "model.expert_scores": EXPERTS,
    "model.normalize_expert_weights": EXPERTS,
    "model.shared_experts": EXPERTS,
    "model.shared_expert_gate": EXPERTS | {"model.shared_experts": 1},
    "model.balancing_rate": EXPERTS,
    "model.parametrization": WIDER,
    "model.base_width": WIDER,
    "model.base_depth": WIDER,
    "model.dilation": {"model.decoder_pattern": ("dilated",), "model.window": 4},
    "model.global_tokens": {"model.encoder_pattern": ("longformer",), "model.window": 4},
    "model.block_size": {"model.encoder_pattern": ("bigbird",)},
    "model.random_blocks": {"model.encoder_pattern": ("bigbird",)},
    "model.hash_rounds": {"model.decoder_pattern": ("lsh",)},
    "model.hash_buckets": {"model.decoder_pattern": ("lsh",)},
    "model.position_rank": {"model.decoder_pattern": ("aft_full",)},
    "model.num_features": {"model.decoder_pattern": ("favor",)},
    "model.redraw_every": {"model.decoder_pattern": ("favor",)},
    "model.feature_seed": {"model.decoder_pattern": ("favor",)},
    "model.state_width": {"model.decoder_pattern": ("mamba",)},
    "model.state_heads": {"model.decoder_pattern": ("mamba2",)},
    "model.state_groups": {"model.decoder_pattern": ("gated_delta",), "model.state_heads": 32},
    "model.state_size": {"model.decoder_pattern": ("s4d",)},
    "model.state_conv": {"model.decoder_pattern": ("mamba2",)},
    "model.rope_theta": {"model.relative_positions": "rope"},
    "model.rope_fraction": {"model.relative_positions": "rope"},
    "model.local_rope_theta": {
        "model.relative_positions": "rope",
        "model.decoder_pattern": ("local",),
        "model.window": 4,
    },
    "model.rope_scaling": {"model.relative_positions": "rope", "model.rope_factor": 4.0},
    "model.rope_factor": {"model.relative_positions": "rope", "model.rope_scaling": "linear"},
    "model.rope_length": {"model.relative_positions": "rope", "model.rope_scaling": "yarn"},
    "model.relative_buckets": {"model.relative_positions": "t5"},
    "model.relative_max_distance": {"model.relative_positions": "t5"},
    "model.relative_clip": {"model.relative_positions": "shaw"},
    "model.share_relative_positions": {"model.relative_positions": "t5"},
    "model.lora_rank": {"init.source": "runs/other"},
    "model.lora_alpha": {"model.lora_rank": 4, "init.source": "runs/other"},
    "model.lora_maps": {"model.lora_rank": 4, "init.source": "runs/other"},
    "optimizer.momentum": {"optimizer.algorithm": "sgd"},
    "optimizer.update_rms": {"optimizer.algorithm": "muon"},
    "optimizer.orthogonalization": {"optimizer.algorithm": "muon"},
    "optimizer.b3": {"optimizer.algorithm": "ademamix"},
    "optimizer.slow_weight": {"optimizer.algorithm": "ademamix"},
    "optimizer.slow_warmup": {"optimizer.algorithm": "ademamix"},
    "optimizer.precondition_every": {"optimizer.algorithm": "shampoo"},
    "optimizer.decay_share": {"optimizer.schedule": "wsd", "optimizer.learning_rate": 0.001},
    "optimizer.unfrozen": {"model.lora_rank": 4, "init.source": "runs/other"},
    "init.also": {"init.source": "runs/other"},
    "init.take": {"init.source": "runs/other"},
    "init.rename": {"init.source": "runs/other"},
    "init.tokenizer": {"init.source": "runs/other"},
    "src.codec": {"tgt.codec": "characters"},
    "tgt.codec": {"src.codec": "characters"},
    "data.prefixes": {"data.test": ("one", "two")},
    "data.weights": {"data.train": ("one", "two")},
    "model.multi_token": MODEL_OF_LINES,
    "model.future_tokens": MODEL_OF_LINES | {"model.multi_token": "sequential"},
    "training.multi_token_weight": MODEL_OF_LINES | {"model.multi_token": "parallel"},
    "training.noise_scale": {"training.accumulation_steps": 4},
    "training.distillation_weight": {"data.teacher": "runs/taught"},
    "training.distillation_temperature": {"data.teacher": "runs/taught"},
    "data.mixing_temperature": {"data.train": ("one", "two")},
    "data.mixing_limit": {"data.train": ("one", "two")},
    "tokenizer.lowercase": {"src.codec": "words", "tgt.codec": "words"},
    "objective.window": MODEL_OF_LINES,
    "objective.document": MODEL_OF_MASKS,
    "objective.mask_rate": MODEL_OF_MASKS,
    "objective.fim_rate": INFILLING,
    "objective.fim_spm_rate": INFILLING | {"objective.fim_rate": 0.5},
    "objective.chat_template": CHAT,
    "objective.preference_loss": PREFERENCES,
    "objective.preference_beta": PREFERENCES,
    **dict.fromkeys(
        (
            f"objective.{name}"
            for name in (
                "reward",
                "reward_model",
                "group_size",
                "answer_length",
                "policy_loss",
                "clip_below",
                "clip_above",
                "kl_weight",
                "rollout_updates",
            )
        ),
        REINFORCE,
    ),
    "objective.whole_words": MODEL_OF_MASKS,
    "objective.partial_prediction": MODEL_OF_ORDERS,
    "objective.noise_density": MODEL_OF_SPANS,
    "objective.sentinels": MODEL_OF_SPANS,
    "objective.mean_span_length": MODEL_OF_SPANS,
    "objective.text_infilling_rate": MODEL_OF_NOISE,
    "objective.token_masking_rate": MODEL_OF_NOISE,
    "objective.token_deletion_rate": MODEL_OF_NOISE,
    "objective.sentence_permutation_rate": MODEL_OF_NOISE,
    "objective.document_rotation_rate": MODEL_OF_NOISE,
    "objective.parts": {"data.train": ("one", "two")},
    "model.recurrence": MODEL_OF_CELLS
    | {
        "model.input_feeding": False,
        "model.decoder_pattern": ("lstm",),
    },
    "model.source_attention": MODEL_OF_CELLS,
    "model.input_feeding": MODEL_OF_CELLS,
    "model.reverse_source": MODEL_OF_CELLS,
    "data.example_lengths": {"data.source": "listops"},
    "data.list_depth": {"data.source": "listops"},
    "data.round_numbers": {"data.source": "spelled_numbers"},
    "data.list_arguments": {"data.source": "listops"},
    "decoding.draft": {"decoding.beam_size": 1},
    "decoding.cache": {"decoding.beam_size": 1},
    "decoding.cache_block": {"decoding.beam_size": 1, "decoding.cache": "paged"},
    "decoding.draft_length": {"decoding.beam_size": 1, "decoding.draft": "ngram"},
    "decoding.repetition_penalty": {"decoding.beam_size": 1},
}


def base_kind(kind: Any) -> Any:
    if isinstance(kind, types.UnionType):
        return next(option for option in typing.get_args(kind) if option is not types.NoneType)
    return kind


def another(path: str) -> Any:
    """Return a valid value of a field, other than its default where there is one."""
    kind = base_kind(FIELDS[path])
    if path in SPECIAL:
        return SPECIAL[path]
    if typing.get_origin(kind) is Literal:
        return typing.get_args(kind)[-1]
    if typing.get_origin(kind) is tuple:
        return ("one", "two[:10%]")
    return BY_TYPE[kind]


def at(experiment: Experiment, path: str) -> Any:
    value: Any = experiment
    for name in path.split("."):
        value = getattr(value, name)
    return value


def plain(changes: dict[str, Any]) -> dict[str, Any]:
    """Return the default experiment with changes, in the form of config.json."""
    values = json.loads(to_json(Experiment()))
    for path, value in changes.items():
        *parents, name = path.split(".")
        node = values
        for parent in parents:
            node = node[parent]
        node[name] = value
    return values


def refusal(changes: dict[str, Any]) -> str:
    with pytest.raises(UserError) as caught:
        parse(plain(changes))
    message = str(caught.value)
    assert "\n" not in message
    assert message.startswith("config.")
    return message


# --- valid values -------------------------------------------------------------------------------


def test_defaults_round_trip():
    assert parse(door(Experiment())) == Experiment()
    assert from_json(to_json(Experiment())) == Experiment()
    assert json.loads(to_json(Experiment()))["data"]["train"] == ["train"]


@pytest.mark.parametrize("path", FIELDS)
def test_every_field_round_trips(path):
    """Command line -> ConfigDict -> Experiment -> JSON -> Experiment -> ConfigDict."""
    value = another(path)
    config = door(Experiment())
    for other, needed in NEEDS.get(path, {}).items():
        override(config, other, str(needed))
    override(config, path, str(value))
    experiment = parse(config)
    assert at(experiment, path) == value
    assert type(at(experiment, path)) is type(value)
    assert from_json(to_json(experiment)) == experiment
    assert parse(door(experiment)) == experiment
    single = len(typing.get_args(FIELDS[path])) == 1 and isinstance(value, str)  # one choice so far
    assert (path in differences(Experiment(), experiment)) != single


@pytest.mark.parametrize(
    "path",
    # A window is set if and only if there are local layers; `like`, if the objective is custom.
    [
        p
        for p, k in FIELDS.items()
        if isinstance(k, types.UnionType) and p not in ("model.window", "objective.like")
    ],
)
def test_optional_fields_can_be_reset_to_none(path):
    for text in ("None", "none"):
        config = door(parse(plain({path: another(path)} | NEEDS.get(path, {}))))
        override(config, path, text)
        assert at(parse(config), path) is None


@pytest.mark.parametrize(
    "text", ["a,b[:10%]", "a, b[:10%]", "('a', 'b[:10%]')", '["a", "b[:10%]"]']
)
def test_a_tuple_can_be_written_in_many_ways(text):
    config = door(Experiment())
    override(config, "data.train", text)
    assert parse(config).data.train == ("a", "b[:10%]")


def test_a_single_part_with_a_slice_keeps_its_brackets():
    config = door(Experiment())
    override(config, "data.train", "train[:10%]")
    assert parse(config).data.train == ("train[:10%]",)


@pytest.mark.parametrize(
    ("text", "value"), [("true", True), ("True", True), ("1", True), ("false", False), ("0", False)]
)
def test_spellings_of_booleans(text, value):
    config = door(Experiment())
    override(config, "tokenizer.byte_fallback", text)
    assert parse(config).tokenizer.byte_fallback is value


def test_integers_are_converted_to_float():
    config = door(Experiment())
    config.optimizer.clip_norm = 5  # a placeholder of None
    override(config, "optimizer.learning_rate", "2")
    experiment = parse(config)
    assert (experiment.optimizer.clip_norm, experiment.optimizer.learning_rate) == (5.0, 2.0)
    for value in (experiment.optimizer.clip_norm, experiment.optimizer.learning_rate):
        assert type(value) is float
    assert type(parse(plain({"optimizer.epsilon": 1})).optimizer.epsilon) is float


def test_differences_name_path_and_both_values():
    other = parse(plain({"model.d_ff": 64, "seed": 3}))
    assert differences(Experiment(), other) == {"model.d_ff": (2048, 64), "seed": (0, 3)}
    assert differences(other, other) == {}


# --- wrong names --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "meant"),
    [
        ("model.d_modle", "model.d_model"),
        ("modle.d_model", "model.d_model"),
        ("model.d_model.x", "model.d_model"),
        ("training.warmup_steps", "optimizer.warmup_steps"),  # the right name in the wrong group
        ("label_smoothing", "training.label_smoothing"),
        ("evalution.every_steps", "evaluation.every_steps"),  # checkpoint has one too
        ("mesh.clip_norm", "optimizer.clip_norm"),
    ],
)
def test_an_unknown_field_gets_a_suggestion(path, meant):
    with pytest.raises(UserError) as caught:
        override(door(Experiment()), path, "3")
    assert str(caught.value) == f"config.{path}: unknown field (did you mean {meant!r}?)"


def test_a_name_like_no_other_gets_no_suggestion():
    with pytest.raises(UserError, match=r"^config\.qqq: unknown field$"):
        override(door(Experiment()), "qqq", "3")


def test_a_group_cannot_be_set_as_a_field():
    with pytest.raises(
        UserError, match=r"^config\.mesh: is a group of fields; set one of \['context', 'data'"
    ):
        override(door(Experiment()), "mesh", "3")


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        (lambda c: c["model"].update(d_modle=3),
         "config.model.d_modle: unknown field (did you mean 'd_model'?)"),
        (lambda c: c.update(modle={}), "config.modle: unknown field (did you mean 'model'?)"),
        (lambda c: c.update(model=3), "config.model=3: must be a group of fields"),
    ],
)  # fmt: skip
def test_an_invalid_config_json_is_rejected(broken, message):
    values = plain({})
    broken(values)
    with pytest.raises(UserError) as caught:
        from_json(json.dumps(values))
    assert str(caught.value) == message


def test_fields_missing_from_an_old_config_json_get_defaults(caplog):
    """They are named in a warning."""
    values = plain({"model.d_model": 64})
    del values["model"]["d_ff"], values["seed"]
    expected = dataclasses.replace(Experiment().model, d_model=64)
    for _ in range(2):  # the warning comes only once
        assert from_json(json.dumps(values)) == dataclasses.replace(Experiment(), model=expected)
    assert caplog.text.count("lacks config.seed, config.model.d_ff: using the") == 1


@pytest.mark.parametrize("text", ["3", "[]", "null", '"model"'])
def test_json_that_is_not_a_config_is_rejected(text):
    with pytest.raises(UserError, match=r"^config=.*: must be a group of fields$"):
        from_json(text)


# --- wrong types --------------------------------------------------------------------------------


def wrong_values(kind: Any) -> list[Any]:
    wrong: list[Any] = [] if isinstance(kind, types.UnionType) else [None]
    kind = base_kind(kind)
    if typing.get_origin(kind) is Literal:
        return [*wrong, "no such choice", 3]
    if typing.get_origin(kind) is tuple:
        return [*wrong, "text", 3, {}]
    return (
        wrong
        + {
            bool: [1, 0, "True", 0.5],
            int: [1.5, True, "7", [7]],
            float: [True, "0.5", math.nan, math.inf, -math.inf],
            str: [3, True, ["x"]],
        }[kind]
    )


@pytest.mark.parametrize("path", FIELDS)
def test_a_wrong_type_is_rejected_with_path_and_value(path):
    for value in wrong_values(FIELDS[path]):
        message = refusal({path: value})
        assert message.startswith(f"config.{path}={value!r}: must be ")


@pytest.mark.parametrize(
    ("path", "value", "where"),
    [
        ("data.train", ["a", 3], "config.data.train[1]=3: must be text"),
        (
            "data.num_examples",
            [1, "x", 3],
            "config.data.num_examples[1]='x': must be a whole number",
        ),
    ],
)
def test_a_wrong_element_is_rejected_with_its_index(path, value, where):
    assert refusal({path: value}) == where


@pytest.mark.parametrize(
    ("path", "text", "must"),
    [
        ("model.d_model", "12x", "must be a whole number"),
        ("model.d_model", "1.0", "must be a whole number"),
        ("model.d_model", "None", "must be a whole number"),
        ("model.head_dim", "x", "must be a whole number"),
        ("optimizer.epsilon", "small", "must be a number"),
        ("tokenizer.joint", "yes", "must be True or False"),
        (
            "model.norm",
            "layernorm",
            "must be one of 'layer_norm', 'rms_norm', 'scale_norm', 'layer_norm_no_bias', "
            "'zero_centered_rms_norm', or FILE.py:NAME, a part of your own (did you mean "
            "'layer_norm'?)",
        ),
    ],
)
def test_command_line_text_of_a_wrong_type_is_rejected(path, text, must):
    with pytest.raises(UserError) as caught:
        override(door(Experiment()), path, text)
    assert str(caught.value) == f"config.{path}={text!r}: {must}"


@pytest.mark.parametrize("text", ["nan", "inf", "-inf"])
def test_non_finite_numbers_are_rejected(text):
    with pytest.raises(
        UserError, match=r"^config\.optimizer\.epsilon=-?(nan|inf): must be a number"
    ):
        override(door(Experiment()), "optimizer.epsilon", text)
    values = to_json(Experiment()).replace('"epsilon": 1e-09', f'"epsilon": {text.upper()}')
    with pytest.raises(ValueError, match=r"epsilon|Expecting value"):
        from_json(values.replace("NAN", "NaN"))


# --- values out of range and impossible combinations --------------------------------------------


@pytest.mark.parametrize(
    ("path", "good", "bad"),
    [
        ("seed", 0, -1),
        ("seed", 2**32 - 1, 2**32),
        ("model.d_ff", 1, 0),
        ("model.num_heads", 1, 0),
        ("model.head_dim", 1, 0),
        ("model.v_head_dim", 1, 0),
        ("model.max_positions", 1, 0),
        ("model.num_encoder_layers", 1, 0),
        ("model.num_decoder_layers", 1, 0),
        ("model.norm_epsilon", 1e-12, 0.0),
        ("model.norm_epsilon", 1.0, 1.1),
        ("model.attention_temperature", 0.001, 0.0),
        ("model.biases", [], ["key", "key"]),
        ("model.d_ff", 2**20, 2**20 + 1),
        ("model.dropout_rate", 0.0, -0.1),
        ("model.dropout_rate", 0.99, 1.0),
        ("model.attention_dropout_rate", 0.99, 1.0),
        ("model.activation_dropout_rate", 0.99, 1.0),
        ("model.layer_drop_rate", 0.99, 1.0),
        ("tokenizer.vocab_size", 5, 4),
        ("tokenizer.character_coverage", 0.9, 0.89),
        ("tokenizer.character_coverage", 1.0, 1.01),
        ("tokenizer.max_lines", 101, 100),
        ("data.subword_dropout", 0.99, 1.0),
        ("data.segmentations", 1, 0),
        ("data.max_length", 2, 1),
        ("data.max_length_ratio", 1.0, 0.9),
        ("data.num_buckets", 1, 0),
        ("data.rows_divisible_by", 1, 0),
        ("data.train", ["x"], []),
        ("data.num_examples", [1, 1, 1], [1, 1]),
        ("data.max_number", 10**18, 10**18 + 1),
        ("data.num_examples", [1, 1, 1], [1, 0, 1]),
        ("objective.partial_prediction", 6, 0),
        ("optimizer.b1", 0.0, 1.0),
        ("optimizer.b2", 0.0, 1.0),
        ("optimizer.epsilon", 1e-30, 0.0),
        ("optimizer.learning_rate", 0.01, 0.009),
        ("optimizer.warmup_steps", 1, 0),
        ("optimizer.warmup_steps", 10**9, 10**9 + 1),
        ("training.steps", 10**9, 3_000_000_000),
        ("optimizer.clip_norm", 1e-30, 0.0),
        ("optimizer.weight_decay", 0.0, -0.1),
        ("optimizer.weight_decay", 10.0, 20_000.0),
        ("training.loss_spike", 1.01, 1.0),
        ("training.steps", 1, 0),
        ("training.steps", 10**9, 3 * 10**9),  # counted in 32 bits
        ("training.max_minutes", 0.1, 0.0),
        ("training.label_smoothing", 0.0, 1.0),
        ("training.accumulation_steps", 1, 0),
        ("training.steps_per_execution", 1, 0),
        ("training.early_stopping", 1, 0),
        ("training.log_every", 1, 0),
        ("training.max_bad_steps", 1, 0),
        ("training.ema_decay", 0.9999, 1.0),
        ("training.r_drop", 1e-30, 0.0),
        ("checkpoint.every_steps", 1, 0),
        ("checkpoint.keep_last", 1, 0),
        ("evaluation.every_steps", 1000, 0),
        ("evaluation.bleu_sentences", 1, -1),
        ("evaluation.checkpoint", "average:5", "average:0"),
        ("evaluation.checkpoint", "12", "9" * 5000),
        ("evaluation.checkpoint", "average:1", "average:" + "9" * 5000),
        ("decoding.beam_size", 1, 0),
        ("decoding.alpha", 0.0, -0.1),
        ("decoding.tokens_per_batch", 1, 0),
        ("decoding.max_extra_length", 10_000, 10**10),
        ("mesh.data", -1, 0),
        ("mesh.data", 1, -2),
        ("mesh.fsdp", 1, 0),
        ("mesh.tensor", 1, -2),
        ("mesh.context", 1, 0),
        ("mesh.ulysses", 1, 0),
        ("mesh.expert", 1, 0),
        ("mesh.stage", 1, 0),
        ("profile.steps", [], [3]),
        ("profile.steps", [1, 1], [0, 1]),
        ("profile.steps", [2, 3], [3, 2]),
    ],
)
def test_values_beyond_a_limit_are_rejected(path, good, bad):
    parse(plain({path: good}))
    message = refusal({path: bad})
    shown = tuple(bad) if isinstance(bad, list) else bad
    assert message.startswith(f"config.{path}={shown!r}: ")


WIDE = {  # these need more than 31 bits
    "seed", "decoding.seed", "data.max_number", "data.mixing_limit", "model.feature_seed",
    "data.environment_seed",
}  # fmt: skip
NUMBERS = {
    path: float if base_kind(kind) is float else int
    for path, kind in FIELDS.items()
    if base_kind(kind) in (int, float, tuple[int, ...])
}


@pytest.mark.parametrize("path", NUMBERS)
def test_every_number_has_lower_and_upper_bounds(path):
    """New fields included: arrays, 32-bit counters and memory are limited."""
    bad = [-0.5, 1e30] if NUMBERS[path] is float else [-2, 2**62 if path in WIDE else 2**31 - 1]
    for value in bad:
        several = isinstance(another(path), tuple)
        given = {path: [*another(path)[:-1], value] if several else value}
        message = refusal(NEEDS.get(path, {}) | given)
        assert message.startswith(f"config.{path}=")
        assert "leave it at" not in message  # which would mean that a field it needs is unset


@pytest.mark.parametrize("path", [path for path, kind in NUMBERS.items() if kind is float])
def test_numbers_are_checked_as_they_are_computed_with(path):
    """In float32: what is on the wrong side of a bound only there is refused, too."""

    def accepted(value: float) -> bool:
        try:
            parse(plain(NEEDS.get(path, {}) | {path: value}))
        except UserError:
            return False
        return True

    for value in (1e-300, 1e-39, 1.1e-38, 1e-20, 1 - 1e-9, 1 + 1e-9, 0.3):
        assert accepted(computed(value)) or not accepted(value), value
    assert computed(0.5) == 0.5


def test_rounded_bounds_are_explained():
    found = refusal({"decoding.top_p": 1e-39, "decoding.search": "sample"})
    assert found == (
        "config.decoding.top_p=1e-39: must be above 0 and at most 1 in float32, where it is 0"
    )
    found = refusal({"optimizer.b2": 0.999999999})
    assert found.endswith("must be at least 0 and below 1 in float32, where it is 1")


@pytest.mark.parametrize("name", PENALTIES)
def test_length_penalties_are_finite(name):
    """Of the longest text, with the largest exponent; otherwise all scores would be 0."""
    longest = np.array([HELD_POSITIONS])
    assert np.isfinite(PENALTIES[name](longest, MOST_ALPHA).astype(np.float32))
    refusal({"decoding.alpha": MOST_ALPHA + 1.0})


@pytest.mark.parametrize("path", ["model.d_ff", "optimizer.epsilon", "seed"])
@pytest.mark.parametrize("value", [10**30, -(10**400), 10**5000], ids=["30", "-400", "5000"])
def test_huge_numbers_are_rejected(path, value):
    values = plain({path: value})
    with pytest.raises(UserError, match=rf"^config\.{path}: a number of about \d+ digits"):
        parse(values)


@pytest.mark.parametrize("text", ["[", '{"model": ', '{"seed": ['])
def test_a_deeply_nested_config_json_is_rejected(text):
    closing = {"[": "]", "{": "}"}
    end = "".join(closing[c] for c in reversed(text) if c in closing)
    for depth in (1000, 100_000):
        with pytest.raises(UserError) as caught:
            from_json(text * depth + "0" + end * depth)
        assert "\n" not in str(caught.value)


def test_the_total_size_of_a_sentences_outputs_is_limited():
    """Many samples of short sentences fit, but not of long ones."""
    many = dataclasses.replace(Experiment().decoding, search="sample", num_samples=1000)
    many.check_fits(200)
    many.check_fits(5000, most=200)  # the model stops there
    with pytest.raises(UserError, match=r"^num_samples=1000: that many outputs of up to 1050 "):
        many.check_fits(1000)


@pytest.mark.parametrize(
    ("changes", "output"),
    [
        ({"decoding.beam_size": 1000, "decoding.max_extra_length": 10_000},
         ["config.decoding.beam_size=1000", "262144", "max_extra_length=10000"]),
        ({"decoding.draft": "runs/small"},
         ["config.decoding.draft='runs/small'", "beam search", "beam_size=1", "search='sample'"]),
        ({"decoding.cache": "paged"}, ["config.decoding.cache='paged'", "beam", "beam_size=1"]),
        ({"decoding.cache_block": 8}, ["config.decoding.cache_block=8", "cache='paged'", "at 16"]),
        ({"decoding.cache": "paged", "decoding.search": "sample", "decoding.draft": "ngram"},
         ["config.decoding.cache='paged'", "draft='ngram'", "remove one"]),
        ({"decoding.draft_length": 3}, ["config.decoding.draft_length=3", "set draft", "at 4"]),
        ({"decoding.shortlist": 20, "decoding.beam_size": 1, "decoding.draft": "ngram"},
         ["config.decoding.draft='ngram'", "shortlist=20", "default"]),
        (MODEL_OF_LINES | {"decoding.shortlist": 20},
         ["config.decoding.shortlist=20", "objective.name='language_model'", "set it to 0"]),
        (MODEL_OF_SOUNDS | {"decoding.shortlist": 20},
         ["config.decoding.shortlist=20", "objective.name='ctc'", "set it to 0"]),
        (MODEL_OF_SOUNDS | {"decoding.ctc_weight": 0.5},
         ["config.decoding.ctc_weight=0.5", "objective.name='ctc'", "'ctc_attention'"]),
        (HYBRID | {"decoding.ctc_weight": 0.5, "decoding.beam_size": 1, "decoding.draft": "ngram"},
         ["config.decoding.ctc_weight=0.5", "draft='ngram'", "default"]),
        ({"decoding.draft": "", "decoding.beam_size": 1}, ["config.decoding.draft=''", "None"]),
        ({"model.d_ff": 2**20, "model.d_model": 2**12},
         ["config.model.d_ff=1048576", "d_model=4096", "2147483648"]),
        ({"model.num_heads": 2**12, "model.head_dim": 2**12},
         ["config.model.num_heads=4096", "d_model=512"]),
        ({"model.d_model": 2**14, "tokenizer.vocab_size": 2**20},
         ["config.model.d_model=16384", "tokenizer.vocab_size=1048576"]),
        ({"mesh.fsdp": -1}, ["config.mesh.data=-1", "fsdp=-1", "only one"]),
        ({"model.attention": "fused", "model.attention_dropout_rate": 0.1},
         ["config.model.attention_dropout_rate=0.1", "attention='fused'", "'dense'"]),
        ({"model.attention": "fused", "model.v_head_dim": 32},
         ["config.model.v_head_dim=32", "head_dim=64", "'dense'"]),
        ({"model.logits_scale": True, "model.tied_embeddings": "none"},
         ["config.model.logits_scale=True", "tied_embeddings='none'", "set it to False", "'all'"]),
        ({"model.logits_scale": True, "model.embedding_norm": "fix_norm"},
         ["config.model.logits_scale=True", "embedding_norm='fix_norm'", "set it to False"]),
        ({"data.test": ("validation",), "data.source": "spelled_numbers"},
         ["config.data.test=('validation',)", "'spelled_numbers'", "leave it at ('test',)"]),
        ({"data.train": ("a", "b"), "data.mixing_temperature": 2.0, **MODEL_OF_PAIRS},
         ["config.data.weights=()", "data.mixing_temperature=2.0", "'masked_lm_nsp'"]),
        ({"model.residual": "deep_norm", "model.architecture": "perceiver"},
         ["config.model.residual='deep_norm'", "architecture='perceiver'"]),
        ({"model.residual": "deep_norm", "model.initializer": "t5"},
         ["config.model.initializer='t5'", "residual='deep_norm'", "'xavier'"]),
        ({"model.layer_sharing": "universal", "model.positions": "learned"},
         ["config.model.positions='learned'", "layer_sharing='universal'", "'sinusoidal'"]),
        ({"model.num_heads": 7}, ["config.model.d_model=512", "num_heads=7"]),
        ({"model.num_kv_heads": 3}, ["config.model.num_kv_heads=3", "num_heads=8"]),
        ({"model.encoder_pattern": ("full",) * 7},
         ["config.model.encoder_pattern=", "must name 1 to 6 layers"]),
        ({"model.window": 3}, ["config.model.window=3", "layer of 'local'"]),
        ({"model.relative_positions": "rope", "model.rope_fraction": 0.02},
         ["config.model.rope_fraction=0.02", "rotates 1 of 64"]),
        ({"model.lora_rank": 4}, ["config.model.lora_rank=4", "set init.source"]),
        ({"model.multi_token": "parallel"},
         ["config.model.multi_token='parallel'", "architecture='decoder'", "set it to 'none'"]),
        (MODEL_OF_PREFIXES | {"model.multi_token": "parallel"},
         ["config.model.multi_token='parallel'", "'language_model' or 'chat', not", "'prefix_lm'"]),
        (MODEL_OF_LINES | {"model.multi_token": "parallel", "model.residual": "reversible"},
         ["config.model.residual='reversible'", "multi_token='parallel'", "choose another"]),
        (MODEL_OF_LINES | {"model.multi_token": "parallel", "model.layer_sharing": "universal"},
         ["config.model.layer_sharing='universal'", "multi_token='parallel'", "choose 'all'"]),
        ({"model.future_tokens": 2},
         ["config.model.future_tokens=2", "multi_token='none'", "'sequential' or 'parallel'"]),
        ({"training.multi_token_weight": 0.1},
         ["config.training.multi_token_weight=0.1", "model.multi_token='none'; leave it at 0.3"]),
        ({"training.distillation_weight": 0.25},
         ["config.training.distillation_weight=0.25", "without data.teacher; leave it at 0.5"]),
        (MODEL_OF_MASKS | {"data.teacher": "taught"},
         ["config.data.teacher='taught'", "'masked_lm' draws", "'language_model'", "to None"]),
        (INFILLING | {"objective.fim_rate": 0.5, "data.teacher": "taught"},
         ["config.data.teacher='taught'", "objective.fim_rate=0.5 draws", "set it to 0.0"]),
        ({"model.base_width": 64}, ["config.model.base_width=64", "'standard'", "'mup'"]),
        (WIDER | {"model.num_heads": 1, "model.base_width": 64},
         ["config.model.base_width=64", "num_heads=1", "d_model=512"]),
        (WIDER | {"model.residual": "post_norm"},
         ["config.model.residual='post_norm'", "'completep'", "'pre_norm'"]),
        (WIDER | {"model.decoder_pattern": ("linear",)},
         ["config.model.parametrization='completep'", "'linear'", "'standard'"]),
        (WIDER | {"optimizer.algorithm": "muon"},
         ["config.optimizer.algorithm='muon'", "parametrization='completep'", "'adam' or"]),
        (WIDER | {"optimizer.schedule": "paper", "optimizer.learning_rate": 1.0},
         ["config.optimizer.schedule='paper'", "d_model", "'cosine'"]),
        (MODEL_OF_LATENTS | {"model.parametrization": "mup"},
         ["config.model.architecture='perceiver'", "'mup'", "'encoder_decoder'"]),
        ({"optimizer.b3": 0.5}, ["config.optimizer.b3=0.5", "algorithm='adam'", "'ademamix'"]),
        ({"optimizer.algorithm": "sgd", "optimizer.epsilon": 1e-8},
         ["config.optimizer.epsilon=1e-08", "algorithm='sgd'", "'adam' or 'muon'"]),
        ({"optimizer.algorithm": "soap", "optimizer.precondition_every": 0},
         ["config.optimizer.precondition_every=0", "at least 1"]),
        ({"optimizer.algorithm": "lion", "optimizer.schedule": "cosine",
          "optimizer.learning_rate": 0.5},
         ["config.optimizer.learning_rate=0.5", "peak", "below 0.1"]),
        ({"optimizer.algorithm": "schedule_free", "training.ema_decay": 0.9},
         ["config.training.ema_decay=0.9", "'schedule_free'", "None"]),
        ({"optimizer.decay_share": 0.5},
         ["config.optimizer.decay_share=0.5", "schedule='paper'", "'wsd'"]),
        ({"training.noise_scale": True},
         ["config.training.noise_scale=True", "training.accumulation_steps=1"]),
        ({"training.pause": 15, "training.steps_per_execution": 10},
         ["config.training.pause=15", "steps_per_execution=10"]),
        ({"training.restarts": (20, 10)}, ["config.training.restarts=(20, 10)", "rise"]),
        ({"training.restarts": (20,), "training.steps": 20},
         ["config.training.restarts=(20,)", "training.steps=20"]),
        ({"optimizer.unfrozen": (".*/bias",)},
         ["config.optimizer.unfrozen=('.*/bias',)", "model.lora_rank"]),
        ({"decoding.max_length_ratio": 0.0, "decoding.max_extra_length": 0},
         ["config.decoding.max_length_ratio=0.0", "max_extra_length=0", "no room"]),
        ({"model.d_model": 33, "model.num_heads": 3},
         ["config.model.d_model=33", "positions='sinusoidal'"]),
        ({"tokenizer.vocab_size": 260, "tokenizer.byte_fallback": True},
         ["config.tokenizer.vocab_size=260", "261", "byte_fallback"]),
        ({"data.tokens_per_batch": 2047},
         ["config.data.tokens_per_batch=2047", "max_length=256", "rows_divisible_by=8", "2048"]),
        ({"data.source": "spelled_numbers", "data.max_number": 50_999},
         ["config.data.num_examples=(50000, 500, 500)", "max_number=50999"]),
        ({"tokenizer.joint": False},
         ["config.tokenizer.joint=False", "model.tied_embeddings='all'", "'decoder' or 'none'"]),
        ({"model.positions": "learned", "model.max_positions": 255},
         ["config.model.max_positions=255", "data.max_length=256"]),
        ({"src.codec": "bytes"},
         ["config.src.codec='bytes'", "tgt.codec='subwords'", "tokenizer.joint=False"]),
        ({"src.codec": "bytes", "tgt.codec": "bytes", "tokenizer.vocab_size": 260},
         ["config.tokenizer.vocab_size=260", "tgt.codec='bytes'", "leave it at 32000"]),
        ({"src.codec": "bytes", "tgt.codec": "bytes", "data.subword_dropout": 0.1},
         ["config.data.subword_dropout=0.1", "tgt.codec='bytes'", "set it to 0"]),
        ({"decoding.constraint": "tree"},
         ["config.decoding.constraint='tree'", "tgt.codec='subwords'", "set it to 'none'"]),
        (MODEL_OF_TREES | {"decoding.constraint": "tree", "decoding.forbidden": ["XX"]},
         ["config.decoding.forbidden=('XX',)", "constraint='tree'", "leave it at ()"]),
        (MODEL_OF_TREES | {"decoding.constraint": "tree", "decoding.min_length_ratio": 0.5},
         ["config.decoding.min_length_ratio=0.5", "constraint='tree'", "leave it at 0.0"]),
        ({"evaluation.metrics": ["labelled_F1"]},
         ["config.evaluation.metrics=('labelled_F1',)", "tgt.codec='subwords'", "remove it"]),
        (MODEL_OF_TREES | {"tgt.codec": "moves"},
         ["config.tgt.codec='moves'", "'translate' has text there", "another codec"]),
        ({"objective.partial_prediction": 5},
         ["config.objective.partial_prediction=5", "'translate'", "leave it at 6"]),
        (MODEL_OF_ORDERS | {"objective.window": 1},
         ["config.objective.window=1", "'permutation_lm'", "at least 2"]),
        (MODEL_OF_ORDERS | {"model.positions": "none"},
         ["config.model.positions='none'", "relative_positions='none'", "'two_stream'"]),
        (MODEL_OF_ORDERS | {"model.decoder_pattern": ["local"], "model.window": 3},
         ["config.model.decoder_pattern=('local',)", "'two_stream'", "choose 'full'"]),
        ({"model.dilation": 3}, ["config.model.dilation=3", "layer of 'dilated'", "leave it at 2"]),
        ({"model.decoder_pattern": ["full", "bilstm"]},
         ["config.model.decoder_pattern=('full', 'bilstm')", "'bilstm' reads whole texts"]),
        ({"model.hash_buckets": 7, "model.decoder_pattern": ["lsh"]},
         ["config.model.hash_buckets=7", "choose an even number"]),
        ({"model.num_kv_heads": 2, "model.decoder_pattern": ["lsh"]},
         ["config.model.num_kv_heads=2", "'lsh' in decoder_pattern=('lsh',)", "leave it at None"]),
        ({"model.decoder_pattern": ["latent"], "model.relative_positions": "shaw"},
         ["config.model.relative_positions='shaw'", "'latent' in decoder_pattern", "'alibi'"]),
        ({"model.decoder_pattern": ["latent"], "model.relative_positions": "rope"},
         ["config.model.rope_fraction=1.0", "all 64 channels", "lower it"]),
        ({"model.decoder_pattern": ["latent"], "model.latent_size": 2**20, "model.d_model": 4096},
         ["config.model.latent_size=1048576", "d_model=4096 x 1048576", "lower them"]),
        ({"model.num_experts": 4},
         ["config.model.num_experts=4", "pattern=('dense',); leave it at 8, or choose 'experts'"]),
        ({"model.balancing_rate": 0.01},
         ["config.model.balancing_rate=0.01", "pattern=('dense',); leave it at 0.001"]),
        ({"model.feed_forward_pattern": ("dense",) * 7},
         ["config.model.feed_forward_pattern=('dense', ", "1 to 6 layers", "the deepest stack"]),
        (EXPERTS | {"model.experts_per_token": 9},
         ["config.model.experts_per_token=9", "num_experts=8", "lower it"]),
        (EXPERTS | {"model.experts_per_token": 1},
         ["config.model.normalize_expert_weights=True", "set it to False", "experts_per_token=1"]),
        (EXPERTS | {"model.num_experts": 4096},
         ["config.model.num_experts=4096", "d_model=512 x d_ff=2048", "lower one of them"]),
        (EXPERTS | {"model.feed_forward_chunks": 4},
         ["config.model.feed_forward_chunks=4", "is for dense layers", "leave it at 1"]),
        (EXPERTS | {"model.activation_dropout_rate": 0.1},
         ["config.model.activation_dropout_rate=0.1", "is for dense layers", "leave it at 0.0"]),
        (EXPERTS | {"model.lora_rank": 2, "model.lora_maps": ["up", "key"],
                    "init.source": "runs/other"},
         ["config.model.lora_maps=('up', 'key')", "experts cannot be adapted", "remove 'up'"]),
        ({"model.state_conv": 3},
         ["config.model.state_conv=3", "layer of 'mamba2' or", "leave it at 4"]),
        ({"model.decoder_pattern": ["mamba2"], "model.state_heads": 3},
         ["config.model.state_width=1024", "state_heads=3", "'mamba2'", "choose another"]),
        ({"model.decoder_pattern": ["gated_delta"], "model.state_groups": 3},
         ["config.model.state_groups=3", "state_heads=8", "'gated_delta'", "choose another"]),
        ({"model.decoder_pattern": ["s4d"], "model.state_size": 3},
         ["config.model.state_size=3", "'s4d'", "pairs", "choose an even number"]),
        ({"model.decoder_pattern": ["mamba"], "model.state_size": 2**20, "model.d_model": 4096},
         ["config.model.state_size=1048576", "'mamba'", "8192 x 1048576", "lower it"]),
        ({"model.decoder_pattern": ["mamba2"], "model.relative_positions": "rope"},
         ["config.model.relative_positions='rope'", "'mamba2' in decoder_pattern", "'none'"]),
        ({"model.decoder_pattern": ["rwkv7"], "model.state_heads": 3},
         ["config.model.state_heads=3", "d_model=512", "'rwkv7'", "choose another"]),
        ({"model.decoder_pattern": ["mega"], "model.attention": "fused"},
         ["config.model.attention='fused'", "'mega'", "values of another size", "'dense'"]),
        ({"model.decoder_pattern": ["mega"], "model.state_width": 15},
         ["config.model.state_width=15", "num_heads=8", "'mega'", "choose another"]),
        ({"model.encoder_pattern": ["mamba2"]},
         ["config.model.encoder_pattern=('mamba2',)", "runs left to right", "choose another"]),
        ({"model.decoder_pattern": ["bimamba2"]},
         ["config.model.decoder_pattern=('bimamba2',)", "reads whole texts", "choose another"]),
        ({"model.latent_size": 64},
         ["config.model.latent_size=64", "layer of 'latent'", "leave it at 512"]),
        ({"model.relative_positions": "rope", "model.rope_factor": 2.0},
         ["config.model.rope_factor=2.0", "rope_scaling='none'", "leave it at 8.0"]),
        ({"model.relative_positions": "rope", "model.rope_scaling": "linear",
          "model.rope_length": 100},
         ["config.model.rope_length=100", "rope_scaling='linear'", "leave it at 8192"]),
        ({"model.rope_scaling": "linear"},
         ["config.model.rope_scaling='linear'", "relative_positions='none'", "leave it at 'none'"]),
        ({"model.decoder_pattern": ["longformer"], "model.window": 4},
         ["config.model.decoder_pattern=('longformer',)", "the end yet", "choose another"]),
        ({"model.encoder_pattern": ["longformer"], "model.window": 4, "data.batching": "pack"},
         ["config.data.batching='pack'", "('longformer',)", "choose 'bucket'"]),
        (MODEL_OF_CLASSES | {"objective.name": "classify_pairs", "objective.window": 4},
         ["config.objective.window=4", "'classify_pairs'", "at least 5"]),
        (MODEL_OF_CLASSES | {"objective.name": "classify_pairs", "model.token_types": 1},
         ["config.model.token_types=1", "'classify_pairs'", "set it to 2"]),
        (MODEL_OF_CLASSES | {"model.architecture": "decomposable_attention",
                             "model.positions": "none"},
         ["config.model.architecture='decomposable_attention'", "'classify'", "'encoder'"]),
        (MODEL_OF_ELMO | {"model.encoder_pattern": ("bilstm",)},
         ["config.model.encoder_pattern=('bilstm',)", "'elmo' are 'elman' or 'lstm' or 'gru'"]),
        (MODEL_OF_ELMO | {"model.num_decoder_layers": 2},
         ["config.model.num_decoder_layers=2", "'elmo'", "leave it at 6"]),
        (MODEL_OF_ELMO | {"objective.window": 1},
         ["config.objective.window=1", "'bidirectional_lm'", "at least 2"]),
        (MODEL_OF_COMPARED | {"model.num_heads": 4},
         ["config.model.num_heads=4", "'decomposable_attention'", "leave it at 8"]),
        (MODEL_OF_COMPARED | {"model.num_encoder_layers": 2},
         ["config.model.num_encoder_layers=2", "'decomposable_attention'", "leave it at 6"]),
        (MODEL_OF_COMPARED | {"model.positions": "learned"},
         ["config.model.positions='learned'", "'decomposable_attention'", "to 'none'"]),
        ({"model.encoder_pattern": ["bigbird"], "data.batching": "pack"},
         ["config.data.batching='pack'", "('bigbird',)", "choose 'bucket'"]),
        ({"model.decoder_pattern": ["aft_simple"], "model.num_kv_heads": 2},
         ["config.model.decoder_pattern=('aft_simple',)", "leave num_kv_heads and v_head_dim"]),
        ({"model.decoder_pattern": ["aft_full"], "model.max_positions": 100},
         ["config.model.max_positions=100", "data.max_length=256", "raise the former"]),
        ({"model.encoder_pattern": ["ssru"]},
         ["config.model.encoder_pattern=('ssru',)", "runs left to right"]),
        ({"model.encoder_pattern": ["full", "linear"], "model.relative_positions": "rope"},
         ["config.model.relative_positions='rope'", "'linear' in encoder_pattern", "'none'"]),
        ({"model.decoder_pattern": ["gru"], "model.attention_dropout_rate": 0.1},
         ["config.model.attention_dropout_rate=0.1", "'gru' in decoder_pattern", "0.0"]),
        ({"model.encoder_pattern": ["bigru"], "model.d_model": 33, "model.num_heads": 3,
          "model.positions": "learned"},
         ["config.model.d_model=33", "'bigru'", "choose an even d_model"]),
        ({"objective.name": "prefix_lm", "model.architecture": "decoder",
          "model.decoder_pattern": ["linear"]},
         ["config.model.decoder_pattern=('linear',)", "'prefix_lm'",
          "'full' or 'differential' or 'latent'"]),
        ({"objective.window": 64},
         ["config.objective.window=64", "'translate'", "leave it at 256", "'language_model'"]),
        ({"objective.name": "prefix_lm", "objective.document": "file"},
         ["config.objective.document='file'", "'prefix_lm'", "leave it at 'line'"]),
        ({"objective.name": "prefix_lm", "model.architecture": "decoder", "tokenizer.joint": False,
          "model.tied_embeddings": "none"},
         ["config.tokenizer.joint=False", "'prefix_lm'", "set it to True"]),
        ({"evaluation.dynamic_rate": 0.1},
         ["config.evaluation.dynamic_rate=0.1", "'translate' does not", "at None"]),
        ({"evaluation.stride": 8},
         ["config.evaluation.stride=8", "'translate' does not", "at None"]),
        (MODEL_OF_LINES | {"evaluation.stride": 257},
         ["config.evaluation.stride=257", "above objective.window=256", "lower it"]),
        (MODEL_OF_LINES | {"evaluation.dynamic_decay": 0.5},
         ["config.evaluation.dynamic_decay=0.5", "no effect", "set the rate"]),
        ({"objective.name": "language_model", "model.architecture": "decoder"},
         ["config.evaluation.bleu_sentences=1000", "'language_model'", "best_by='loss'"]),
        (MODEL_OF_LINES | {"objective.window": 257},
         ["config.objective.window=257", "data.max_length=256", "lower the former"]),
        (MODEL_OF_LINES | {"src.codec": "bytes"},
         ["config.src.codec='bytes'", "no source side", "tgt.codec"]),
        (MODEL_OF_LINES | {"objective.document": "file"},
         ["config.objective.document='file'", "'subwords'", "'characters' or 'bytes'"]),
        (MODEL_OF_LINES | {"objective.document": "file", "data.source": "tfds"},
         ["config.objective.document='file'", "data.source='tfds'", "choose 'line'"]),
        (MODEL_OF_LINES | {"data.subword_dropout": 0.1},
         ["config.data.subword_dropout=0.1", "'language_model'", "set it to 0"]),
        (MODEL_OF_LINES | {"objective.window": 64, "model.positions": "learned",
                           "model.max_positions": 63},
         ["config.model.max_positions=63", "objective.window=64"]),
        ({"objective.mask_rate": 0.3},
         ["config.objective.mask_rate=0.3", "'translate'", "leave it at 0.15", "'masked_lm'"]),
        (MODEL_OF_LINES | {"objective.name": "permutation_lm", "model.architecture": "two_stream",
                           "objective.document": "joined"},
         ["config.objective.document='joined'", "'permutation_lm'", "choose 'line'"]),
        ({"objective.mean_span_length": 2.0},
         ["config.objective.mean_span_length=2.0", "'translate'", "leave it at 3.0",
          "'span_corruption' or name='denoising'"]),
        (MODEL_OF_NOISE | {"objective.noise_density": 0.3},
         ["config.objective.noise_density=0.3", "'denoising'", "choose name='span_corruption'"]),
        (MODEL_OF_SPANS | {"objective.name": "text_continuation", "objective.window": 1},
         ["config.objective.window=1", "'text_continuation'", "at least 2"]),
        (MODEL_OF_SPANS | {"objective.window": 2},
         ["config.objective.window=2", "'span_corruption'", "at least 3"]),
        (MODEL_OF_SPANS | {"tokenizer.vocab_size": 105},
         ["config.tokenizer.vocab_size=105", "100 of the pieces", "span_corruption", "sentinels"]),
        ({"tokenizer.lowercase": True},
         ["config.tokenizer.lowercase=True", "tgt.codec='subwords'", "leave it at False"]),
        ({"src.codec": "words", "tgt.codec": "words", "tokenizer.algorithm": "unigram"},
         ["config.tokenizer.algorithm='unigram'", "tgt.codec='words'", "leave it at 'bpe'"]),
        (MODEL_OF_PREFIXES | {"data.long_sources": "cut", "objective.window": 256},
         ["config.objective.window=256", "data.max_length=256", "no room for a target", "lower"]),
        (MODEL_OF_PREFIXES | {"objective.window": 64},
         ["config.objective.window=64", "'prefix_lm'", "leave it at 256", "long_sources='cut'"]),
        (MODEL_OF_SPANS | {"data.long_sources": "cut"},
         ["config.data.long_sources='cut'", "'span_corruption'", "leave it at 'drop'"]),
        (MODEL_OF_LINES | {"data.columns": ["source=x", "target=y"]},
         ["config.data.columns=('source=x', 'target=y')", "no source side"]),
        ({"data.columns": ["text=x"]}, ["config.data.columns='text=x'", "target=COLUMN"]),
        ({"data.columns": ["target=x", "target=y"]}, ["config.data.columns=", "once"]),
        ({"data.source": "folders", "data.columns": ["source=x", "source=y"]},
         ["config.data.columns=('source=x', 'source=y')", "'text'", "once"]),
        (MODEL_OF_LINES | {"objective.name": "chat", "data.columns": ["source=x", "source=y"]},
         ["config.data.columns=", "one column a side", "once"]),
        ({"data.source": "arrays", "data.columns": ["target=x"]},
         ["config.data.columns", "'text' or 'folders' or 'wavs'"]),
        (MODEL_OF_LINES | {"data.prefixes": ["train=x"]},
         ["config.data.prefixes=('train=x',)", "no source side", "set it to ()"]),
        (MODEL_OF_TAGS | {"data.prefixes": ["train=x"]},
         ["config.data.prefixes=('train=x',)", "'tag'", "a prefix have no labels", "set it to ()"]),
        ({"tokenizer.symbols": ["<a b>"]}, ["config.tokenizer.symbols=('<a b>',)", "no spaces"]),
        (MODEL_OF_MASKS | {"tokenizer.symbols": ["<mask>"]},
         ["config.tokenizer.symbols=('<mask>',)", "'masked_lm' adds <mask> itself", "remove it"]),
        ({"tokenizer.model": "x.model", "tokenizer.algorithm": "unigram"},
         ["config.tokenizer.algorithm='unigram'", "model='x.model'", "leave it at 'bpe'"]),
        ({"tokenizer.model": "x.model", "data.subword_dropout": 0.1},
         ["config.data.subword_dropout=0.1", "trained here", "set it to 0"]),
        (MODEL_OF_MASKS | {"objective.window": 1},
         ["config.objective.window=1", "'masked_lm'", "at least 2"]),
        (MODEL_OF_CLASSES | {"objective.window": 2},
         ["config.objective.window=2", "'classify'", "no room for a piece", "raise it to 3"]),
        (MODEL_OF_TAGS | {"objective.window": 2},
         ["config.objective.window=2", "'tag'", "at least 3"]),
        (MODEL_OF_TAGS | {"tgt.codec": "classes"},
         ["config.tgt.codec='classes'", "'tag' predicts labels", "choose 'labels'"]),
        (MODEL_OF_TAGS | {"src.codec": "labels"},
         ["config.src.codec='labels'", "must be text", "another codec"]),
        (MODEL_OF_TAGS | {"objective.name": "regress", "tgt.codec": "values",
                          "training.r_drop": 5.0},
         ["config.training.r_drop=5.0", "'regress'", "set it to None"]),
        (MODEL_OF_TAGS | {"objective.name": "regress", "tgt.codec": "values",
                          "checkpoint.best_by": "accuracy"},
         ["config.checkpoint.best_by='accuracy'", "'regress'", "choose 'loss'"]),
        (MODEL_OF_TAGS | {"objective.name": "answer", "tgt.codec": "spans", "model.token_types": 1},
         ["config.model.token_types=1", "'answer'", "set it to 2"]),
        (MODEL_OF_PAIRS | {"objective.window": 4},
         ["config.objective.window=4", "'masked_lm_nsp'", "at least 5"]),
        (MODEL_OF_PAIRS | {"objective.document": "joined"},
         ["config.objective.document='joined'", "'masked_lm_nsp'", "leave it at 'line'"]),
        (MODEL_OF_PAIRS | {"model.token_types": 1},
         ["config.model.token_types=1", "'masked_lm_nsp'", "set it to 2"]),
        (MODEL_OF_MASKS | {"objective.whole_words": True, "tgt.codec": "bytes"},
         ["config.objective.whole_words=True", "tgt.codec='bytes'", "choose 'subwords'"]),
        (MODEL_OF_MASKS | {"model.num_decoder_layers": 2},
         ["config.model.num_decoder_layers=2", "'encoder' has no decoder", "leave it at 6"]),
        (MODEL_OF_CLASSES | {"model.architecture": "decoder"},
         ["config.model.pooling='first'", "sees only itself", "choose 'last' or 'mean'"]),
        (MODEL_OF_CLASSES | {"model.architecture": "decoder", "model.pooling": "last",
                             "model.logits_bias": True},
         ["config.model.logits_bias=True", "'classify'", "set it to False"]),
        ({"model.pooling": "mean"},
         ["config.model.pooling='mean'", "'encoder_decoder'", "leave it at 'first'"]),
        (MODEL_OF_CLASSES | {"tgt.codec": "subwords"},
         ["config.tgt.codec='subwords'", "'classify'", "choose 'classes'"]),
        (MODEL_OF_CLASSES | {"objective.name": "policy"},
         ["config.tgt.codec='classes'", "'policy'", "choose 'moves'"]),
        (MODEL_OF_CLASSES | {"objective.name": "policy", "tgt.codec": "moves", "src.codec": "fen"},
         ["config.src.codec='fen'", "reads chess positions", "choose 'board'"]),
        (MODEL_OF_CLASSES | {"objective.name": "policy", "objective.window": 77},
         ["config.objective.window=77", "'policy'", "at least 78", "77 characters"]),
        ({"tgt.codec": "classes"},
         ["config.tgt.codec='classes'", "'translate'", "another codec"]),
        (MODEL_OF_CLASSES | {"src.codec": "classes"},
         ["config.src.codec='classes'", "must be text", "another codec"]),
        (MODEL_OF_CLASSES | {"tokenizer.joint": True},
         ["config.src.codec='subwords'", "tgt.codec='classes'", "tokenizer.joint=False"]),
        (MODEL_OF_CLASSES | {"evaluation.bleu_sentences": 9},
         ["config.evaluation.bleu_sentences=9", "'classify'", "set it to 0"]),
        ({"checkpoint.best_by": "accuracy"},
         ["config.checkpoint.best_by='accuracy'", "'classify'", "choose 'loss'"]),
        ({"model.encoder_pattern": ("conformer",)},
         ["config.model.residual='post_norm'", "'conformer'", "'pre_norm'"]),
        ({"model.decoder_pattern": ("conformer",), "model.residual": "pre_norm"},
         ["config.model.decoder_pattern", "'conformer'", "choose another"]),
        ({"model.encoder_pattern": ("conformer",), "model.residual": "pre_norm",
          "model.conv_kernel": 4}, ["config.model.conv_kernel=4", "odd"]),
        ({"model.encoder_pattern": ("conformer",), "model.residual": "pre_norm",
          "data.batching": "pack"}, ["config.data.batching='pack'", "'conformer'", "'bucket'"]),
        (MODEL_OF_SOUNDS | {"data.batching": "pack"}, ["config.data.batching='pack'", "'bucket'"]),
        (MODEL_OF_SOUNDS | {"model.stem": "convolution", "model.grid": (2, 2)},
         ["config.model.stem='convolution'", "no patches", "'conv1d'"]),
        (MODEL_OF_SOUNDS | {"data.source": "arrays"}, ["config.data.source='arrays'", "'wavs'"]),
        ({"model.architecture": "prefix_decoder", "model.stem": "linear",
          "model.decoder_pattern": ["linear"]},
         ["config.model.decoder_pattern=('linear',)", "separate vectors and text", "'full'"]),
        (MODEL_OF_SOUNDS | {"data.augment": ("crop",)},
         ["config.data.augment=('crop',)", "'patches'", "remove it"]),
        (MODEL_OF_SOUNDS | {"checkpoint.best_by": "bleu"},
         ["config.checkpoint.best_by='bleu'", "measures 'wer'"]),
        (MODEL_OF_SOUNDS | {"data.label_pattern": r"(\d)_.*"},
         ["config.data.label_pattern=", "(?P<label>...)"]),
        (MODEL_OF_SOUNDS | {"data.label_pattern": "("},
         ["config.data.label_pattern='('", "expression"]),
        (MODEL_OF_SOUNDS | {"data.label_texts": ("0=zero", "0=one")},
         ["config.data.label_texts='0=zero'", "once"]),
        (MODEL_OF_SOUNDS | {"training.r_drop": 1.0},
         ["config.training.r_drop=1.0", "'ctc'", "None"]),
        ({"checkpoint.best_by": "wer"}, ["config.checkpoint.best_by='wer'", "measures 'bleu'"]),
        ({"src.hop_length": 80}, ["config.src.hop_length=80", "leave it at 160"]),
        ({"data.label_texts": ("0=zero",)}, ["config.data.label_texts", "'wavs'"]),
        ({"training.accumulation_steps": 3},
         ["config.training.accumulation_steps=3", "data.rows_divisible_by=8"]),
        ({"training.steps_per_execution": 16},
         ["config.checkpoint.every_steps=1000", "training.steps_per_execution=16"]),
        ({"training.steps_per_execution": 10, "training.steps": 995},
         ["config.training.steps=995", "training.steps_per_execution=10"]),
        (MODEL_OF_PARTS | {"tokenizer.joint": False, "model.tied_embeddings": "none"},
         ["config.objective.parts=('two=denoising',)", "set tokenizer.joint=True"]),
        (MODEL_OF_PARTS | {"data.subword_dropout": 0.1},
         ["config.data.subword_dropout=0.1", "is for pairs", "('two=denoising',)", "set it to 0"]),
        (MODEL_OF_PARTS | {"data.prefixes": ("two=<BT>",)},
         ["config.data.prefixes=['two=<BT>']", "denoising has no source side", "remove it"]),
        (MODEL_OF_PARTS | {"data.train": ("two",)},
         ["config.objective.parts=('two=denoising',)", "data.train=('two',)", "but not all"]),
        (MODEL_OF_PARTS | {"data.train": ("one", "three")},
         ["config.objective.parts=('two=denoising',)", "data.train=('one', 'three')"]),
        (MODEL_OF_PARTS | {"objective.window": 300},
         ["config.objective.window=300", "data.max_length=256", "lower"]),
        (MODEL_OF_PARTS | {"objective.document": "file"},
         ["config.objective.document='file'", "tgt.codec='subwords'", "'characters'"]),
        (MODEL_OF_LINES
         | {"model.decoder_pattern": ("linear",), "model.attention_temperature": 2.0},
         ["config.model.attention_temperature=2.0", "no layer of ['linear'] reads it", "at 1.0"]),
        (MODEL_OF_LINES | {"model.decoder_pattern": ("lsh",), "model.query_key_norm": "per_head"},
         ["config.model.query_key_norm='per_head'", "no layer of ['lsh'] reads it"]),
        (MODEL_OF_LINES | {"model.decoder_pattern": ("lstm",), "model.num_kv_heads": 2},
         ["config.model.num_kv_heads=2", "no layer of ['lstm'] reads it", "leave it at None"]),
        (MODEL_OF_SOUNDS | {"decoding.draft": "ngram", "decoding.beam_size": 1},
         ["config.decoding.draft='ngram'", "reads none", "set it to None"]),
        ({"model.residual": "reversible", "model.layer_sharing": "all"},
         ["config.model.layer_sharing='all'", "residual='reversible'", "leave it at 'none'"]),
        ({"model.feed_forward_chunks": 4, "model.activation_dropout_rate": 0.1},
         ["config.model.feed_forward_chunks=4", "activation_dropout_rate=0.1", "set it to 0"]),
        ({"model.reverse_source": True},
         ["config.model.reverse_source=True", "architecture='encoder_decoder'", "at False"]),
        (MODEL_OF_CELLS | {"model.d_ff": 64},
         ["config.model.d_ff=64", "architecture='recurrent'", "leave it at 2048"]),
        (MODEL_OF_CELLS | {"model.decoder_pattern": ("ssru",)},
         ["config.model.decoder_pattern=('ssru',)", "'elman' or 'lstm' or 'gru'"]),
        (MODEL_OF_CELLS | {"model.recurrence": "rnmt_plus", "model.input_feeding": False},
         ["config.model.decoder_pattern=('gru',)", "recurrence='rnmt_plus' are 'lstm'"]),
        (MODEL_OF_CELLS | {"model.encoder_pattern": ("bigru", "full")},
         ["config.model.encoder_pattern=('bigru', 'full')", "do not mix the two"]),
        (MODEL_OF_CELLS | {"model.encoder_pattern": ("full",), "model.reverse_source": True},
         ["config.model.reverse_source=True", "('full',) read a source in both directions"]),
        (MODEL_OF_CELLS | {"model.source_attention": "multi_head_additive", "model.num_heads": 7},
         ["config.model.d_model=512", "num_heads=7", "'additive'"]),
        (MODEL_OF_CELLS | {"model.num_heads": 4},
         ["config.model.num_heads=4", "architecture='recurrent'", "leave it at 8"]),
        (MODEL_OF_CELLS | {"model.positions": "sinusoidal"},
         ["config.model.positions='sinusoidal'", "set it to 'none'"]),
        (MODEL_OF_CELLS | {"model.recurrence": "bahdanau"},
         ["config.model.input_feeding=True", "recurrence='bahdanau'", "set it to False"]),
        (MODEL_OF_CELLS | {"model.recurrence": "gnmt", "model.input_feeding": False,
                           "model.source_attention": "none"},
         ["config.model.source_attention='none'", "'gnmt'", "choose another"]),
        (MODEL_OF_CELLS | {"model.source_attention": "local_predictive"},
         ["config.model.window=None", "must be set", "source_attention is local"]),
        (MODEL_OF_CELLS | {"data.batching": "pack"},
         ["config.data.batching='pack'", "'recurrent'", "choose 'bucket'"]),
        ({"data.list_depth": 4},
         ["config.data.list_depth=4", "source='listops', not 'text'", "leave it at 10"]),
        ({"data.source": "copying", "data.example_lengths": (9, 3)},
         ["config.data.example_lengths=(9, 3)", "the smallest and the largest"]),
        ({"data.subword_dropout": 0.1, "tokenizer.algorithm": "unigram"},
         ["config.data.subword_dropout=0.1", "tokenizer.algorithm='unigram'", "'bpe'"]),
        ({"training.r_drop": 5.0, "model.dropout_rate": 0.0},
         ["config.training.r_drop=5.0", "model.dropout_rate"]),
        ({"optimizer.schedule": "cosine"},
         ["config.optimizer.learning_rate=1.0", "schedule='cosine'", "peak", "0.1"]),
        ({"optimizer.learning_rate": 0.001},
         ["config.optimizer.learning_rate=0.001", "schedule='paper'", "factor", "0.01"]),
        ({"profile.steps": [101_000, 101_010]},
         ["config.profile.steps=(101000, 101010)", "training.steps=100000"]),
        (MODEL_OF_SERIES | {"objective.window": 30},
         ["config.objective.window=30", "patch_length=16", "would miss rows"]),
        (MODEL_OF_SERIES | {"data.source": "text"},
         ["config.data.source='text'", "tgt.codec='series' reads series", "choose 'series'"]),
        (MODEL_OF_SERIES | {"model.stem": "embedding"},
         ["config.model.stem='embedding'", "tgt.codec='series' produces vectors", "'series'"]),
        (MODEL_OF_SERIES | {"data.batching": "pack"},
         ["config.data.batching='pack'", "is a window", "choose 'bucket'"]),
        (MODEL_OF_SERIES | {"training.r_drop": 5.0},
         ["config.training.r_drop=5.0", "set it to None"]),
        (MODEL_OF_SERIES | {"model.positions": "learned", "model.max_positions": 30},
         ["config.model.max_positions=30", "the number of patches=31"]),
        (MODEL_OF_MASKS | {"objective.name": "forecast"},
         ["config.tgt.codec='subwords'", "time series", "choose tgt.codec='series'"]),
        (MODEL_OF_MASKS | {"tgt.codec": "series"},
         ["config.tgt.codec='series'", "vectors can be read", "choose another"]),
        (MODEL_OF_MASKS | {"model.distribution": "normal"},
         ["config.model.distribution='normal'", "stem='embedding'", "choose 'series'"]),
        ({"model.num_latents": 8},
         ["config.model.num_latents=8", "'encoder_decoder'", "choose 'perceiver'"]),
        (MODEL_OF_LATENTS | {"data.batching": "pack"},
         ["config.data.batching='pack'", "'perceiver'", "choose 'bucket'"]),
        (MODEL_OF_LATENTS | {"model.layer_sharing": "universal"},
         ["config.model.layer_sharing='universal'", "latents have none", "choose 'all'"]),
        (MODEL_OF_MASKS | {"model.architecture": "perceiver", "model.positions": "none"},
         ["config.model.positions='none'", "'perceiver'", "choose another"]),
        ({"model.num_codes": 8},
         ["config.model.num_codes=8", "'encoder_decoder'", "choose 'autoencoder'"]),
        (MODEL_OF_CODES | {"model.stem": "conv1d"},
         ["config.model.stem='conv1d'", "vectors it reads", "choose 'linear' or 'convolution'"]),
        (MODEL_OF_CODES | {"src.codec": "subwords"},
         ["config.src.codec='subwords'", "outputs what it reads", "choose 'patches'"]),
        (MODEL_OF_CODES | {"tgt.codec": "series", "data.source": "series", "src.codec": "subwords"},
         ["config.tgt.codec='series'", "choose"]),
        (MODEL_OF_CODES | {"tgt.codec": "subwords", "data.source": "text",
                           "src.codec": "subwords", "model.stem": "embedding"},
         ["config.model.stem='embedding'", "'autoencoder'"]),
        (MODEL_OF_CODES | {"training.r_drop": 5.0},
         ["config.training.r_drop=5.0", "set it to None"]),
        (MODEL_OF_CODES | {"evaluation.bleu_sentences": 10},
         ["config.evaluation.bleu_sentences=10", "no BLEU", "set it to 0"]),
        (MODEL_OF_CODES | {"model.decoder_pattern": ("linear", "ssru")},
         ["config.model.decoder_pattern=('linear', 'ssru')", "reads all codes", "choose another"]),
        (MODEL_OF_CODES | {"model.decoder_pattern": ("conformer",)},
         ["config.model.residual='post_norm'", "decoder_pattern=('conformer',)", "'pre_norm'"]),
        (MODEL_OF_LATENTS | {"model.encoder_pattern": ("aft_full",), "model.num_latents": 600},
         ["config.model.max_positions=512", "num_latents=600", "raise it or lower"]),
        (MODEL_OF_SERIES | {"model.patch_length": 8, "model.patch_stride": 31},
         ["config.model.patch_stride=31", "model.patch_length=8", "lower it"]),
        (MODEL_OF_SERIES | {"model.grid": (2, 2), "model.grid_positions": "sinusoidal"},
         ["config.model.grid_positions='sinusoidal'", "pictures", "leave it at 'none'"]),
        (MODEL_OF_SOUNDS | {"model.stem": "linear", "model.grid": (2, 2),
                            "model.grid_positions": "sinusoidal"},
         ["config.model.grid_positions='sinusoidal'", "src.codec='log_mel'", "to 'none'"]),
        ({"evaluation.every_steps": 1500},
         ["config.evaluation.every_steps=1500", "checkpoint.every_steps=1000"]),
        ({"evaluation.checkpoint": "average:6"},
         ["config.evaluation.checkpoint='average:6'", "checkpoint.keep_last=5", "6"]),
        (NOISE | {"model.residual": "pre_norm"},
         ["config.model.residual='pre_norm'", "'diffusion_transformer'", "'adaptive_norm'"]),
        (NOISE | {"model.norm": "scale_norm"},
         ["config.model.norm='scale_norm'", "'layer_norm' or 'rms_norm'"]),
        ({"model.residual": "adaptive_norm"},
         ["config.model.architecture='encoder_decoder'", "'diffusion_transformer'"]),
        (NOISE | {"model.grid": ()}, ["config.model.grid=()", "(7, 7)"]),
        (MODEL_OF_FRAMES | {"model.grid": (4, 4)},
         ["config.model.grid=(4, 4)", "'factorised_encoder'", "(4, 4, 4)"]),
        (MODEL_OF_FRAMES | {"model.layer_sharing": "universal"},
         ["config.model.layer_sharing='universal'", "choose 'all'"]),
        (MODEL_OF_FRAMES | {"model.stem": "embedding", "src.codec": "words",
                            "data.source": "text"},
         ["config.model.stem='embedding'", "reads tubelets", "'linear'"]),
        (MODEL_OF_FRAMES | {"model.encoder_pattern": ("space",)},
         ["config.model.architecture='factorised_encoder'", "'space'", "choose"]),
        (MODEL_OF_CLIPS | {"model.encoder_pattern": ("divided",)},
         ["config.model.grid=()", "axes of a clip", "(4, 4, 4)"]),
        (MODEL_OF_CLIPS | {"model.encoder_pattern": ("time",), "model.grid": (4, 4, 4),
                           "model.relative_positions": "rope"},
         ["config.model.relative_positions='rope'", "'time'", "leave it at 'none'"]),
        (MODEL_OF_CLIPS | {"model.encoder_pattern": ("divided",), "model.grid": (4, 4, 4),
                           "model.residual": "reversible"},
         ["config.model.residual='reversible'", "choose another"]),
        (MODEL_OF_CLIPS | {"model.encoder_pattern": ("time",), "model.grid": (4, 4, 4),
                           "data.batching": "pack"},
         ["config.data.batching='pack'", "'time'", "'bucket'"]),
        (MODEL_OF_CLASSES | {"model.encoder_pattern": ("time",), "model.grid": (4, 4, 4)},
         ["config.model.encoder_pattern=('time',)", "stem='embedding' reads none"]),
        (MODEL_OF_PICTURES | {"model.grid_positions": "learned", "model.grid": (4, 4, 4)},
         ["config.model.grid=(4, 4, 4)", "'patches' has rows and columns", "(8, 8)"]),
        (MODEL_OF_CLIPS | {"model.grid_positions": "learned", "model.grid": (4, 4)},
         ["config.model.grid=(4, 4)", "'tubelets' has times, rows and columns", "(4, 4, 4)"]),
        (MODEL_OF_CLIPS | {"model.grid_positions": "sinusoidal", "model.grid": (4, 4, 4),
                           "model.d_model": 24, "model.num_heads": 2},
         ["config.model.d_model=24", "multiple of 16", "'learned'"]),
        (MODEL_OF_CLIPS | {"data.image_size": (8, 32)},
         ["config.data.image_size=(8, 32)", "16 x 16", "raise it"]),
        (MODEL_OF_CLIPS | {"data.source": "folders"},
         ["config.data.source='folders'", "'clips'", "'moving_digits'"]),
        (MODEL_OF_CLIPS | {"model.stem": "conv1d"},
         ["config.model.stem='conv1d'", "choose 'linear'"]),
        (MODEL_OF_CLIPS | {"data.train": ("more",)},
         ["config.data.train=('more',)", "is generated"]),
        (MODEL_OF_PICTURES | {"src.tubelet_frames": 4},
         ["config.src.tubelet_frames=4", "no effect with codec='patches'"]),
        (MODEL_OF_PICTURES | {"data.num_frames": 4},
         ["config.data.num_frames=4", "'moving_digits' or 'clips'"]),
        (NOISE | {"model.encoder_pattern": ("joint",)},
         ["config.model.condition='class'", "a text beside the picture", "'text'"]),
        ({"model.encoder_pattern": ("joint",)},
         ["config.model.architecture='encoder_decoder'", "'diffusion_transformer'"]),
        (NOISE | TEXTS_OF_PICTURES | {"model.encoder_pattern": ("joint_last",)},
         ["config.model.encoder_pattern=('joint_last',)", "for the last"]),
        (NOISE | TEXTS_OF_PICTURES | {"model.relative_positions": "rope"},
         ["config.model.relative_positions='rope'", "'none'"]),
        (NOISE | {"model.condition": "text"},
         ["config.model.condition='text'", "tgt.codec='classes'", "choose 'class'"]),
        (NOISE | {"tgt.codec": "words"},
         ["config.model.condition='class'", "tgt.codec='words'", "choose 'text'"]),
        (NOISE | {"tgt.codec": "values"},
         ["config.tgt.codec='values'", "objective.name='diffusion'"]),
        (NOISE | {"objective.prediction": "epsilon"},
         ["config.objective.prediction='epsilon'", "'rectified_flow'", "'linear'"]),
        (NOISE | {"objective.condition_dropout": 0.0, "decoding.guidance": 4.0},
         ["config.decoding.guidance=4.0", "objective.condition_dropout=0", "0.1"]),
        (NOISE | {"decoding.sampling_steps": 0},
         ["config.decoding.sampling_steps=0", "at least 1"]),
        (NOISE | {"decoding.search": "beam"},
         ["config.decoding.search='beam'", "draws pictures", "'euler'"]),
        (DECISIONS | {"tgt.codec": "actions"},
         ["config.tgt.codec='actions'", "model.actions='discrete'", "choose 'labels'"]),
        (CONTROL | {"tgt.codec": "labels"},
         ["config.tgt.codec='labels'", "model.actions='continuous'", "choose 'actions'"]),
        (DECISIONS | {"tgt.codec": "subwords"}, ["config.tgt.codec='subwords'", "'labels'"]),
        (DECISIONS | {"data.max_steps": 1000},
         ["config.model.max_positions=512", "data.max_steps=1000"]),
        (DECISIONS | {"data.environment": "none"},
         ["config.data.environment='none'", "'shortest_paths'"]),
        (DECISIONS | {"model.stem": "linear"},
         ["config.model.stem='linear'", "steps of an agent", "'trajectory'"]),
        (MODEL_OF_PICTURES | {"model.stem": "trajectory"},
         ["config.model.architecture='encoder'", "'decision_transformer'"]),
        (DECISIONS | {"src.codec": "patches"},
         ["config.data.source='environment'", "src.codec='patches'"]),
        (MODEL_OF_PICTURES | {"src.codec": "states", "data.source": "trajectories"},
         ["config.src.codec='states'", "'decide' or 'clone'"]),
        (DECISIONS | {"data.source": "arrays"},
         ["config.data.environment='shortest_paths'", "'trajectories' or 'environment'"]),
        (DECISIONS | {"data.batching": "pack"}, ["config.data.batching='pack'", "'bucket'"]),
        (DECISIONS | {"model.decoder_pattern": ("aft_full",)},
         ["config.model.decoder_pattern=('aft_full',)", "time steps"]),
        ({"data.max_steps": 9}, ["config.data.max_steps=9", "'trajectories' or 'environment'"]),
        ({"decoding.search": "heun"}, ["config.decoding.search='heun'", "'beam' or 'sample'"]),
        (NOISE | {"data.batching": "pack"}, ["config.data.batching='pack'", "'bucket'"]),
        ({"evaluation.bleu_sentences": 0},
         ["config.checkpoint.best_by='bleu'", "evaluation.bleu_sentences=0", "'loss'"]),
    ],
)  # fmt: skip
def test_an_impossible_combination_names_both_fields_and_values(changes, output):
    message = refusal(changes)
    assert [part for part in output if part not in message] == []
    assert message.startswith(output[0])


@pytest.mark.parametrize(
    "changes",
    [
        {"model.num_heads": 7, "model.head_dim": 64},
        {"model.d_model": 33, "model.num_heads": 3, "model.positions": "learned"},
        {"tokenizer.vocab_size": 261, "tokenizer.byte_fallback": True},
        {"data.tokens_per_batch": 2048},
        {"data.source": "spelled_numbers", "data.max_number": 51_000},
        {"tokenizer.joint": False, "model.tied_embeddings": "none"},
        {"model.positions": "learned", "model.max_positions": 256},
        {"training.r_drop": 5.0, "model.dropout_rate": 0.1},
        {
            "optimizer.algorithm": "sgd",
            "optimizer.schedule": "cosine",
            "optimizer.learning_rate": 0.7,
        },
        {"optimizer.momentum": 0.9},  # as runs of Adam had it before it was refused
        {"evaluation.every_steps": 1500, "checkpoint.every_steps": 500},
        {"evaluation.checkpoint": "average:6", "checkpoint.keep_last": 6},
        {"evaluation.bleu_sentences": 0, "checkpoint.best_by": "loss"},
        {"src.codec": "bytes", "tokenizer.joint": False, "model.tied_embeddings": "none"},
        {"src.codec": "bytes", "tgt.codec": "bytes"},
        MODEL_OF_PARTS | {"objective.document": "joined", "data.prefixes": ("one=<2de>",)},
        MODEL_OF_LINES | {"objective.document": "file", "tgt.codec": "characters"},
        MODEL_OF_LINES
        | {"objective.window": 64, "model.positions": "learned", "model.max_positions": 64},
    ],
)
def test_the_remedy_is_accepted(changes):
    parse(plain(changes))


def test_head_sizes():
    assert (Experiment().model.key_size, Experiment().model.value_size) == (64, 64)
    model = parse(plain({"model.head_dim": 16, "model.v_head_dim": 48})).model
    assert (model.key_size, model.value_size) == (16, 48)
    assert parse(plain({"model.head_dim": 16})).model.value_size == 16


@pytest.mark.parametrize(
    ("name", "count"), [("best", None), ("last", None), ("1200", None), ("average:12", 12)]
)
def test_checkpoint_names(name, count):
    assert average_count(name) == count


@pytest.mark.parametrize("name", ["", "foo", "average", "average:", "average:x", "-1", "1.5", "²"])
def test_invalid_checkpoint_names_are_rejected(name):
    with pytest.raises(UserError, match=r"must be best, last, a step, or average:N$"):
        average_count(name)


def test_configs_are_frozen():
    with pytest.raises(dataclasses.FrozenInstanceError):
        DataConfig().max_length = 3  # type: ignore[misc]
