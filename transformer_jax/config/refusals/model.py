"""Validation of a model: sizes, and options that do not go together."""

from typing import TYPE_CHECKING

from transformer_jax.config.bounds import (
    ELEMENTS,
    SIZE,
    STEPS,
    above,
    check,
    default_unless,
    either,
    is_part,
    rate,
    within,
)
from transformer_jax.config.refusals.architectures import (
    check_autoencoder,
    check_encoder,
    check_perceiver,
    check_recurrent,
    check_stem,
    check_two_stream,
    own_fields,
)
from transformer_jax.config.refusals.experts import check_experts
from transformer_jax.config.refusals.layers import (
    check_initial_values,
    check_mixers,
    check_readers,
    check_reversible,
)
from transformer_jax.config.refusals.positions import check_relative
from transformer_jax.config.words import MIXER_FIELDS, WITHIN

if TYPE_CHECKING:
    from transformer_jax.config.manual import ModelConfig


def check_model(model: "ModelConfig") -> None:
    """Reject an impossible model, or one with fields that have no effect."""
    _check_bounds(model)
    _check_heads(model)
    _check_mixer_sizes(model)
    _check_patterns(model)
    check_relative(model)
    check_two_stream(model)
    check_recurrent(model)
    check_readers(model)
    check_reversible(model)
    check_encoder(model)
    check_perceiver(model)
    check_autoencoder(model)
    check_stem(model)
    check_experts(model)
    _check_scales(model)
    check_initial_values(model)
    _check_lora(model)
    _check_sizes(model)
    if model.attention == "fused":
        _check_fused(model)


def _check_bounds(model: "ModelConfig") -> None:
    """Reject numbers out of bounds, regardless of other fields."""
    within(1, SIZE, d_model=model.d_model, d_ff=model.d_ff, num_heads=model.num_heads)
    within(1, SIZE, head_dim=model.head_dim, v_head_dim=model.v_head_dim)
    within(1, SIZE, max_positions=model.max_positions)
    within(1, 1000, num_encoder_layers=model.num_encoder_layers)
    within(1, 1000, num_decoder_layers=model.num_decoder_layers)
    within(1, 2**16, feed_forward_chunks=model.feed_forward_chunks)
    rate(dropout_rate=model.dropout_rate, attention_dropout_rate=model.attention_dropout_rate)
    rate(activation_dropout_rate=model.activation_dropout_rate)
    rate(layer_drop_rate=model.layer_drop_rate)
    above(0, 1, norm_epsilon=model.norm_epsilon)
    within(1, SIZE, num_kv_heads=model.num_kv_heads, window=model.window)
    within(1, SIZE, lora_rank=model.lora_rank)
    within(0, SIZE, token_types=model.token_types)
    above(0, 1e6, lora_alpha=model.lora_alpha)
    above(1, 1e9, rope_theta=model.rope_theta)
    above(0, 1, rope_fraction=model.rope_fraction)
    within(1, 2**20, rope_factor=model.rope_factor)
    within(1, 2**30, rope_length=model.rope_length)
    within(1e-3, 1e3, attention_temperature=model.attention_temperature)
    within(4, 2**16, relative_buckets=model.relative_buckets)
    within(1, SIZE, relative_max_distance=model.relative_max_distance)
    within(1, 2**16, relative_clip=model.relative_clip)
    check(
        len(set(model.biases)) == len(model.biases),
        f"biases={model.biases}: names a map twice; name each once",
    )


def _check_sizes(model: "ModelConfig") -> None:
    """Reject widths that do not divide, and matrices that are too large."""
    check(
        model.feed_forward_chunks == 1 or model.activation_dropout_rate == 0,
        f"feed_forward_chunks={model.feed_forward_chunks}: with activation_dropout_rate="
        f"{model.activation_dropout_rate} all chunks would drop the same units; set it to 0",
    )
    check(
        model.head_dim is not None
        or model.d_model % model.num_heads == 0
        or own_fields(model) is not None,
        f"d_model={model.d_model} is not a multiple of num_heads={model.num_heads}: "
        "choose another num_heads or set head_dim",
    )
    check(
        not model.sinusoidal or model.d_model % 2 == 0,
        f"d_model={model.d_model} is odd, but positions={model.positions!r} needs it even: "
        "choose an even d_model or positions='learned'",
    )
    widths = {"d_ff": model.d_ff, "num_heads": model.num_heads * model.key_size}
    widths |= {name: getattr(model, name) or 1 for name in ("latent_size", "query_latent_size")}
    for name, width in widths.items():
        check(
            model.d_model * width <= ELEMENTS,
            f"{name}={getattr(model, name)}: a matrix of d_model={model.d_model} x {width} has "
            f"more than {ELEMENTS} elements; lower them",
        )


