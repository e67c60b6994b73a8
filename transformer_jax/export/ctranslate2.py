"""A model directory for CTranslate2, the C++ engine (https://github.com/OpenNMT/CTranslate2).

A translation model is one for its Translator, a decoder-only language model for its Generator.
"""

from pathlib import Path
from typing import Any

import jax
import numpy as np

from transformer_jax.allowed import ANY, Allowed, among, refused
from transformer_jax.config import ModelConfig, ObjectiveConfig
from transformer_jax.data.codecs.codec import Codec
from transformer_jax.data.codecs.pair import TokenizerPair
from transformer_jax.disk import writing
from transformer_jax.errors import UserError
from transformer_jax.nn.feedforward import ACTIVATIONS
from transformer_jax.nn.mixers.attention import SCORE_SCALES
from transformer_jax.nn.positions import POSITIONS
from transformer_jax.vocabulary import BOS, EOS, UNK

_POSITIONS = 1024  # rows written of a table that nobody trained
_ROTARY = ("rope", "rope_interleaved")
_ACTIVATIONS = {  # as CTranslate2 calls the functions
    "relu": "RELU", "gelu": "GELU", "gelu_tanh": "GELUTanh", "silu": "SWISH",
    "reglu": "RELU", "geglu": "GELU", "geglu_tanh": "GELUTanh", "swiglu": "SWISH",
}  # fmt: skip

# The models that `export` writes correctly. An entry belongs here once the test that reads an
# exported model as CTranslate2 does (tests/export/test_models.py) passes with it.
SUPPORTED: Allowed = {
    "architecture": ("encoder_decoder", "decoder"),
    "d_model": ANY,
    "d_ff": ANY,
    "num_heads": ANY,
    "head_dim": ANY,
    "v_head_dim": ANY,  # within what `refuse` asks of their sizes
    "num_kv_heads": ANY,
    "num_encoder_layers": ANY,
    "num_decoder_layers": ANY,
    "encoder_pattern": ("full",),
    "decoder_pattern": ("full",),
    "window": (None,),
    "dropout_rate": ANY,  # of training alone, like the next three
    "attention_dropout_rate": ANY,
    "activation_dropout_rate": ANY,
    "layer_drop_rate": ANY,
    "residual": ("post_norm", "pre_norm", "sandwich"),
    "norm": ("layer_norm", "rms_norm", "layer_norm_no_bias"),
    "norm_epsilon": ANY,
    "activation": (*_ACTIVATIONS,),
    "biases": ((), "query", "key", "value", "output", "feed_forward"),
    "score_scale": ("inverse_sqrt", "none"),
    "attention_temperature": ANY,
    "query_key_norm": ("none", "per_head"),
    "attention": ("dense", "fused"),
    "positions": ("sinusoidal", "sinusoidal_tensor2tensor", "learned", "none"),
    "max_positions": ANY,
    "relative_positions": (
        "none", "rope", "rope_interleaved", "alibi", "t5", "shaw", "shaw_values"
    ),
    "rope_theta": ANY,
    "rope_fraction": ANY,
    "relative_buckets": ANY,
    "relative_max_distance": ANY,
    "relative_clip": ANY,
    "share_relative_positions": (None, False, True),
    "tied_embeddings": ("all", "decoder", "none"),
    "embedding_norm": ("none",),
    "embedding_scale": (True, False),
    "logits_scale": (False, True),
    "token_types": (0,),
    "input_norm": (False, True),
    "pooling": ("first",),  # which means nothing where no class is predicted
    "layer_sharing": ("none", "all"),
    "initializer": ("xavier", "t5", "gpt2"),  # where training began
    "compute_dtype": ("float32", "bfloat16"),  # weights are float32; the engine chooses its own
    "lora_rank": (None,),  # a trained adaptation is read as the sum that it is
    "lora_alpha": (8.0,),  # which mean nothing without a rank
    "lora_maps": (("query", "value"),),
    "layer_loop": ("unrolled", "scan"),
    "remat": ("none", "dots", "full"),
}  # fmt: skip
# What it has of that where there is an encoder: norms of its own for cross-attention CTranslate2
# does not have, nor distances that count either way.
WITH_ENCODER: Allowed = {
    "residual": ("post_norm", "pre_norm"),
    "query_key_norm": ("none",),
    "relative_positions": ("none", "rope", "rope_interleaved", "t5", "shaw", "shaw_values"),
}
OBJECTIVES = ("translate", "language_model")  # whose texts CTranslate2 writes from the left


