"""Speculative decoding: a draft proposes several tokens, the model judges them in one pass.

(Leviathan et al. 2022, arXiv:2211.17192; Chen et al. 2023, arXiv:2302.01318.) With p the draft's
distribution and q the model's, both filtered alike (by temperature, top_k, top_p and what may not
be written), a proposed token is accepted with probability min(1, q/p). The first rejected token is
replaced by one drawn from max(0, q - p), normalised; if all are accepted, one more is drawn from q.
So texts have the distribution of `sampling`. In greedy search, a token is accepted if it is the
model's own, so texts are those of greedy search.

A sentence's hypotheses share its position: a pass goes as far as all of them accept, plus one
token. Anything drawn after that is discarded; it has no influence on where to stop.
"""

from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
from flax import struct

from transformer_jax.base.arrays import Array, Float, Int, at_least_float32
from transformer_jax.decoding.search.sampling import Sampling, has_ended
from transformer_jax.decoding.search.state import (
    SearchRequest,
    SearchState,
    forced_tokens,
    last_tokens,
    static,
)
from transformer_jax.decoding.search.top_k import argmax
from transformer_jax.models.model import Stepper

NONE = -1  # in place of a token if none is proposed
_PROPOSED, _ACCEPTED, _INSTEAD = range(3)  # what random numbers are for


class Proposals(NamedTuple):
    """What a draft proposes for the next K positions."""

    tokens: Int[Array, "B W K"]  # or NONE
    shares: Float[Array, "B W K V"] | None  # their distributions; None: nothing was drawn


@runtime_checkable
class Proposer(Protocol):
    """A source of proposals; hashable."""

    def propose(
        self, rule: Sampling, stepper: Stepper, state: SearchState, length: int
    ) -> tuple[Proposals, Any]:
        """Return `length` proposals, and the model's state with the draft's part updated."""


@struct.dataclass
class Speculative:
    """The search `rule`, with the tokens of a draft verified; see `Search`."""

    rule: Sampling
    draft: Proposer = static()
    length: int = static()  # tokens proposed per pass

    @property
    def width(self) -> int:
        """See Search."""
        return self.rule.width

    @property
    def special(self) -> Any:
        """Special pieces."""
        return self.rule.special

    @property
    def stride(self) -> int:
        """See Search."""
        return self.length + 1

    def start(self, request: SearchRequest, room: int, model_state: Any) -> SearchState:
        """Return the initial state."""
        state = self.rule.start(request, room, model_state)
        counts = jnp.zeros((state.position.shape[0], 3), jnp.int32)
        return replace(state, drafts=counts, stride=self.stride)

    def advance(self, stepper: Stepper, old: SearchState) -> SearchState:
        """Extend the active sentences by one token, and by as many more as are accepted."""
        active = old.active
        proposals, model_state = self.draft.propose(self.rule, stepper, old, self.length)
        tokens = jnp.concatenate([last_tokens(old), jnp.maximum(proposals.tokens, 0)], axis=2)
        places = old.position[:, None] + jnp.arange(self.length + 1)[None]
        logits, _, model_state = stepper.step(model_state, tokens, places, active)
        judged = self._judged(at_least_float32(logits), proposals, replace(old, model_state=None))
        return replace(judged, model_state=stepper.rewind(model_state, judged.position))

    def _judged(
        self, logits: Float[Array, "B W P V"], proposals: Proposals, old: SearchState
    ) -> SearchState:
        """Return the sentences after the accepted tokens and one more; P is K + 1."""

        def behind(x: Array, value: Any) -> Array:
            """Return values by position, position first, with nothing proposed at the last."""
            last = jnp.full((*x.shape[:2], 1, *x.shape[3:]), value, x.dtype)
            return jnp.moveaxis(jnp.concatenate([x, last], axis=2), 2, 0)

        shares = None if proposals.shares is None else behind(proposals.shares, 0)
        places = jnp.moveaxis(logits, 2, 0), behind(proposals.tokens, NONE), shares

        def judge(carry: tuple[SearchState, Array], place: Any) -> tuple[Any, None]:
            state, going = carry
            logits, proposed, share = place
            tokens = self._chosen(self.rule.filtered(logits, state), state, proposed, share)
            new = self.rule.follow(state, logits, tokens, going)
            same = (last_tokens(new)[:, :, 0] == proposed) & (proposed >= 0)
            ended = has_ended(state)
            asked = (proposed >= 0) & ~ended & ~forced_tokens(state)[0][:, None]
            counts = jnp.stack([asked.sum(1), (asked & same).sum(1)], axis=1)
            counts = jnp.where(going[:, None], counts, 0).astype(jnp.int32)
            assert state.drafts is not None
            new = replace(new, drafts=state.drafts.at[:, 1:].add(counts))
            return (new, going & ~new.done & (same | ended).all(1)), None

        (state, _), _ = jax.lax.scan(judge, (old, old.active), places)
        assert state.drafts is not None
        return replace(state, drafts=state.drafts.at[:, 0].add(old.active.astype(jnp.int32)))

    def _chosen(
        self,
        logits: Float[Array, "B W V"],
        state: SearchState,
        proposed: Int[Array, "B W"],
        share: Float[Array, "B W V"] | None,
    ) -> Int[Array, "B W"]:
        """Return the proposed tokens where they are accepted, and their replacements elsewhere."""
        rule = self.rule
        if not rule.draws(state):
            return argmax(logits)
        q = _shares(logits)
        p = jax.nn.one_hot(proposed, q.shape[2], dtype=q.dtype) if share is None else share
        here = jnp.maximum(proposed, 0)[:, :, None]
        p_here, q_here = (jnp.take_along_axis(x, here, axis=2)[:, :, 0] for x in (p, q))

        def uniform(key: Array) -> Float[Array, ""]:
            return jax.random.uniform(key, (), q.dtype)

        chance = jax.vmap(jax.vmap(uniform))(rule.keys(state, _ACCEPTED))
        accepted = (proposed >= 0) & (chance * p_here < q_here)
        rest = jnp.maximum(q - p, 0)
        rest = jnp.where(rest.sum(-1, keepdims=True) > 0, rest, q)  # p is q, up to rounding
        instead = rule.draw(jnp.log(rest), state, _INSTEAD)
        return jnp.where(accepted, proposed, instead)


