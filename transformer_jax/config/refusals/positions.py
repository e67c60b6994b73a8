"""Validation of relative positions."""

from typing import TYPE_CHECKING

from transformer_jax.config.bounds import check, default_unless, is_part
from transformer_jax.config.words import RELATIVE, ROTARY, SCALED_BY_LENGTH

if TYPE_CHECKING:
    from transformer_jax.config.manual import ModelConfig


def check_relative(model: "ModelConfig") -> None:
    """Reject fields without effect, and sizes that a scheme cannot use."""
    scheme = model.relative_positions
    for name, schemes in RELATIVE.items():
        means = f"has no effect with relative_positions={scheme!r}"
        default_unless(scheme in schemes or is_part(scheme), model, name, because=means)
    channels = model.rotated_channels
    check(
        scheme not in ROTARY or (channels >= 2 and channels % 2 == 0),
        f"rope_fraction={model.rope_fraction}: rotates {channels} of {model.key_size} channels "
        "of a head; must be an even number, at least 2",
    )
    scaling = f"has no effect with rope_scaling={model.rope_scaling!r}"
    default_unless(model.rope_scaling != "none", model, "rope_factor", because=scaling)
    by_length = model.rope_scaling in SCALED_BY_LENGTH
    default_unless(by_length, model, "rope_length", because=scaling)
    check(
        model.relative_buckets % 2 == 0,
        f"relative_buckets={model.relative_buckets}: must be even, half for each direction",
    )
    check(
        model.relative_max_distance > model.relative_buckets // 2,
        f"relative_max_distance={model.relative_max_distance}: must be above half of "
        f"relative_buckets={model.relative_buckets}, which hold one distance each",
    )
    check(
        scheme != "xlnet" or model.d_model % 2 == 0,
        f"d_model={model.d_model} is odd, but sines and cosines of relative_positions='xlnet' "
        "need it even; choose an even d_model",
    )
    check(
        scheme != "shaw_values" or model.attention == "dense",
        "relative_positions='shaw_values': attention='fused' has no term for values; choose "
        "'dense', or relative_positions='shaw'",
    )
