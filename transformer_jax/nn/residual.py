"""Where the norm stands: what a sub-layer reads, and how its output joins the residual stream.

A layer says `x = residual.write(x, sublayer(residual.read(x)))` and knows no more.
"""

from typing import Any, ClassVar

import flax.linen as nn

from transformer_jax.arrays import Array, Float
from transformer_jax.nn.dropout import Dropout


class PostNorm(nn.Module):
    """norm(x + dropout(y)), the paper's (section 3.1). The stack needs no norm at its end."""

    norm: nn.Module
    dropout_rate: float
    needs_final_norm: ClassVar[bool] = False

    def read(self, x: Float[Array, "B T D"]) -> Float[Array, "B T D"]:
        return x

    @nn.compact
    def write(
        self, x: Float[Array, "B T D"], y: Float[Array, "B T D"], train: bool
    ) -> Float[Array, "B T D"]:
        return self.norm(x + Dropout(self.dropout_rate)(y, train))


class PreNorm(nn.Module):
    """x + dropout(y) of y = sublayer(norm(x)) (Xiong et al. 2020, arXiv:2002.04745).

    Nothing normalises the stream itself, so a last norm ends the stack.
    """

    norm: nn.Module
    dropout_rate: float
    needs_final_norm: ClassVar[bool] = True

    def read(self, x: Float[Array, "B T D"]) -> Float[Array, "B T D"]:
        return self.norm(x)

    @nn.compact
    def write(
        self, x: Float[Array, "B T D"], y: Float[Array, "B T D"], train: bool
    ) -> Float[Array, "B T D"]:
        return x + Dropout(self.dropout_rate)(y, train)


RESIDUALS: dict[str, Any] = {"post_norm": PostNorm, "pre_norm": PreNorm}
