"""Dtypes of matrix products."""

from dataclasses import dataclass
from typing import Any

from transformer_jax.config.bounds import check
from transformer_jax.config.choices.record import Record


@dataclass(frozen=True, kw_only=True)
class Dtype(Record):
    """What is known about a dtype of matrix products.

    activations: the dtype of activations, and of other products.
    float8: whether linear maps of layers multiply in 8 bits, where a gradient may be asked for;
        searches do not.
    """

    activations: str
    float8: bool = False


def _check_layers(model: Any, field: str) -> None:
    check(
        model.layered,
        f"{field}={getattr(model, field)!r}: is for linear maps of the Transformer's layers, which "
        f"architecture={model.architecture!r} has not; choose 'bfloat16'",
    )


DTYPES = {
    "float32": Dtype(activations="float32"),
    "bfloat16": Dtype(activations="bfloat16"),
    "float8": Dtype(activations="bfloat16", float8=True, check=_check_layers),
}
