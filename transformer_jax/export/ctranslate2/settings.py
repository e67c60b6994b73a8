"""The models that CTranslate2 computes exactly, and refusals of others."""

from transformer_jax.base.errors import UserError
from transformer_jax.config import ModelConfig, ObjectiveConfig
from transformer_jax.config.allowed import ANY, Allowed, among, refused
from transformer_jax.export.neutral import NEUTRAL

ACTIVATIONS = {  # CTranslate2's names
    "relu": "RELU", "gelu": "GELU", "gelu_tanh": "GELUTanh", "silu": "SWISH",
    "reglu": "RELU", "geglu": "GELU", "geglu_tanh": "GELUTanh", "swiglu": "SWISH",
}  # fmt: skip
# The models that are exported correctly. Add an entry once tests/oracle/test_ctranslate2.py, which
# runs the engine, passes with it.
SUPPORTED: Allowed = {
    **NEUTRAL,
    "architecture": ("encoder_decoder", "decoder"),
    "num_kv_heads": ANY,
    "residual": ("post_norm", "pre_norm", "sandwich"),
    "norm": ("layer_norm", "rms_norm", "layer_norm_no_bias"),
    "query_key_norm": ("none", "per_head"),
    "input_norm": (False, True),
    "activation": (*ACTIVATIONS,),
    "biases": ((), "query", "key", "value", "output", "feed_forward"),
    "score_scale": ("inverse_sqrt", "none"),
    "attention_temperature": ANY,
    "positions": ("sinusoidal", "sinusoidal_tensor2tensor", "learned", "none"),
    "relative_positions": (
        "none", "rope", "rope_interleaved", "alibi", "t5", "shaw", "shaw_values"
    ),
    "rope_fraction": ANY,
    "share_relative_positions": (None, False, True),
    "tied_embeddings": ("all", "decoder", "none"),
    "embedding_scale": (True, False),
    "logits_scale": (False, True),
    "logits_bias": (False, True),
    "layer_sharing": ("none", "all"),
}  # fmt: skip
# What CTranslate2 supports of that with an encoder: it has neither sandwich nor query-key norms for
# cross-attention, nor ALiBi in an encoder.
WITH_ENCODER: Allowed = {
    "residual": ("post_norm", "pre_norm"),
    "query_key_norm": ("none",),
    "relative_positions": ("none", "rope", "rope_interleaved", "t5", "shaw", "shaw_values"),
}
OBJECTIVES = ("translate", "language_model")  # those that generate text from left to right


def supported(architecture: str) -> Allowed:
    """Return the supported values for an architecture."""
    return {**SUPPORTED, **(WITH_ENCODER if architecture == "encoder_decoder" else {})}


def refuse_codecs(codecs: tuple[str, str]) -> None:
    """Raise a UserError that names the side whose codec cannot be written beside the model."""
    for side, codec in zip(("src", "tgt"), codecs, strict=True):
        if codec != "subwords":
            raise UserError(
                f"config.{side}.codec={codec!r}: the export to CTranslate2 writes SentencePiece "
                "models beside the model; it requires codec='subwords'"
            )


def refuse_objective(objective: ObjectiveConfig) -> None:
    """Raise a UserError that names the objective, if the engine would use its model differently."""
    if objective.kind not in OBJECTIVES:
        raise UserError(
            f"config.objective.name={objective.name!r}: the export to CTranslate2 supports "
            f"{' or '.join(map(repr, OBJECTIVES))}"
        )


def refuse(config: ModelConfig) -> None:
    """Raise a UserError that names the first choice that CTranslate2 cannot express, if any."""
    allowed = supported(config.architecture)
    for field, value in refused(config, allowed).items():
        raise UserError(
            f"config.model.{field}={value!r}: the export to CTranslate2 does not support such a "
            f"model; it supports {field}={among(config, allowed, field)}"
        )
    if config.key_size != config.value_size:
        raise UserError(
            f"config.model.v_head_dim={config.value_size}: CTranslate2 requires value heads of the "
            f"same size as key heads ({config.key_size})"
        )
    if "none" not in (config.positions, config.relative_positions):
        raise UserError(
            f"config.model.positions={config.positions!r}: CTranslate2 does not combine them with "
            f"relative_positions={config.relative_positions!r}; it requires positions='none'"
        )
