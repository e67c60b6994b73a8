"""The state common to all searches: sentences that advance independently of one another.

A search in progress is a pytree of arrays whose first axis counts sentences. A sentence is idle if
it is done, or paused because its room for tokens is full; idle sentences do not change. So between
any two steps, sentences can be taken out and others put in their place (see `batching.stream`)
without affecting any of them.
"""

import functools
from dataclasses import replace
from typing import Any, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from transformer_jax.base import arrays
from transformer_jax.base.arrays import Array, Bool, Float, Int
from transformer_jax.base.vocabulary import BOS, EOS, OURS, PAD, Special
from transformer_jax.data.batches.batch import Side
from transformer_jax.decoding.search.request import SearchRequest
from transformer_jax.models.model import Stepper

Number = Float[Array, ""] | Int[Array, ""] | float | int
static = functools.partial(struct.field, pytree_node=False)

NEVER = (PAD, BOS)  # no text contains these, so no search writes them
ENDLESS = np.int32(2**31 - 1)  # steps: until the search ends
NOTHING = -1e9  # score of a missing hypothesis; finite, so differences stay numbers


@struct.dataclass
class SearchState:
    """A search in progress. Tokens start with `first`; L is the room for tokens plus one."""

    position: Int[Array, "B"]  # tokens written so far, without `first`
    request: SearchRequest
    tokens: Int[Array, "B W L"]
    log_probs: Float[Array, "B W"]
    finished: Int[Array, "B W L"]
    scores: Float[Array, "B W"]  # of finished ones, with penalty, best first
    count: Int[Array, "B"]  # hypotheses finished so far
    done: Bool[Array, "B"]
    coverage: Float[Array, "B W S"] | None  # total attention to each source position; padding 1
    model_state: Any  # the Stepper's
    # In speculative decoding: passes, tokens proposed and judged, those accepted.
    drafts: Int[Array, "B 3"] | None = None
    special: Special = static(default=OURS)
    stride: int = static(default=1)  # the search's

    @property
    def room(self) -> int:
        """Number of tokens there is room for."""
        return self.tokens.shape[2] - 1

    @property
    def active(self) -> Bool[Array, "B"]:
        """Which sentences advance; the others are done, or paused for lack of room."""
        limits = jnp.asarray(self.request.limits)
        return ~self.done & has_room(self.position, limits, self.room, self.stride)


def has_room(position: Any, limits: Any, room: int, stride: int) -> Any:
    """Return which sentences can advance by `stride` tokens, or to their limits.

    Pausing for lack of room does not change what they write: no step is cut short.
    """
    return (position + stride <= room) | (limits <= room)


@runtime_checkable
class Search(Protocol):
    """A search algorithm with `width` hypotheses per sentence.

    A pytree. Numbers such as a length penalty's alpha are its leaves, so changing one does not
    recompile; whatever changes shapes or operations is static.
    """

    @property
    def width(self) -> int:
        """Number of hypotheses per sentence."""

    @property
    def stride(self) -> int:
        """Most tokens that `advance` writes, and that it may rewind of what the model has read."""

    def start(self, request: SearchRequest, room: int, model_state: Any) -> SearchState:
        """Return the initial state of the search."""

    def advance(self, stepper: Stepper, state: SearchState) -> SearchState:
        """Extend the active sentences, by one token or more."""


@runtime_checkable
class Constraint(Protocol):
    """A constraint on outputs. A pytree; a function of the request and the text so far."""

    def allowed(self, state: SearchState) -> Bool[Array, "B W V"]:
        """Return which pieces may come next."""

    def fewest(self, words: int) -> int:
        """Return the fewest pieces of an output for this many words, including EOS."""


def begin(search: Search, stepper: Stepper, request: SearchRequest, room: int) -> SearchState:
    """Start the model and the search."""
    ids = jnp.asarray(request.src_ids)
    pos = jnp.broadcast_to(jnp.arange(ids.shape[1])[None], ids.shape[:2])
    seg = (pos < jnp.asarray(request.src_lengths)[:, None]).astype(jnp.int32)
    batch = stepper.context(Side(ids, pos, seg))
    sizes = search.width, room, search.stride, request.shortlist
    return search.start(request, room, stepper.start(batch, *sizes))


def blank(
    request: SearchRequest, width: int, room: int, model_state: Any, special: Special = OURS
) -> SearchState:
    """Return hypotheses that hold only their first token."""
    batch = request.limits.shape[0]
    # Strongly typed, as steps return them: the second step reuses the first one's program.
    tokens = jnp.full((batch, width, room + 1), special.pad, jnp.int32)
    tokens = tokens.at[:, :, 0].set(jnp.asarray(request.first)[:, None])
    return SearchState(
        position=jnp.zeros(batch, jnp.int32),
        request=request,
        tokens=tokens,
        log_probs=jnp.zeros((batch, width)),
        finished=tokens,
        scores=jnp.full((batch, width), NOTHING, jnp.float32),
        count=jnp.zeros(batch, jnp.int32),
        done=jnp.asarray(request.limits) <= 0,
        coverage=None,
        model_state=model_state,
        special=special,
    )


