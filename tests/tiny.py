"""One tiny model for all tests, in every variant that the project's tables offer."""

import dataclasses
import functools
import typing

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from pairs import config_of, rows

from transformer_jax.base.vocabulary import EOS, UNK
from transformer_jax.config import (
    CheckpointConfig,
    DataConfig,
    EvaluationConfig,
    Experiment,
    ModelConfig,
    OptimizerConfig,
    TokenizerConfig,
    TrainingConfig,
)
from transformer_jax.data.batches.batch import Batch, Ragged, one_per_row
from transformer_jax.data.objectives import Translate
from transformer_jax.data.store.token_store import TokenStore
from transformer_jax.models.build import abstract_params, build
from transformer_jax.models.core import Core
from transformer_jax.models.stack import LOOPS, REMATS
from transformer_jax.nn.feedforward import ACTIVATIONS
from transformer_jax.nn.mixers.attention import KERNELS
from transformer_jax.nn.norm import NORMS
from transformer_jax.nn.positions import POSITIONS
from transformer_jax.nn.relative_positions import RELATIVE_POSITIONS
from transformer_jax.nn.residual import RESIDUALS
from transformer_jax.sharding.rules import param_shardings
from transformer_jax.training.state import abstract_state

VOCAB = 30
TRANSLATE = Translate()
# Head sizes that do not multiply to d_model tell axes apart.
MODEL = ModelConfig(
    d_model=16, d_ff=24, num_heads=2, head_dim=6, num_encoder_layers=1, num_decoder_layers=1,
    dropout_rate=0.1, max_positions=24,
)  # fmt: skip

# A training run of six steps with a checkpoint halfway.
RUN = Experiment(
    model=dataclasses.replace(MODEL, max_positions=64),
    tokenizer=TokenizerConfig(vocab_size=48),
    data=DataConfig(
        source="spelled_numbers", source_language="de", target_language="en",
        num_examples=(200, 20, 20), max_number=1000, max_length=48, tokens_per_batch=48 * 16,
        num_buckets=1,
    ),
    optimizer=OptimizerConfig(schedule="constant", learning_rate=1e-3, warmup_steps=2),
    training=TrainingConfig(steps=6, log_every=1),
    checkpoint=CheckpointConfig(every_steps=3, best_by="loss"),
    evaluation=EvaluationConfig(every_steps=3, bleu_sentences=0),
)  # fmt: skip

TABLES = {
    # What reads a condition is tested with diffusion models, and parallel parts are not for layers
    # with cross-attention.
    "residual": {
        word: part
        for word, part in RESIDUALS.items()
        if not hasattr(part, "under") and not hasattr(part, "parallel")
    },
    "positions": POSITIONS,
    "relative_positions": RELATIVE_POSITIONS,
    "tied_embeddings": typing.get_args(typing.get_type_hints(ModelConfig)["tied_embeddings"]),
    "norm": NORMS,
    "activation": ACTIVATIONS,
    "attention": KERNELS,
    "layer_loop": LOOPS,
    "remat": REMATS,
}


# Tables whose entries are combined, in as many models as the longest table has entries.
_COMBINED = (
    "residual", "positions", "tied_embeddings", "relative_positions", "norm", "activation",
)  # fmt: skip
_LOOPS = ("attention", "layer_loop", "remat")  # how it is computed, not what


def _covering(fields: tuple[str, ...]) -> list[dict[str, str]]:
    """Return choices in which every entry of some tables occurs, in varying combinations."""
    tables = {field: list(TABLES[field]) for field in fields}
    rows = range(max(map(len, tables.values())))
    return [{field: names[i % len(names)] for field, names in tables.items()} for i in rows]


def _named(choices: list[dict[str, str]]) -> dict[str, ModelConfig]:
    names = {}
    for choice in choices:
        small = SMALL_TABLES.get(choice.get("relative_positions", ""), {})
        config = dataclasses.replace(MODEL, **choice, **small)
        names.setdefault(config, "-".join(choice.values()))
    return {name: config for config, name in names.items()}


# Tables so small that distances are clipped, and buckets shared.
SMALL_TABLES = {
    "t5": {"relative_buckets": 8, "relative_max_distance": 6},
    "toeplitz": {"relative_clip": 2, "share_relative_positions": False},
    "shaw": {"relative_clip": 2},
    "shaw_values": {"relative_clip": 2},
}  # fmt: skip


