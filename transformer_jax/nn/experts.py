"""Feed-forward layers of experts: each position passes through a few of many (Shazeer et al. 2017,
arXiv:1701.06538; Mixtral: Jiang et al. 2024, arXiv:2401.04088).

No position is dropped, however many choose the same expert, and all shapes are static: positions
are gathered into blocks of equal size, each for one expert, of which there are always enough.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name

from transformer_jax.base.arrays import Array, Bool, Float, Int, Size, at_least_float32, on_cpu
from transformer_jax.base.shares import (
    divides,
    joined,
    laid_out,
    layout,
    on_each_device,
    parts_of,
    taken,
)
from transformer_jax.config import ModelConfig
from transformer_jax.config.registry import pick
from transformer_jax.nn.expert_parallel import (
    AXIS,
    Through,
    counted,
    in_turns,
    moved,
    through_others,
)
from transformer_jax.nn.feedforward import ACTIVATIONS, Activation, FeedForward
from transformer_jax.nn.initializers import each, named, parameter, xavier_uniform
from transformer_jax.nn.linear import PRODUCT, Project, written
from transformer_jax.nn.roles import INWARD, LOAD, OUTWARD, PLAIN, ROUTER, Role

# Blocks per expert, if all are chosen equally often: the more, the less work is in vain, but the
# more matrices are copied, which costs a CPU more than an accelerator.
_EACH, _CPU_EACH = 8, 4
_SLOTS = 16  # of a block, where the number of choices is not known

Place = Callable[[Array], Array]  # says how devices share an array


class Blocks(NamedTuple):
    """Where choices are computed. A choice is a position's of an expert; a slot is a place in a
    block, and slots beyond an expert's choices are empty.
    """

    slot: Int[Array, "C"]  # of each choice
    choice: Int[Array, "S"]  # in each slot; an empty one has the number of choices
    expert: Int[Array, "M"]  # of each block
    used: Int[Array, ""]  # blocks with choices, the first ones


def shape_of(choices: Size, num_experts: int, expected: int | None = None) -> tuple[Size, int]:
    """Return the number of blocks and the slots of each, which suit `expected` choices if some are
    of no expert.
    """
    fixed = isinstance(choices, int)
    each = _CPU_EACH if on_cpu() else _EACH
    size = max((expected or choices) // (each * num_experts), 1) if fixed else _SLOTS
    size += size > 1 and size % 2
    # Each expert's last block may lack up to size - 1 choices.
    count = (choices + num_experts * (size - 1)) // size
    return min(count, choices) if fixed else count, size


def in_blocks(chosen: Int[Array, "C"], num_experts: int, expected: int | None = None) -> Blocks:
    """Return blocks for these choices; an expert's are in their order. A choice of `num_experts` is
    in none, and its slot is beyond the last.
    """
    choices = chosen.shape[0]
    count, size = shape_of(choices, num_experts, expected)
    before, times = counted(chosen, num_experts)
    last = jnp.cumsum(-(-times // size))  # block of each expert, exclusive
    first = jnp.concatenate([jnp.zeros(1, last.dtype), last[:-1]])
    slot = first[chosen] * size + before
    places = jnp.arange(choices, dtype=slot.dtype)
    if expected is not None:
        slot = jnp.where(chosen < num_experts, slot, count * size + places)
    empty = jnp.full((count * size,), choices, slot.dtype)
    choice = empty.at[slot].set(places, mode="drop", unique_indices=True)
    expert = jnp.searchsorted(last, jnp.arange(count), side="right")
    return Blocks(slot, choice, jnp.minimum(expert, num_experts - 1), last[-1])


def _as_they_are(kernels: Array) -> Array:
    return kernels


@partial(jax.custom_vjp, nondiff_argnums=(3,))
def multiplied(
    x: Float[Array, "M Q I"], kernels: Float[Array, "X I O"], expert: Int[Array, "M"],
    whole: Place = _as_they_are,
) -> Float[Array, "M Q O"]:  # fmt: skip
    """Return the product of each block and the matrix of its expert, in the dtype of x or wider.

    `whole` lays out all matrices as they are used; what it is given is kept for the gradient.
    """
    own = whole(kernels.astype(x.dtype))[expert]
    return _dot("mqi,mio->mqo", x, own, written(x.dtype))


def _backward(whole, operands, gradient):
    x, kernels, expert = operands
    gradient = gradient.astype(x.dtype)
    own = whole(kernels.astype(x.dtype))[expert]
    dx = _dot("mqo,mio->mqi", gradient, own, written(x.dtype)).astype(x.dtype)
    # A CPU takes half as long to add up products of bfloat16 over two axes as over one.
    halves = 2 if x.shape[1] % 2 == 0 else 1
    x, gradient = (a.reshape(len(a), halves, -1, a.shape[2]) for a in (x, gradient))
    each = _dot("mhqi,mhqo->mio", x, gradient, jnp.promote_types(x.dtype, jnp.float32))
    return dx, whole(_summed(each, expert, len(kernels)).astype(kernels.dtype)), None


multiplied.defvjp(lambda *given: (multiplied(*given), given[:3]), _backward)


def _summed(each: Float[Array, "M I O"], expert: Int[Array, "M"], count: int) -> Array:
    """Return the sum over each expert's blocks: as a product, in a fixed order on any device."""
    of = jax.nn.one_hot(expert, count, dtype=each.dtype)
    return jnp.einsum("mx,mio->xio", of, each, precision="highest")


