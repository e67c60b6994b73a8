"""Validation of a model's layers."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from transformer_jax.config.bounds import check, default_unless, either, is_part
from transformer_jax.config.words import (
    ATTENTION,
    FREE,
    HEADLESS,
    LATENT_POSITIONS,
    ONE_WAY,
    OWN_VALUES,
    ROTARY,
    TWO_WAY,
    WHOLE,
)

if TYPE_CHECKING:
    from transformer_jax.config.manual import ModelConfig


def without_scores(pattern: Iterable[str]) -> list[str]:
    """Return the built-in layers that are not attention with a softmax over positions."""
    return [kind for kind in pattern if kind not in ATTENTION and not is_part(kind)]


def check_mixers(model: "ModelConfig") -> None:
    """Reject mixers in the wrong stack, and fields that do not go with them."""
    for name, kinds, why in (
        ("encoder_pattern", ONE_WAY, "runs left to right; an encoder reads the whole text"),
        ("decoder_pattern", WHOLE, "reads whole texts; a decoder does not have the end yet"),
    ):
        if name == "decoder_pattern" and model.architecture == "autoencoder":
            kinds, why = ONE_WAY, "runs left to right; this decoder reads all codes at once"
        for kind in getattr(model, name):
            check(
                kind not in kinds,
                f"{name}={getattr(model, name)}: {kind!r} {why}; choose another",
            )
    for name in ("encoder_pattern", "decoder_pattern"):
        pattern = getattr(model, name)
        check(
            "conformer" not in pattern or model.residual == "pre_norm",
            f"residual={model.residual!r}: each sublayer of 'conformer' in {name}={pattern} is "
            "preceded by a norm; choose 'pre_norm'",
        )
        if "latent" in pattern:
            _check_latent(model, name)
        others = without_scores(pattern)
        if not others or (name == "decoder_pattern" and model.architecture == "recurrent"):
            continue
        for option, why in (
            ("relative_positions", "has no pairwise scores to apply it to"),
            ("attention_dropout_rate", "has no weights to drop"),
        ):
            has = f"{others[0]!r} in {name}={pattern} {why}"
            default_unless(False, model, option, because=has)
        check(
            "lsh" not in others or model.num_kv_heads is None,
            f"num_kv_heads={model.num_kv_heads}: the keys of 'lsh' in {name}={pattern} are its "
            "queries; leave it at None",
        )
        alike = model.kv_heads == model.num_heads and model.key_size == model.value_size
        check(
            alike or {*others}.isdisjoint(FREE),
            f"{name}={pattern}: {either(FREE)} weight each channel of a value by that of its key; "
            "leave num_kv_heads and v_head_dim at None",
        )
        check(
            model.d_model % 2 == 0 or not {*others} & {*TWO_WAY},
            f"d_model={model.d_model}: {name}={pattern} has a state of half that size for each "
            "direction; choose an even d_model",
        )


def _check_latent(model: "ModelConfig", pattern: str) -> None:
    """Reject positions that latent attention cannot apply."""
    has = f"'latent' in {pattern}={getattr(model, pattern)}"
    check(
        model.relative_positions in LATENT_POSITIONS,
        f"relative_positions={model.relative_positions!r}: needs the keys of each head, which "
        f"{has} does not keep; choose {either(LATENT_POSITIONS)}",
    )
    check(
        model.rotated_channels < model.key_size or model.relative_positions not in ROTARY,
        f"rope_fraction={model.rope_fraction}: rotates all {model.key_size} channels of a head, "
        f"and {has} maps the others from its latent; lower it",
    )


def check_readers(model: "ModelConfig") -> None:
    """Reject fields of attention that no layer of this model reads."""
    if model.architecture in ("recurrent", "decomposable_attention", "elmo"):
        return  # they have their own checks
    kinds = {kind for name in model.stacks for kind in getattr(model, f"{name}_pattern")}
    if model.architecture in ("encoder_decoder", "perceiver"):
        kinds.add("full")  # cross-attention
    scores = {kind for kind in kinds if kind in ATTENTION or is_part(kind)}
    heads = kinds - {*HEADLESS}
    for names, readers in (
        (("attention_temperature", "score_scale"), scores),
        (("query_key_norm",), heads - {"lsh", "latent"}),
        (("num_kv_heads",), heads - {"latent"}),
    ):
        default_unless(
            bool(readers), model, *names, because=f"no layer of {sorted(kinds)} reads it"
        )


def check_reversible(model: "ModelConfig") -> None:
    """Reject what reversible layers cannot invert."""
    default_unless(
        model.residual != "reversible", model,
        "layer_sharing", "layer_drop_rate", "layer_loop", "remat",
        because="residual='reversible' inverts its layers one by one in the backward pass",
    )  # fmt: skip


def check_initial_values(model: "ModelConfig") -> None:
    """Reject initialisations that contradict each other or do not cover the whole model."""
    check(
        model.initializer == "xavier" or model.residual != "deep_norm",
        f"initializer={model.initializer!r}: residual='deep_norm' has its own initialisation, a "
        "multiple of Xavier's; choose 'xavier' or another residual",
    )
    deep = "encoder_decoder", "encoder", "decoder", "two_stream"
    check(
        model.residual != "deep_norm" or model.architecture in deep,
        "residual='deep_norm': has constants for a single stack and for an encoder-decoder, "
        f"not for architecture={model.architecture!r}; choose another",
    )
    kinds = {kind for name in model.stacks for kind in getattr(model, f"{name}_pattern")}
    plain = model.initializer == "xavier" and model.residual != "deep_norm"
    check(
        plain or (kinds.isdisjoint(OWN_VALUES) and model.architecture != "autoencoder"),
        f"initializer={model.initializer!r}, residual={model.residual!r}: neither defines initial "
        f"values of all parts of architecture={model.architecture!r} with layers of "
        f"{sorted(kinds)}; choose 'xavier' and another residual",
    )
