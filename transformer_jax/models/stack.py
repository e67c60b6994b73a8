"""A stack of layers, and the loop over them. Parameters are stored per layer with any loop."""

import functools
import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name

from transformer_jax.base.arrays import Array, Bool, Float, Int, Size
from transformer_jax.base.shares import check_groups, laid_out, parts_of
from transformer_jax.config import ModelConfig
from transformer_jax.config.choices.dtypes import DTYPES
from transformer_jax.config.registry import pick
from transformer_jax.models import pipeline, reversible
from transformer_jax.models.divided import Divided
from transformer_jax.models.joint import Joint, LastJoint
from transformer_jax.models.layers import Conformer, Layer, ParallelLayer
from transformer_jax.nn.cache import KeysValues, Lanes, Slots
from transformer_jax.nn.float8 import in_float8
from transformer_jax.nn.linear import PRODUCT
from transformer_jax.nn.norm import make_norm
from transformer_jax.nn.positions import POSITIONS
from transformer_jax.nn.relative_positions import scheme_of
from transformer_jax.nn.residual import RESIDUALS
from transformer_jax.nn.view import View

Enter = Callable[[Array, int | Array], Array]  # (x, number of the layer, from 0) -> its input


class Sharing(NamedTuple):
    """How many layers of a stack are stored, and what changes x before each application."""

    shared: bool
    # From the positions of x, a bound that they are below, and the stack's depth.
    enter: Callable[[ModelConfig, Int[Array, "B T"], Size, int], Enter]
    numbered: bool = False  # whether `enter` differs from layer to layer

    def kept(self, period: int, num_layers: int) -> int:
        """Return how many layers have their own parameters: one period of them if shared."""
        return min(period, num_layers) if self.shared else num_layers


def nothing(config: ModelConfig, pos: Int[Array, "B T"], limit: Size, depth: int) -> Enter:
    """Add nothing."""
    return lambda x, number: x


def steps(config: ModelConfig, pos: Int[Array, "B T"], limit: Size, depth: int) -> Enter:
    """Add the vectors of the position and of the step t = 1, 2, ... before each layer.

    Both use the scheme `config.positions` (Dehghani et al. 2018, arXiv:1807.03819, section 2.1).
    """
    scheme = pick(POSITIONS, config.positions, "config.model.positions")(config, parent=None)
    table = jnp.asarray(scheme.table(max(limit, depth + 1)))
    places = table[pos]

    def enter(x: Float[Array, "B T D"], number: int | Array) -> Float[Array, "B T D"]:
        return x + (places + table[number + 1].reshape(1, 1, -1)).astype(x.dtype)

    return enter


SHARINGS = {
    "none": Sharing(False, nothing),
    # ALBERT (Lan et al. 2019, arXiv:1909.11942).
    "all": Sharing(True, nothing),
    # The Universal Transformer without its per-position halting (ACT): every position takes every
    # step.
    "universal": Sharing(True, steps, numbered=True),
}


class Application(NamedTuple):
    """What differs from one application of a layer to the next."""

    params: Any  # None: those of a shared layer, which its body holds
    rngs: dict[str, Array]  # in training: for dropout and random features
    number: Array | None  # of the layer, if it matters


Body = Callable[[Array, Application], Array]


def unrolled(bodies: Sequence[Body], x: Array, layers: Sequence[Application]) -> Array:
    """Apply one layer after another, each compiled separately, cycling through the bodies."""
    for layer, body in zip(layers, itertools.cycle(bodies), strict=False):
        x = body(x, layer)
    return x


def scan(bodies: Sequence[Body], x: Array, layers: Sequence[Application]) -> Array:
    """Apply the layers in a loop that compiles one period; parameters are copied into it.

    Layers beyond the last whole period follow, each compiled separately.
    """
    period = len(bodies)
    whole = len(layers) // period * period
    stacked = [
        jax.tree.map(lambda *leaves: jnp.stack(leaves), *layers[place:whole:period])
        for place in range(period)
    ]
    x = jax.lax.scan(
        lambda x, group: (unrolled(bodies, x, group), None), x, stacked, length=whole // period
    )[0]
    return unrolled(bodies, x, layers[whole:])


LOOPS = {"unrolled": unrolled, "scan": scan}


class Remat(NamedTuple):
    """What is saved for the backward pass, which recomputes the rest."""

    alone: Callable[[Body], Body]  # makes a layer save it, besides its input
    picked: pipeline.Policy  # for layers that each tick of a pipeline picks, with their outputs


_OUTPUT = "output"  # of a layer
_named = jax.checkpoint_policies.save_only_these_names
REMATS = {
    "none": Remat(lambda body: body, pipeline.all_but_copies),
    "dots": Remat(
        lambda body: jax.checkpoint(body, policy=_named(PRODUCT)), _named(PRODUCT, _OUTPUT)
    ),
    "full": Remat(jax.checkpoint, _named(_OUTPUT)),
}


