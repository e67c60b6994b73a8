"""What every search has in common: sentences that advance independently of one another.

A search in progress is a pytree of arrays whose first axis counts sentences. A sentence is idle if
it is done, or paused because its room for tokens is full; idle ones do not change. So sentences can
be taken out and others put in their place between any two steps (see `stream`), and it makes no
difference to any of them.
"""

import functools
from dataclasses import replace
from typing import Any, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from transformer_jax.arrays import Array, Bool, Float, Int
from transformer_jax.decoding.stepper import Stepper
from transformer_jax.vocabulary import BOS, EOS, PAD

Number = Float[Array, ""] | Int[Array, ""] | float | int
static = functools.partial(struct.field, pytree_node=False)

NEVER = (PAD, BOS)  # no text holds these, so no search writes them
NOTHING = -1e9  # score of a hypothesis that is not there; finite, so differences stay numbers


@struct.dataclass
class Demand:
    """What is asked of the translation of each sentence. Held by numpy or by jax."""

    limits: Int[Array | np.ndarray, "B"]  # most tokens, EOS counted; 0 leaves the sentence out
    least: Int[Array | np.ndarray, "B"]  # fewest tokens, EOS counted, but for the limit
    prefix: Int[Array | np.ndarray, "B P"]  # tokens that it begins with; 0 is padding
    seeds: Int[Array | np.ndarray, "B"]  # of random numbers

    @classmethod
    def plain(cls, limits: Int[Array | np.ndarray, "B"]) -> "Demand":
        """Return the demand for translations that end within their limits."""
        nothing = jnp.zeros_like(limits)
        return cls(limits, nothing, jnp.zeros((len(limits), 0), jnp.int32), nothing)


@struct.dataclass
class Progress:
    """A search in progress. Tokens start with BOS; L is the room for tokens and one more."""

    position: Int[Array, "B"]  # tokens written so far, BOS apart
    demand: Demand
    tokens: Int[Array, "B W L"]
    log_probs: Float[Array, "B W"]
    finished: Int[Array, "B W L"]
    scores: Float[Array, "B W"]  # of the finished, with penalty, best first
    count: Int[Array, "B"]  # hypotheses finished so far
    done: Bool[Array, "B"]
    coverage: Float[Array, "B W S"] | None  # attention each source position has had; padding 1
    state: Any  # the Stepper's

    @property
    def room(self) -> int:
        """Tokens there is room for."""
        return self.tokens.shape[2] - 1

    @property
    def active(self) -> Bool[Array, "B"]:
        """Which sentences advance; the others are done, or paused for want of room."""
        return ~self.done & (self.position < self.room)


@runtime_checkable
class Search(Protocol):
    """A way to choose what is written next, `width` hypotheses a sentence.

    A pytree. Numbers such as a length penalty's alpha are its leaves, so another number is the same
    compiled program; whatever changes shapes or operations is static.
    """

    @property
    def width(self) -> int:
        """Hypotheses a sentence."""

    def start(self, src_ids: Int[Array, "B S"], demand: Demand, room: int, state: Any) -> Progress:
        """Return the beginning of the search."""

    def advance(self, stepper: Stepper, progress: Progress) -> Progress:
        """Extend the active sentences by one token."""


def begin(
    search: Search, stepper: Stepper, src_ids: Int[Array, "B S"], demand: Demand, room: int
) -> Progress:
    """Start the model and the search."""
    return search.start(src_ids, demand, room, stepper.start(src_ids, search.width, room))


def blank(demand: Demand, width: int, room: int, state: Any) -> Progress:
    """Return hypotheses that hold BOS alone."""
    batch = demand.limits.shape[0]
    tokens = jnp.full((batch, width, room + 1), PAD).at[:, :, 0].set(BOS)
    return Progress(
        position=jnp.zeros(batch, jnp.int32),
        demand=demand,
        tokens=tokens,
        log_probs=jnp.zeros((batch, width)),
        finished=tokens,
        scores=jnp.full((batch, width), NOTHING),
        count=jnp.zeros(batch, jnp.int32),
        done=jnp.asarray(demand.limits) <= 0,
        coverage=None,
        state=state,
    )