def _dot(axes: str, a: Array, b: Array, dtype: jnp.dtype) -> Array:
    return jnp.einsum(axes, a, b, preferred_element_type=dtype)


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
    a rule moves it (`nn.roles`), and which adds up like one over layers that share parameters,
    slices of a batch and devices.
    """

    config: ModelConfig

    @nn.compact
    def __call__(
        self, x: Float[Array, "B T D"], real: Bool[Array, "B T"]
    ) -> tuple[Float[Array, "B T K"], Int[Array, "B T K"]]:
        """Return weights and numbers of the chosen experts; only `real` positions are tokens."""
        c = self.config
        init = named(xavier_uniform(1), "embed", "choices", role=ROUTER)
        kernel = parameter(self, "kernel", init, (c.d_model, c.num_experts))
        zeros = named(nn.initializers.zeros, "choices", role=LOAD)
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
    chosen: int  # of them, by a position
    in_size: int
    out_size: int
    names: Sequence[str]
    dtype: jnp.dtype
    use_bias: bool
    role: Role  # of each

    def setup(self) -> None:
        share = self.chosen, self.num_experts
        role = replace(self.role.each(), share=share)
        init = named(each(xavier_uniform(1)), "experts", *self.names, role=role)
        shape = self.num_experts, self.in_size, self.out_size
        self.kernels = parameter(self, "kernels", init, shape)
        plain = replace(PLAIN, share=share)
        zeros = named(nn.initializers.zeros, "experts", self.names[1], role=plain)
        self.bias = parameter(self, "bias", zeros, shape[::2]) if self.use_bias else None

    def given(self) -> tuple[Array, Array | None]:
        """Return the kernels and biases, each [X ...]; biases are whole, as kernels are in use."""
        last = None if self.names[1] == "embed" else self.names[1]
        bias = None if self.bias is None else laid_out(self.bias, "experts", last)
        return self.kernels, bias


def mapped(
    x: Float[Array, "M Q I"], kernels: Float[Array, "X I O"], bias: Array | None,
    expert: Int[Array, "M"], dtype: jnp.dtype, whole: Place,
) -> Float[Array, "M Q O"]:  # fmt: skip
    """Map blocks of positions, each by an expert."""
    y = checkpoint_name(multiplied(x.astype(dtype), kernels, expert, whole), PRODUCT)
    if bias is not None:  # taken by a product, whose gradient adds up in a fixed order
        of = jax.nn.one_hot(expert, len(bias), dtype=bias.dtype)
        y = at_least_float32(y) + jnp.matmul(of, bias, precision="highest")[:, None]
    return y.astype(dtype)


class _Layer(NamedTuple):
    """The maps of all experts; `gate` is None where the activation has none."""

    up: tuple[Array, Array | None]
    gate: tuple[Array, Array | None] | None
    down: tuple[Array, Array | None]


class _Places(NamedTuple):
    """How devices share hidden vectors, and kernels as they are used."""

    hidden: Place = _as_they_are
    inward: Place = _as_they_are
    outward: Place = _as_they_are


def _through(
    activation: Activation, dtype: jnp.dtype, places: _Places, layer: _Layer,
    rows: Float[Array, "M Q D"], expert: Int[Array, "M"],
) -> Float[Array, "M Q D"]:  # fmt: skip
    """Return the outputs of each block's expert."""
    hidden = mapped(rows, *layer.up, expert, dtype, places.inward)
    if layer.gate is None:
        hidden = activation.function(hidden)
    else:
        gate = mapped(rows, *layer.gate, expert, dtype, places.inward)
        hidden *= activation.function(gate)
    return mapped(places.hidden(hidden), *layer.down, expert, dtype, places.outward)