def kept(key: Array, rate: float) -> Array:
    """Return whether a layer is applied: LayerDrop (Fan et al. 2019, arXiv:1909.11556)."""
    return jax.random.bernoulli(jax.random.fold_in(key, 1), 1 - rate)


def run(
    stack: "Stack", layers: Sequence[Any], period: int, calls: Callable, given: Any, x: Array
) -> Array:
    """Return x after all layers. `calls(*given)` returns two functions: `call(layer, x, number)`
    applies a layer, and `undo`, if residual parts can be undone, reverts it; `given` are arrays of
    the rows of x. Kinds repeat with the period.

    The layers run as pure functions of their parameters, so that loop and rematerialisation are
    JAX's own, and parameter names and dropout masks depend on neither; nor on the stages of a mesh.
    """
    if stack.is_initializing():
        call, _ = calls(*given)
        for number, layer in enumerate(layers):
            x = call(layer, x, number)
        return x
    config, sharing = stack.config, stack.sharing
    remat = pick(REMATS, config.remat, "config.model.remat")

    def body_of(layer: nn.Module, call: Callable) -> Body:
        alone, own = layer.clone(parent=None), layer.variables["params"]

        def body(x: Array, one: Application) -> Array:
            params = own if one.params is None else one.params

            def applied(x: Array) -> Array:
                with in_float8(DTYPES[config.compute_dtype].float8):
                    return alone.apply(  # type: ignore[return-value]
                        {"params": params}, x, one.number, method=call, rngs=one.rngs
                    )

            if one.rngs and config.layer_drop_rate:
                # A branch, so that a dropped layer costs no time and has no gradient.
                stays = kept(one.rngs["dropout"], config.layer_drop_rate)
                x = jax.lax.cond(stays, applied, lambda x: x, x)
            else:
                x = applied(x)
            return checkpoint_name(laid_out(x, "batch", "act_length", "act_embed"), _OUTPUT)

        return remat.alone(body)

    rngs: list[dict[str, Array]] = [{} for _ in layers]
    for name in ("dropout", "features"):
        if stack.has_rng(name):
            keys = jax.random.split(stack.make_rng(name), len(layers))
            rngs = [one | {name: key} for one, key in zip(rngs, keys, strict=True)]
    applications = [
        Application(
            None if sharing.shared else layer.variables["params"],
            own,
            jnp.int32(number) if sharing.numbered else None,
        )
        for number, (layer, own) in enumerate(zip(layers, rngs, strict=True))
    ]
    loop = pick(LOOPS, config.layer_loop, "config.model.layer_loop")

    def group(layers: Sequence[Application], x: Array, given: Any) -> Array:
        call, _ = calls(*given)
        return loop([body_of(layer, call) for layer in kinds], x, layers)

    kinds = layers[:period]
    if pipeline.possible(x.shape[0]) and len(layers) > 1:
        stages, repeats = parts_of((pipeline.AXIS,)), config.stage_repeats
        check_groups(len(layers), period, stages, repeats, "config.model")
        return pipeline.run(group, applications, x, given, repeats, remat.picked)
    if config.residual == "reversible" and rngs[0]:  # else there is no backward pass
        ways = calls(*given)
        forwards, backwards = (
            [
                _alone(body_of(layer, way), one)
                for layer, one in zip(layers, applications, strict=True)
            ]
            for way in ways
        )
        return reversible.run(forwards, backwards, x, [one.params for one in applications])
    return group(applications, x, given)


def _alone(body: Body, one: Application) -> reversible.Step:
    return lambda x, params: body(x, one._replace(params=params))


# Names in a pattern whose layers differ from the usual parts.
LAYERS: dict[str, type[Layer]] = {
    "conformer": Conformer,
    "divided": Divided,
    "joint": Joint,
    "joint_last": LastJoint,
}


