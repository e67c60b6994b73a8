"""Export to a directory: a translation model for CTranslate2's Translator, a decoder-only language
model for its Generator.
"""

from pathlib import Path
from typing import Any

import jax
import numpy as np

from transformer_jax.base.disk import writing
from transformer_jax.base.errors import UserError
from transformer_jax.base.vocabulary import BOS, EOS, UNK
from transformer_jax.config import ModelConfig
from transformer_jax.data.codecs.codec import Codec
from transformer_jax.data.codecs.pair import TokenizerPair
from transformer_jax.export.ctranslate2 import settings
from transformer_jax.nn.feedforward import ACTIVATIONS
from transformer_jax.nn.mixers.attention import score_scale
from transformer_jax.nn.positions import POSITIONS

_POSITIONS = 1024  # rows written of a table that is not learned
_ROTARY = ("rope", "rope_interleaved")


def export(
    config: ModelConfig, params: Any, tokenizers: TokenizerPair, output: Path, quantization: str
) -> None:
    """Write a directory for `ctranslate2.Translator`, or for `ctranslate2.Generator` if the model
    is a decoder.

    A Translator expects sources as pieces with "</s>" at the end, a Generator prompts with "<s>" at
    the beginning. `quantization` is float32, int8 or another type that CTranslate2 quantises to.

    Raises:
      UserError: if CTranslate2 is not installed or cannot express the model, or output exists.
    """
    if output.exists():
        raise UserError(f"--output={output}: already exists; name a new directory")
    settings.refuse(config)
    try:
        from ctranslate2 import specs
    except ImportError:
        raise UserError("export needs ctranslate2: pip install ctranslate2") from None
    params = jax.tree.map(np.array, jax.device_get(params))  # copies: quantisation is in place
    spec = _specification(specs, config)
    shared = params.get("embedding")
    target = (shared or params["tgt_embedding"])["table"]
    spec.decoder.embeddings.weight = target
    spec.decoder.projection.weight = params["output"]["table"] if "output" in params else target
    if config.logits_bias:
        spec.decoder.projection.bias = params["logits_bias"]["bias"]
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
    """Return the specification without weights: what CTranslate2 must know before it reads any."""
    relative = config.relative_positions
    same = {
        "num_heads": config.num_heads,
        "pre_norm": config.residual != "post_norm",
        "activation": getattr(specs.Activation, settings.ACTIVATIONS[config.activation]),
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
        alignment_heads=config.num_heads,  # the returned attention is the mean of all heads
        alibi=relative == "alibi",
    )
    if not _two_sided(config):
        return specs.TransformerDecoderModelSpec(decoder)
    encoder = specs.TransformerEncoderSpec(config.num_encoder_layers, **same)
    return specs.TransformerSpec(encoder, decoder)


def _stack(spec: Any, params: Any, side: str, name: str, config: ModelConfig) -> None:
    """Write a stack, with its positions and input norm."""
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
    scale = score_scale(config)
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
    first = "gate" if "gate" in p else "up"  # the map that the activation is applied to
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
