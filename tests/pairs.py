"""Configs that together contain every allowed pair of entries of the model's tables."""

import dataclasses
import functools
import itertools
import typing
from typing import Any

from transformer_jax.base.errors import UserError
from transformer_jax.config import ModelConfig
from transformer_jax.config.choices.positions import SCALED_BY_LENGTH

HINTS = typing.get_type_hints(ModelConfig)
# Tested elsewhere: non-Transformer architectures, which have few fields, in tests/oracle/cases.py;
# stems, which read no pieces, and latents, which are not text positions, in tests/oracle/stems.py;
# what changes with the size alone, in tests/models/test_parametrization.py.
NOT_HERE = (
    "compute_dtype", "recurrence", "source_attention", "stem", "distribution", "grid_positions",
    "condition", "actions", "parametrization", "series_norm",
)  # fmt: skip
ELSEWHERE = ("recurrent", "elmo", "decomposable_attention", "perceiver", "prefix_decoder",
             "factorised_encoder", "autoencoder", "variational_autoencoder",
             "diffusion_transformer", "decision_transformer", "evoformer", "dlinear")  # fmt: skip
# All words of every choice, and two or three values of other fields.
ELSEWHERE_TOO = ("adaptive_norm",)  # a residual of one of these
VALUES: dict[str, list[Any]] = {
    field: [word for word in typing.get_args(hint) if word not in (*ELSEWHERE, *ELSEWHERE_TOO)]
    for field, hint in HINTS.items()
    if typing.get_origin(hint) is typing.Literal and field not in NOT_HERE
} | {
    "biases": [ModelConfig.biases, (), ("query", "key", "value")],
    "num_kv_heads": [None, 1],
    "feed_forward_pattern": [("dense",), ("experts",), ("dense", "experts"), ("dense", "none")],
    "decoder_pattern": [("full",), ("local", "full"), ("linear", "full")],
    "share_relative_positions": [None, True, False],
    "embedding_scale": [True, False],
    "logits_scale": [False, True],
    "logits_bias": [False, True],
    "input_norm": [False, True],
    "layer_drop_rate": [0.0, 0.2],
    "lora_rank": [None, 2],
}  # fmt: skip
Choice = dict[str, Any]


def config_of(base: ModelConfig, choice: Choice) -> ModelConfig | None:
    """Return the base with these values, or None if they are rejected."""
    fields = {"num_encoder_layers": 2, "num_decoder_layers": 2} | choice
    if "local" in choice.get("decoder_pattern", ()):
        fields["window"] = 3
    architecture = choice.get("architecture", "encoder_decoder")
    if architecture == "encoder":  # fields of a missing stack keep their defaults
        fields["num_decoder_layers"] = 6
        fields["encoder_pattern"] = fields.pop("decoder_pattern", ("full",))
    elif architecture != "encoder_decoder":
        fields["num_encoder_layers"] = 6
    try:
        config = dataclasses.replace(base, **fields)
        config.check_reads()  # as a config file would be
    except UserError:
        return None
    return config


def _pairs() -> list[Choice]:
    """Return all pairs of entries of different tables."""
    return [
        {a: x, b: y}
        for a, b in itertools.combinations(VALUES, 2)
        for x, y in itertools.product(VALUES[a], VALUES[b])
    ]


def _key(choice: Choice) -> frozenset:
    return frozenset(choice.items())


@functools.cache
def rows(base: ModelConfig) -> tuple[list[Choice], list[Choice]]:
    """Return few choices, found greedily, that contain all pairs; and the pairs rejected."""
    open_pairs = {_key(pair): pair for pair in _pairs()}
    found, refused = [], []
    while open_pairs:
        pair = next(iter(open_pairs.values()))
        choice = _completed(base, pair, open_pairs)
        if choice is None:
            refused.append(pair)
            del open_pairs[_key(pair)]
            continue
        found.append(choice)
        for two in itertools.combinations(choice.items(), 2):
            open_pairs.pop(frozenset(two), None)
    return found, refused


def _completed(base: ModelConfig, pair: Choice, open_pairs: dict) -> Choice | None:
    """Return a choice from every table that contains the pair and many others still open."""
    choice = _helped(base, pair)
    if choice is None:
        return None
    for field, values in VALUES.items():
        if field in choice:
            continue

        def gain(value: Any, field: str = field) -> int:
            return sum(frozenset({(field, value), item}) in open_pairs for item in choice.items())

        for value in sorted(values, key=gain, reverse=True):
            if config_of(base, choice | {field: value}) is not None:
                choice[field] = value
                break
    return choice


# What an entry needs to be accepted, where the defaults do not suffice.
NEEDS: dict[tuple[str, Any], Choice] = {
    ("share_relative_positions", True): {"relative_positions": "t5"},
    ("share_relative_positions", False): {"relative_positions": "t5"},
    **{("rope_scaling", name): {"relative_positions": "rope"}
       for name in ("linear", *SCALED_BY_LENGTH)},
    **{("residual", name): {"architecture": "decoder"} for name in ("parallel", "parallel_norms")},
    ("expert_scores", "sigmoid"): {"feed_forward_pattern": ("experts",)},
    ("multi_token", "sequential"): {"architecture": "decoder"},
    ("multi_token", "parallel"): {"architecture": "decoder"},
    ("pooling", "mean"): {"architecture": "encoder"},
    ("pooling", "last"): {"architecture": "decoder"},
}  # fmt: skip


def _helped(base: ModelConfig, choice: Choice) -> Choice | None:
    """Return the pair, with what its entries need if it is rejected alone."""
    if config_of(base, choice) is not None:
        return dict(choice)
    needs: Choice = {}
    for item in choice.items():
        needs |= NEEDS.get(item, {})
    helped = needs | choice
    return helped if config_of(base, helped) is not None else None