def _gathered(
    through: Through, layer: _Layer, rows: Float[Array, "C D"], chosen: Int[Array, "C"],
    expected: int | None = None,
) -> Float[Array, "C D"]:  # fmt: skip
    """Return the outputs of the chosen experts, of which those in `layer` have the first numbers;
    with `expected`, zeros for rows with the number of these, and work for the others alone.
    """
    own = len(layer.up[0])
    blocks = in_blocks(chosen, own, expected)
    shape = *shape_of(chosen.shape[0], own, expected), rows.shape[-1]
    rows = moved(rows, blocks.choice, blocks.slot).reshape(shape)
    if expected is None:
        y = through(layer, rows, blocks.expert)
    else:
        some = expected // shape[1] + own  # blocks, if no expert is chosen more often than others
        y = in_turns(through, layer, rows, blocks.expert, blocks.used, some)
    return moved(y.reshape(-1, rows.shape[-1]), blocks.slot, blocks.choice)


class Experts(nn.Module):
    """The weighted sum of the outputs of the chosen experts, each a feed-forward layer of width
    `d_ff`, and of `shared_experts` that all positions pass through, as one layer (DeepSeekMoE:
    Dai et al. 2024, arXiv:2401.06066), times a sigmoid of a map of x with `shared_expert_gate`. No
    position is dropped, so that none depends on others.
    """

    config: ModelConfig
    dtype: jnp.dtype

    def setup(self) -> None:
        c = self.config
        self.activation = pick(ACTIVATIONS, c.activation, "config.model.activation")
        bias = "feed_forward" in c.biases
        count = c.num_experts, c.experts_per_token
        inward = *count, c.d_model, c.d_ff, ("embed", "mlp"), self.dtype, bias, INWARD
        self.router = Router(c)
        self.up = Maps(*inward)
        self.gate = Maps(*inward) if self.activation.gated else None
        outward = *count, c.d_ff, c.d_model, ("mlp", "embed"), self.dtype, bias, OUTWARD
        self.down = Maps(*outward)
        width = c.shared_experts * c.d_ff
        arguments = c.d_model, width, c.activation, 0.0, self.dtype, bias
        self.shared = FeedForward(*arguments) if width else None
        one = (c.d_model,), (1,), ("embed", None), self.dtype, False, INWARD
        self.shared_gate = Project(*one) if c.shared_expert_gate else None

    def __call__(
        self, x: Float[Array, "B T D"], train: bool, real: Bool[Array, "B T"]
    ) -> Float[Array, "B T D"]:
        """Return the output; only `real` positions, which are not padding, count as load."""
        weights, chosen = self.router(x, real)
        # Padding takes the first ones, whatever it holds, so that it moves no other in its blocks.
        first = jnp.arange(chosen.shape[-1], dtype=chosen.dtype)[None, None]
        chosen = jnp.where(real[..., None], chosen, first)
        maps = (self.up, self.gate, self.down)
        layer = _Layer(*(None if one is None else one.given() for one in maps))  # type: ignore
        elsewhere = parts_of((AXIS,)) > 1 and divides(x.shape)

        hidden = layout(None, None, "act_mlp")
        if not elsewhere:
            # Kernels are whole but for what `tensor` divides, whatever devices share at rest: a
            # compiler would rather gather positions, for blocks of which kernels are picked.
            kernels = layout(None, None, "mlp"), layout(None, "mlp", None)
            places = _Places(hidden, *kernels)
        elif taken():  # a constraint in a shard_map in a vmap would name the latter's axes
            places = _Places()
        else:
            places = _Places(hidden)
        through = partial(_through, self.activation, self.dtype, places)

        def of_device(x: Array, chosen: Array) -> Array:
            rows = jnp.repeat(x.reshape(-1, x.shape[-1]), chosen.shape[-1], 0)
            y = _gathered(through, layer, rows, chosen.reshape(-1))
            return y.reshape(*chosen.shape, -1)

        if elsewhere:
            y = through_others(partial(_gathered, through), layer, x, chosen)
        else:
            y = joined(on_each_device(of_device, x, chosen, positions=1), x.shape[0], 1)
        y = (weights[..., None] * y).sum(-2).astype(self.dtype)
        if self.shared is None:
            return y
        shared = self.shared(x, train)
        if self.shared_gate is None:
            return y + shared
        gate = jax.nn.sigmoid(at_least_float32(self.shared_gate(x)))
        return y + (gate * shared).astype(y.dtype)
