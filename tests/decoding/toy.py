"""A toy model whose logits depend on all that it was given, in jax and in plain Python.

The logits after a prefix are a hash of it, of the source and of the positions it was fed at, and so
is the attention: a search that mixes up hypotheses, sentences or positions finds something else.
"""

import functools
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np
from flax import struct

from transformer_jax.arrays import Array, Bool, Int, UInt
from transformer_jax.data.batch import Batch, Side
from transformer_jax.vocabulary import BOS


def stir(x):
    """Mix the bits of an array of uint32, of numpy or of jax."""
    for multiplier in (0x85EBCA6B, 0xC2B2AE35):
        x = (x ^ (x >> 15)) * np.uint32(multiplier)
    return x ^ (x >> 13)


def extend(history, token, position):
    """Return the hash of a prefix that goes on with a token at a position."""
    return stir(history * np.uint32(31) + stir(token + np.uint32(1)) + position)


def fraction(bits):
    """Return the upper 16 bits as exact float32 numbers from 0 to 1."""
    return (bits >> 16).astype(np.float32) / np.float32(2**16)


@struct.dataclass
class ToyState:
    """The hash of every hypothesis, and the source."""

    history: UInt[Array, "B W"]
    src_ids: Int[Array, "B S"]


@dataclass(frozen=True)
class Toy:
    """A Stepper."""

    vocab: int = 5
    salt: int = 0  # toys of different salt differ

    # --- of numpy or of jax ---

    def begin(self, src_ids):
        """Return the hash of sources [... S]; 0 is padding."""
        places = np.arange(src_ids.shape[-1], dtype=np.uint32) + np.uint32(self.salt << 8)
        real = (src_ids > 0).astype(np.uint32)
        mixed = stir(stir(src_ids.astype(np.uint32)) + places.reshape([1] * (real.ndim - 1) + [-1]))
        return stir((mixed * real).sum(-1, dtype=np.uint32))

    def logits(self, history, pieces):
        """Return the logits of pieces after a prefix."""
        return 4 * fraction(stir(history + stir(pieces.astype(np.uint32) + np.uint32(77))))

    def attention(self, history, places, real, layer: int, head: int):
        """Return the share of each place of the source; `real` tells which are no padding."""
        name = np.uint32(1000 * (layer + 1) + head)
        shares = (fraction(stir(history + stir(places.astype(np.uint32) + name))) + 0.01) * real
        return shares / shares.sum(-1, keepdims=True)

    # --- the Stepper ---

    def context(self, side: Side) -> Batch:
        return Batch(side, None, {})

    def start(self, batch: Batch, width: int, length: int) -> ToyState:
        src_ids = batch.src.inputs * (batch.src.seg > 0)
        batch = src_ids.shape[0]
        history = jnp.broadcast_to(self.begin(src_ids)[:, None], (batch, width))
        return ToyState(history, jnp.asarray(src_ids))

    def step(
        self,
        state: ToyState,
        tokens: Int[Array, "B W T"],
        positions: Int[Array, "B T"],
        active: Bool[Array, "B"],
    ):
        history = extend(
            state.history, tokens[:, :, 0].astype(jnp.uint32), positions.astype(jnp.uint32)
        )
        asked = history[:, :, None]
        logits = self.logits(asked, jnp.arange(self.vocab).reshape(1, 1, -1))
        real = (state.src_ids > 0)[:, None]
        places = jnp.arange(real.shape[2]).reshape(1, 1, -1)
        weights = [
            jnp.stack([self.attention(asked, places, real, layer, head) for head in range(2)], 1)
            for layer in range(2)
        ]
        new = state.replace(history=jnp.where(active[:, None], history, state.history))
        return logits[:, :, None], weights, new

    def reorder(self, state: ToyState, parents: Int[Array, "B W"]) -> ToyState:
        return state.replace(history=jnp.take_along_axis(state.history, parents, axis=1))

    def rewind(self, state: ToyState, position: Int[Array, "B"]) -> ToyState:
        raise NotImplementedError  # a hash forgets what it is of; no search rewinds

    def grow(self, state: ToyState, src_length: int, length: int) -> ToyState:
        new = src_length - state.src_ids.shape[1]
        src_ids = jnp.pad(state.src_ids, ((0, 0), (0, new)))
        return state.replace(src_ids=src_ids)

    # --- the same in plain Python, for one sentence ---

    @functools.cache  # noqa: B019 (a toy is never freed)
    def history(self, source: tuple[int, ...], prefix: tuple[int, ...]) -> Any:
        with np.errstate(over="ignore"):
            if not prefix:
                return extend(self.begin(np.array(source)), np.uint32(BOS), np.uint32(0))
            before = self.history(source, prefix[:-1])
            return extend(before, np.uint32(prefix[-1]), np.uint32(len(prefix)))

    @functools.cache  # noqa: B019
    def log_probs(self, source: tuple[int, ...], prefix: tuple[int, ...]) -> np.ndarray:
        """Return the log-probability of each piece after a prefix, normalised over all pieces."""
        with np.errstate(over="ignore"):
            logits = self.logits(self.history(source, prefix), np.arange(self.vocab))
        return logits - np.log(np.exp(logits.astype(np.float64)).sum())

    @functools.cache  # noqa: B019
    def attended(self, source: tuple[int, ...], text: tuple[int, ...]) -> np.ndarray:
        """Return the attention of the last layer, summed over the tokens of a text."""
        if not text:
            return np.zeros(len(source))
        places = np.arange(len(source))
        with np.errstate(over="ignore"):
            history = self.history(source, text[:-1])
            heads = [self.attention(history, places, places >= 0, 1, head) for head in range(2)]
        return self.attended(source, text[:-1]) + np.mean(heads, axis=0, dtype=np.float64)


@dataclass(frozen=True)
class Together:
    """Several toys as one, in plain Python; attention is that of the first."""

    toys: tuple[Toy, ...]
    mean: str

    @property
    def vocab(self) -> int:
        return self.toys[0].vocab

    def log_probs(self, source: tuple[int, ...], prefix: tuple[int, ...]) -> np.ndarray:
        """Return the log-probability of each piece after a prefix."""
        each = np.array([toy.log_probs(source, prefix) for toy in self.toys])
        if self.mean == "probabilities":
            return np.log(np.exp(each).mean(0))
        mean = each.mean(0)
        return mean - np.log(np.exp(mean).sum())

    def attended(self, source: tuple[int, ...], text: tuple[int, ...]) -> np.ndarray:
        return self.toys[0].attended(source, text)