class Stack(nn.Module):
    """Layers of the kinds in `pattern`, in turn; `cross` adds attention to a memory."""

    config: ModelConfig
    dtype: jnp.dtype
    num_layers: int
    pattern: Sequence[str]
    cross: bool

    def setup(self) -> None:
        c = self.config
        self.sharing = pick(SHARINGS, c.layer_sharing, "config.model.layer_sharing")
        both = zip(itertools.cycle(self.pattern), itertools.cycle(c.feed_forward_pattern))
        kinds = [*itertools.islice(both, self.sharing.kept(self._period(), self.num_layers))]
        self.residual = pick(RESIDUALS, c.residual, "config.model.residual")
        usual = ParallelLayer if getattr(self.residual, "parallel", False) else Layer
        self.layer = [
            LAYERS.get(kind, usual)(c, self.dtype, kind, feed_forward, self.cross)
            for kind, feed_forward in kinds
        ]
        self.final_norm = make_norm(c) if self.residual.needs_final_norm else None
        self.relative_positions = scheme_of("stack", c)

    def __call__(
        self,
        x: Float[Array, "B T D"],
        view: View,
        train: bool,
        memory: Float[Array, "B S D"] | None = None,
        cross_view: View | None = None,
        condition: Float[Array, "B D"] | None = None,
    ) -> Float[Array, "B T D"]:
        """Return the output for whole sequences: encoding, or teacher forcing; under a condition
        of each row, if there is one.
        """
        calls = functools.partial(self._calls, self._scheme(x), train)
        given = view, memory, cross_view, condition
        x = self.residual.begin(x)
        x = self.residual.end(run(self, self._applied(), self._period(), calls, given, x))
        return x if self.final_norm is None else self.final_norm(x)

    def branched(
        self, x: Float[Array, "B T D"], view: View, train: bool
    ) -> tuple[Float[Array, "B T D"], Float[Array, "B T D"]]:
        """Return the output for whole sequences, and the input of the last layer."""
        scheme, given = self._scheme(x), (view, None, None, None)

        def calls(view: View, *others: None) -> tuple[Callable, Callable]:
            view = scheme(view)

            def call(layer: Layer, x: Array, number: Any) -> Array:
                return layer(x, view, train, *others)

            return call, call

        *layers, last = self._applied()
        x = self.residual.begin(x)
        if layers:
            x = run(self, layers, min(self._period(), len(layers)), calls, given, x)
        trunk, x = x, run(self, [last], 1, calls, given, x)
        x = self.residual.end(x)
        return x if self.final_norm is None else self.final_norm(x), trunk

    def _calls(
        self, scheme: Callable[[View], View], train: bool, view: View, memory: Array | None,
        cross_view: View | None, condition: Array | None,
    ) -> tuple[Callable, Callable]:  # fmt: skip
        """Return the functions that apply and revert a layer to rows with these views."""
        view = scheme(view)
        places = view.q_pos, view.k_pos.shape[1]
        enter = self.sharing.enter(self.config, *places, self.num_layers)

        def call(layer: Layer, x: Array, number: Any) -> Array:
            return layer(enter(x, number), view, train, memory, cross_view, condition)

        def undo(layer: Layer, x: Array, number: Any) -> Array:
            return layer.undo(x, view, train, memory, cross_view)

        return call, undo

    def _scheme(self, x: Array) -> Callable[[View], View]:
        """Return the relative positions, as a pure function where stages apply it."""
        scheme = self.relative_positions
        if self.is_initializing() or not pipeline.possible(x.shape[0]):
            return scheme
        variables = dict(scheme.variables)
        return functools.partial(scheme.clone(parent=None).apply, variables)  # type: ignore

    def _period(self) -> int:
        """Return after how many layers both kinds of their parts repeat."""
        return math.lcm(len(self.pattern), len(self.config.feed_forward_pattern))

    def _applied(self) -> list[Layer]:
        """Return the layers in the order of their application, shared ones repeatedly."""
        return list(itertools.islice(itertools.cycle(self.layer), self.num_layers))

    def remember(self, memory: Float[Array, "B S D"]) -> list[KeysValues]:
        """Return the keys and values of each layer's cross-attention, once for shared layers."""
        return [layer.remember(memory) for layer in self.layer]

    def in_slots(self) -> bool:
        """Whether any layer keeps something in the slots of lanes."""
        return any(getattr(layer.self_attention, "in_slots", True) for layer in self.layer)

    def empty(self, lanes: Lanes) -> list[Any]:
        """Return an empty cache for each application of a layer."""
        return [layer.self_attention.empty(lanes) for layer in self._applied()]

    def extend(
        self,
        x: Float[Array, "B Q D"],
        caches: Sequence[Any],
        slots: Slots,
        active: Bool[Array, "B"],
        memories: Sequence[KeysValues | None],
        cross_view: View | None,
    ) -> tuple[Float[Array, "B Q D"], list[Any], list[Float[Array, "B N Q S"] | None]]:
        """Return the output for new tokens, and caches and cross-attention weights by layer."""
        return self.extend_branched(x, caches, slots, active, memories, cross_view)[:3]

    def extend_branched(
        self,
        x: Float[Array, "B Q D"],
        caches: Sequence[Any],
        slots: Slots,
        active: Bool[Array, "B"],
        memories: Sequence[KeysValues | None],
        cross_view: View | None,
    ) -> tuple[Float[Array, "B Q D"], list[Any], list[Float[Array, "B N Q S"] | None], Array]:
        """Return what `extend` does, and the input of the last layer."""
        slots = slots._replace(view=self.relative_positions(slots.view))
        enter = self.sharing.enter(self.config, slots.view.q_pos, slots.limit, self.num_layers)
        layers = zip(self._applied(), caches, itertools.cycle(memories), strict=False)
        x = self.residual.begin(x)
        new, weights, trunk = [], [], x
        for number, (layer, cache, memory) in enumerate(layers):
            x = trunk = enter(x, number)
            x, cache, weight = layer.extend(x, cache, slots, active, memory, cross_view)
            new.append(cache)
            weights.append(weight)
        x = self.residual.end(x)
        return x if self.final_norm is None else self.final_norm(x), new, weights, trunk
