"""Which fields a resumed run may change, and that none of them affects what is learned."""

import dataclasses
import functools
import typing

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from declared import choices, later, undeclared, with_value
from tiny import MODEL, VOCAB, alone, random_params, random_store

from transformer_jax import resuming
from transformer_jax.allowed import ANY
from transformer_jax.config import DataConfig, Experiment, OptimizerConfig, TrainingConfig
from transformer_jax.data.batching import BucketPlan
from transformer_jax.data.token_store import select
from transformer_jax.models.build import build
from transformer_jax.training.optimizer import make_optimizer
from transformer_jax.training.schedule import make_schedule
from transformer_jax.training.state import abstract_state
from transformer_jax.training.step import batch_sums, keys_of, make_train_step

# What determines the trained model, and the scores that select its best checkpoint.
MUST_STAY = (
    "seed",
    "model.stem", "model.stem_layers", "model.grid", "model.grid_positions", "model.pooler",
    "model.patch_length", "model.patch_stride", "model.distribution", "objective.horizon",
    "model.num_latents", "model.num_codes", "model.code_width", "model.commitment",
    "src.patch_size", "data.augment", "data.image_size", "data.crop_padding", "data.cutout_size",
    "src.sample_rate", "src.n_fft", "src.hop_length", "src.num_mels", "model.conv_kernel",
    "data.label_pattern", "data.label_texts",
    "data.frequency_mask_size", "data.time_mask_size", "data.time_mask_share",
    "model.architecture", "model.num_kv_heads", "model.encoder_pattern", "model.decoder_pattern",
    "model.window", "model.dilation", "model.global_tokens",
    "model.recurrence", "model.source_attention", "model.input_feeding", "model.reverse_source",
    "model.block_size", "model.random_blocks", "model.hash_rounds", "model.hash_buckets",
    "model.position_rank", "model.latent_size", "model.query_latent_size",
    "model.feed_forward_pattern", "model.num_experts", "model.experts_per_token",
    "model.expert_scores", "model.normalize_expert_weights", "model.shared_experts",
    "model.balancing_rate",
    "model.num_features", "model.redraw_every", "model.feature_seed",
    "model.relative_positions", "model.rope_theta", "model.rope_fraction",
    "model.rope_scaling", "model.rope_factor", "model.rope_length",
    "model.relative_buckets", "model.relative_max_distance", "model.relative_clip",
    "model.share_relative_positions",
    "src.codec", "tgt.codec", "objective.name", "objective.like",
    "objective.window", "objective.document",
    "objective.partial_prediction", "objective.mask_rate", "objective.whole_words",
    "objective.noise_density", "objective.mean_span_length", "objective.sentinels",
    "objective.text_infilling_rate", "objective.token_masking_rate",
    "objective.token_deletion_rate", "objective.sentence_permutation_rate",
    "objective.document_rotation_rate", "objective.parts",
    "model.token_types", "model.input_norm", "model.pooling",
    "model.d_model", "model.d_ff", "model.num_heads", "model.head_dim", "model.v_head_dim",
    "model.num_encoder_layers", "model.num_decoder_layers", "model.dropout_rate",
    "model.attention_dropout_rate", "model.activation_dropout_rate", "model.residual",
    "model.layer_drop_rate", "model.embedding_norm", "model.embedding_scale", "model.logits_scale",
    "model.logits_bias",
    "model.layer_sharing", "model.initializer",
    "model.norm", "model.norm_epsilon", "model.activation", "model.positions",
    "model.biases", "model.score_scale", "model.attention_temperature", "model.query_key_norm",
    "model.max_positions", "model.tied_embeddings", "model.compute_dtype",
    "model.lora_rank", "model.lora_alpha", "model.lora_maps",
    "init.source", "init.also", "init.take", "init.rename", "init.tokenizer",
    "tokenizer.algorithm", "tokenizer.vocab_size", "tokenizer.joint", "tokenizer.byte_fallback",
    "tokenizer.character_coverage", "tokenizer.normalization", "tokenizer.max_lines",
    "tokenizer.symbols", "tokenizer.model", "tokenizer.lowercase", "tokenizer.unk_surface",
    "data.long_sources", "data.prefixes", "data.weights", "data.mixing_temperature",
    "data.mixing_limit",
    "data.source", "data.name", "data.source_language", "data.target_language", "data.train",
    "data.validation", "data.num_examples", "data.max_number",
    "data.example_lengths", "data.list_depth", "data.list_arguments", "data.round_numbers",
    "data.subword_dropout",
    "data.segmentations", "data.max_length", "data.max_length_ratio", "data.tokens_per_batch",
    "data.batching", "data.num_buckets", "data.rows_divisible_by",
    "optimizer.algorithm", "optimizer.momentum", "optimizer.update_rms", "optimizer.b1",
    "optimizer.b2", "optimizer.epsilon", "optimizer.schedule", "optimizer.learning_rate",
    "optimizer.warmup_steps", "optimizer.clip_norm", "optimizer.weight_decay",
    "optimizer.frozen", "optimizer.unfrozen", "optimizer.rate_factors", "optimizer.layer_decay",
    "training.label_smoothing", "training.smoothing", "training.r_drop", "training.ema_decay",
    "training.accumulation_steps",
    "checkpoint.best_by",
    "evaluation.bleu_sentences", "evaluation.bleu_tokenize", "evaluation.lowercase",
)  # fmt: skip
# tests/models/test_stack.py and tests/nn/test_feed_forward.py compile these, and check that they
# change neither loss nor gradient.
TESTED_ELSEWHERE = {"model.layer_loop", "model.remat", "model.feed_forward_chunks"}
BATCH = alone(random_store([(5, 7)] * 2), 2, 8, 8)


