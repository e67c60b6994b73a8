"""Greedy decoding and sampling: independent hypotheses, extended by one token at a time.

greedy  the most probable token
sample  a random token from the model's distribution with a temperature, truncated to the top_k
        most probable tokens, to the fewest that hold top_p of the probability (Holtzman et al.
        2020, arXiv:1904.09751) and to those with min_p of the likeliest one's (Nguyen et al. 2024,
        arXiv:2407.01082)
"""

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from transformer_jax.base.arrays import Array, Bool, Float, Int, UInt, at_least_float32
from transformer_jax.base.vocabulary import OURS, Special
from transformer_jax.config import DecodingConfig
from transformer_jax.decoding.search.columns import columns_of, pieces_of
from transformer_jax.decoding.search.constraints import NOWHERE, constrain
from transformer_jax.decoding.search.penalties import LengthPenalty
from transformer_jax.decoding.search.state import (
    Constraint,
    Number,
    SearchRequest,
    SearchState,
    banned_tokens,
    blank,
    forced_tokens,
    keep_idle,
    last_tokens,
    static,
    write,
)
from transformer_jax.decoding.search.top_k import argmax
from transformer_jax.models.model import Stepper


@struct.dataclass
class Sampling:
    """`width` hypotheses per sentence; see `Search`."""

    penalty: LengthPenalty
    temperature: Number
    top_k: Number
    top_p: Number
    min_p: Number
    repetition_penalty: Number
    seed: UInt[Array, ""] | np.uint32
    width: int = static()
    random: bool = static()
    truncated: bool = static()  # whether top_k, top_p or min_p is on
    penalizes: bool = static()  # whether the repetition penalty is on
    continues: bool = static()  # whether the source is a prompt, whose tokens are repeated, too
    no_repeat_ngram: int = static()
    forbidden: tuple[int, ...] = static()
    special: Special = static(default=OURS)
    constraint: Constraint | None = None
    stride: int = static(default=1)

    @classmethod
    def of(
        cls, config: DecodingConfig, wanted: int = 1, forbidden: tuple[int, ...] = (),
        special: Special = OURS, constraint: Constraint | None = None, continues: bool = False,
    ) -> "Sampling":  # fmt: skip
        """Return the search with these settings: greedy unless they ask for samples, all of which
        it keeps, however many are `wanted`.
        """
        random = config.draws
        return cls(
            penalty=LengthPenalty.of(config),
            temperature=float(config.temperature),
            top_k=min(config.top_k, 2**31 - 1),
            top_p=float(config.top_p),
            min_p=float(config.min_p),
            repetition_penalty=float(config.repetition_penalty),
            seed=np.uint32(config.seed % 2**32),
            width=config.hypotheses if random else 1,
            random=random,
            truncated=config.top_k > 0 or config.top_p < 1 or config.min_p > 0,
            penalizes=config.repetition_penalty != 1,
            continues=continues,
            no_repeat_ngram=config.no_repeat_ngram,
            forbidden=forbidden,
            special=special,
            constraint=constraint,
        )

    def start(self, request: SearchRequest, room: int, model_state: Any) -> SearchState:
        """Return the initial state."""
        return blank(request, self.width, room, model_state, self.special)

    def advance(self, stepper: Stepper, old: SearchState) -> SearchState:
        """Extend the active sentences by one token."""
        active = old.active
        logits, _, model_state = stepper.step(
            old.model_state, last_tokens(old), old.position[:, None], active
        )
        logits = at_least_float32(logits[:, :, 0])
        tokens = pieces_of(old.request.shortlist, self.draw(self.filtered(logits, old), old))
        new = self.follow(old, logits, tokens, active)
        return replace(new, model_state=model_state)

    def follow(
        self,
        old: SearchState,
        logits: Float[Array, "B W V"],
        tokens: Int[Array, "B W"],
        active: Bool[Array, "B"],
    ) -> SearchState:
        """Extend the active sentences by the tokens chosen by some logits, or by forced ones."""
        pad, _, eos = self.special
        ended = has_ended(old)
        known, forced = forced_tokens(old)
        tokens = jnp.where(known[:, None], forced[:, None], tokens)
        columns = columns_of(old.request.shortlist, tokens)[:, :, None]
        chosen = jnp.take_along_axis(logits, columns, axis=2)[:, :, 0]
        gain = chosen - jax.nn.logsumexp(logits, axis=-1)
        log_probs = jnp.where(ended, old.log_probs, old.log_probs + gain)
        tokens = jnp.where(ended, pad, tokens)
        length = old.position + 1
        at_limit = length >= old.request.limits
        scores = log_probs / self.penalty(length)[:, None]
        # PAD is chosen where nothing may be written, which does not end a hypothesis.
        ends = ~ended & ((tokens == eos) | (at_limit[:, None] & (tokens != pad)))
        written = write(old.tokens, length, tokens)
        new = replace(
            old,
            position=length,
            tokens=written,
            log_probs=log_probs,
            finished=written,
            scores=jnp.where(ends, scores, old.scores),
            done=old.done | at_limit | (ended | ends).all(1),
        )
        return keep_idle(old, new, active)

    def filtered(self, logits: Float[Array, "B W V"], state: SearchState) -> Float[Array, "B W V"]:
        """Return the logits to draw from: minus infinity for what may not be written, at the
        temperature, truncated to top_k, top_p and min_p.
        """
        logits = self._allowed(self._penalized(logits, state), state)
        if state.request.asked is not None:
            return _as_asked(logits, state)
        if not self.random:
            return logits
        logits = logits / self.temperature
        if not self.truncated:
            return logits
        return nucleus(logits, self.top_k, self.top_p, self.min_p)

    def draws(self, state: SearchState) -> bool:
        """Return whether anything may be random."""
        return self.random or state.request.asked is not None

    def draw(
        self, logits: Float[Array, "B W V"], state: SearchState, purpose: int | None = None
    ) -> Int[Array, "B W"]:
        """Return the column of the most probable token, or of a random one; see `keys`."""
        if not self.draws(state):
            return argmax(logits)

        def noise(key: Array) -> Float[Array, "V"]:
            return jax.random.gumbel(key, logits.shape[2:], logits.dtype)

        def drawn() -> Int[Array, "B W"]:
            return argmax(logits + jax.vmap(jax.vmap(noise))(self.keys(state, purpose)))

        asked = state.request.asked
        if asked is None:
            return drawn()
        random = (jnp.asarray(asked.temperature) > 0) & ~state.done
        return jax.lax.cond(random.any(), drawn, lambda: argmax(logits))

    def keys(self, state: SearchState, purpose: int | None = None) -> Array:
        """Return the random keys [B W] of the next tokens, different for each purpose: functions of
        the seeds, the position in the text and the hypothesis's number.
        """
        asked, lanes = state.request.asked, jnp.arange(self.width)[None]
        if asked is None:
            seeds = jnp.broadcast_to(jnp.asarray(self.seed), state.position.shape)
            lanes = jnp.broadcast_to(lanes, (len(seeds), self.width))
        else:
            seeds, lanes = jnp.asarray(asked.seed), lanes + jnp.asarray(asked.lane)[:, None]

        def own(seed, sentence, position, lane) -> Array:
            mine = jax.random.fold_in(jax.random.fold_in(jax.random.key(seed), sentence), lane)
            mine = jax.random.fold_in(mine, position)
            return mine if purpose is None else jax.random.fold_in(mine, purpose)

        over_lanes = jax.vmap(own, (None, None, None, 0))
        return jax.vmap(over_lanes)(seeds, state.request.seeds, state.position, lanes)

    def _penalized(
        self, logits: Float[Array, "B W V"], state: SearchState
    ) -> Float[Array, "B W V"]:
        """Return the logits with those of tokens that were read or written made less likely.

        What no sentence asks for is not computed.
        """

        def lower(penalty: Number | Float[Array, "B 1 1"]) -> Float[Array, "B W V"]:
            known = _known(state, logits.shape[2], self.continues)
            return jnp.where(
                known, jnp.where(logits > 0, logits / penalty, logits * penalty), logits
            )

        if state.request.asked is None:
            return lower(self.repetition_penalty) if self.penalizes else logits
        penalty = jnp.asarray(state.request.asked.repetition_penalty)
        used = (penalty != 1) & ~state.done
        return jax.lax.cond(used.any(), lambda: lower(penalty[:, None, None]), lambda: logits)

    def _allowed(self, logits: Float[Array, "B W V"], state: SearchState) -> Float[Array, "B W V"]:
        """Return the logits with minus infinity for what may not be written."""
        logits = constrain(logits, state, self.forbidden, self.no_repeat_ngram, self.constraint)
        banned = banned_tokens(state)
        index = jax.lax.broadcasted_iota(jnp.int32, logits.shape, 2)
        for token in range(0 if banned is None else banned.shape[2]):
            assert banned is not None
            logits = jnp.where((index == token) & banned[:, :, token, None], -jnp.inf, logits)
        return logits