def _variants() -> dict[str, ModelConfig]:
    """Return models that cover each entry of each table, and models with more layers."""
    choices = [*_covering(_COMBINED), *_covering(_LOOPS)]
    others = {
        "deeper": {
            "v_head_dim": 5, "num_kv_heads": 1, "num_encoder_layers": 2, "num_decoder_layers": 2
        },
        "decoder": {"architecture": "decoder", "num_encoder_layers": 6},
        "llama": {
            "architecture": "decoder", "num_encoder_layers": 6, "norm": "rms_norm",
            "activation": "swiglu",
            "residual": "pre_norm", "positions": "none", "relative_positions": "rope",
            "num_kv_heads": 1, "tied_embeddings": "none",
        },
        "qwen": {
            "architecture": "decoder", "num_encoder_layers": 6, "norm": "rms_norm",
            "biases": ("query", "key", "value"), "num_kv_heads": 1,
            "residual": "pre_norm", "positions": "none", "relative_positions": "rope",
            "rope_fraction": 0.67, "rope_theta": 50.0,
            "query_key_norm": "per_head", "attention_temperature": 2.0, "input_norm": True,
        },
        "bare": {
            "biases": (), "query_key_norm": "all_heads", "score_scale": "none", "num_kv_heads": 1,
            "v_head_dim": 5, "relative_positions": "xlnet", "input_norm": True,
        },
        "t5": {
            "architecture": "decoder", "num_encoder_layers": 6, "relative_positions": "t5",
            **SMALL_TABLES["t5"],
        },
        "neox": {
            "architecture": "decoder", "num_encoder_layers": 6, "residual": "parallel_norms",
            "relative_positions": "rope", "positions": "none", "num_decoder_layers": 2,
            "decoder_pattern": ("differential", "full"), "attention_gate": "headwise",
        },
        "cohere": {
            "architecture": "decoder", "num_encoder_layers": 6, "residual": "parallel",
            "relative_positions": "rope_interleaved", "positions": "none", "biases": (),
            "norm": "layer_norm_no_bias", "logits_factor": 0.5, "num_decoder_layers": 2,
            "feed_forward_pattern": ("dense", "none"),
        },
        "gemma": {
            "architecture": "decoder", "num_encoder_layers": 6, "residual": "sandwich",
            "num_decoder_layers": 2, "decoder_pattern": ("local", "full"), "window": 2,
            "norm": "zero_centered_rms_norm", "relative_positions": "rope", "positions": "none",
            "local_rope_theta": 20.0, "rope_scaling": "linear", "rope_factor": 2.0,
            "query_key_norm": "per_head", "attention_softcap": 1.5, "logits_softcap": 2.5,
            "score_size": 3, "biases": (),
        },
        "mamba": {
            "architecture": "decoder", "num_encoder_layers": 6, "residual": "pre_norm",
            "positions": "none", "feed_forward_pattern": ("none",), "num_decoder_layers": 2,
            "decoder_pattern": ("mamba", "mamba2"), "state_size": 6, "state_conv": 3,
            "norm": "rms_norm",
        },
        "albert": {
            "layer_sharing": "all", "num_encoder_layers": 3, "num_decoder_layers": 3, "window": 2,
            "decoder_pattern": ("full", "local"), "embedding_norm": "fix_norm",
            "tied_embeddings": "decoder",
        },
        "universal": {
            "architecture": "decoder", "num_encoder_layers": 6, "layer_sharing": "universal",
            "num_decoder_layers": 2, "embedding_scale": False, "logits_scale": True,
            "logits_bias": True,
        },
        "pattern": {
            "num_encoder_layers": 2, "num_decoder_layers": 3, "window": 2,
            "encoder_pattern": ("local",), "decoder_pattern": ("local", "full"),
        },
        "latent": {
            "num_encoder_layers": 2, "num_decoder_layers": 3, "encoder_pattern": ("latent",),
            "decoder_pattern": ("latent", "full"), "latent_size": 6, "query_latent_size": 5,
            "relative_positions": "rope", "rope_fraction": 0.67, "v_head_dim": 3,
            "num_kv_heads": 1, "residual": "pre_norm", "biases": (), "norm": "rms_norm",
        },
        "experts": {
            "num_encoder_layers": 2, "num_decoder_layers": 2, "layer_loop": "scan",
            "feed_forward_pattern": ("dense", "experts"),
            "num_experts": 3, "shared_experts": 1, "activation": "swiglu",
        },
        "switch": {
            "architecture": "decoder", "num_encoder_layers": 6,
            "feed_forward_pattern": ("experts",), "num_experts": 4, "experts_per_token": 1,
            "normalize_expert_weights": False, "biases": (), "expert_scores": "sigmoid",
            "residual": "pre_norm",
        },
        "features": {
            "num_encoder_layers": 4, "num_features": 7, "window": 3, "position_rank": 4,
            "encoder_pattern": ("random_features", "favor", "aft_full", "aft_simple"),
            "num_decoder_layers": 5, "decoder_pattern": (
                "gated_random_features", "favor", "aft_simple", "aft_local", "aft_conv"
            ), "residual": "pre_norm", "biases": (), "norm": "rms_norm",
        },
        "states": {
            "num_encoder_layers": 4, "encoder_pattern": ("linear", "bilstm", "bigru", "bielman"),
            "num_decoder_layers": 6,
            "decoder_pattern": ("linear", "delta_rule", "ssru", "lstm", "gru", "elman"),
            "residual": "pre_norm", "biases": (), "norm": "rms_norm",
        },
        "state_spaces": {
            "num_encoder_layers": 2, "encoder_pattern": ("bis4d", "bimamba2"),
            "num_decoder_layers": 8, "decoder_pattern": (
                "mamba2", "gated_delta", "s4d", "mega", "mega_chunk", "mamba", "retention", "rwkv7"
            ),
            "block_size": 3,
            "state_heads": 4, "state_groups": 2, "state_size": 6, "state_conv": 3,
            "residual": "pre_norm", "norm": "rms_norm",
        },
    }  # fmt: skip
    return _named(choices) | {k: dataclasses.replace(MODEL, **v) for k, v in others.items()}