def supported(architecture: str) -> Allowed:
    """Return the list of an architecture."""
    return {**SUPPORTED, **(WITH_ENCODER if architecture == "encoder_decoder" else {})}


def export(
    config: ModelConfig, params: Any, tokenizers: TokenizerPair, output: Path, quantization: str
) -> None:
    """Write a directory that `ctranslate2.Translator` loads; of a decoder, `ctranslate2.Generator`.

    A Translator expects sources as pieces with "</s>" at the end, a Generator prompts with "<s>" at
    the beginning. `quantization` is float32, or int8 and others that CTranslate2 makes of it.

    Raises:
      UserError: if CTranslate2 is not installed or cannot express the model, or output exists.
    """
    if output.exists():
        raise UserError(f"--output={output}: exists already; name a new directory")
    refuse(config)
    try:
        from ctranslate2 import specs
    except ImportError:
        raise UserError("export needs ctranslate2: pip install 'transformer-jax[bench]'") from None
    params = jax.tree.map(np.array, jax.device_get(params))  # copies: quantisation writes
    spec = _specification(specs, config)
    shared = params.get("embedding")
    target = (shared or params["tgt_embedding"])["table"]
    spec.decoder.embeddings.weight = target
    spec.decoder.projection.weight = params["output"]["table"] if "output" in params else target
    if config.logits_scale:
        spec.decoder.scale_outputs = np.float32(config.d_model**-0.5)
    _stack(spec.decoder, params, "tgt_" if _two_sided(config) else "", "decoder", config)
    if _two_sided(config):
        spec.encoder.embeddings[0].weight = (shared or params["src_embedding"])["table"]
        _stack(spec.encoder, params, "src_", "encoder", config)
    _vocabularies(spec, tokenizers)
    spec.config.layer_norm_epsilon = config.norm_epsilon
    spec.validate()
    try:
        spec.optimize(quantization=None if quantization == "float32" else quantization)
    except ValueError as error:
        raise UserError(f"--quantization={quantization}: {error}") from None
    files = {"text.spm": tokenizers.tgt}
    if _two_sided(config):
        files = {"source.spm": tokenizers.src, "target.spm": tokenizers.tgt}
    with writing(str(output), output.absolute().parent):
        output.mkdir(parents=True)
        spec.save(str(output))
        for name, tokenizer in files.items():
            (output / name).write_bytes(tokenizer.model)


def _two_sided(config: ModelConfig) -> bool:
    return config.architecture == "encoder_decoder"


def _specification(specs: Any, config: ModelConfig) -> Any:
    """Return the empty specification: what CTranslate2 must know before it reads a matrix."""
    relative = config.relative_positions
    same = {
        "num_heads": config.num_heads,
        "pre_norm": config.residual != "post_norm",
        "activation": getattr(specs.Activation, _ACTIVATIONS[config.activation]),
        "ffn_glu": ACTIVATIONS[config.activation].gated,
        "rms_norm": config.norm == "rms_norm",
        "layernorm_embedding": config.input_norm,
        "relative_position": relative in ("shaw", "shaw_values"),
        "relative_attention_bias": relative == "t5",
        "num_heads_kv": config.num_kv_heads,
        "head_dim": config.key_size,
        "qk_norm": config.query_key_norm == "per_head",
        "pre_post_layer_norm": config.residual == "sandwich",
    }
    if relative in _ROTARY:
        same |= {
            "rotary_dim": config.rotated_channels // 2 * 2,
            "rotary_interleave": relative == "rope_interleaved",
            "rotary_base": config.rope_theta,
        }
    decoder = specs.TransformerDecoderSpec(
        config.num_decoder_layers,
        **same,
        with_encoder_attention=_two_sided(config),
        alignment_heads=config.num_heads,  # the attention it returns is the mean of all heads
        alibi=relative == "alibi",
    )
    if not _two_sided(config):
        return specs.TransformerDecoderModelSpec(decoder)
    encoder = specs.TransformerEncoderSpec(config.num_encoder_layers, **same)
    return specs.TransformerSpec(encoder, decoder)