def _shares(logits: Float[Array, "*places V"]) -> Float[Array, "*places V"]:
    """Return probabilities, all 0 where nothing may be written."""
    some = jnp.isfinite(logits).any(-1, keepdims=True)
    return jnp.where(some, jax.nn.softmax(logits), 0)


def _imagined(here: SearchState, tokens: Int[Array, "B W"], own: Any) -> SearchState:
    """Return the state as if these tokens had been written, with a model's state."""
    place = here.position + 1
    at = jnp.arange(here.tokens.shape[2]).reshape(1, 1, -1) == place[:, None, None]
    text = jnp.where(at, tokens[:, :, None], here.tokens)
    return replace(here, position=place, tokens=text, model_state=own)


@dataclass(frozen=True)
class ByModel:
    """A smaller model proposes; the Stepper is a `decoding.stepper.Drafted`."""

    def propose(
        self, rule: Sampling, stepper: Any, state: SearchState, length: int
    ) -> tuple[Proposals, Any]:
        """See Proposer. The draft reads its last proposal too, in case it is accepted."""
        active, draft, both = state.active, stepper.draft, state.model_state

        def turn(carry: tuple[SearchState, Array], _: None) -> tuple[Any, Any]:
            here, last = carry
            logits, _, own = draft.step(here.model_state, last, here.position[:, None], active)
            logits = rule.filtered(at_least_float32(logits[:, :, 0]), here)
            known, forced = forced_tokens(here)
            drawn = rule.draw(logits, here, _PROPOSED)
            tokens = jnp.where(known[:, None], forced[:, None], drawn)
            tokens = tokens.astype(jnp.int32)
            return (_imagined(here, tokens, own), tokens[:, :, None]), (tokens, logits)

        begun = replace(state, model_state=both.draft), last_tokens(state)
        (here, last), (tokens, logits) = jax.lax.scan(turn, begun, None, length)
        _, _, own = draft.step(here.model_state, last, here.position[:, None], active)
        shares = _shares(jnp.moveaxis(logits, 0, 2)) if rule.draws(state) else None
        return Proposals(jnp.moveaxis(tokens, 0, 2), shares), replace(both, draft=own)


