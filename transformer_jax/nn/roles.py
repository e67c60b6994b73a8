"""Roles of parameters: what one is to those that initialise, train, adapt and hold it.

A role is stated where a parameter is made, and travels in the box of its logical axes, so that
nobody else need know a module's names.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import flax.linen as nn
import jax
import jax.numpy as jnp
from flax import struct

from transformer_jax.base.arrays import Array, Float
from transformer_jax.config import ModelConfig

Kind = Literal["map", "maps", "table", "plain", "moved"]
Part = Literal[
    "query", "key", "router", "inward", "outward", "head",
    "embedding", "logits", "kinds", "positions", "own", "other",
]  # fmt: skip


@dataclass(frozen=True)
class Rule:
    """How a parameter is moved that has no gradient. In place of one it gets a report, which adds
    up as a gradient would over layers that share parameters, slices of a batch and devices.

    gauge: what the report shows, in `config.metrics.GAUGES`.
    move: of the parameter, its report and the model's config, to the parameter after a step.
    measure: of the reports of all layers, at least one, to the gauge.
    """

    gauge: str
    move: Callable[[Array, Array, ModelConfig], Array]
    measure: Callable[[Sequence[Array]], Array]


@dataclass(frozen=True)
class Role:
    """What a parameter is.

    kind: the kernel of a linear "map", or those of several "maps", along the first axis; a "table"
      of vectors; a "plain" parameter, which does not decay, and is Adam's whatever moves maps:
      norms, biases, and all that is treated like them; or one "moved" by a rule, not a gradient.
    part: what it does, which decides its initial values. Maps lead "inward" from the stream, some
      to a "query", a "key" or the scores of a "router", or "outward" to it, at the end of a
      residual part; a "head" is outside the stacks. Tables are those of pieces, an "embedding" or
      the one before the softmax, "logits", of "kinds" of tokens or of "positions". What has its
      "own" initial values keeps them; of any "other", only "xavier" defines them.
    share: the share of its elements, as a fraction, that a position passes through.
    rule: that of a "moved" parameter.
    """

    kind: Kind
    part: Part = "other"
    share: tuple[int, int] = (1, 1)
    rule: Rule | None = None

    @property
    def is_map(self) -> bool:
        """Whether it holds matrices of linear maps."""
        return self.kind in ("map", "maps")

    @property
    def decays(self) -> bool:
        """Whether weight decay applies to it."""
        return self.is_map or self.kind == "table"

    @property
    def leads_inward(self) -> bool:
        """Whether it is a map from a vector per position, its first axis, inside a layer."""
        return self.part in ("query", "key", "router", "inward")

    def each(self) -> "Role":
        """Return the role of several such maps, along a first axis."""
        return replace(self, kind="maps")


MAP = Role("map")
QUERY = Role("map", "query")
KEY = Role("map", "key")
ROUTER = Role("map", "router")
INWARD = Role("map", "inward")
OUTWARD = Role("map", "outward")
HEAD = Role("map", "head")
OWN_MAP = Role("map", "own")
TABLE = Role("table")
EMBEDDING = Role("table", "embedding")
LOGITS = Role("table", "logits")
KINDS = Role("table", "kinds")
POSITIONS = Role("table", "positions")
HEAD_TABLE = Role("table", "head")
OWN_TABLE = Role("table", "own")
PLAIN = Role("plain", "own")
PLAIN_EMBEDDING = Role("plain", "embedding")  # a vector in place of a piece's


def _raised(bias: Float[Array, "X"], load: Float[Array, "X"], config: ModelConfig) -> Array:
    """Return the biases of experts, raised by `balancing_rate` where the load is below the mean of
    the layer's, and lowered where it is above (Wang et al. 2024, arXiv:2408.15664, algorithm 1).
    """
    return bias + config.balancing_rate * jnp.sign(load.mean() - load)


def _busiest(loads: Sequence[Float[Array, "X"]]) -> Float[Array, ""]:
    """Return how many times the mean load of its layer the busiest expert of all layers has; 0 if
    no layer has a load, as each is frozen or dropped.
    """
    return jnp.stack([load.max() / jnp.maximum(load.mean(), 1e-9) for load in loads]).max()


LOAD = Role("moved", "own", rule=Rule("busiest_expert", _raised, _busiest))

Roles = Mapping[str, Role]  # by name, "encoder/layer_0/feed_forward/up/kernel"

# Of parameters whose module states no role, as a part of one's own need not: by their own names,
# and those of maps by their module's.
_BY_NAME = {"kernel": MAP, "kernels": MAP.each(), "table": TABLE, "load_bias": LOAD}
_BY_MODULE = {
    "query": QUERY, "key": KEY, "value": INWARD, "output": OUTWARD,
    "up": INWARD, "gate": INWARD, "down": OUTWARD, "router": ROUTER,
}  # fmt: skip


class Box(nn.LogicallyPartitioned):
    """A parameter with its logical axes and its role."""

    role: Role | None = struct.field(default=None, pytree_node=False)


def is_box(leaf: Any) -> bool:
    """Return whether this is a parameter with its logical axes."""
    return isinstance(leaf, nn.LogicallyPartitioned)


def name_of(path: tuple[Any, ...]) -> str:
    """Return the name of a parameter, in a box or not, from its path in a tree."""
    return "/".join(key.key for key in path if isinstance(key, jax.tree_util.DictKey))


def role_of(name: str, leaf: Any) -> Role:
    """Return the role of a parameter, as its box states it or else by its name."""
    role: Role | None = getattr(leaf, "role", None)
    return _by_name(name) if role is None else role


def _by_name(name: str) -> Role:
    module, leaf = ["", *name.split("/")][-2:]
    role = _BY_NAME.get(leaf, PLAIN)
    return (
        replace(role, part=_BY_MODULE[module].part)
        if role.is_map and module in _BY_MODULE
        else role
    )


def roles_in(params: Any) -> dict[str, Role]:
    """Return the roles of parameters."""
    return {name: role_of(name, leaf) for name, leaf in _named(params)}


def unstated(params: Any) -> list[str]:
    """Return the names of parameters whose module states no role."""
    return [name for name, leaf in _named(params) if getattr(leaf, "role", None) is None]


def _named(params: Any) -> Iterator[tuple[str, Any]]:
    for path, leaf in jax.tree_util.tree_leaves_with_path(params, is_leaf=is_box):
        yield name_of(path), leaf