def has_ended(state: SearchState) -> Bool[Array, "B W"]:
    """Return which hypotheses have ended, or come to where nothing may be written."""
    last, (pad, _, eos) = last_tokens(state)[:, :, 0], state.special
    # The first token may be the same piece.
    return ((last == eos) | (last == pad)) & (state.position[:, None] > 0)


def _known(state: SearchState, size: int, continues: bool) -> Bool[Array, "B W V"]:
    """Return which of `size` columns are tokens that are written, or read as a prompt."""
    tokens, request = state.tokens, state.request
    at = jnp.arange(tokens.shape[2]).reshape(1, 1, -1)
    tokens = jnp.where(at <= state.position[:, None, None], tokens, NOWHERE)
    if continues:
        prompt = jnp.asarray(request.src_ids)
        inside = jnp.arange(prompt.shape[1])[None] < jnp.asarray(request.src_lengths)[:, None]
        prompt = jnp.where(inside, prompt, NOWHERE)[:, None]
        prompt = jnp.broadcast_to(prompt, (*tokens.shape[:2], prompt.shape[2]))
        tokens = jnp.concatenate([prompt, tokens], axis=2)
    columns = columns_of(request.shortlist, tokens)
    rows, lanes = jnp.indices(tokens.shape[:2], sparse=True)
    known = jnp.zeros((*tokens.shape[:2], size), bool)
    return known.at[rows[..., None], lanes[..., None], columns].set(True, mode="drop")