def refuse_codecs(codecs: tuple[str, str]) -> None:
    """Raise a UserError that names the codec, by side, that is not written beside the model."""
    for side, codec in zip(("src", "tgt"), codecs, strict=True):
        if codec != "subwords":
            raise UserError(
                f"config.{side}.codec={codec!r}: the export to CTranslate2 writes SentencePiece "
                "models beside the model; it takes codec='subwords'"
            )


def refuse_objective(objective: ObjectiveConfig) -> None:
    """Raise a UserError that names an objective whose model the engine would use otherwise."""
    if objective.kind not in OBJECTIVES:
        raise UserError(
            f"config.objective.name={objective.name!r}: the export to CTranslate2 writes "
            f"{' or '.join(map(repr, OBJECTIVES))}"
        )


def refuse(config: ModelConfig) -> None:
    """Raise a UserError that names the choice CTranslate2 cannot express, if there is one."""
    allowed = supported(config.architecture)
    for field, value in refused(config, allowed).items():
        raise UserError(
            f"config.model.{field}={value!r}: the export to CTranslate2 does not write such a "
            f"model; it writes {field}={among(config, allowed, field)}"
        )
    if config.key_size != config.value_size:
        raise UserError(
            f"config.model.v_head_dim={config.value_size}: CTranslate2 knows no value heads of "
            f"another size than key heads ({config.key_size})"
        )
    if "none" not in (config.positions, config.relative_positions):
        raise UserError(
            f"config.model.positions={config.positions!r}: CTranslate2 adds none beside "
            f"relative_positions={config.relative_positions!r}; it writes positions='none' with it"
        )


def _stack(spec: Any, params: Any, side: str, name: str, config: ModelConfig) -> None:
    """Write a stack, and what its input is made of."""
    stack = params[name]
    spec.scale_embeddings = config.embedding_scale
    if config.relative_positions == "none":
        spec.position_encodings.encodings = _positions(config, params.get(f"{side}positions"))
    if config.input_norm:
        _norm(spec.layernorm_embedding, params[f"{side}input_norm"])
    if "final_norm" in stack:
        _norm(spec.layer_norm, stack["final_norm"])
    for number, layer in enumerate(spec.layer):
        p = stack["layer_0" if config.layer_sharing == "all" else f"layer_{number}"]
        _attention(layer.self_attention, p["self_attention"], config)
        _distances(layer.self_attention, {**stack, **p["self_attention"]}, config)
        _up_and_down(layer.ffn, p["feed_forward"])
        parts = {"self_attention": layer.self_attention, "feed_forward": layer.ffn}
        if "cross_attention" in p:
            _attention(layer.attention, p["cross_attention"], config)
            parts["cross_attention"] = layer.attention
        if config.residual == "sandwich":
            _norm(layer.input_layer_norm, p["self_attention_residual"]["norm"])
            _norm(layer.post_attention_layer_norm, p["self_attention_residual"]["output_norm"])
            _norm(layer.pre_feedforward_layer_norm, p["feed_forward_residual"]["norm"])
            _norm(layer.post_feedforward_layer_norm, p["feed_forward_residual"]["output_norm"])
            continue
        for part, its in parts.items():
            _norm(its.layer_norm, p[f"{part}_residual"]["norm"])