VARIANTS = _variants()
# Laws of these are checked in float64: what float32 rounds in seven layers that raise e to sums of
# decays, and in scores and logits that are capped near their middle, is as large as the bounds.
WIDE = ("state_spaces", "gemma")
# Models with one text per row: LSH decodes as it trains while a text is one block, and a search
# with windows caches only those.
UNPACKED = {
    "lsh": dataclasses.replace(
        MODEL, architecture="decoder", num_encoder_layers=6, num_decoder_layers=2, window=2,
        decoder_pattern=("lsh", "local"), biases=(), residual="pre_norm", norm="rms_norm",
    ),
    "windows": dataclasses.replace(
        MODEL, architecture="decoder", num_encoder_layers=6, num_decoder_layers=2, window=2,
        decoder_pattern=("local", "dilated"), relative_positions="t5", num_kv_heads=1,
        **SMALL_TABLES["t5"],
    ),
}  # fmt: skip
LUONG = ModelConfig(
    architecture="recurrent", d_model=16, num_encoder_layers=1, num_decoder_layers=2,
    encoder_pattern=("bigru",), decoder_pattern=("lstm", "gru"), positions="none",
    dropout_rate=0.1, reverse_source=True,
)  # fmt: skip
RECURRENT = {
    "luong": LUONG,
    "rnnsearch": dataclasses.replace(
        LUONG, recurrence="bahdanau", source_attention="additive", input_feeding=False
    ),
    "gnmt": dataclasses.replace(
        LUONG, recurrence="gnmt", source_attention="additive", input_feeding=False,
        num_decoder_layers=3,
    ),
    "cho": dataclasses.replace(
        LUONG, recurrence="bahdanau", source_attention="none", input_feeding=False
    ),
    "local": dataclasses.replace(LUONG, source_attention="local_monotonic", window=1),
    "rnmt_plus": dataclasses.replace(
        MODEL, architecture="recurrent", decoder_pattern=("lstm",), num_decoder_layers=3,
        recurrence="rnmt_plus", source_attention="multi_head_additive", input_feeding=False,
    ),
}  # fmt: skip
BASE = next(iter(VARIANTS))
# Configs that contain all other pairs of entries: `make e2e` tests those that write, in minutes.
PAIRS = {f"pairs {number}": config_of(MODEL, row) for number, row in enumerate(rows(MODEL)[0])}
MORE_VARIANTS = {
    name: config
    for name, config in PAIRS.items()
    if config.architecture in ("encoder_decoder", "decoder")
}


