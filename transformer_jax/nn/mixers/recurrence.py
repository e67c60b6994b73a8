"""The common base of all mixers whose past is a state of constant size."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from transformer_jax.base.arrays import Array, Bool, Float, Int
from transformer_jax.config import ModelConfig
from transformer_jax.nn.cache import Lanes, Slots
from transformer_jax.nn.mixers import in_order
from transformer_jax.nn.states import States
from transformer_jax.nn.view import View

Step = Callable[[Any, Any], tuple[Any, Any]]  # state, input -> next state, output


class Recurrence(nn.Module):
    """A Mixer without weights: each token changes a state, which all later tokens read.

    A subclass defines the input, how a token changes the state, and the output; it may process
    whole sequences in a faster way. Every segment begins with the blank state, and padding changes
    no state.
    """

    config: ModelConfig
    dtype: jnp.dtype
    in_slots = False

    def enter(self, x: Float[Array, "B T D"]) -> Any:
        """Return the part of each token that does not depend on the state [B T ...]."""
        raise NotImplementedError

    def blank(self, batch: Any) -> Any:
        """Return the blank state [B ...]."""
        raise NotImplementedError

    def step(self) -> Step:
        """Return the change of state by one token [B ...] as a function that holds parameters."""
        older = getattr(self, "turn", None)  # its name in the first parts of users' own
        if older is None:
            raise NotImplementedError
        return older()

    def leave(self, out: Any) -> Float[Array, "B T D"]:
        """Return the output, from what the steps returned."""
        raise NotImplementedError

    def through(self, entering: Any, view: View) -> tuple[Any, Any]:
        """Return the steps' outputs for whole sequences, and the last state of each row."""
        blank = self.blank(view.q_seg.shape[0])
        return scan(self.step(), blank, entering, view.q_seg)

    def further(self, state: Any, entering: Any) -> tuple[Any, Any]:
        """Return the steps' outputs for T more tokens after a state, and the state after each."""
        return trailed(self.step(), state, entering)

    def mix(self, x: Float[Array, "B T D"], view: View, train: bool) -> tuple[Array, None]:
        """See Mixer."""
        return self.leave(self.through(self.enter(x), view)[0]), None

    def empty(self, lanes: Lanes) -> States:
        """See Mixer."""
        batch, width, _ = lanes.seen.shape
        return States.of(self.blank(batch), width)

    def extend(
        self, x: Float[Array, "B Q D"], cache: States, slots: Slots, active: Bool[Array, "B"]
    ) -> tuple[Float[Array, "B Q D"], None, States]:
        """See Mixer: a prompt shared by all hypotheses, or new tokens of each."""
        batch, width = jax.tree.leaves(cache.trail)[0].shape[:2]
        if slots.view.visible is None:
            out, state = self.through(self.enter(x), slots.view)
            return self.leave(out), None, States.of(state, width)
        lanes = x.reshape(batch * width, -1, x.shape[-1])
        together = jax.tree.map(lambda y: y.reshape(-1, *y.shape[2:]), cache.current())
        out, trail = self.further(together, self.enter(lanes))
        trail = jax.tree.map(lambda y: y.reshape(batch, width, *y.shape[1:]), trail)
        return self.leave(out).reshape(x.shape), None, cache.follow(trail, active)


class FromBothEnds(nn.Module):
    """A Mixer that adds what two recurrences return, one from each end of a text, with parameters
    of their own, as in Vision Mamba (Zhu et al. 2024, arXiv:2401.09417). For encoders only.
    """

    config: ModelConfig
    dtype: jnp.dtype
    one = Recurrence  # a subclass
    in_slots = False

    def setup(self) -> None:
        self.forward = self.one(self.config, self.dtype)
        self.backward = self.one(self.config, self.dtype)

    def mix(self, x: Float[Array, "B T D"], view: View, train: bool) -> tuple[Array, None]:
        """See Mixer."""
        assert view.order == "all", "a text being generated has no end to start from"
        ahead, _ = self.forward.mix(x, replace(view, order="causal"), train)
        behind, _ = self.backward.mix(x[:, ::-1], from_the_end(view), train)
        return ahead + behind[:, ::-1], None


def from_the_end(view: View) -> View:
    """Return the causal view of a sequence on itself in reverse order, numbers of segments still
    ascending.
    """
    seg, pos = renumbered(view.q_seg)[:, ::-1], view.q_pos[:, ::-1]
    return replace(view, q_pos=pos, k_pos=pos, q_seg=seg, k_seg=seg, order="causal", single=False)


def renumbered(seg: Int[Array, "B T"]) -> Int[Array, "B T"]:
    """Return the segment numbers in reverse order; padding stays 0."""
    return jnp.where(seg > 0, seg.max(1, keepdims=True) + 1 - seg, 0)


def trailed(step: Step, state: Any, entering: Any) -> tuple[Any, Any]:
    """Return the outputs for T tokens [B T ...], and the state after each [B T ...]."""

    def body(state: Any, token: Any) -> tuple[Any, Any]:
        state, out = step(state, token)
        return state, (out, state)

    _, (out, trail) = jax.lax.scan(body, state, _time_first(entering))
    return _time_first(out), _time_first(trail)


def scan(
    step: Step, blank: Any, entering: Any, seg: Int[Array, "B T"], reverse: bool = False
) -> tuple[Any, Any]:
    """Return the outputs for sequences [B T ...] and the last states; backwards with `reverse`.

    Each segment begins with the state `blank`, the same in all rows.
    """
    begin = jax.tree.map(lambda x: x[:1], blank)

    def body(carry: tuple[Any, Array], token: tuple[Any, Array]) -> tuple[Any, Any]:
        (state, last), (given, here) = carry, token
        state = where((here > 0) & (here != last), begin, state)
        new, out = step(state, given)
        return (where(here > 0, new, state), jnp.where(here > 0, here, last)), out

    start = blank, jnp.zeros_like(seg[:, 0])
    given = _time_first(entering), seg.swapaxes(0, 1)
    (state, _), out = in_order.scan(body, start, given, reverse)
    return _time_first(out), state


def where(condition: Bool[Array, "B"], one: Any, other: Any) -> Any:
    """Return for each row one tree of arrays [B ...] or the other."""

    def chosen(x: Array, y: Array) -> Array:
        return jnp.where(condition.reshape(-1, *(1,) * (x.ndim - 1)), x, y)

    return jax.tree.map(chosen, one, other)


def _time_first(tree: Any) -> Any:
    return jax.tree.map(lambda x: x.swapaxes(0, 1), tree)