def _as_asked(logits: Float[Array, "B W V"], state: SearchState) -> Float[Array, "B W V"]:
    """Return the logits to draw from with each sentence's numbers: only the best at temperature 0.
    What no sentence asks for is not computed.
    """
    asked = jax.tree.map(jnp.asarray, state.request.asked)
    temperature, top_k, top_p, min_p = (
        x[:, None, None] for x in (asked.temperature, asked.top_k, asked.top_p, asked.min_p)
    )
    random = (asked.temperature > 0) & ~state.done
    cut = random & ((asked.top_k > 0) | (asked.top_p < 1) | (asked.min_p > 0))
    scaled = logits / jnp.where(temperature > 0, temperature, 1)
    kept = jax.lax.cond(
        cut.any(),
        lambda: jnp.where(cut[:, None, None], nucleus(scaled, top_k, top_p, min_p), scaled),
        lambda: scaled,
    )
    index = jax.lax.broadcasted_iota(jnp.int32, logits.shape, 2)
    best = jnp.where(index == argmax(logits)[..., None], logits, -jnp.inf)
    return jnp.where(random[:, None, None], kept, best)


def nucleus(
    logits: Float[Array, "B W V"],
    top_k: Number | Int[Array, "B 1 1"],
    top_p: Number | Float[Array, "B 1 1"],
    min_p: Number | Float[Array, "B 1 1"] = 0.0,
) -> Float[Array, "B W V"]:
    """Return the logits with minus infinity outside the top_k (0: all), the top_p (1: all) and the
    min_p (0: all).
    """
    ordered = -jnp.sort(-logits, axis=-1)
    most = jnp.where(top_k > 0, top_k, logits.shape[2])
    kept = jnp.arange(logits.shape[2]).reshape(1, 1, -1) < most
    share = jax.nn.softmax(jnp.where(kept, ordered, -jnp.inf))
    kept &= jnp.cumsum(share, axis=-1) - share < top_p  # the most probable one always stays
    kept &= share >= min_p * share[..., :1]
    least = jnp.where(kept, ordered, jnp.inf).min(-1, keepdims=True)
    return jnp.where(logits >= least, logits, -jnp.inf)


WORDS = {"sample": Sampling}
