"""Positions: added to the input, and seen by self-attention as distances."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from transformer_jax.config.bounds import check, default_unless, is_part
from transformer_jax.config.choices.kernels import KERNELS
from transformer_jax.config.choices.record import Record, readers, with_


@dataclass(frozen=True, kw_only=True)
class Positions(Record):
    """What is known about what is added to embeddings.

    limited: whether there is a vector for each of `max_positions` only.
    sinusoidal: whether they are sines and cosines.
    """

    limited: bool = False
    sinusoidal: bool = False


POSITIONS = {
    "sinusoidal": Positions(sinusoidal=True),
    "sinusoidal_tensor2tensor": Positions(sinusoidal=True),
    "learned": Positions(limited=True),
    "none": Positions(),
}


@dataclass(frozen=True, kw_only=True)
class RelativePositions(Record):
    """What is known about how self-attention sees distances.

    rotary: whether queries and keys rotate.
    values: whether a term is added to the weighted sum of values.
    """

    rotary: bool = False
    values: bool = False


def _check_sines(model: Any, field: str) -> None:
    check(
        model.d_model % 2 == 0,
        f"d_model={model.d_model} is odd, but sines and cosines of {field}="
        f"{getattr(model, field)!r} need it even; choose an even d_model",
    )


def _check_rotation(model: Any, field: str) -> None:
    channels = model.rotated_channels
    check(
        channels >= 2 and channels % 2 == 0,
        f"rope_fraction={model.rope_fraction}: rotates {channels} of {model.key_size} channels "
        "of a head; must be an even number, at least 2",
    )


def _check_values(model: Any, field: str) -> None:
    check(
        KERNELS[model.attention].stores,
        f"relative_positions='shaw_values': attention={model.attention!r} has no term for values; "
        "choose 'dense', or relative_positions='shaw'",
    )


def _check_distances(model: Any, field: str) -> None:
    check(
        model.relative_buckets % 2 == 0,
        f"relative_buckets={model.relative_buckets}: must be even, half for each direction",
    )
    check(
        model.relative_max_distance > model.relative_buckets // 2,
        f"relative_max_distance={model.relative_max_distance}: must be above half of "
        f"relative_buckets={model.relative_buckets}, which hold one distance each",
    )


_ROPE = RelativePositions(
    rotary=True,
    reads=("rope_theta", "local_rope_theta", "rope_fraction", "rope_scaling"),
    check=_check_rotation,
)
RELATIVE_POSITIONS = {
    "none": RelativePositions(),
    "rope": _ROPE,
    "rope_interleaved": _ROPE,
    "alibi": RelativePositions(),
    "t5": RelativePositions(
        reads=("relative_buckets", "relative_max_distance", "share_relative_positions"),
        check=_check_distances,
    ),
    "shaw": RelativePositions(reads=("relative_clip", "share_relative_positions")),
    "shaw_values": RelativePositions(
        reads=("relative_clip", "share_relative_positions"), values=True, check=_check_values
    ),
    "toeplitz": RelativePositions(reads=("relative_clip", "share_relative_positions")),
    "xlnet": RelativePositions(reads=("share_relative_positions",), check=_check_sines),
}
ROTARY = with_(RELATIVE_POSITIONS, rotary=True)

# How angles change for texts longer than those of training.
ROPE_SCALINGS = {
    "none": Record(),
    "linear": Record(reads=("rope_factor",)),
    "llama3": Record(reads=("rope_factor", "rope_length")),
    "yarn": Record(reads=("rope_factor", "rope_length")),
}
SCALED_BY_LENGTH = readers(ROPE_SCALINGS)["rope_length"]


def check_positions(model: Any) -> None:
    """Reject sizes that a scheme cannot use."""
    scheme = RELATIVE_POSITIONS.get(model.relative_positions)
    if scheme is not None and scheme.check is not None:
        scheme.check(model, "relative_positions")


def check_positions_read(model: Any) -> None:
    """Reject fields that the scheme does not read."""
    tables: dict[str, Mapping[str, Record]] = {
        "relative_positions": RELATIVE_POSITIONS, "rope_scaling": ROPE_SCALINGS,
    }  # fmt: skip
    for field, records in tables.items():
        means = f"has no effect with {field}={getattr(model, field)!r}"
        for name, words in readers(records).items():
            word = getattr(model, field)
            default_unless(word in words or is_part(word), model, name, because=means)