def _positions(config: ModelConfig, params: Any) -> np.ndarray:
    if params is not None:
        return params["table"]
    if config.positions == "none":
        return np.zeros((_POSITIONS, config.d_model), np.float32)
    table = POSITIONS[config.positions](config).table(_POSITIONS)
    return table.astype(np.float32)


def _attention(spec: Any, p: Any, config: ModelConfig) -> None:
    q, k, v = (_inward(p[name], config) for name in ("query", "key", "value"))
    joined = [_join(q, k, v)] if len(spec.linear) == 2 else [q, _join(k, v)]
    for linear, values in zip(spec.linear, [*joined, _outward(p["output"], config)], strict=True):
        _linear(linear, *values)
    if config.query_key_norm == "per_head":
        _norm(spec.q_norm, p["query_norm"])
        _norm(spec.k_norm, p["key_norm"])
    scale = SCORE_SCALES[config.score_scale](config.key_size) / config.attention_temperature
    spec.queries_scale = np.float32(scale)


def _distances(spec: Any, p: Any, config: ModelConfig) -> None:
    if config.relative_positions == "t5":
        spec.relative_attention_bias = p["relative_positions"]["table"]
        spec.relative_attention_max_distance = np.int32(config.relative_max_distance)
    if config.relative_positions in ("shaw", "shaw_values"):
        tables = p["relative_positions"]
        spec.relative_position_keys = tables["keys"]
        spec.relative_position_values = tables.get("values", np.zeros_like(tables["keys"]))


def _up_and_down(spec: Any, p: Any) -> None:
    first = "gate" if "gate" in p else "up"  # what the function is of
    _linear(spec.linear_0, p[first]["kernel"].T, p[first].get("bias"))
    if "gate" in p:
        _linear(spec.linear_0_noact, p["up"]["kernel"].T, p["up"].get("bias"))
    _linear(spec.linear_1, p["down"]["kernel"].T, p["down"].get("bias"))


def _inward(p: Any, config: ModelConfig) -> tuple[np.ndarray, np.ndarray]:
    kernel = p["kernel"].reshape(config.d_model, -1).T
    bias = p["bias"].reshape(-1) if "bias" in p else np.zeros(len(kernel), kernel.dtype)
    return kernel, bias


def _outward(p: Any, config: ModelConfig) -> tuple[np.ndarray, np.ndarray | None]:
    return p["kernel"].reshape(-1, config.d_model).T, p.get("bias")


def _join(*maps: tuple[np.ndarray, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    weights, biases = zip(*maps, strict=True)
    return np.concatenate(weights), np.concatenate(biases)


def _linear(spec: Any, weight: np.ndarray, bias: np.ndarray | None) -> None:
    spec.weight = np.ascontiguousarray(weight)
    if bias is not None:
        spec.bias = np.ascontiguousarray(bias)


def _norm(spec: Any, p: Any) -> None:
    spec.gamma = p["scale"]
    if hasattr(spec, "beta"):
        spec.beta = p.get("bias", np.zeros_like(p["scale"]))


def _vocabularies(spec: Any, tokenizers: TokenizerPair) -> None:
    def pieces(tokenizer: Codec) -> list[str]:
        return tokenizer.pieces(range(tokenizer.size))

    if hasattr(spec, "encoder"):
        spec.register_source_vocabulary(pieces(tokenizers.src))
        spec.register_target_vocabulary(pieces(tokenizers.tgt))
    else:
        spec.register_vocabulary(pieces(tokenizers.tgt))
    bos, eos, unk = tokenizers.tgt.pieces((BOS, EOS, UNK))
    spec.config.bos_token, spec.config.eos_token, spec.config.unk_token = bos, eos, unk
    if hasattr(spec, "encoder"):
        spec.config.decoder_start_token = bos