def _check_fused(model: "ModelConfig") -> None:
    """Reject what fused attention does not support."""
    check(
        model.attention_dropout_rate == 0,
        f"attention_dropout_rate={model.attention_dropout_rate}: attention='fused' has no "
        "attention dropout; set it to 0 or choose 'dense'",
    )
    check(
        model.key_size == model.value_size,
        f"v_head_dim={model.value_size}: attention='fused' needs it equal to "
        f"head_dim={model.key_size}; make them equal or choose 'dense'",
    )


def _check_heads(model: "ModelConfig") -> None:
    check(
        model.num_heads % model.kv_heads == 0,
        f"num_kv_heads={model.num_kv_heads}: must divide num_heads={model.num_heads}",
    )


def _check_mixer_sizes(model: "ModelConfig") -> None:
    within(1, 2**16, dilation=model.dilation, num_features=model.num_features)
    within(1, 2**16, global_tokens=model.global_tokens)
    within(1, SIZE, position_rank=model.position_rank, block_size=model.block_size)
    within(1, SIZE, latent_size=model.latent_size, query_latent_size=model.query_latent_size)
    within(1, 2**12, conv_kernel=model.conv_kernel)
    check(
        model.conv_kernel % 2 == 1,
        f"conv_kernel={model.conv_kernel}: the kernel is centred, with as many positions on either "
        "side; choose an odd number",
    )
    within(0, 1000, random_blocks=model.random_blocks)
    within(1, 64, hash_rounds=model.hash_rounds)
    within(2, 2**16, hash_buckets=model.hash_buckets)
    check(
        model.hash_buckets % 2 == 0,
        f"hash_buckets={model.hash_buckets}: a rotation has two buckets per axis; choose an even "
        "number",
    )
    within(1, STEPS, redraw_every=model.redraw_every)
    within(0, 2**32 - 1, feature_seed=model.feature_seed)


def _check_patterns(model: "ModelConfig") -> None:
    patterns = model.encoder_pattern + model.decoder_pattern
    for name in ("encoder_pattern", "decoder_pattern"):
        layers = getattr(model, f"num_{name.removesuffix('_pattern')}_layers")
        count = len(getattr(model, name))
        check(
            1 <= count <= layers,
            f"{name}={getattr(model, name)}: must name 1 to {layers} layers, the depth of the "
            "stack",
        )
    near = model.architecture == "recurrent" and model.source_attention.startswith("local")
    needed = near or not {*patterns}.isdisjoint(WITHIN)
    check(
        (model.window is None) != needed or any(map(is_part, patterns)),
        f"window={model.window}: must be set if, and only if, encoder_pattern or decoder_pattern "
        f"has a layer of {either(WITHIN)}, or source_attention is local",
    )
    for option, kinds in MIXER_FIELDS.items():
        read = not {*kinds}.isdisjoint(patterns) or any(map(is_part, patterns))
        lacks = f"neither encoder_pattern nor decoder_pattern has a layer of {either(kinds)}"
        default_unless(read, model, option, because=lacks)
    check_mixers(model)
    for missing in {"encoder", "decoder"} - {*model.stacks}:
        default_unless(
            False, model, f"num_{missing}_layers", f"{missing}_pattern",
            because=f"architecture={model.architecture!r} has no {missing}",
        )  # fmt: skip


def _check_scales(model: "ModelConfig") -> None:
    """Reject scales and per-layer vectors that do not go together."""
    check(
        not model.logits_scale or model.tied_embeddings != "none",
        "logits_scale=True: is for an output matrix tied to an embedding, and "
        "tied_embeddings='none' has none; set it to False or choose 'all' or 'decoder'",
    )
    check(
        not model.logits_scale or model.embedding_norm == "none",
        f"logits_scale=True: embedding_norm={model.embedding_norm!r} already sets the scale of the "
        "logits; set it to False or choose embedding_norm='none'",
    )
    check(
        model.layer_sharing != "universal" or model.sinusoidal,
        f"positions={model.positions!r}: layer_sharing='universal' adds sines and cosines of the "
        "position and the step to each layer's input; choose 'sinusoidal' or layer_sharing='all'",
    )


def _check_lora(model: "ModelConfig") -> None:
    default_unless(
        model.lora_rank is not None, model, "lora_alpha", "lora_maps",
        because="has no effect without lora_rank", otherwise="set lora_rank",
    )  # fmt: skip
    check(bool(model.lora_maps), "lora_maps=(): names no map to adapt")