@dataclass(frozen=True)
class ByLookup:
    """What followed an earlier occurrence of the text's last pieces, in what was read or written
    (LLMA, Yang et al. 2023, arXiv:2304.04487; prompt lookup): the longest match, of at most
    `longest` pieces, and the last of these. A text that ends there is taken to repeat.
    """

    longest: int = 3

    def propose(
        self, rule: Sampling, stepper: Stepper, state: SearchState, length: int
    ) -> tuple[Proposals, Any]:
        """See Proposer."""
        text, count = _whole_text(state)
        end = (count - 1).reshape(-1, 1, 1)
        place = jnp.arange(text.shape[2]).reshape(1, 1, -1)
        alike = (place < end) & jnp.ones(text.shape, bool)
        size = jnp.zeros(text.shape, jnp.int32)  # of what is alike up to a place
        for back in range(self.longest):
            earlier = jnp.pad(text, ((0, 0), (0, 0), (back, 0)))[:, :, : text.shape[2]]
            last = jnp.take_along_axis(text, jnp.maximum(end - back, 0), axis=2)
            alike &= (earlier == last) & (place >= back)
            size += alike
        best = jnp.argmax(size * text.shape[2] + place, axis=2, keepdims=True)
        matches = jnp.take_along_axis(size, best, axis=2) > 0
        step = jnp.arange(length).reshape(1, 1, -1) % jnp.maximum(end - best, 1)
        tokens = jnp.take_along_axis(text, jnp.minimum(best + 1 + step, end), axis=2)
        return Proposals(jnp.where(matches, tokens, NONE), None), state.model_state


@dataclass(frozen=True)
class ByFuture:
    """The model proposes what it predicts after its next piece: multi-token prediction, see
    `models/multi_token.py`. Nothing is proposed before the first piece.
    """

    def propose(
        self, rule: Sampling, stepper: Any, state: SearchState, length: int
    ) -> tuple[Proposals, Any]:
        """See Proposer."""
        here, own, hidden = state, state.model_state, state.model_state.further.hidden
        begun = (state.position > 0).reshape(-1, 1)
        tokens, shares = [], []
        for depth in range(1, length + 1):
            logits, hidden, own = stepper.foresee(
                own, hidden, depth, here.tokens, state.position, state.active
            )
            logits = rule.filtered(at_least_float32(logits), here)
            known, forced = forced_tokens(here)
            drawn = rule.draw(logits, here, _PROPOSED)
            chosen = jnp.where(known[:, None], forced[:, None], drawn).astype(jnp.int32)
            here = _imagined(here, chosen, None)
            tokens.append(jnp.where(begun, chosen, NONE))
            shares.append(jnp.where(begun[:, :, None], _shares(logits), 0))
        every = jnp.stack(shares, axis=2) if rule.draws(state) else None
        return Proposals(jnp.stack(tokens, axis=2), every), own


# Drafts that are not other models, as config.decoding.draft names them.
FUTURE = "future"
LOOKUPS: dict[str, Proposer] = {"ngram": ByLookup(), FUTURE: ByFuture()}


def _whole_text(state: SearchState) -> tuple[Int[Array, "B W C"], Int[Array, "B"]]:
    """Return what was read and written as one text, left-aligned, and its length.

    Where the sides have separate vocabularies, chance matches are proposed in vain.
    """
    read = jnp.asarray(state.request.src_ids)
    lengths = jnp.asarray(state.request.src_lengths)
    rows, width, _ = state.tokens.shape
    each = jnp.broadcast_to(read[:, None], (rows, width, read.shape[1]))
    both = jnp.concatenate([each, state.tokens], axis=2)
    place = jnp.arange(both.shape[2])[None]
    gap = read.shape[1] - lengths[:, None]
    where = jnp.where(place < lengths[:, None], place, place + gap)
    where = jnp.minimum(where, both.shape[2] - 1)[:, None]
    return jnp.take_along_axis(both, where, axis=2), lengths + state.position + 1
