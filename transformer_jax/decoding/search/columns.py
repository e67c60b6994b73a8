"""Columns of logits and their pieces: all, or those of each sentence's shortlist."""

import jax
import jax.numpy as jnp
import numpy as np

from transformer_jax.base.arrays import Array, Bool, Int

Shortlists = Int[Array | np.ndarray, "B K"] | None  # of each sentence, in the order of ids


def pieces_of(shortlist: Shortlists, columns: Int[Array, "B *n"]) -> Int[Array, "B *n"]:
    """Return the pieces of some columns."""
    if shortlist is None:
        return columns
    rows = columns.reshape(len(columns), -1)
    pieces = jnp.take_along_axis(jnp.asarray(shortlist), rows, axis=1)
    return pieces.reshape(columns.shape)


def columns_of(shortlist: Shortlists, pieces: Int[Array, "B *n"]) -> Int[Array, "B *n"]:
    """Return the columns of some pieces; one past the last for a piece not in the shortlist."""
    if shortlist is None:
        return pieces

    def find(own: Int[Array, "K"], wanted: Int[Array, "*n"]) -> Int[Array, "*n"]:
        place = jnp.searchsorted(own, wanted)
        there = own.at[place].get(mode="fill", fill_value=-1) == wanted
        return jnp.where(there, place, own.size)

    return jax.vmap(find)(jnp.asarray(shortlist), pieces)


def marked(shortlist: Shortlists, tokens: tuple[int, ...], size: int) -> Bool[Array, "b V"]:
    """Return which of `size` columns belong to some pieces, per sentence or for all alike."""
    wanted = jnp.array(tokens, jnp.int32)  # may be empty
    if shortlist is None:
        return jnp.zeros((1, size), bool).at[0, wanted].set(True)
    return jnp.isin(jnp.asarray(shortlist), wanted)