def run(
    search: Search, stepper: Stepper, state: SearchState, wake: Int[Array, ""],
    steps: Int[Array, ""],
) -> tuple[SearchState, Int[Array, ""]]:  # fmt: skip
    """Advance until no more than `wake` sentences are active, or by `steps` steps.

    Also returns the number of steps left.
    """
    return jax.lax.while_loop(
        lambda carry: (carry[0].active.sum() > wake) & (carry[1] > 0),
        lambda carry: (search.advance(stepper, carry[0]), carry[1] - 1),
        (state, steps),
    )


def complete(
    search: Search, stepper: Stepper, request: SearchRequest, room: int
) -> tuple[Int[Array, "B W L"], Float[Array, "B W"]]:
    """Search from start to end; `room` is at least max(limits).

    Returns the hypotheses, best first, PAD after EOS, and their scores in nats.
    """
    state = begin(search, stepper, request, room)
    state, _ = run(search, stepper, state, jnp.zeros((), jnp.int32), jnp.asarray(ENDLESS))
    return state.finished[:, :, 1:], state.scores


def grow(stepper: Stepper, state: SearchState, src_length: int, room: int) -> SearchState:
    """Return the same search with more room for sources and tokens."""
    src_ids = jnp.asarray(state.request.src_ids)
    longer = src_length - src_ids.shape[1]
    behind = ((0, 0), (0, longer), *[(0, 0)] * (src_ids.ndim - 2))
    new = ((0, 0), (0, 0), (0, room - state.room))
    coverage = state.coverage
    if coverage is not None:
        coverage = jnp.pad(coverage, ((0, 0), (0, 0), (0, longer)), constant_values=1)
    return replace(
        state,
        request=replace(state.request, src_ids=jnp.pad(src_ids, behind)),
        tokens=jnp.pad(state.tokens, new, constant_values=state.special.pad),
        finished=jnp.pad(state.finished, new, constant_values=state.special.pad),
        coverage=coverage,
        model_state=stepper.grow(state.model_state, src_length, room),
    )


def put_rows(old: Any, new: Any, where: Int[Array, "N"]) -> Any:
    """Return arrays with those of `new` in the given rows; rows past the last are dropped."""
    return jax.tree.map(lambda x, y: arrays.put_rows(x, y, where), old, new)


def last_tokens(state: SearchState) -> Int[Array, "B W 1"]:
    """Return the last token of each hypothesis."""
    where = jnp.broadcast_to(state.position[:, None, None], (*state.log_probs.shape, 1))
    return jnp.take_along_axis(state.tokens, where, axis=2)


def write(
    history: Int[Array, "B C L"], position: Int[Array, "B"], tokens: Int[Array, "B C"]
) -> Int[Array, "B C L"]:
    """Write one token into each history, at its sentence's position."""
    here = jnp.arange(history.shape[2]).reshape(1, 1, -1) == position[:, None, None]
    return jnp.where(here, tokens[:, :, None], history)


def keep_idle(old: SearchState, new: SearchState, active: Bool[Array, "B"]) -> SearchState:
    """Return `new` where sentences are active and `old` elsewhere.

    The model's state is left to the Stepper, which knows which sentences were active.
    """

    def choose(before, after):
        chosen = jnp.where(active.reshape(-1, *[1] * (after.ndim - 1)), after, before)
        return chosen.astype(before.dtype)  # in 64 bits, sums of flags come out wider

    kept = jax.tree.map(choose, replace(old, model_state=None), replace(new, model_state=None))
    return replace(kept, model_state=new.model_state)


def too_early(state: SearchState) -> Bool[Array, "B"]:
    """Return which sentences may not end yet."""
    return state.position + 1 < jnp.minimum(state.request.least, state.request.limits)


def banned_tokens(state: SearchState) -> Bool[Array, "B W b"] | None:
    """Mark the tokens, among the columns up to EOS, that may not be written next.

    None if special pieces are not the first columns: `constrain` handles them then.
    """
    if state.special != OURS:
        return None
    never = jnp.array([token in NEVER for token in range(EOS + 1)])
    banned = never[None] | (too_early(state)[:, None] & (jnp.arange(EOS + 1) == EOS)[None])
    shape = (*state.log_probs.shape, EOS + 1)
    return jnp.broadcast_to(banned[:, None], shape)


def forced_tokens(state: SearchState) -> tuple[Bool[Array, "B"], Int[Array, "B"]]:
    """Return which sentences have a next token of their prefix, and that token."""
    prefix = jnp.asarray(state.request.prefix)
    if not prefix.shape[1]:
        return jnp.zeros_like(state.done), jnp.zeros_like(state.position)
    here = jnp.arange(prefix.shape[1])[None] == state.position[:, None]
    number = jnp.where(here, prefix, 0).sum(1)
    return number > 0, jnp.maximum(number - 1, 0)
