"""A model directory for CTranslate2, the C++ engine (https://github.com/OpenNMT/CTranslate2)."""

from pathlib import Path
from typing import Any

import jax
import numpy as np

from transformer_jax.allowed import ANY, Allowed, among, refused
from transformer_jax.config import ModelConfig
from transformer_jax.data.codecs.codec import Codec
from transformer_jax.data.codecs.pair import TokenizerPair
from transformer_jax.disk import writing
from transformer_jax.errors import UserError
from transformer_jax.nn.positions import POSITIONS
from transformer_jax.vocabulary import BOS, EOS, UNK

_POSITIONS = 1024  # rows written of a sinusoidal table

# The models that `export` writes correctly. An entry belongs here once the test that reads an
# exported model as CTranslate2 does (tests/export/test_models.py) passes with it.
SUPPORTED: Allowed = {
    "architecture": ("encoder_decoder",),
    "d_model": ANY,
    "d_ff": ANY,
    "num_heads": ANY,
    "head_dim": ANY,  # within what `refuse` asks of their sizes
    "v_head_dim": ANY,
    "num_kv_heads": (None,),
    "num_encoder_layers": ANY,
    "num_decoder_layers": ANY,
    "encoder_pattern": ("full",),
    "decoder_pattern": ("full",),
    "window": (None,),
    "dropout_rate": ANY,  # of training alone, like the next three
    "attention_dropout_rate": ANY,
    "activation_dropout_rate": ANY,
    "layer_drop_rate": ANY,
    "residual": ("post_norm", "pre_norm"),
    "norm": ("layer_norm",),
    "norm_epsilon": ANY,
    "activation": ("relu",),
    "biases": (("query", "key", "value", "output", "feed_forward"),),
    "score_scale": ("inverse_sqrt",),
    "attention_temperature": (1.0,),
    "query_key_norm": ("none",),
    "attention": ("dense", "fused"),
    "positions": ("sinusoidal", "sinusoidal_tensor2tensor", "learned"),
    "max_positions": ANY,
    "relative_positions": ("none",),
    "rope_theta": ANY,  # which mean nothing without rotary positions
    "rope_fraction": ANY,
    "relative_buckets": ANY,  # nor do these
    "relative_max_distance": ANY,
    "relative_clip": ANY,
    "share_relative_positions": (None,),
    "tied_embeddings": ("all", "decoder", "none"),
    "embedding_norm": ("none",),
    "embedding_scale": (True,),
    "logits_scale": (False,),
    "token_types": (0,),
    "input_norm": (False,),
    "pooling": ("first",),  # which means nothing where no class is predicted
    "layer_sharing": ("none",),
    "initializer": ("xavier", "t5", "gpt2"),  # where training began
    "compute_dtype": ("float32", "bfloat16"),  # weights are float32; the engine chooses its own
    "lora_rank": (None,),  # a trained adaptation is read as the sum that it is
    "lora_alpha": (8.0,),  # which mean nothing without a rank
    "lora_maps": (("query", "value"),),
    "layer_loop": ("unrolled", "scan"),
    "remat": ("none", "dots", "full"),
}


def export(
    config: ModelConfig, params: Any, tokenizers: TokenizerPair, output: Path, quantization: str
) -> None:
    """Write a directory that `ctranslate2.Translator` loads.

    It expects sources as pieces with "</s>" at the end. `quantization` is float32, or int8 and
    others that CTranslate2 makes of it.

    Raises:
      UserError: if CTranslate2 is not installed or cannot express the model, or output exists.
    """
    if output.exists():
        raise UserError(f"--output={output}: exists already; name a new directory")
    refuse(config)
    try:
        from ctranslate2.specs import TransformerSpec
    except ImportError:
        raise UserError("export needs ctranslate2: pip install 'transformer-jax[bench]'") from None
    params = jax.tree.map(np.array, jax.device_get(params))  # copies: quantisation writes
    spec = TransformerSpec.from_config(
        (config.num_encoder_layers, config.num_decoder_layers),
        config.num_heads,
        pre_norm=config.residual == "pre_norm",
        alignment_heads=config.num_heads,  # the attention it returns is the mean of all heads
    )
    _stack(spec.encoder, params["encoder"], config)
    _stack(spec.decoder, params["decoder"], config)
    shared = params.get("embedding")
    source = (shared or params["src_embedding"])["table"]
    target = (shared or params["tgt_embedding"])["table"]
    spec.encoder.embeddings[0].weight, spec.decoder.embeddings.weight = source, target
    spec.decoder.projection.weight = params["output"]["table"] if "output" in params else target
    for side, name in ((spec.encoder, "src_positions"), (spec.decoder, "tgt_positions")):
        side.scale_embeddings = config.d_model**0.5
        side.position_encodings.encodings = _positions(config, params.get(name))
    _vocabularies(spec, tokenizers)
    spec.config.layer_norm_epsilon = config.norm_epsilon
    spec.validate()
    try:
        spec.optimize(quantization=None if quantization == "float32" else quantization)
    except ValueError as error:
        raise UserError(f"--quantization={quantization}: {error}") from None
    with writing(str(output), output.absolute().parent):
        output.mkdir(parents=True)
        spec.save(str(output))
        for name, tokenizer in zip(("source.spm", "target.spm"), tokenizers, strict=True):
            (output / name).write_bytes(tokenizer.model)


