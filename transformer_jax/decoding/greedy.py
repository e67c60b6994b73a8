"""Greedy search: the most probable token at each step."""

import functools

import jax
import jax.numpy as jnp

from transformer_jax.arrays import Array, Bool, Float, Int, at_least_float32
from transformer_jax.decoding.stepper import Stepper, rooms
from transformer_jax.decoding.top import argmax
from transformer_jax.vocabulary import BOS, EOS, PAD

NEVER = (PAD, BOS)  # no text holds these, so no search writes them


def forbid(scores: Float[Array, "... V"]) -> Float[Array, "... V"]:
    """Give tokens that no text holds the least score."""
    index = jax.lax.broadcasted_iota(jnp.int32, scores.shape, scores.ndim - 1)
    never = jnp.zeros(scores.shape, bool)
    for token in NEVER:
        never |= index == token
    return jnp.where(never, jnp.finfo(scores.dtype).min, scores)


def greedy_search(
    stepper: Stepper, src_ids: Int[Array, "B S"], limits: Int[Array, "B"], length: int
) -> tuple[Int[Array, "B L"], Float[Array, "B"]]:
    """Return the tokens found, PAD after EOS, and their log-probability in nats.

    Row b ends after `limits[b]` tokens, EOS or not; 0 leaves it out. `length`, at least
    max(limits), is the static room for tokens.
    """
    batch = src_ids.shape[0]
    first, *more = rooms(src_ids.shape[1], length)
    tokens = jnp.full((batch, length + 1), PAD).at[:, 0].set(BOS)
    carry = (
        jnp.zeros((), jnp.int32), tokens, jnp.zeros(batch), limits <= 0,
        stepper.start(src_ids, 1, first),
    )  # fmt: skip

    def unfinished(room: int, carry) -> Bool[Array, ""]:
        return ~carry[3].all() & (carry[0] < room)

    def advance(carry):
        position, tokens, score, done, state = carry
        last = jax.lax.dynamic_slice_in_dim(tokens, position, 1, axis=1)
        where = jnp.broadcast_to(position, (batch, 1))
        logits, _, state = stepper.step(state, last[:, None], where)
        logits = at_least_float32(logits[:, 0, 0])
        best = argmax(forbid(logits))
        chosen = jnp.take_along_axis(logits, best[:, None], axis=1)[:, 0]
        gain = chosen - jax.nn.logsumexp(logits, axis=-1)
        written = jnp.where(done, PAD, best)
        tokens = jax.lax.dynamic_update_slice_in_dim(tokens, written[:, None], position + 1, axis=1)
        score = jnp.where(done, score, score + gain)
        done |= (best == EOS) | (position + 1 >= limits)
        return position + 1, tokens, score, done, state

    carry = jax.lax.while_loop(functools.partial(unfinished, first), advance, carry)
    for room in more:
        carry = *carry[:4], stepper.grow(carry[4], room)
        carry = jax.lax.while_loop(functools.partial(unfinished, room), advance, carry)
    return carry[1][:, 1:], carry[2]
