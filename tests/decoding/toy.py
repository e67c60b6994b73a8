"""A toy model whose logits depend on everything it was given, in JAX and in plain Python.

Logits and attention after a prefix are hashes of it, of the source and of the positions at which it
was fed: a search that mixes up hypotheses, sentences or positions finds something else.
"""

import functools
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np
from flax import struct

from transformer_jax.base.arrays import Array, Bool, Int, UInt
from transformer_jax.base.vocabulary import BOS
from transformer_jax.data.batches.batch import Batch, Side


def stir(x):
    """Mix the bits of a NumPy or JAX array of uint32."""
    for multiplier in (0x85EBCA6B, 0xC2B2AE35):
        x = (x ^ (x >> 15)) * np.uint32(multiplier)
    return x ^ (x >> 13)


def extend(history, token, position):
    """Return the hash of a prefix extended by a token at a position."""
    return stir(history * np.uint32(31) + stir(token + np.uint32(1)) + position)


def fraction(bits):
    """Return the upper 16 bits as exact float32 numbers from 0 to 1."""
    return (bits >> 16).astype(np.float32) / np.float32(2**16)


@struct.dataclass
class ToyState:
    """The hashes of every hypothesis after each of its tokens, and the source."""

    history: UInt[Array, "B W R"]
    count: Int[Array, "B"]  # tokens
    src_ids: Int[Array, "B S"]
    shortlist: Int[Array, "B K"] | None = None


@dataclass(frozen=True)
class Toy:
    """A Stepper."""

    vocab: int = 5
    salt: int = 0  # toys with different salts differ

    # --- NumPy or JAX ---

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
        """Return the share of each place of the source; `real` marks those that are not padding."""
        name = np.uint32(1000 * (layer + 1) + head)
        shares = (fraction(stir(history + stir(places.astype(np.uint32) + name))) + 0.01) * real
        return shares / shares.sum(-1, keepdims=True)

    # --- the Stepper ---

    def context(self, side: Side) -> Batch:
        return Batch(side, None, {})

    def start(
        self, batch: Batch, width: int, length: int, reach: int = 1, shortlist=None
    ) -> ToyState:
        src_ids = jnp.asarray(batch.src.inputs * (batch.src.seg > 0))
        rows = src_ids.shape[0]
        begun = jnp.broadcast_to(self.begin(src_ids)[:, None, None], (rows, width, length + 1))
        return ToyState(begun, jnp.zeros(rows, jnp.int32), src_ids, shortlist)

    def step(
        self,
        state: ToyState,
        tokens: Int[Array, "B W T"],
        positions: Int[Array, "B T"],
        active: Bool[Array, "B"],
    ):
        where = jnp.broadcast_to(state.count[:, None, None], (*tokens.shape[:2], 1))
        last = jnp.take_along_axis(state.history, where, axis=2, mode="clip")[:, :, 0]
        new = []
        for i in range(tokens.shape[2]):
            place = positions[:, i, None].astype(jnp.uint32)
            last = extend(last, tokens[:, :, i].astype(jnp.uint32), place)
            new.append(last)
        asked = jnp.stack(new, axis=2)
        pieces = jnp.arange(self.vocab)[None] if state.shortlist is None else state.shortlist
        logits = self.logits(asked[..., None], pieces[:, None, None])
        rows = jnp.arange(len(state.count))
        places = state.count[:, None] + 1 + jnp.arange(len(new))[None]
        places = jnp.where(active[:, None], places, state.history.shape[2])  # nowhere
        lanes = jnp.arange(tokens.shape[1])
        history = state.history.at[
            rows[:, None, None], lanes[None, :, None], places[:, None, :]
        ].set(asked, mode="drop")
        count = state.count + jnp.where(active, len(new), 0)
        return logits, self._looks(asked, state), state.replace(history=history, count=count)

    def _looks(self, asked, state: ToyState):
        asked = asked.reshape(asked.shape[0], -1, 1)
        real = (state.src_ids > 0)[:, None]
        places = jnp.arange(real.shape[2]).reshape(1, 1, -1)
        return [
            jnp.stack([self.attention(asked, places, real, layer, head) for head in range(2)], 1)
            for layer in range(2)
        ]

    def reorder(self, state: ToyState, parents: Int[Array, "B W"]) -> ToyState:
        history = jnp.take_along_axis(state.history, parents[:, :, None], axis=1)
        return state.replace(history=history)

    def rewind(self, state: ToyState, position: Int[Array, "B"]) -> ToyState:
        return state.replace(count=jnp.minimum(state.count, position))

    def grow(self, state: ToyState, src_length: int, length: int) -> ToyState:
        new = src_length - state.src_ids.shape[1]
        history = jnp.pad(state.history, ((0, 0), (0, 0), (0, length + 1 - state.history.shape[2])))
        return state.replace(src_ids=jnp.pad(state.src_ids, ((0, 0), (0, new))), history=history)

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
        logits = self.after(source, prefix)
        return logits - np.log(np.exp(logits.astype(np.float64)).sum())

    def after(self, source: tuple[int, ...], prefix: tuple[int, ...]) -> np.ndarray:
        """Return the logit of each piece after a prefix."""
        with np.errstate(over="ignore"):
            return self.logits(self.history(source, prefix), np.arange(self.vocab))

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
    """An ensemble of toys, in plain Python; attention is that of the first."""

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