def refuse_codecs(codecs: tuple[str, str]) -> None:
    """Raise a UserError that names the codec, by side, that is not written beside the model."""
    for side, codec in zip(("src", "tgt"), codecs, strict=True):
        if codec != "subwords":
            raise UserError(
                f"config.{side}.codec={codec!r}: the export to CTranslate2 writes SentencePiece "
                "models beside the model; it takes codec='subwords'"
            )


def refuse(config: ModelConfig) -> None:
    """Raise a UserError that names the choice CTranslate2 cannot express, if there is one."""
    for field, value in refused(config, SUPPORTED).items():
        raise UserError(
            f"config.model.{field}={value!r}: the export to CTranslate2 does not write such a "
            f"model; it writes {field}={among(config, SUPPORTED, field)}"
        )
    if config.key_size != config.value_size:
        raise UserError(
            f"config.model.v_head_dim={config.value_size}: CTranslate2 knows no value heads of "
            f"another size than key heads ({config.key_size})"
        )
    if config.key_size * config.num_heads != config.d_model:
        raise UserError(
            f"config.model.head_dim={config.key_size}: CTranslate2 wants num_heads x head_dim = "
            f"d_model, here {config.num_heads} x {config.key_size} and {config.d_model}"
        )


def _positions(config: ModelConfig, params: Any) -> np.ndarray:
    if params is not None:
        return params["table"]
    table = POSITIONS[config.positions](config).table(_POSITIONS)
    return table.astype(np.float32)


def _stack(spec: Any, params: Any, config: ModelConfig) -> None:
    if "final_norm" in params:
        _norm(spec.layer_norm, params["final_norm"])
    for number, layer in enumerate(spec.layer):
        p = params[f"layer_{number}"]
        q, k, v = (_inward(p["self_attention"][name], config) for name in ("query", "key", "value"))
        _linear(layer.self_attention.linear[0], *_join(q, k, v))
        _linear(layer.self_attention.linear[1], *_outward(p["self_attention"]["output"], config))
        _norm(layer.self_attention.layer_norm, p["self_attention_residual"]["norm"])
        if "cross_attention" in p:
            a = p["cross_attention"]
            q, k, v = (_inward(a[name], config) for name in ("query", "key", "value"))
            _linear(layer.attention.linear[0], *q)
            _linear(layer.attention.linear[1], *_join(k, v))
            _linear(layer.attention.linear[2], *_outward(a["output"], config))
            _norm(layer.attention.layer_norm, p["cross_attention_residual"]["norm"])
        up, down = p["feed_forward"]["up"], p["feed_forward"]["down"]
        _linear(layer.ffn.linear_0, up["kernel"].T, up["bias"])
        _linear(layer.ffn.linear_1, down["kernel"].T, down["bias"])
        _norm(layer.ffn.layer_norm, p["feed_forward_residual"]["norm"])


def _inward(p: Any, config: ModelConfig) -> tuple[np.ndarray, np.ndarray]:
    return p["kernel"].reshape(config.d_model, -1).T, p["bias"].reshape(-1)


def _outward(p: Any, config: ModelConfig) -> tuple[np.ndarray, np.ndarray]:
    return p["kernel"].reshape(-1, config.d_model).T, p["bias"]


def _join(*maps: tuple[np.ndarray, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    weights, biases = zip(*maps, strict=True)
    return np.concatenate(weights), np.concatenate(biases)


def _linear(spec: Any, weight: np.ndarray, bias: np.ndarray) -> None:
    spec.weight, spec.bias = np.ascontiguousarray(weight), np.ascontiguousarray(bias)


def _norm(spec: Any, p: Any) -> None:
    spec.gamma, spec.beta = p["scale"], p["bias"]


def _vocabularies(spec: Any, tokenizers: TokenizerPair) -> None:
    def pieces(tokenizer: Codec) -> list[str]:
        return tokenizer.pieces(range(tokenizer.size))

    spec.register_source_vocabulary(pieces(tokenizers.src))
    spec.register_target_vocabulary(pieces(tokenizers.tgt))
    bos, eos, unk = tokenizers.tgt.pieces((BOS, EOS, UNK))
    spec.config.bos_token, spec.config.eos_token, spec.config.unk_token = bos, eos, unk
    spec.config.decoder_start_token = bos