def run(search: Search, stepper: Stepper, progress: Progress, wake: Int[Array, ""]) -> Progress:
    """Advance until no more than `wake` sentences are active."""
    return jax.lax.while_loop(
        lambda p: p.active.sum() > wake, lambda p: search.advance(stepper, p), progress
    )


def complete(
    search: Search, stepper: Stepper, src_ids: Int[Array, "B S"], demand: Demand, room: int
) -> tuple[Int[Array, "B W L"], Float[Array, "B W"]]:
    """Search from start to end; `room` is at least max(limits). Return tokens and scores."""
    progress = begin(search, stepper, src_ids, demand, room)
    return outcome(run(search, stepper, progress, jnp.zeros((), jnp.int32)))


def outcome(progress: Progress) -> tuple[Int[Array, "B W L"], Float[Array, "B W"]]:
    """Return the hypotheses, PAD after EOS, and their scores in nats, best first."""
    return progress.finished[:, :, 1:], progress.scores


def grow(stepper: Stepper, progress: Progress, src_length: int, room: int) -> Progress:
    """Return the same search with more room for sources and tokens."""
    new = ((0, 0), (0, 0), (0, room - progress.room))
    coverage = progress.coverage
    if coverage is not None:
        more = ((0, 0), (0, 0), (0, src_length - coverage.shape[2]))
        coverage = jnp.pad(coverage, more, constant_values=1)
    return replace(
        progress,
        tokens=jnp.pad(progress.tokens, new, constant_values=PAD),
        finished=jnp.pad(progress.finished, new, constant_values=PAD),
        coverage=coverage,
        state=stepper.grow(progress.state, src_length, room),
    )


def last_tokens(progress: Progress) -> Int[Array, "B W 1"]:
    """Return the token that each hypothesis ends with."""
    where = jnp.broadcast_to(progress.position[:, None, None], (*progress.log_probs.shape, 1))
    return jnp.take_along_axis(progress.tokens, where, axis=2)


def write(
    history: Int[Array, "B C L"], position: Int[Array, "B"], tokens: Int[Array, "B C"]
) -> Int[Array, "B C L"]:
    """Return the histories with one token each at a position of their sentence."""
    here = jnp.arange(history.shape[2]).reshape(1, 1, -1) == position[:, None, None]
    return jnp.where(here, tokens[:, :, None], history)


def keep_idle(old: Progress, new: Progress, active: Bool[Array, "B"]) -> Progress:
    """Return `new` where sentences are active, and `old` elsewhere, the model's state apart.

    The model's state of an idle sentence needs no protection: nothing that is written beyond the
    room stays, and nobody reads that of a sentence that is done.
    """

    def choose(before, after):
        chosen = jnp.where(active.reshape(-1, *[1] * (after.ndim - 1)), after, before)
        return chosen.astype(before.dtype)  # in 64 bits, sums of flags come out wider

    chosen = jax.tree.map(choose, replace(old, state=None), replace(new, state=None))
    return replace(chosen, state=new.state)


def banned_tokens(progress: Progress) -> Bool[Array, "B W b"]:
    """Mark, of the columns up to EOS, the tokens that may not be written next."""
    never = jnp.array([token in NEVER for token in range(EOS + 1)])
    early = progress.position + 1 < jnp.minimum(progress.demand.least, progress.demand.limits)
    banned = never[None] | (early[:, None] & (jnp.arange(EOS + 1) == EOS)[None])
    shape = (*progress.log_probs.shape, EOS + 1)
    return jnp.broadcast_to(banned[:, None], shape)


def forced_tokens(progress: Progress) -> Int[Array, "B"]:
    """Return the token of the prefix that comes next, or 0 where none does."""
    prefix = jnp.asarray(progress.demand.prefix)
    if not prefix.shape[1]:
        return jnp.zeros_like(progress.position)
    here = jnp.arange(prefix.shape[1])[None] == progress.position[:, None]
    return jnp.where(here, prefix, 0).sum(1)
