"""Projections to heads of queries, keys and values, and back, common to all kinds of attention."""

from collections.abc import Callable

import flax.linen as nn
import jax.numpy as jnp

from transformer_jax.base.arrays import Array, Float
from transformer_jax.base.shares import divides, laid_out, parts_of
from transformer_jax.config import ModelConfig
from transformer_jax.config.registry import pick
from transformer_jax.nn.linear import Project, project_together
from transformer_jax.nn.norm import ZERO_CENTERED, RMSNorm
from transformer_jax.nn.roles import INWARD, KEY, OUTWARD, QUERY

# The axes of the norm of queries or keys, from the name of their head axis; (): no norm.
QUERY_KEY_NORMS: dict[str, Callable[[str], tuple[str, ...]]] = {
    "none": lambda heads: (),
    "per_head": lambda heads: ("head_dim",),
    "all_heads": lambda heads: (heads, "head_dim"),
}


class Heads(nn.Module):
    """Projections to heads, and back."""

    config: ModelConfig
    dtype: jnp.dtype

    def setup(self) -> None:
        c = self.config
        kv = self.kv_axis
        to_queries = (c.d_model,), (c.num_heads, c.key_size), ("embed", "heads", "head_dim")
        to_keys = (c.d_model,), (c.kv_heads, c.key_size), ("embed", kv, "head_dim")
        to_values = (c.d_model,), (c.kv_heads, c.value_size), ("embed", kv, "head_dim")
        outward = (c.num_heads, c.value_size), (c.d_model,), ("heads", "head_dim", "embed")
        self.query = Project(*to_queries, self.dtype, "query" in c.biases, QUERY)
        self.key = Project(*to_keys, self.dtype, "key" in c.biases, KEY)
        self.value = Project(*to_values, self.dtype, "value" in c.biases, INWARD)
        self.output = Project(*outward, self.dtype, "output" in c.biases, OUTWARD)
        self.query_norm = self._norm("heads")
        self.key_norm = self._norm(kv)

    @nn.nowrap
    def _norm(self, heads: str) -> nn.Module | None:
        """Return the norm of queries or keys, whose head axis has this name, if there is one."""
        c = self.config
        axes = pick(QUERY_KEY_NORMS, c.query_key_norm, "config.model.query_key_norm")(heads)
        return RMSNorm(c.norm_epsilon, axes, c.norm == ZERO_CENTERED) if axes else None

    @property
    def kv_axis(self) -> str:
        """The name of the head axis of keys: that of queries if there are equally many heads, so
        that q, k and v are one product.
        """
        return "heads" if self.config.kv_heads == self.config.num_heads else "kv_heads"

    def queries_keys_values(
        self, x: Float[Array, "B T D"]
    ) -> tuple[Float[Array, "B T N H"], Float[Array, "B T K H"], Float[Array, "B T K Hv"]]:
        """Return the heads of x, queries and keys normalised as the config says."""
        q, k, v = project_together(x, [self.query, self.key, self.value])
        return normal(self.query_norm, q), normal(self.key_norm, k), v


def normal(norm: nn.Module | None, x: Float[Array, "B T N H"]) -> Float[Array, "B T N H"]:
    """Return heads normalised, or as they are without a norm."""
    return x if norm is None else norm(x)


def heads_first(x: Float[Array, "B T N H"]) -> Float[Array, "B N T H"]:
    """Return heads in the layout that products read."""
    return _by_head(_by_position(x)).swapaxes(1, 2)


def positions_first(x: Float[Array, "B N T H"]) -> Float[Array, "B T N H"]:
    """Return heads in the layout of projections; undoes `heads_first`."""
    return _by_position(_by_head(x.swapaxes(1, 2)))


def whole_rows(x: Float[Array, "B K ..."]) -> Float[Array, "B K ..."]:
    """Return keys or values of all positions on each device, where the mesh divides positions:
    queries are divided, so that each device needs all keys.
    """
    return x if parts_of(("context",)) == 1 else laid_out(x, "batch", "act_heads", None, None)


# A compiler that knows one of these layouts alone takes it for what is on the other side as well,
# and then moves the other operands of projections, or scores.
def _by_head(x: Float[Array, "B T N H"]) -> Float[Array, "B T N H"]:
    """Return heads divided as attention needs them."""
    return laid_out(x, "batch", "attended", "act_heads", "head_dim")


def _by_position(x: Float[Array, "B T N H"]) -> Float[Array, "B T N H"]:
    """Return heads divided as the positions that they belong to."""
    return laid_out(x, "batch", "act_length", "heads", "head_dim") if divides(x.shape) else x
