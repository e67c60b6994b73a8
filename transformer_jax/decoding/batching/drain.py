"""Draining a queue through the rows of a batch in one program."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from transformer_jax.base.arrays import Array, Bool, Int
from transformer_jax.decoding.batching.results import Results
from transformer_jax.decoding.search.state import (
    Search,
    SearchRequest,
    SearchState,
    begin,
    put_rows,
    run,
)
from transformer_jax.models.model import Stepper


class Outcome(NamedTuple):
    """The outcome on a device, or on the host that of all devices."""

    entered: Int[Array | np.ndarray, "devices"]  # numbers of sentences admitted from the queues
    steps: Int[Array | np.ndarray, "devices"]  # left
    places: Int[Array | np.ndarray, "rows"]  # of the sentences still in the batch
    stuck: Bool[Array | np.ndarray, "rows"]  # those that have no room left
    results: Results  # of the others, by their places


class _Flow(NamedTuple):
    """Loop state while a queue is drained."""

    entered: Int[Array, ""]  # sentences of the queue that have been admitted
    steps: Int[Array, ""]  # left
    state: SearchState
    places: Int[Array, "rows"]
    results: Results


def drain(
    search: Search,
    stepper: Stepper,
    state: SearchState,
    places: Int[Array, "rows"],
    queue: SearchRequest,
    count: Int[Array, "1"],
    wake: Int[Array, "1"],
    steps: Int[Array, "1"],
    *,
    share: int,
) -> tuple[SearchState, Outcome]:
    """Admit the first `count` sentences of a queue, a share at a time, as rows become free; search
    until all are admitted and at most `wake` are active, or for `steps` steps.

    A sentence's place says where its results go: r if it was in row r before, rows + i if it is
    sentence i of the queue; rows whose place is -1 are free. There are rows + queue places.
    """
    rows, size = len(places), len(queue.limits)
    one = jnp.arange(share, dtype=jnp.int32)

    def fits(flow: _Flow) -> Array:
        return (flow.entered < count[0]) & ((flow.places < 0).sum() >= share)

    def let_in(flow: _Flow) -> _Flow:
        comes = flow.entered + one < count[0]
        free = jnp.nonzero(flow.places < 0, size=share, fill_value=rows)[0]
        where = jnp.where(comes, free, rows)
        part = jax.tree.map(lambda x: jax.lax.dynamic_slice_in_dim(x, flow.entered, share), queue)
        state = put_rows(flow.state, begin(search, stepper, part, flow.state.room), where)
        places = flow.places.at[where].set(rows + flow.entered + one, mode="drop")
        entered = flow.entered + share
        return flow._replace(entered=entered, state=state, places=places)

    # Loops inside a loop: a branch would copy the caches.
    def turn(carry: tuple[Array, _Flow]) -> tuple[Array, _Flow]:
        flow = jax.lax.while_loop(fits, let_in, carry[1])
        enough = jnp.where(flow.entered < count[0], rows - share, wake[0])
        state, left = run(search, stepper, flow.state, enough, flow.steps)
        over = state.done & (flow.places >= 0)
        where = jnp.where(over, flow.places, rows + size)
        results = put_rows(flow.results, Results.of(state), where)
        places = jnp.where(over, -1, flow.places)
        return jnp.asarray(False), _Flow(flow.entered, left, state, places, results)

    def goes_on(carry: tuple[Array, _Flow]) -> Array:
        first, flow = carry
        return first | (fits(flow) & (flow.steps > 0))

    empty = Results.of(state).room(rows + size)
    begun = _Flow(jnp.int32(0), steps[0], state, places, empty)
    _, flow = jax.lax.while_loop(goes_on, turn, (jnp.asarray(True), begun))
    entered, state = jnp.minimum(flow.entered, count[0]), flow.state
    stuck = ~state.done & ~state.active & (flow.places >= 0)
    return state, Outcome(entered[None], flow.steps[None], flow.places, stuck, flow.results)
