"""Parametrizations: how initial values, learning rates and sums change with a model's size."""

from dataclasses import dataclass
from typing import Any

from transformer_jax.config.bounds import check, either
from transformer_jax.config.choices.architectures import ARCHITECTURES
from transformer_jax.config.choices.mixers import MIXERS, kinds_of
from transformer_jax.config.choices.record import Need, Record, check_needs, check_read, with_


@dataclass(frozen=True, kw_only=True)
class Parametrization(Record):
    """What is known about a parametrization.

    widths: whether what is trained at one width fits others.
    depths: whether what is trained at one depth fits others.
    """

    widths: bool = False
    depths: bool = False


def _check_widths(model: Any, field: str) -> None:
    """Reject models with parts of whose width nothing is known."""
    has, wide = f"{field}={getattr(model, field)!r}", with_(ARCHITECTURES, widens=True)
    check(
        model.architecture in wide,
        f"architecture={model.architecture!r}: {has} is defined for {either(wide)}; choose one of "
        "these, or 'standard'",
    )
    known = with_(MIXERS, widens=True)
    strange = [kind for kind in kinds_of(model) if kind not in known]
    check(
        not strange,
        f"{has}: is defined for layers of {either(known)}, not for {either(strange)}; choose from "
        "these, or set it to 'standard'",
    )
    check(
        model.lora_rank is None,
        f"lora_rank={model.lora_rank}: {has} has no rule for low-rank maps; set it to 'standard'",
    )
    heads = model.num_heads * model.base_width
    check(
        heads % model.d_model == 0,
        f"base_width={model.base_width}: with heads of the same size, num_heads={model.num_heads} "
        f"of d_model={model.d_model} are {heads / model.d_model:.3g} there; {has} keeps the size "
        "of heads, so let num_heads grow with d_model",
    )


def _check_depths(model: Any, field: str) -> None:
    _check_widths(model, field)
    check(
        model.layer_sharing == "none",
        f"layer_sharing={model.layer_sharing!r}: {field}='completep' divides what each layer adds "
        "by their number; set it to 'none'",
    )


_ROLES = (
    Need("embedding_norm", ("none",), "{has} sets the size of embeddings itself"),
    Need("stem", ("embedding", "linear"), "{has} has no rule for the widths of other stems"),
    Need("multi_token", ("none",), "{has} has no rule for layers beside the stack"),
)
PARAMETRIZATIONS = {
    "standard": Parametrization(),
    "mup": Parametrization(
        widths=True, reads=("base_width",), check=_check_widths,
        needs=(*_ROLES, Need(
            "residual", ("post_norm", "pre_norm", "sandwich", "reordered_norm"),
            "{has} has no rule for the constants of other residual parts",
        )),
    ),
    "completep": Parametrization(
        widths=True, depths=True, reads=("base_width", "base_depth"), check=_check_depths,
        needs=(*_ROLES, Need(
            "residual", ("pre_norm",), "{has} divides what a layer adds to a stream without norms"
        )),
    ),
}  # fmt: skip


def check_parametrization(model: Any) -> None:
    """Reject models for which it is not defined."""
    check_needs(model, "parametrization", PARAMETRIZATIONS, (model.parametrization,))


def check_parametrization_read(model: Any) -> None:
    """Reject sizes of a base that nothing is compared with."""
    check_read(
        model, PARAMETRIZATIONS, (model.parametrization,),
        because=lambda _: f"has no effect with parametrization={model.parametrization!r}",
        otherwise=lambda words: f"choose {either(words)}",
    )  # fmt: skip