def random_params(model, seed: int = 0):
    """Return parameters that are all random, even biases and scales, so that none can be missed."""
    rng = np.random.default_rng(seed)

    def draw(path, leaf):
        scale = 1.0 if path[-1].key == "scale" else 0.0
        return jax.device_put((scale + 0.3 * rng.normal(size=leaf.shape)).astype(leaf.dtype))

    return jax.tree_util.tree_map_with_path(draw, shapes(model))


def shapes(model):
    """Return the shapes of a model's parameters."""
    return _shapes(_as_initialised(model))


@functools.cache
def boxes(model):
    """Return the shapes, axes and roles of its parameters; tracing them takes as long as a pass."""
    return abstract_params(model)


def _as_initialised(model):
    """Return a model with the same parameters, for all that differ only in how they compute."""
    if not isinstance(model, Core):
        return model
    config = dataclasses.replace(model.config, layer_loop="unrolled", remat="none")
    return model.clone(config=config, dtype=jnp.dtype("float32"), order="causal")


@functools.cache
def _shapes(model):
    return nn.unbox(boxes(model))


def random_state(model, tx, mesh):
    """Return the training state of step 0 with random parameters, laid out on a mesh.

    Nothing is compiled; optimizers start from zeros.
    """
    boxed = abstract_state(model, tx)
    zeros = jax.tree.map(lambda x: np.zeros(x.shape, x.dtype), nn.unbox(boxed))
    state = zeros.replace(params=jax.device_get(random_params(model)))
    return jax.device_put(state, param_shardings(boxed, mesh))


def make(config: ModelConfig = MODEL, order: str = "causal"):
    """Return a model and its parameters, in float64 where JAX has it enabled."""
    return _make(config, order, str(jnp.result_type(float)))


@functools.cache
def _make(config: ModelConfig, order: str, dtype: str):
    model = build(
        config, VOCAB, VOCAB, order=order, dtype="float64" if dtype == "float64" else None
    )
    return model, jax.tree.map(lambda x: x.astype(dtype), random_params(model))


def for_model(config: ModelConfig, batch: Batch) -> Batch:
    """Return the batch without the sides that a model does not read."""
    return batch._replace(src=None) if config.architecture == "decoder" else batch


def random_store(lengths: list[tuple[int, int]], seed: int = 0) -> TokenStore:
    """Return random sentences of the given (source, target) lengths, each ending in EOS."""
    rng = np.random.default_rng(seed)
    sides = [
        [[*rng.integers(UNK, VOCAB, n - 1).tolist(), EOS] for n in side]
        for side in zip(*lengths, strict=True)
    ]
    return TokenStore(*map(Ragged.from_lists, sides))


def alone(store: TokenStore, rows: int, src_length: int, tgt_length: int) -> Batch:
    """Return all pairs of a store as one batch, one pair per row."""
    placement = one_per_row(np.arange(len(store)))
    return TRANSLATE.examples(store, placement, rows, src_length, tgt_length)


def logits_of(model, params, batch: Batch):
    """Return the model's logits."""
    batch = jax.device_put(for_model(model.config, batch))
    return _logits(model)(params, batch)


@functools.cache
def _logits(model):
    """Jitted: compiled one by one, a model's operations take several times as long."""
    return jax.jit(lambda params, batch: model.outputs(params, batch, None)["tokens"].logits())


class Stepping:
    """A model's Stepper, each of whose methods is compiled for the shapes that it is given."""

    def __init__(self, model, params) -> None:
        self._model, self._params = model, params

    def __getattr__(self, method: str):
        return functools.partial(self._call, method)

    def _call(self, method: str, *given, **named):
        sizes = {name: value for name, value in named.items() if isinstance(value, int)}
        arrays = {name: value for name, value in named.items() if name not in sizes}
        return _method(self._model, method, **sizes)(self._params, *given, **arrays)


@functools.cache
def _method(model, method: str, **sizes: int):
    def run(params, *given, **named):
        return getattr(model.stepper(params), method)(*given, **sizes, **named)

    return jax.jit(run)
