"""Validation of a model: sizes and options that do not go together, whatever its choices are."""

from typing import Any

from transformer_jax.config.bounds import ELEMENTS, check, default_unless
from transformer_jax.config.choices.architectures import (
    check_architecture,
    check_architecture_reads,
    fields_of,
)
from transformer_jax.config.choices.dtypes import DTYPES
from transformer_jax.config.choices.kernels import KERNELS
from transformer_jax.config.choices.layers import check_layers, check_layers_read
from transformer_jax.config.choices.mixers import check_mixers_read, check_patterns, check_scores
from transformer_jax.config.choices.parametrizations import (
    check_parametrization,
    check_parametrization_read,
)
from transformer_jax.config.choices.positions import check_positions, check_positions_read
from transformer_jax.config.choices.record import check_needs
from transformer_jax.config.choices.stems import check_stem, check_stem_reads


def check_model(model: Any) -> None:
    """Reject an impossible model."""
    check(
        len(set(model.biases)) == len(model.biases),
        f"biases={model.biases}: names a map twice; name each once",
    )
    check(
        model.num_heads % model.kv_heads == 0,
        f"num_kv_heads={model.kv_heads}: must divide num_heads={model.num_heads}",
    )
    check_patterns(model)
    check_scores(model)
    check_positions(model)
    check_architecture(model)
    check_stem(model)
    check_layers(model)
    check_parametrization(model)
    _check_scales(model)
    check(bool(model.lora_maps), "lora_maps=(): names no map to adapt")
    _check_sizes(model)
    check_needs(model, "attention", KERNELS, (model.attention,))
    check_needs(model, "compute_dtype", DTYPES, (model.compute_dtype,))


def check_model_reads(model: Any) -> None:
    """Reject fields that nothing in this model reads."""
    check_mixers_read(model)
    check_positions_read(model)
    check_architecture_reads(model)
    check_stem_reads(model)
    check_layers_read(model)
    check_parametrization_read(model)
    default_unless(
        model.lora_rank is not None, model, "lora_alpha", "lora_maps",
        because="has no effect without lora_rank", otherwise="set lora_rank",
    )  # fmt: skip


def _check_scales(model: Any) -> None:
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


def _check_sizes(model: Any) -> None:
    """Reject widths that do not divide, and matrices that are too large."""
    check(
        model.feed_forward_chunks == 1 or model.activation_dropout_rate == 0,
        f"feed_forward_chunks={model.feed_forward_chunks}: with activation_dropout_rate="
        f"{model.activation_dropout_rate} all chunks would drop the same units; set it to 0",
    )
    check(
        model.head_dim is not None
        or model.d_model % model.num_heads == 0
        or fields_of(model) is not None,
        f"d_model={model.d_model} is not a multiple of num_heads={model.num_heads}: "
        "choose another num_heads or set head_dim",
    )
    check(
        not model.sinusoidal or model.d_model % 2 == 0,
        f"d_model={model.d_model} is odd, but positions={model.positions!r} needs it even: "
        "choose an even d_model or positions='learned'",
    )
    widths = {"d_ff": model.d_ff, "num_heads": model.num_heads * model.key_size}
    for name, width in widths.items():
        check(
            model.d_model * width <= ELEMENTS,
            f"{name}={getattr(model, name)}: a matrix of d_model={model.d_model} x {width} has "
            f"more than {ELEMENTS} elements; lower them",
        )
