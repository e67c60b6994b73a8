"""Validation of feed-forward layers of experts."""

from typing import TYPE_CHECKING

from transformer_jax.config.bounds import ELEMENTS, check, default_unless, within
from transformer_jax.config.words import EXPERT_FIELDS

if TYPE_CHECKING:
    from transformer_jax.config.manual import ModelConfig


def check_experts(model: "ModelConfig") -> None:
    """Reject fields of experts in dense layers, choices of too many, and what experts lack."""
    within(2, 2**12, num_experts=model.num_experts)
    within(1, 2**12, experts_per_token=model.experts_per_token)
    within(0, 2**12, shared_experts=model.shared_experts)
    within(0, 1, balancing_rate=model.balancing_rate)
    pattern = model.feed_forward_pattern
    layers = max(getattr(model, f"num_{name}_layers") for name in model.stacks or ("encoder",))
    check(
        1 <= len(pattern) <= layers,
        f"feed_forward_pattern={pattern}: must name 1 to {layers} layers, the depth of the deepest "
        "stack",
    )
    if "experts" not in pattern:
        default_unless(
            False, model, *EXPERT_FIELDS,
            because=f"has no effect with feed_forward_pattern={pattern}",
            otherwise="choose 'experts'",
        )  # fmt: skip
        return
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
    widest = max(model.num_experts, model.shared_experts)
    check(
        widest * model.d_model * model.d_ff <= ELEMENTS,
        f"num_experts={model.num_experts}, shared_experts={model.shared_experts}: their matrices "
        f"of d_model={model.d_model} x d_ff={model.d_ff} together have more than {ELEMENTS} "
        "elements; lower one of them",
    )
    default_unless(
        False, model, "activation_dropout_rate", "feed_forward_chunks",
        because=f"is for dense layers, and feed_forward_pattern={pattern}",
    )  # fmt: skip
    adapted = [name for name in ("gate", "up", "down") if name in model.lora_maps]
    check(
        model.lora_rank is None or not adapted,
        f"lora_maps={model.lora_maps}: the maps of experts cannot be adapted; remove "
        f"{', '.join(map(repr, adapted))}",
    )
