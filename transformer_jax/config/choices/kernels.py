"""Kernels: how attention is computed, which changes nothing of what it is."""

from dataclasses import dataclass
from typing import Any

from transformer_jax.config.bounds import check
from transformer_jax.config.choices.record import Record, with_


@dataclass(frozen=True, kw_only=True)
class Kernel(Record):
    """What is known about a kernel.

    stores: whether it stores the weights of all pairs, which dropout and terms for values need.
    """

    stores: bool = False


def _check_unstored(model: Any, field: str) -> None:
    check(
        model.attention_dropout_rate == 0,
        f"attention_dropout_rate={model.attention_dropout_rate}: {field}={model.attention!r} has "
        "no attention dropout; set it to 0 or choose 'dense'",
    )


def _check_fused(model: Any, field: str) -> None:
    _check_unstored(model, field)
    check(
        model.key_size == model.value_size,
        f"v_head_dim={model.value_size}: {field}={model.attention!r} needs it equal to "
        f"head_dim={model.key_size}; make them equal or choose 'dense'",
    )


KERNELS = {
    "dense": Kernel(stores=True),
    "fused": Kernel(check=_check_fused),
    "ring": Kernel(check=_check_unstored),
}
STORING = with_(KERNELS, stores=True)
