"""A toy model whose logits depend on all that was written, and searches over it in plain Python.

The logits after a prefix are a hash of it, of the row's seed and of the positions it was fed at, so
a search that mixes up hypotheses, rows or positions finds something else.
"""

import functools
import itertools
import math
from dataclasses import dataclass

import jax.numpy as jnp
import numpy as np
from flax import struct

from transformer_jax.arrays import Array, Int, UInt
from transformer_jax.vocabulary import BOS, EOS, PAD, UNK


def stir(x):
    """Mix the bits of an array of uint32, of numpy or of jax."""
    for multiplier in (0x85EBCA6B, 0xC2B2AE35):
        x = (x ^ (x >> 15)) * np.uint32(multiplier)
    return x ^ (x >> 13)


def extend(history, token, position):
    """Return the hash of a prefix that goes on with a token at a position."""
    return stir(history * np.uint32(31) + stir(token + np.uint32(1)) + position)


@struct.dataclass
class ToyState:
    """The hash of every hypothesis, and the room for tokens."""

    history: UInt[Array, "B W"]
    room: Int[Array, "B"]


@dataclass(frozen=True)
class Toy:
    """A Stepper. A source is one number, the seed of its row."""

    vocab: int = 5
    eos_first_or_last: bool = False  # EOS is the best continuation or the worst, never between

    def logits(self, history, pieces):
        """Return the logits of pieces, as exact float32 numbers: 16 bits of a hash, scaled."""
        bits = stir(history + stir(pieces.astype(np.uint32) + np.uint32(77))) >> 16
        logits = bits.astype(np.float32) * np.float32(4 / 2**16)
        if self.eos_first_or_last:
            extreme = ((history >> 7) % 3 == 0).astype(np.float32) * np.float32(10) - 5
            logits = logits + extreme * (pieces == EOS)
        return logits

    def start(self, src_ids: Int[Array, "B S"], width: int, length: int) -> ToyState:
        seed = stir(src_ids[:, :1].astype(jnp.uint32))
        batch = src_ids.shape[0]
        return ToyState(jnp.broadcast_to(seed, (batch, width)), jnp.full(batch, length))

    def step(self, state: ToyState, tokens: Int[Array, "B W T"], positions: Int[Array, "B T"]):
        history = extend(
            state.history, tokens[:, :, 0].astype(jnp.uint32), positions.astype(jnp.uint32)
        )
        logits = self.logits(history[:, :, None], jnp.arange(self.vocab).reshape(1, 1, -1))
        fits = positions < state.room[:, None]
        return (
            logits[:, :, None],
            None,
            state.replace(history=jnp.where(fits, history, state.history)),
        )

    def reorder(self, state: ToyState, parents: Int[Array, "B W"]) -> ToyState:
        return state.replace(history=jnp.take_along_axis(state.history, parents, axis=1))

    def grow(self, state: ToyState, src_length: int, length: int) -> ToyState:
        return state.replace(room=jnp.full_like(state.room, length))

    # --- the same in plain Python, for one row ---

    @functools.cache  # noqa: B019 (a toy is never freed)
    def log_probs(self, seed: int, prefix: tuple[int, ...]) -> np.ndarray:
        """Return the log-probability of each piece after a prefix, normalised over all pieces."""
        with np.errstate(over="ignore"):
            history = stir(np.uint32(seed))
            for position, token in enumerate((BOS, *prefix)):
                history = extend(history, np.uint32(token), np.uint32(position))
            logits = self.logits(history, np.arange(self.vocab)).astype(np.float64)
        return logits - np.log(np.exp(logits).sum())

    def log_prob(self, seed: int, text: tuple[int, ...]) -> float:
        """Return the log-probability of a text, EOS included if it has one."""
        return sum(self.log_probs(seed, text[:i])[token] for i, token in enumerate(text))


PENALTIES = {
    "gnmt": lambda length, alpha: ((5 + length) / 6) ** alpha,
    "power": lambda length, alpha: length**alpha,
}


def all_texts(vocab: int, limit: int) -> list[tuple[int, ...]]:
    """Return every text that ends in EOS within the limit, or reaches the limit without."""
    words = range(UNK, vocab)
    ended = [
        (*text, EOS) for length in range(limit) for text in itertools.product(words, repeat=length)
    ]
    return [*ended, *itertools.product(words, repeat=limit)] if limit else []


def exhaustive(toy: Toy, seed: int, limit: int, penalty: str, alpha: float):
    """Return (score, text) of every text, best first."""
    divide = PENALTIES[penalty]
    scored = [
        (toy.log_prob(seed, text) / divide(len(text), alpha), text)
        for text in all_texts(toy.vocab, limit)
    ]
    return sorted(scored, reverse=True)


def beam_in_python(
    toy: Toy, seed: int, limit: int, width: int, penalty: str, alpha: float, stop: str, wanted: int
):
    """Beam search as decoding/beam.py describes it: (score, text) of the best finished."""
    divide = PENALTIES[penalty]
    live: list[tuple[float, tuple[int, ...]]] = [(0.0, ())]
    pool: list[tuple[float, tuple[int, ...]]] = []
    finished = 0
    for length in range(1, limit + 1):
        options = [
            (log_prob + toy.log_probs(seed, text)[token], (*text, token))
            for log_prob, text in live
            for token in range(toy.vocab)
            if token not in (PAD, BOS)
        ]
        options = sorted(options, reverse=True)[: 2 * width]
        eligible = options[:width] if stop == "width" else options
        ending = [option for option in eligible if option[1][-1] == EOS]
        live = [option for option in options if option[1][-1] != EOS][:width]
        if length == limit:
            ending += live
        finished += len(ending)
        pool += [(log_prob / divide(length, alpha), text) for log_prob, text in ending]
        pool = sorted(pool, reverse=True)[:width]
        if stop == "width" and finished >= width:
            break
        bound = live[0][0] / divide(limit, alpha) if live else -math.inf
        if stop == "optimal" and len(pool) >= wanted and pool[wanted - 1][0] >= bound:
            break
    return pool[:wanted]
