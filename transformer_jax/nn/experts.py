"""Feed-forward layers of experts: each position passes through a few of many (Shazeer et al. 2017,
arXiv:1701.06538; Mixtral: Jiang et al. 2024, arXiv:2401.04088).
"""

from collections.abc import Callable, Sequence

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name

from transformer_jax.base.arrays import Array, Bool, Float, Int, at_least_float32
from transformer_jax.base.shares import on_each_device
from transformer_jax.config import ModelConfig
from transformer_jax.config.registry import pick
from transformer_jax.nn.blocks import in_blocks, moved, multiplied, shape_of
from transformer_jax.nn.feedforward import ACTIVATIONS, FeedForward
from transformer_jax.nn.initializers import each, named, parameter, xavier_uniform
from transformer_jax.nn.linear import PRODUCT
from transformer_jax.nn.roles import INWARD, LOAD, OUTWARD, PLAIN, ROUTER, Role

# How products with the router's vectors become scores.
EXPERT_SCORES: dict[str, Callable[[Array], Array]] = {
    "softmax": jax.nn.softmax,
    "sigmoid": jax.nn.sigmoid,
}
LOAD_BIAS = "load_bias"


class Router(nn.Module):
    """Chooses the `experts_per_token` experts whose score plus bias is highest. Their weights are
    the scores without the bias, divided by their sum if `normalize_expert_weights`.

    The bias balances how often experts are chosen (Wang et al. 2024, arXiv:2408.15664). In place of
    a gradient it gets the load, the number of tokens that chose each expert, by which
    `training.balance` moves it: like a gradient, it adds up over layers that share parameters,
    slices of a batch and devices.
    """

    config: ModelConfig

    @nn.compact
    def __call__(
        self, x: Float[Array, "B T D"], real: Bool[Array, "B T"]
    ) -> tuple[Float[Array, "B T K"], Int[Array, "B T K"]]:
        """Return weights and numbers of the chosen experts; only `real` positions are tokens."""
        c = self.config
        init = named(xavier_uniform(1), "embed", "experts", role=ROUTER)
        kernel = parameter(self, "kernel", init, (c.d_model, c.num_experts))
        zeros = named(nn.initializers.zeros, "experts", role=LOAD)
        bias = parameter(self, LOAD_BIAS, zeros, (c.num_experts,))
        products = jnp.matmul(at_least_float32(x), kernel, precision="highest")
        scores = pick(EXPERT_SCORES, c.expert_scores, "config.model.expert_scores")(products)
        _, chosen = jax.lax.top_k(scores + bias[None, None], c.experts_per_token)
        weights = jnp.take_along_axis(scores, chosen, -1)
        if c.normalize_expert_weights:
            weights /= weights.sum(-1, keepdims=True)
        load = (jax.nn.one_hot(chosen, c.num_experts) * real[..., None, None]).sum((0, 1, 2))
        return _told(weights, bias, load), chosen


@jax.custom_vjp
def _told(weights, bias, load):
    return weights


_told.defvjp(
    lambda weights, bias, load: (weights, load.astype(bias.dtype)),
    lambda load, gradient: (gradient, load, jnp.zeros_like(load)),
)


class Maps(nn.Module):
    """A linear map for each expert; see `Project`."""

    num_experts: int
    in_size: int
    out_size: int
    names: Sequence[str]
    dtype: jnp.dtype
    use_bias: bool
    role: Role  # of each

    def setup(self) -> None:
        init = named(each(xavier_uniform(1)), "experts", *self.names, role=self.role.each())
        shape = self.num_experts, self.in_size, self.out_size
        self.kernels = parameter(self, "kernels", init, shape)
        zeros = named(nn.initializers.zeros, "experts", self.names[1], role=PLAIN)
        self.bias = parameter(self, "bias", zeros, shape[::2]) if self.use_bias else None

    def __call__(self, x: Float[Array, "M Q I"], expert: Int[Array, "M"]) -> Float[Array, "M Q O"]:
        """Map blocks of positions, each by an expert."""
        y = checkpoint_name(multiplied(x.astype(self.dtype), self.kernels, expert), PRODUCT)
        if self.bias is not None:  # taken by a product, whose gradient adds up in a fixed order
            of = jax.nn.one_hot(expert, self.num_experts, dtype=self.bias.dtype)
            bias = jnp.matmul(of, self.bias, precision="highest")
            y = at_least_float32(y) + bias[:, None]
        return y.astype(self.dtype)


class Experts(nn.Module):
    """The weighted sum of the outputs of the chosen experts, each a feed-forward layer of width
    `d_ff`, and of `shared_experts` that all positions pass through, as one layer (DeepSeekMoE:
    Dai et al. 2024, arXiv:2401.06066). No position is dropped, so that none depends on others.
    """

    config: ModelConfig
    dtype: jnp.dtype

    def setup(self) -> None:
        c = self.config
        self.activation = pick(ACTIVATIONS, c.activation, "config.model.activation")
        bias = "feed_forward" in c.biases
        inward = c.num_experts, c.d_model, c.d_ff, ("embed", "mlp"), self.dtype, bias, INWARD
        self.router = Router(c)
        self.up = Maps(*inward)
        self.gate = Maps(*inward) if self.activation.gated else None
        outward = c.num_experts, c.d_ff, c.d_model, ("mlp", "embed"), self.dtype, bias, OUTWARD
        self.down = Maps(*outward)
        width = c.shared_experts * c.d_ff
        given = c.d_model, width, c.activation, 0.0, self.dtype, bias
        self.shared = FeedForward(*given) if width else None

    def __call__(
        self, x: Float[Array, "B T D"], train: bool, real: Bool[Array, "B T"]
    ) -> Float[Array, "B T D"]:
        """Return the output; only `real` positions, which are not padding, count as load."""
        weights, chosen = self.router(x, real)
        y = on_each_device(self._on_device, x, weights, chosen).reshape(x.shape)
        return y if self.shared is None else y + self.shared(x, train)

    def _on_device(self, x: Array, weights: Array, chosen: Array) -> Array:
        chosen = chosen.reshape(-1)
        blocks = in_blocks(chosen, self.config.num_experts)
        shape = *shape_of(chosen.shape[0], self.config.num_experts), x.shape[-1]
        rows = jnp.repeat(x.reshape(-1, x.shape[-1]), weights.shape[-1], 0)
        rows = moved(rows, blocks.choice, blocks.slot).reshape(shape)
        hidden = self.up(rows, blocks.expert)
        if self.gate is None:
            hidden = self.activation.function(hidden)
        else:
            hidden *= self.activation.function(self.gate(rows, blocks.expert))
        hidden = nn.with_logical_constraint(hidden, (None, None, "act_mlp"))
        y = self.down(hidden, blocks.expert).reshape(-1, x.shape[-1])
        y = moved(y, blocks.slot, blocks.choice).reshape(*weights.shape, x.shape[-1])
        return (weights[..., None] * y).sum(-2).astype(self.dtype)
