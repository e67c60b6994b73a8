"""Tokens that may not come next."""

from collections.abc import Callable

import jax.numpy as jnp

from transformer_jax.base.arrays import Array, Float, Int
from transformer_jax.base.vocabulary import OURS
from transformer_jax.data.codecs.codec import Codec
from transformer_jax.decoding.search.columns import columns_of, marked
from transformer_jax.decoding.search.state import Constraint, SearchState, too_early
from transformer_jax.decoding.search.trees import TreeConstraint

# Values of decoding.constraint; each is built from the target side's codec.
CONSTRAINTS: dict[str, Callable[[Codec], Constraint | None]] = {
    "none": lambda codec: None,
    "tree": TreeConstraint.of,
}

NOWHERE = 2**31 - 1  # a piece that does not exist


def constrain(
    logits: Float[Array, "B W V"],
    state: SearchState,
    forbidden: tuple[int, ...],
    no_repeat_ngram: int,
    constraint: Constraint | None = None,
) -> Float[Array, "B W V"]:
    """Return the logits with minus infinity for forbidden tokens; no pass if there are none."""
    if constraint is not None:
        logits = jnp.where(constraint.allowed(state), logits, -jnp.inf)
    shortlist, size = state.request.shortlist, logits.shape[2]
    if forbidden:
        logits = jnp.where(marked(shortlist, forbidden, size)[:, None], -jnp.inf, logits)
    if no_repeat_ngram:
        rows, lanes = (
            jnp.arange(n).reshape(s)
            for n, s in zip(logits.shape, ((-1, 1, 1), (1, -1, 1)), strict=False)
        )
        repeats = columns_of(shortlist, _repeats(state, no_repeat_ngram, NOWHERE))
        logits = logits.at[rows, lanes, repeats].set(-jnp.inf, mode="drop")
    return logits if state.special == OURS else _without_special(logits, state)


def _without_special(logits: Float[Array, "B W V"], state: SearchState) -> Float[Array, "B W V"]:
    """Mask what `banned_tokens` marks if special pieces come first, wherever they are."""
    eos = state.special.end
    shortlist, size = state.request.shortlist, logits.shape[2]
    never = marked(shortlist, tuple(state.special.unwritten), size)
    end = marked(shortlist, (eos,), size) & too_early(state)[:, None]
    return jnp.where((never | end)[:, None], -jnp.inf, logits)


def _repeats(state: SearchState, size: int, nothing: int) -> Int[Array, "B W G"]:
    """Return the tokens that would repeat an n-gram of this size; elsewhere `nothing`."""
    tokens, position = state.tokens, state.position[:, None, None]
    starts = tokens.shape[2] - size + 1
    if starts < 1:
        return jnp.full((*tokens.shape[:2], 1), nothing)
    last = jnp.arange(starts).reshape(1, 1, -1) + size - 1  # of each n-gram
    same = (last <= position) & (last >= size)  # and none begins before what is written
    for i in range(size - 1):
        # The i-th token of the current n-gram.
        where = jnp.maximum(position - (size - 2) + i, 0)
        current = jnp.take_along_axis(tokens, jnp.broadcast_to(where, (*tokens.shape[:2], 1)), 2)
        same &= tokens[:, :, i : i + starts] == current
    return jnp.where(same & (position >= size - 1), tokens[:, :, size - 1 :], nothing)
