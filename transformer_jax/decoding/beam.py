"""Beam search.

Each step extends the W live hypotheses of a sentence and looks at the 2W best continuations, of
which at most W end in EOS, so W live ones always remain. Those that end join the finished pool, the
W best by log-probability / penalty(length). The length counts EOS and not BOS. At a sentence's
length limit its live hypotheses join the pool as they are.

Two stopping rules, each sentence by itself:
  optimal  the worst wanted finished hypothesis beats the best that a live one can still become.
           Log-probabilities only fall and penalties only grow with length, so that bound is its
           present log-probability over the penalty at the length limit.
  width    W hypotheses are finished; only an EOS among the W best continuations counts. This is
           what CTranslate2 does, and `transformers` with early_stopping=True.
"""

import functools
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
from flax import struct

from transformer_jax.arrays import Array, Bool, Float, Int, at_least_float32
from transformer_jax.choices import pick
from transformer_jax.config import DecodingConfig
from transformer_jax.decoding.greedy import NEVER
from transformer_jax.decoding.penalty import PENALTIES
from transformer_jax.decoding.stepper import Stepper, rooms
from transformer_jax.decoding.top import top_k
from transformer_jax.vocabulary import BOS, EOS, PAD

NOTHING = -1e9  # score of a hypothesis that is not there; finite, so differences stay numbers


@struct.dataclass
class Beam:
    """A search in progress; tokens start with BOS."""

    position: Int[Array, ""]  # tokens written so far, BOS apart
    tokens: Int[Array, "B W L"]
    log_probs: Float[Array, "B W"]
    finished: Int[Array, "B W L"]
    scores: Float[Array, "B W"]  # of the finished, with penalty, best first
    count: Int[Array, "B"]  # hypotheses finished so far
    done: Bool[Array, "B"]
    state: Any  # the Stepper's


def beam_search(
    stepper: Stepper,
    src_ids: Int[Array, "B S"],
    limits: Int[Array, "B"],
    length: int,
    config: DecodingConfig,
    wanted: int = 1,
) -> tuple[Int[Array, "B n L"], Float[Array, "B n"]]:
    """Return the `wanted` best hypotheses, PAD after EOS, and their scores in nats, best first.

    `limits[b]` is the most tokens of row b, EOS counted; 0 leaves it out. `length`, at least
    max(limits), is the static room for tokens.
    """
    first, *more = rooms(src_ids.shape[1], length)
    state = stepper.start(src_ids, config.beam_size, first)
    beam = _start(state, limits, length, config.beam_size)
    advance = functools.partial(_advance, stepper, limits, config, wanted)
    beam = jax.lax.while_loop(functools.partial(_unfinished, first), advance, beam)
    for room in more:
        beam = replace(beam, state=stepper.grow(beam.state, room))
        beam = jax.lax.while_loop(functools.partial(_unfinished, room), advance, beam)
    return beam.finished[:, :wanted, 1:], beam.scores[:, :wanted]


def _unfinished(room: int, beam: Beam) -> Bool[Array, ""]:
    return ~beam.done.all() & (beam.position < room)


def _start(state: Any, limits, length: int, width: int) -> Beam:
    batch = limits.shape[0]
    tokens = jnp.full((batch, width, length + 1), PAD).at[:, :, 0].set(BOS)
    # All W hypotheses begin alike, so only the first one counts.
    log_probs = jnp.full((batch, width), NOTHING).at[:, 0].set(0.0)
    return Beam(
        position=jnp.zeros((), jnp.int32),
        tokens=tokens,
        log_probs=log_probs,
        finished=tokens,
        scores=jnp.full((batch, width), NOTHING),
        count=jnp.zeros(batch, jnp.int32),
        done=limits <= 0,
        state=state,
    )


def _advance(stepper: Stepper, limits, config: DecodingConfig, wanted: int, beam: Beam) -> Beam:
    batch, width = beam.log_probs.shape
    last = jax.lax.dynamic_slice_in_dim(beam.tokens, beam.position, 1, axis=2)
    logits, _, state = stepper.step(beam.state, last, jnp.broadcast_to(beam.position, (batch, 1)))
    values, parents, tokens = _candidates(at_least_float32(logits[:, :, 0]), beam.log_probs)
    history = jnp.take_along_axis(beam.tokens, parents[:, :, None], axis=1)
    history = jax.lax.dynamic_update_slice_in_dim(
        history, tokens[:, :, None], beam.position + 1, axis=2
    )
    length = beam.position + 1
    ended = tokens == EOS
    at_limit = length >= limits
    beam = _collect(beam, config, values, history, ended, at_limit, length)

    # The first W that do not end stay alive, in order.
    order = jnp.argsort(ended, axis=1, stable=True)[:, :width]
    keep = functools.partial(jnp.take_along_axis, indices=order, axis=1)
    beam = replace(
        beam,
        position=length,
        tokens=jnp.take_along_axis(history, order[:, :, None], axis=1),
        log_probs=keep(values),
        state=stepper.reorder(state, keep(parents)),
    )
    return replace(beam, done=beam.done | at_limit | _settled(beam, limits, config, wanted))


def _candidates(
    logits: Float[Array, "B W V"], log_probs: Float[Array, "B W"]
) -> tuple[Float[Array, "B C"], Int[Array, "B C"], Int[Array, "B C"]]:
    """Return log-probability, parent and token of the C = 2W best continuations, best first."""
    batch, width, vocab = logits.shape
    flat = logits.reshape(batch * width, vocab)
    # Forbidden tokens are among the candidates and fall out here: no pass over V for them alone.
    count = min(2 * width + len(NEVER), vocab)
    best, tokens = top_k(flat, count)
    greatest = best[:, :1]
    normaliser = greatest + jnp.log(jnp.exp(flat - greatest).sum(-1, keepdims=True))
    never = functools.reduce(jnp.logical_or, (tokens == token for token in NEVER))
    best = jnp.where(never, NOTHING, best)
    total = (best - normaliser).reshape(batch, width, count) + log_probs[:, :, None]
    values, where = jax.lax.top_k(total.reshape(batch, width * count), 2 * width)
    tokens = jnp.take_along_axis(tokens.reshape(batch, width * count), where, axis=1)
    return values, where // count, tokens


def _collect(beam: Beam, config: DecodingConfig, values, history, ended, at_limit, length) -> Beam:
    """Let the hypotheses that finish at this step join the pool."""
    width = beam.log_probs.shape[1]
    among_best = jnp.arange(values.shape[1])[None] < width
    if config.stop == "width":
        ended = ended & among_best
    finishing = ended | (at_limit[:, None] & among_best)
    finishing = finishing & ~beam.done[:, None] & (values > NOTHING / 2)
    penalty = pick(PENALTIES, config.length_penalty, "config.decoding.length_penalty")
    scores = jnp.where(finishing, values / penalty(length, config.alpha), NOTHING)
    pool, order = jax.lax.top_k(jnp.concatenate([beam.scores, scores], axis=1), width)
    texts = jnp.concatenate([beam.finished, history], axis=1)
    return replace(
        beam,
        scores=pool,
        finished=jnp.take_along_axis(texts, order[:, :, None], axis=1),
        count=beam.count + finishing.sum(1),
    )


def _settled(beam: Beam, limits, config: DecodingConfig, wanted: int) -> Bool[Array, "B"]:
    if config.stop == "width":
        return beam.count >= beam.log_probs.shape[1]
    penalty = pick(PENALTIES, config.length_penalty, "config.decoding.length_penalty")
    bound = beam.log_probs[:, 0] / penalty(limits, config.alpha)
    return beam.scores[:, wanted - 1] >= bound
