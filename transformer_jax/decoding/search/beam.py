"""Beam search.

Each step extends the W live hypotheses of a sentence and considers the 2W best continuations, of
which at most W end in EOS, so W live ones always remain. Those that end join the finished pool, the
W best by log-probability / penalty(length). The length includes EOS but not BOS. At a sentence's
length limit the W best continuations join the pool as they are.

The score of a finished hypothesis may also carry GNMT's coverage penalty (Wu et al. 2016,
arXiv:1609.08144, equation 14): beta times the sum over source positions of log min(attention, 1).

Two stopping rules, applied to each sentence separately:
  optimal  the worst wanted finished hypothesis beats the best that a live one can still become.
           Log-probabilities only fall and penalties only grow with length, so that bound is its
           current log-probability over the penalty at the length limit.
  width    W hypotheses are finished; only an EOS among the W best continuations counts. This is
           what CTranslate2 does, and `transformers` with early_stopping=True.
"""

import functools
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
from flax import struct

from transformer_jax.base.arrays import Array, Bool, Float, Int, at_least_float32
from transformer_jax.base.vocabulary import OURS, Special
from transformer_jax.config import DecodingConfig
from transformer_jax.decoding.search.columns import columns_of, pieces_of
from transformer_jax.decoding.search.constraints import constrain
from transformer_jax.decoding.search.penalties import LengthPenalty
from transformer_jax.decoding.search.state import (
    NOTHING,
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
from transformer_jax.decoding.search.top_k import top_k
from transformer_jax.models.model import Stepper


@struct.dataclass
class BeamSearch:
    """Beam search whose `wanted` best hypotheses must be exact; see `Search`."""

    penalty: LengthPenalty
    coverage_penalty: Number
    width: int = static()
    wanted: int = static()
    stop: str = static()
    covers: bool = static()  # whether there is a coverage penalty
    no_repeat_ngram: int = static()
    forbidden: tuple[int, ...] = static()
    special: Special = static(default=OURS)
    constraint: Constraint | None = None
    stride: int = static(default=1)

    @classmethod
    def of(
        cls, config: DecodingConfig, wanted: int = 1, forbidden: tuple[int, ...] = (),
        special: Special = OURS, constraint: Constraint | None = None, continues: bool = False,
    ) -> "BeamSearch":  # fmt: skip
        """Return the search with these settings. It penalises nothing that a prompt may hold."""
        return cls(
            penalty=LengthPenalty.of(config),
            coverage_penalty=float(config.coverage_penalty),
            width=config.beam_size,
            wanted=wanted,
            stop=config.stop,
            covers=config.coverage_penalty > 0,
            no_repeat_ngram=config.no_repeat_ngram,
            forbidden=forbidden,
            special=special,
            constraint=constraint,
        )

    def start(self, request: SearchRequest, room: int, model_state: Any) -> SearchState:
        """Return the initial state: all W hypotheses are equal, so only the first one counts."""
        state = blank(request, self.width, room, model_state, self.special)
        if self.covers:
            places = jnp.arange(request.src_ids.shape[1])[None]
            covered = jnp.where(places < jnp.asarray(request.src_lengths)[:, None], 0.0, 1.0)
            covered = covered[:, None]
            covered = jnp.broadcast_to(covered, (len(covered), self.width, covered.shape[2]))
            state = replace(state, coverage=covered)
        return replace(state, log_probs=state.log_probs.at[:, 1:].set(NOTHING))

    def advance(self, stepper: Stepper, old: SearchState) -> SearchState:
        """Extend the active sentences by one token."""
        active = old.active
        logits, attention, model_state = stepper.step(
            old.model_state, last_tokens(old), old.position[:, None], active
        )
        values, parents, tokens = self._candidates(at_least_float32(logits[:, :, 0]), old)
        coverage = old.coverage
        if coverage is not None:
            assert attention is not None  # a Translator refuses models without any
            seen = coverage + attention[-1].mean(1)  # of the last layer, all heads
            coverage = jnp.take_along_axis(seen, parents[:, :, None], axis=1)
        length = old.position + 1
        history = jnp.take_along_axis(old.tokens, parents[:, :, None], axis=1)
        history = write(history, length, tokens)
        ended = tokens == self.special.eos
        at_limit = length >= old.request.limits
        scores = self._scores(values, length, coverage)
        new = self._collect(old, values, scores, history, ended, at_limit)

        # The first W that do not end stay alive, in order.
        order = jnp.argsort(ended, axis=1, stable=True)[:, : self.width]
        keep = functools.partial(jnp.take_along_axis, indices=order, axis=1)
        parents = jnp.where(active[:, None], keep(parents), jnp.arange(self.width)[None])
        new = replace(
            new,
            position=length,
            tokens=jnp.take_along_axis(history, order[:, :, None], axis=1),
            log_probs=keep(values),
            coverage=None
            if coverage is None
            else jnp.take_along_axis(coverage, order[:, :, None], axis=1),
            model_state=stepper.reorder(model_state, parents),
        )
        new = replace(new, done=old.done | at_limit | self._settled(new))
        return keep_idle(old, new, active)

    def _collect(self, state: SearchState, values, scores, history, ended, at_limit) -> SearchState:
        """Add the hypotheses that finish at this step to the pool."""
        among_best = jnp.arange(values.shape[1])[None] < self.width
        if self.stop == "width":
            ended = ended & among_best
        finishing = (ended | (at_limit[:, None] & among_best)) & (values > NOTHING / 2)
        scores = jnp.where(finishing, scores, NOTHING)
        pool, order = jax.lax.top_k(jnp.concatenate([state.scores, scores], axis=1), self.width)
        texts = jnp.concatenate([state.finished, history], axis=1)
        return replace(
            state,
            scores=pool,
            finished=jnp.take_along_axis(texts, order[:, :, None], axis=1),
            count=state.count + finishing.sum(1),
        )

    def _settled(self, state: SearchState) -> Bool[Array, "B"]:
        if self.stop == "width":
            return state.count >= self.width
        bound = state.log_probs[:, 0] / self.penalty(jnp.asarray(state.request.limits))
        if state.request.asked is None:
            return state.scores[:, self.wanted - 1] >= bound
        last = jnp.asarray(state.request.asked.wanted)[:, None] - 1
        return jnp.take_along_axis(state.scores, last, axis=1)[:, 0] >= bound

    def _scores(self, log_probs: Float[Array, "B C"], length: Int[Array, "B"], coverage):
        """Return log-probability / length penalty + coverage penalty, which is never above 0."""
        scores = log_probs / self.penalty(length)[:, None]
        if coverage is not None:
            least = jnp.finfo(coverage.dtype).tiny  # log 0 would mask all else
            covered = jnp.log(jnp.clip(coverage, least, 1)).sum(2)
            scores = scores + self.coverage_penalty * covered
        return scores

    def _candidates(
        self, logits: Float[Array, "B W V"], state: SearchState
    ) -> tuple[Float[Array, "B C"], Int[Array, "B C"], Int[Array, "B C"]]:
        """Return log-probability, parent and token of the C = 2W best continuations, best first."""
        count = 2 * self.width
        offset = state.log_probs - jax.nn.logsumexp(logits, axis=-1)
        allowed = constrain(logits, state, self.forbidden, self.no_repeat_ngram, self.constraint)
        values, parents, columns = top_k(allowed, count, offset, banned_tokens(state))
        shortlist = state.request.shortlist
        tokens = pieces_of(shortlist, columns)
        values = jnp.maximum(values, 2 * NOTHING)
        if not state.request.prefix.shape[1]:
            return values, parents, tokens
        known, forced = (x[:, None] for x in forced_tokens(state))
        forced_columns = columns_of(shortlist, forced)
        only = jnp.take_along_axis(logits[:, 0], forced_columns, axis=1) + offset[:, :1]
        only = jnp.where(jnp.arange(count)[None] == 0, only, 2 * NOTHING)
        return (
            jnp.where(known, only, values),
            jnp.where(known, 0, parents),
            jnp.where(known, forced, tokens),
        )


WORDS = {"beam": BeamSearch}
