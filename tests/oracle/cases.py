"""The configs to compare, and their peers. No torch here: the default run checks their coverage."""

import dataclasses
from collections.abc import Callable
from typing import NamedTuple

from oracle.batches import (
    ONE_PER_ROW,
    PACKED,
    asked,
    make_batch,
    masked,
    permuted,
    prefixed,
    reordered,
)

from transformer_jax.base.vocabulary import EOS
from transformer_jax.config import ModelConfig
from transformer_jax.data.batches.batch import Batch
from transformer_jax.nn.view import Order

VOCAB = 61


class Case(NamedTuple):
    """A config, and the name of its peer: in PEERS of `decoders`, `t5` ..., or "plain"."""

    peer: str
    config: ModelConfig
    lengths: list[list[tuple[int, int]]] = PACKED
    order: Order = "causal"
    ranks: Callable[[Batch], Batch] | None = None

    def batch(self) -> Batch:
        """Return a batch of random sentences."""
        batch = make_batch(self.lengths, VOCAB, VOCAB)
        if self.ranks is not None:
            return self.ranks(batch)
        return batch._replace(src=None) if self.config.architecture == "decoder" else batch


def _of(base: ModelConfig, **fields) -> ModelConfig:
    return dataclasses.replace(base, **fields)


SIZES = ModelConfig(
    d_model=24, d_ff=40, num_heads=4, num_decoder_layers=2, dropout_rate=0.0, norm_epsilon=1e-5,
    max_positions=16,
)  # fmt: skip
DECODER = _of(SIZES, architecture="decoder", residual="pre_norm", positions="none")
LLAMA = _of(
    DECODER, norm="rms_norm", activation="swiglu", relative_positions="rope", num_kv_heads=2,
    tied_embeddings="none",
)  # fmt: skip
ONE_LLAMA = _of(LLAMA, num_decoder_layers=1)
DEEPSEEK = _of(
    LLAMA, decoder_pattern=("latent",), latent_size=7, head_dim=10, rope_fraction=0.4, v_head_dim=5,
    num_kv_heads=None, biases=(), norm_epsilon=1e-6,
)  # fmt: skip
EXPERTS: dict = {"feed_forward_pattern": ("experts",)}
LONGER: dict = {"rope_length": 300, "rope_theta": 50.0, "head_dim": 12}
GPT_NEOX = _of(
    DECODER, activation="gelu", relative_positions="rope", rope_fraction=0.67, rope_theta=50.0,
    tied_embeddings="none",
)  # fmt: skip
XLNET = _of(
    DECODER, architecture="two_stream", residual="post_norm", activation="gelu",
    positions="learned", biases=("query", "feed_forward"),
)  # fmt: skip
GPT2 = _of(DECODER, activation="gelu", positions="learned")
BLOOM = _of(DECODER, activation="gelu", relative_positions="alibi", d_ff=96)
TRANSLATION = _of(SIZES, num_encoder_layers=2)
RECURRENT = ModelConfig(
    architecture="recurrent", d_model=24, num_encoder_layers=1, num_decoder_layers=1,
    dropout_rate=0.0, positions="none", encoder_pattern=("gru",), decoder_pattern=("gru",),
)  # fmt: skip
T5_BUCKETS: dict = {
    "relative_positions": "t5", "relative_buckets": 8, "relative_max_distance": 6,
}  # fmt: skip
T5 = _of(
    TRANSLATION, **T5_BUCKETS, residual="pre_norm", norm="rms_norm", positions="none", biases=(),
    score_scale="none", embedding_scale=False, logits_scale=True,
)  # fmt: skip
BERT = ModelConfig(
    architecture="encoder", d_model=24, d_ff=40, num_heads=4, num_encoder_layers=2,
    dropout_rate=0.0, norm_epsilon=1e-12, max_positions=16, positions="learned",
    activation="gelu", token_types=2, input_norm=True, embedding_scale=False,
)  # fmt: skip
ENCODER = _of(BERT, positions="sinusoidal", token_types=0, input_norm=False, num_encoder_layers=1)
ELMO = ModelConfig(
    architecture="elmo", d_model=12, num_encoder_layers=2, encoder_pattern=("lstm",),
    positions="none", dropout_rate=0.0, pooling="mean",
)  # fmt: skip
PREFIX: dict = {"order": "ranked", "ranks": prefixed}