def test_every_field_is_declared():
    """A new field must stay as it is until it is put on one of the two lists."""
    assert undeclared(resuming.MAY_CHANGE, Experiment, MUST_STAY) == []
    assert undeclared(resuming.MAY_CHANGE, later(Experiment, "new", int, 0), MUST_STAY) == ["new"]
    assert not resuming.may_change("new", 0, 1)


def test_every_choice_is_declared():
    """The entry of a field that may change lists all of its choices, or is ANY."""
    words = {path: set(found) for path, found in choices(Experiment).items()}
    listed = {path: set(v) for path, v in resuming.MAY_CHANGE.items() if v is not ANY}
    assert listed == {path: words[path] for path in listed}


@pytest.mark.parametrize("path", MUST_STAY)
def test_changes_to_fixed_fields_are_rejected(path):
    assert not resuming.may_change(path, None, "another")
    assert not resuming.may_change(path, "another", None)


def test_unlisted_choices_of_a_field_that_may_change_are_rejected():
    assert resuming.may_change("model.attention", "dense", "fused")
    assert not resuming.may_change("model.attention", "dense", "local")
    assert not resuming.may_change("model.attention", "local", "dense")


def changes_what_is_learned(allowed) -> list[str]:
    """Return the listed fields that the loss, the update or the order of the batches depends on.

    A field of the model counts if another value gives another loss, dropout included; any other
    field, if the code there reads it. (The schedule gets the number of steps from outside, and a
    run reports how later learning rates change with it.)
    """
    read = {f"training.{name}" for name in _read_by_the_step()[0]}
    read |= {f"optimizer.{name}" for name in _read_by_the_step()[1]}
    read |= {f"data.{name}" for name in _read_by_the_batches()}
    model = {
        path
        for path in allowed.keys() - TESTED_ELSEWHERE
        if path.startswith("model.") and _other_losses(path.removeprefix("model."), allowed[path])
    }
    return sorted(model | (read & allowed.keys()))


def _other_losses(field, values) -> bool:
    if values is ANY:
        return True  # future values included
    batch, losses = jax.tree.map(jnp.asarray, BATCH), []
    for value in values:
        config = with_value(dataclasses.replace(MODEL, dropout_rate=0.3), field, value)
        model = build(config, VOCAB, VOCAB)
        params, keys = random_params(model), keys_of(0, 0, 1)
        losses.append(float(batch_sums(model, TrainingConfig(), params, batch, keys).loss))
    return not np.allclose(losses, losses[0], rtol=1e-5)


def _watched(kind, read: set[str]):
    """Return a config of a kind that records which of its fields are read."""
    names = {item.name for item in dataclasses.fields(kind)}

    class Watched(kind):
        def __getattribute__(self, name):
            if name in names:
                read.add(name)
            return super().__getattribute__(name)

    config = Watched()
    read.clear()
    return config


@functools.cache
def _read_by_the_step() -> tuple[set[str], set[str]]:
    """Return the fields read: those of training, and those of the optimizer."""
    read: tuple[set[str], set[str]] = set(), set()
    training, optimizer = _watched(TrainingConfig, read[0]), _watched(OptimizerConfig, read[1])
    model = build(MODEL, VOCAB, VOCAB)
    tx = make_optimizer(optimizer, make_schedule(optimizer, MODEL.d_model, 10))
    state = nn.unbox(abstract_state(model, tx, training.ema_decay is not None))
    jax.eval_shape(make_train_step(model, tx, training, 0), state, BATCH)
    return read


def _read_by_the_batches() -> set[str]:
    read: set[str] = set()
    data = _watched(DataConfig, read)
    store = random_store([(5, 7)] * 9)
    BucketPlan(store, select(store, data).pairs, data, seed=0)
    return read


def test_no_field_that_may_change_changes_what_is_learned():
    assert changes_what_is_learned(resuming.MAY_CHANGE) == []


@pytest.mark.parametrize(
    ("path", "values"),
    [
        ("model.residual", ("post_norm", "pre_norm")),
        ("model.dropout_rate", (0.1, 0.3)),
        ("model.norm_epsilon", ANY),
        ("training.label_smoothing", ANY),
        ("optimizer.b2", ANY),
        ("data.tokens_per_batch", ANY),
    ],
)
def test_a_field_that_changes_what_is_learned_is_detected(path, values):
    assert changes_what_is_learned({path: values}) == [path]


def test_any_does_not_cover_a_field_with_named_choices():
    assert undeclared({**resuming.MAY_CHANGE, "model.attention": ANY}, Experiment, MUST_STAY) == [
        "model.attention=ANY"
    ]
    assert typing.get_origin(typing.get_type_hints(type(MODEL))["attention"]) is typing.Literal
