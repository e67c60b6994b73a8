"""Layers: where the norm stands, what kind of feed-forward part, initial values."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from transformer_jax.config.bounds import ELEMENTS, check, default_unless, either
from transformer_jax.config.choices.architectures import ARCHITECTURES
from transformer_jax.config.choices.mixers import MIXERS, kinds_of
from transformer_jax.config.choices.record import Need, Record, check_needs, check_read, with_


@dataclass(frozen=True, kw_only=True)
class Residual(Record):
    """What is known about a placement of the norm.

    initializes: whether it has initial values of its own, multiples of Xavier's.
    staged: whether `mesh.stage` can divide a stack, whose output is all that it needs.
    """

    initializes: bool = False
    staged: bool = True


def _check_deep_norm(model: Any, field: str) -> None:
    check(
        model.initializer == "xavier",
        f"initializer={model.initializer!r}: residual='deep_norm' has its own initialisation, a "
        "multiple of Xavier's; choose 'xavier' or another residual",
    )
    check(
        ARCHITECTURES[model.architecture].deep_norm,
        "residual='deep_norm': has constants for a single stack and for an encoder-decoder, "
        f"not for architecture={model.architecture!r}; choose another",
    )


def _check_reversible(model: Any, field: str) -> None:
    default_unless(
        False, model, "layer_sharing", "layer_drop_rate", "layer_loop", "remat",
        because="residual='reversible' inverts its layers one by one in the backward pass",
    )  # fmt: skip


def _check_adaptive_norm(model: Any, field: str) -> None:
    check(
        model.norm in ("layer_norm", "rms_norm"),
        f"norm={model.norm!r}: {field}='adaptive_norm' has a norm without parameters, which a "
        "condition scales and shifts; choose 'layer_norm' or 'rms_norm'",
    )


def _check_parallel(model: Any, field: str) -> None:
    has = f"{field}={getattr(model, field)!r}"
    check(
        not ARCHITECTURES[model.architecture].crosses,
        f"{has}: a layer has two parts side by side, a mixer and a feed-forward part, and those of "
        f"architecture={model.architecture!r} attend to something else between the two; choose "
        "another",
    )
    _check_usual_parts(model, has, "has its parts side by side")


def _check_usual_parts(model: Any, has: str, why: str) -> None:
    """Reject layers with other parts than a mixer, cross-attention and a feed-forward part."""
    others = sorted(kind for kind in kinds_of(model) if kind in MIXERS and MIXERS[kind].parts)
    check(
        not others,
        f"{has}: {why}, and layers of {either(others)} have other parts; choose another",
    )


RESIDUALS = {
    "post_norm": Residual(),
    "pre_norm": Residual(),
    "sandwich": Residual(),
    "reordered_norm": Residual(),
    "deep_norm": Residual(initializes=True, check=_check_deep_norm),
    "parallel": Residual(check=_check_parallel),
    "parallel_norms": Residual(check=_check_parallel),
    "reversible": Residual(check=_check_reversible, staged=False),
    "adaptive_norm": Residual(
        needs=(
            Need(
                "architecture",
                ("diffusion_transformer",),
                "{has} reads a vector of time and condition, which other models do not have",
            ),
        ),
        check=_check_adaptive_norm,
    ),
}


def _check_experts(model: Any, field: str) -> None:
    """Reject choices of too many, and what experts lack."""
    check(
        model.experts_per_token <= model.num_experts,
        f"experts_per_token={model.experts_per_token}: is more than num_experts="
        f"{model.num_experts}; lower it",
    )
    check(
        model.experts_per_token > 1 or not model.normalize_expert_weights,
        "normalize_expert_weights=True: the weight of a single expert would always be 1, and its "
        "score would never be learned; set it to False, or raise experts_per_token=1",
    )
    check(
        model.shared_experts > 0 or not model.shared_expert_gate,
        "shared_expert_gate=True: is of shared experts, and shared_experts=0; raise it, or set "
        "shared_expert_gate to False",
    )
    widest = max(model.num_experts, model.shared_experts)
    check(
        widest * model.d_model * model.d_ff <= ELEMENTS,
        f"num_experts={model.num_experts}, shared_experts={model.shared_experts}: their matrices "
        f"of d_model={model.d_model} x d_ff={model.d_ff} together have more than {ELEMENTS} "
        "elements; lower one of them",
    )
    default_unless(
        False, model, "activation_dropout_rate", "feed_forward_chunks",
        because=f"is for dense layers, and {field}={getattr(model, field)}",
    )  # fmt: skip
    adapted = [name for name in ("gate", "up", "down") if name in model.lora_maps]
    check(
        model.lora_rank is None or not adapted,
        f"lora_maps={model.lora_maps}: the maps of experts cannot be adapted; remove "
        f"{', '.join(map(repr, adapted))}",
    )


def _check_no_feed_forward(model: Any, field: str) -> None:
    has = f"'none' in {field}={getattr(model, field)}"
    _check_usual_parts(model, has, "leaves a mixer alone")
    check(
        model.residual != "deep_norm",
        f"residual='deep_norm': its constants are of layers that all have a feed-forward part, and "
        f"{has} has some without; choose another",
    )


@dataclass(frozen=True, kw_only=True)
class FeedForward(Record):
    """What is known about a feed-forward part.

    active: describes, for a model, which share of its parameters a piece passes through; None: all.
    routed: whether each position is sent to some of several layers, among which `mesh.expert`
      divides it.
    """

    active: Callable[[Any], str] | None = None
    routed: bool = False


FEED_FORWARDS = {
    "dense": FeedForward(),
    "experts": FeedForward(
        reads=(
            "num_experts", "experts_per_token", "expert_scores", "normalize_expert_weights",
            "shared_experts", "shared_expert_gate", "balancing_rate",
        ),
        check=_check_experts,
        active=lambda model: f"{model.experts_per_token} of {model.num_experts} experts",
        routed=True,
    ),
    "none": FeedForward(check=_check_no_feed_forward),
}  # fmt: skip
ROUTED = with_(FEED_FORWARDS, routed=True)


def _check_multi_token(model: Any, field: str) -> None:
    has = f"{field}={model.multi_token!r}"
    check(
        model.architecture == "decoder",
        f"{has}: is for architecture='decoder', not {model.architecture!r}; set it to 'none'",
    )
    check(
        model.residual not in ("deep_norm", "reversible"),
        f"residual={model.residual!r}: is defined for a stack as a whole, and {has} has layers "
        "beside it; choose another, or set it to 'none'",
    )
    check(
        model.layer_sharing != "universal",
        f"layer_sharing='universal': numbers the layers of a stack, and {has} has others beside "
        "them; choose 'all', or set it to 'none'",
    )


@dataclass(frozen=True, kw_only=True)
class MultiToken(Record):
    """What is known about what is predicted beside the next piece.

    staged: as in `Residual`.
    """

    staged: bool = False


MULTI_TOKENS = {
    "none": MultiToken(staged=True),
    "sequential": MultiToken(reads=("future_tokens",), check=_check_multi_token),
    "parallel": MultiToken(reads=("future_tokens",), check=_check_multi_token),
}


def check_layers(model: Any) -> None:
    """Reject placements of norms and feed-forward parts that do not go with the rest."""
    pattern = model.feed_forward_pattern
    layers = max(getattr(model, f"num_{name}_layers") for name in model.stacks or ("encoder",))
    check(
        1 <= len(pattern) <= layers,
        f"feed_forward_pattern={pattern}: must name 1 to {layers} layers, the depth of the deepest "
        "stack",
    )
    check_needs(model, "feed_forward_pattern", FEED_FORWARDS, pattern)
    check_needs(model, "residual", RESIDUALS, (model.residual,))
    check_needs(model, "multi_token", MULTI_TOKENS, (model.multi_token,))
    _check_initial_values(model)


def check_layers_read(model: Any) -> None:
    """Reject fields that no part of the layers reads."""
    pattern = model.feed_forward_pattern
    check_read(
        model, FEED_FORWARDS, pattern,
        because=lambda _: f"has no effect with feed_forward_pattern={pattern}",
        otherwise=lambda words: f"choose {words[0]!r}",
    )  # fmt: skip
    default_unless(
        {*pattern} != {"none"}, model, "d_ff", "activation", "activation_dropout_rate",
        "feed_forward_chunks", because=f"no layer reads it with feed_forward_pattern={pattern}",
    )  # fmt: skip
    check_read(
        model, MULTI_TOKENS, (model.multi_token,),
        because=lambda _: f"has no effect with multi_token={model.multi_token!r}",
        otherwise=lambda words: f"choose {either(words)}",
    )  # fmt: skip


def _check_initial_values(model: Any) -> None:
    """Reject initialisations that do not cover the whole model."""
    kinds = kinds_of(model)
    initializes = RESIDUALS[model.residual].initializes
    limits = [ARCHITECTURES[model.architecture].initializers]
    limits += [MIXERS[kind].initializers for kind in kinds if kind in MIXERS]
    covered = all(words is None or model.initializer in words for words in limits)
    limited = any(words is not None for words in limits)
    check(
        covered and not (limited and initializes),
        f"initializer={model.initializer!r}, residual={model.residual!r}: neither defines initial "
        f"values of all parts of architecture={model.architecture!r} with layers of "
        f"{sorted(kinds)}; choose 'xavier' and another residual",
    )