CASES = {
    "llama": Case("llama", LLAMA),
    "llama, interleaved": Case("llama", _of(LLAMA, relative_positions="rope_interleaved")),
    "llama, twice as long": Case(
        "llama", _of(ONE_LLAMA, rope_scaling="linear", rope_factor=2.0)
    ),
    "llama 3.1": Case(
        "llama", _of(ONE_LLAMA, rope_scaling="llama3", rope_factor=4.0, **LONGER),
    ),
    "llama, yarn": Case(
        "llama",
        _of(ONE_LLAMA, rope_scaling="yarn", rope_factor=4.0, **LONGER), ONE_PER_ROW,
    ),
    "llama, prefix": Case("llama", LLAMA, **PREFIX),
    "llama, classes": Case(
        "llama, classes", _of(LLAMA, pooling="last", embedding_scale=False), ONE_PER_ROW,
        ranks=asked,
    ),
    "decoder, classes packed": Case("plain", _of(DECODER, pooling="last"), ranks=asked),
    "gpt_neox": Case("gpt_neox", GPT_NEOX),
    "gpt_neox, parallel": Case("gpt_neox", _of(GPT_NEOX, residual="parallel_norms")),
    "parallel": Case(
        "plain",
        _of(
            LLAMA, residual="parallel", norm="layer_norm_no_bias", logits_factor=0.3,
            feed_forward_pattern=("dense", "none"), relative_positions="rope_interleaved",
        ),
    ),
    "gemma": Case(
        "plain",
        _of(
            LLAMA, residual="sandwich", norm="zero_centered_rms_norm", query_key_norm="per_head",
            decoder_pattern=("local", "full"), window=3, local_rope_theta=20.0, score_size=5,
            attention_softcap=0.7, logits_softcap=1.3, activation="geglu_tanh", biases=(),
        ),
    ),
    "capped scores with a bias": Case(
        "plain",
        _of(
            TRANSLATION, relative_positions="alibi", attention_softcap=0.5, logits_softcap=2.0,
            logits_bias=True,
        ),
    ),
    "differential": Case(
        "plain",
        _of(
            TRANSLATION, encoder_pattern=("differential",), decoder_pattern=("differential",),
            num_kv_heads=2,
        ),
    ),
    "gated, by channel": Case(
        "plain",
        _of(
            LLAMA, decoder_pattern=("full", "local"), window=2, attention_gate="elementwise",
            v_head_dim=5,
        ),
    ),
    "gated translation, by head": Case(
        "plain", _of(TRANSLATION, attention_gate="headwise", num_kv_heads=2)
    ),
    "gpt2": Case("gpt2", GPT2),
    "gpt2, prefix": Case("gpt2", GPT2, ONE_PER_ROW, **PREFIX),
    "bloom, 4 heads": Case("bloom", BLOOM, ONE_PER_ROW),
    "bloom, 6 heads": Case("bloom", _of(BLOOM, num_heads=6, input_norm=True), ONE_PER_ROW),
    "llama, no biases": Case("llama", _of(ONE_LLAMA, biases=(), activation="geglu")),
    "qwen2": Case("qwen2", _of(ONE_LLAMA, biases=("query", "key", "value"))),
    "qwen3": Case(
        "qwen3",
        _of(LLAMA, biases=(), activation="reglu", query_key_norm="per_head", head_dim=8),
    ),
    "deepseek": Case("deepseek", DEEPSEEK),
    "deepseek, queries from a latent": Case(
        "deepseek",
        _of(DEEPSEEK, relative_positions="rope_interleaved", query_latent_size=9), ONE_PER_ROW,
    ),
    "deepseek, experts": Case(
        "deepseek",
        _of(
            DEEPSEEK, feed_forward_pattern=("dense", "experts"), num_experts=5, experts_per_token=3,
            shared_experts=2, expert_scores="sigmoid",
        ),
    ),
    "mixtral": Case("mixtral", _of(LLAMA, **EXPERTS, biases=(), num_experts=4)),
    "switch": Case(
        "plain",
        _of(
            TRANSLATION, feed_forward_pattern=("experts", "dense"), num_experts=3,
            experts_per_token=1, normalize_expert_weights=False,
        ),
    ),
    "shared experts, gated": Case(
        "plain",
        _of(
            DECODER, **EXPERTS, num_experts=6, shared_experts=1, activation="swiglu",
            expert_scores="sigmoid", num_decoder_layers=1, shared_expert_gate=True,
        ),
    ),
    "olmo2's attention, t5's feed-forward": Case(
        "olmo2, t5",
        _of(LLAMA, biases=(), activation="geglu_tanh", query_key_norm="all_heads"),
    ),
    "nemotron": Case(
        "nemotron",
        _of(
            ONE_LLAMA, biases=(), activation="relu_squared", norm="layer_norm", rope_fraction=0.67,
        ),
    ),
    "gpt2, tanh": Case("gpt2", _of(GPT2, activation="gelu_tanh", num_decoder_layers=1)),
    "gpt2, silu": Case("gpt2", _of(GPT2, activation="silu", num_decoder_layers=1)),
    "gpt2, mish": Case("gpt2", _of(GPT2, activation="mish", num_decoder_layers=1)),
    "normalised queries and keys, another scale": Case(
        "plain",
        _of(
            TRANSLATION, num_encoder_layers=1, num_decoder_layers=1, num_kv_heads=2,
            biases=("query", "value", "output", "feed_forward"), query_key_norm="per_head",
            score_scale="none", attention_temperature=1.7, relative_positions="alibi",
        ),
    ),
    "xlnet": Case("xlnet", XLNET, order="ranked", ranks=reordered),
    "multi-query translation": Case(
        "plain",
        _of(
            TRANSLATION, num_kv_heads=1, positions="sinusoidal_tensor2tensor", logits_bias=True
        ),
    ),
    "alibi translation": Case(
        "plain",
        _of(
            TRANSLATION, num_heads=6, relative_positions="alibi", norm="rms_norm",
            residual="pre_norm", tied_embeddings="decoder", activation="swiglu", input_norm=True,
        ),
    ),
    "local translation": Case(
        "plain",
        _of(
            TRANSLATION, encoder_pattern=("local", "full"), decoder_pattern=("local",), window=2,
            relative_positions="rope_interleaved", rope_fraction=0.67, num_kv_heads=2,
        ),
    ),
    "dilated translation": Case(
        "plain",
        _of(
            TRANSLATION, encoder_pattern=("dilated", "local"), decoder_pattern=("dilated",),
            window=2, dilation=3, relative_positions="alibi", biases=(),
        ),
    ),
    "local decoder": Case(
        "plain",
        _of(LLAMA, decoder_pattern=("full", "local"), window=3, relative_positions="alibi"),
        ONE_PER_ROW,
    ),
    "random features": Case(
        "plain",
        _of(
            TRANSLATION, num_kv_heads=2, v_head_dim=5, residual="pre_norm", num_features=9,
            feature_seed=3, encoder_pattern=("random_features", "favor"), num_decoder_layers=3,
            decoder_pattern=("gated_random_features", "random_features", "favor"),
        ),
    ),
    "longformer": Case(
        "longformer", _of(BERT, encoder_pattern=("longformer",), window=3, global_tokens=2),
        [[(15, 1)], [(9, 1)], [(1, 1)], [(12, 1)]], ranks=masked,
    ),
    "longformer, one block": Case(
        "longformer", _of(BERT, encoder_pattern=("longformer",), window=5),
        [[(9, 1)], [(2, 1)], [(6, 1)]], ranks=masked,
    ),
    "longformer translation": Case(
        "plain",
        _of(
            TRANSLATION, encoder_pattern=("longformer", "full"), window=2, global_tokens=3,
            relative_positions="rope_interleaved", num_kv_heads=2, v_head_dim=5,
            query_key_norm="per_head",
        ),
        [[(14, 3)], [(9, 5)], [(1, 2)], [(6, 1)]],
    ),
    "bigbird": Case(
        "plain",
        _of(
            TRANSLATION, encoder_pattern=("bigbird",), block_size=1, random_blocks=2,
            feature_seed=5, relative_positions="toeplitz", relative_clip=2, num_kv_heads=2,
        ),
        [[(14, 3)], [(9, 5)], [(1, 2)], [(6, 1)]],
    ),
    "bigbird, larger blocks": Case(
        "plain",
        _of(
            TRANSLATION, encoder_pattern=("full", "bigbird"), block_size=2, random_blocks=1,
            relative_positions="rope",
        ),
        [[(15, 3)], [(9, 5)], [(2, 2)], [(12, 1)]],
    ),
    "lsh": Case(
        "plain",
        _of(
            TRANSLATION, encoder_pattern=("lsh",), decoder_pattern=("lsh",), block_size=3,
            hash_rounds=3, hash_buckets=4, feature_seed=1, v_head_dim=5, residual="pre_norm",
        ),
        [[(14, 3)], [(9, 12)], [(1, 2)], [(6, 7)]],
    ),
    "luong": Case(
        "plain",
        _of(
            RECURRENT, encoder_pattern=("lstm",), decoder_pattern=("lstm",), num_encoder_layers=2,
            num_decoder_layers=2, reverse_source=True,
        ),
        ONE_PER_ROW,
    ),
    "luong, dot": Case(
        "plain",
        _of(
            RECURRENT, encoder_pattern=("bilstm", "gru"), num_encoder_layers=2,
            decoder_pattern=("gru",), source_attention="dot", tied_embeddings="decoder",
        ),
        ONE_PER_ROW,
    ),
    "luong, local-m": Case(
        "plain",
        _of(
            RECURRENT, encoder_pattern=("gru",), decoder_pattern=("elman",), window=1,
            source_attention="local_monotonic", input_feeding=False, tied_embeddings="none",
        ),
        ONE_PER_ROW,
    ),
    "luong, local-p": Case(
        "plain",
        _of(
            RECURRENT, encoder_pattern=("bigru",), decoder_pattern=("gru",), window=2,
            source_attention="local_predictive",
        ),
        ONE_PER_ROW,
    ),
    "sutskever": Case(
        "plain",
        _of(
            RECURRENT, encoder_pattern=("lstm",), decoder_pattern=("lstm",), num_decoder_layers=2,
            source_attention="none", input_feeding=False, reverse_source=True,
        ),
        ONE_PER_ROW,
    ),
    "cho": Case(
        "plain",
        _of(
            RECURRENT, encoder_pattern=("gru",), decoder_pattern=("gru",), recurrence="bahdanau",
            source_attention="none", input_feeding=False, embedding_scale=False,
        ),
        ONE_PER_ROW,
    ),
    "rnnsearch": Case(
        "plain",
        _of(
            RECURRENT, encoder_pattern=("bigru",), decoder_pattern=("gru",), recurrence="bahdanau",
            source_attention="additive", input_feeding=False,
        ),
        ONE_PER_ROW,
    ),
    "gnmt": Case(
        "plain",
        _of(
            RECURRENT, encoder_pattern=("bilstm", "lstm", "lstm"), num_encoder_layers=3,
            decoder_pattern=("lstm",), num_decoder_layers=3, recurrence="gnmt",
            source_attention="additive", input_feeding=False,
        ),
        ONE_PER_ROW,
    ),
    "transformer encoder, rnmt+ decoder": Case(
        "plain",
        _of(
            TRANSLATION, architecture="recurrent", decoder_pattern=("lstm",), num_decoder_layers=3,
            recurrence="rnmt_plus", source_attention="multi_head_additive", input_feeding=False,
            residual="pre_norm", input_norm=True, encoder_pattern=("full", "local"), window=3,
        ),
        ONE_PER_ROW,
    ),
    "rnmt+ decoder": Case(
        "plain",
        _of(
            RECURRENT, encoder_pattern=("bilstm", "lstm", "lstm"), num_encoder_layers=3,
            decoder_pattern=("lstm",), recurrence="rnmt_plus", num_heads=3,
            source_attention="multi_head_additive", input_feeding=False, tied_embeddings="none",
        ),
        ONE_PER_ROW,
    ),
    "reversible": Case(
        "plain",
        _of(
            TRANSLATION, residual="reversible", encoder_pattern=("full", "linear"),
            num_decoder_layers=3, tied_embeddings="decoder",
        ),
    ),
    "reversible decoder, t5": Case(
        "plain", _of(LLAMA, residual="reversible", **T5_BUCKETS), ONE_PER_ROW
    ),
    "attention-free": Case(
        "plain",
        _of(
            TRANSLATION, window=2, position_rank=5, query_key_norm="none",
            encoder_pattern=("aft_full", "aft_simple"), num_decoder_layers=3,
            decoder_pattern=("aft_local", "aft_conv", "aft_simple"),
        ),
    ),
    "states of constant size": Case(
        "plain",
        _of(
            TRANSLATION, num_kv_heads=2, v_head_dim=5, residual="pre_norm",
            query_key_norm="per_head", num_encoder_layers=4,
            encoder_pattern=("linear", "bilstm", "bigru", "bielman"), num_decoder_layers=6,
            decoder_pattern=("linear", "delta_rule", "ssru", "lstm", "gru", "elman"),
        ),
    ),
    "states that decay": Case(
        "plain",
        _of(
            TRANSLATION, residual="pre_norm", state_heads=6, state_groups=3, state_size=6,
            state_conv=3, encoder_pattern=("bimamba2", "bigated_delta", "biretention"),
            decoder_pattern=("mamba2", "gated_delta", "retention"), num_encoder_layers=3,
            num_decoder_layers=3,
        ),
    ),
    "state spaces": Case(
        "plain",
        _of(
            TRANSLATION, residual="pre_norm", state_size=6, state_width=30,
            encoder_pattern=("bis4d", "bimamba"), decoder_pattern=("s4d", "mamba"),
        ),
    ),
    "moving averages": Case(
        "plain",
        _of(
            TRANSLATION, state_size=3, state_width=36, head_dim=5, encoder_pattern=("bimega",),
            decoder_pattern=("mega",),
        ),
    ),
    "moving averages and chunks": Case(
        "plain",
        _of(
            TRANSLATION, state_size=3, state_width=36, head_dim=5, block_size=2,
            encoder_pattern=("bimega_chunk",), decoder_pattern=("mega_chunk",),
        ),
    ),
    "time mixing": Case(
        "plain",
        _of(
            TRANSLATION, residual="pre_norm", state_heads=3, encoder_pattern=("birwkv7",),
            decoder_pattern=("rwkv7",), num_decoder_layers=1, num_encoder_layers=1,
        ),
    ),
    "states and attention": Case(
        "plain",
        _of(
            LLAMA, decoder_pattern=("gated_delta", "mamba2", "full"), num_decoder_layers=3,
            state_width=36, state_size=7,
        ),
    ),
    "scale norm, squared relu": Case(
        "plain",
        _of(
            LLAMA, norm="scale_norm", activation="relu_squared", num_decoder_layers=1,
            embedding_norm="fix_norm", tied_embeddings="all",
        ),
        ONE_PER_ROW,
    ),
    "t5": Case("t5", T5, ONE_PER_ROW),
    "t5, gated": Case("t5, gated", _of(T5, activation="geglu_tanh"), ONE_PER_ROW),
    "t5, own tables, prefix": Case(
        "plain", _of(LLAMA, **T5_BUCKETS, share_relative_positions=False), **PREFIX
    ),
    "t5 and sinusoids, packed": Case("plain", _of(TRANSLATION, **T5_BUCKETS)),
    "toeplitz, local": Case(
        "plain",
        _of(
            LLAMA, decoder_pattern=("full", "local"), window=4, relative_positions="toeplitz",
            relative_clip=2, input_norm=True,
        ),
    ),
    "shaw, keys": Case(
        "plain", _of(TRANSLATION, relative_positions="shaw", relative_clip=2, num_kv_heads=2)
    ),
    "shaw, one table for all layers": Case(
        "plain",
        _of(
            LLAMA, relative_positions="shaw_values", relative_clip=2, v_head_dim=5,
            share_relative_positions=True,
        ),
        order="ranked", ranks=permuted,
    ),
    "shaw, keys and values": Case(
        "plain",
        _of(TRANSLATION, relative_positions="shaw_values", relative_clip=3, num_encoder_layers=1),
        ONE_PER_ROW,
    ),
    "transformer-xl translation": Case(
        "plain", _of(TRANSLATION, relative_positions="xlnet", num_kv_heads=2)
    ),
    "gemma2": Case("gemma2", _of(LLAMA, residual="sandwich")),
    "olmo2": Case("olmo2", _of(LLAMA, residual="reordered_norm")),
    "deep norm translation": Case(
        "plain",
        _of(
            TRANSLATION, num_encoder_layers=3, residual="deep_norm", norm="layer_norm_no_bias",
            embedding_norm="fix_norm", tied_embeddings="decoder",
        ),
    ),
    "deep norm decoder": Case(
        "plain",
        _of(
            LLAMA, num_decoder_layers=3, residual="deep_norm", layer_sharing="all", window=2,
            decoder_pattern=("full", "local"), embedding_norm="fix_norm",
        ),
        ONE_PER_ROW,
    ),
    "universal translation": Case(
        "plain",
        _of(
            TRANSLATION, layer_sharing="universal", residual="sandwich", embedding_scale=False,
            logits_scale=True, encoder_pattern=("local", "full"), window=3, num_encoder_layers=3,
        ),
    ),
    "bert": Case("bert", BERT, ranks=masked),
    "bert, classes": Case("bert, classes", BERT, ONE_PER_ROW, ranks=asked),
    "encoder, classes of means": Case(
        "plain",
        _of(
            BERT, pooling="mean", residual="pre_norm", norm="rms_norm", activation="swiglu",
            positions="none", relative_positions="rope", token_types=3, embedding_scale=True,
            input_norm=False, encoder_pattern=("full", "local"), window=3,
        ),
        ranks=asked,
    ),
    "encoder, first positions packed": Case("plain", ENCODER, ranks=asked),
    "encoder, deep norm, own table": Case(
        "plain",
        _of(
            ENCODER, num_encoder_layers=3, residual="deep_norm", tied_embeddings="none",
            activation="mish", input_norm=True,
        ),
        ranks=masked,
    ),
    "encoder, token dropout": Case(  # of EOS, which some texts consist of
        "plain",
        _of(
            BERT, positions="none", relative_positions="rope", residual="pre_norm", token_types=0,
            input_norm=False, token_dropout=EOS,
        ),
        ranks=masked,
    ),
    "elmo, classes": Case("plain", ELMO, ranks=asked),
    "decomposable attention": Case(
        "plain",
        ModelConfig(
            architecture="decomposable_attention", d_model=24, d_ff=20, positions="none",
            dropout_rate=0.0,
        ),
        [[(5, 3), (4, 6)], [(9, 5)], [(3, 2), (3, 1), (3, 2)]], ranks=asked,
    ),
    "permuted decoder": Case("plain", LLAMA, order="ranked", ranks=permuted),
    "decoder in blocks": Case(
        "plain", _of(LLAMA, attention="ring", relative_positions="t5", window=3,
                     decoder_pattern=("full", "local")),
    ),
}  # fmt: skip

# The fused kernel does not run in float64, so these are compared in float32, by their logits.
FUSED = {
    name: CASES[name]._replace(config=_of(CASES[name].config, attention="fused"))
    for name in (
        "multi-query translation",
        "local translation",
        "local decoder",
        "normalised queries and keys, another scale",
        "t5",
        "transformer-xl translation",
    )
}
