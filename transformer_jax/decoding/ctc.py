"""Joint search: each hypothesis is scored by attention and, at the same time, by CTC (Hori et al.
2017, "Joint CTC/attention decoding for end-to-end speech recognition", section 3.2; Watanabe et al.
2017, "Hybrid CTC/Attention Architecture for End-to-End Speech Recognition").

CTC's prefix score of a text g is the logarithm of psi(g), the probability of all texts that begin
with g. So psi(g c) / psi(g) is the probability of c after g, and that of the end is what remains of
psi(g) where the sound ends: CTC predicts piece after piece, as a decoder does.
"""

from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
from flax import struct

from transformer_jax.base.arrays import Array, Bool, Float, Int, at_least_float32
from transformer_jax.base.vocabulary import EOS, PAD
from transformer_jax.data.batches.batch import Batch, Side
from transformer_jax.models.model import Model, Stepper

_NEVER = -1e9  # the logarithm of a probability of 0; finite, so differences stay numbers


@struct.dataclass
class Prefixes:
    """Texts, and the log-probabilities of the paths that have written just them: over the first
    positions up to each one, [B W S]. A path ends with a piece, in `by_piece`, or with a blank, in
    `by_blank`; `psi` is that of all texts that begin so; `last` is their last piece, PAD if none.
    """

    by_piece: Float[Array, "B W S"]
    by_blank: Float[Array, "B W S"]
    psi: Float[Array, "B W"]
    last: Int[Array, "B W"]

    @classmethod
    def empty(cls, paths: Float[Array, "B S V"], width: int) -> "Prefixes":
        """Return empty texts, from the log-probability of each piece, or PAD as the blank, at each
        position.
        """
        blanks = jnp.cumsum(paths[:, :, PAD], axis=1)[:, None]
        blanks = jnp.broadcast_to(blanks, (len(paths), width, paths.shape[1]))
        psi = jnp.zeros(blanks.shape[:2], paths.dtype)
        last = jnp.full(psi.shape, PAD, jnp.int32)
        return cls(jnp.full_like(blanks, _NEVER), blanks, psi, last)

    def _before(self) -> tuple[Float[Array, "B W S"], Float[Array, "B W S"]]:
        """Return `by_piece` and `by_blank` up to the position before each one: before the first,
        only the empty text is written.
        """
        empty = jnp.where(self.last == PAD, 0.0, _NEVER).astype(self.psi.dtype)[..., None]
        pieces, blanks = self.by_piece[..., :-1], self.by_blank[..., :-1]
        return (
            jnp.concatenate([jnp.full_like(empty, _NEVER), pieces], axis=2),
            jnp.concatenate([empty, blanks], axis=2),
        )

    def extended(self, paths: Float[Array, "B S V"], pieces: Int[Array, "B W"]) -> "Prefixes":
        """Return each text with one more piece: the recursion of the paper's algorithm 2."""
        said = jnp.take_along_axis(paths, pieces[:, None], axis=2).swapaxes(1, 2)  # [B W S]
        after_piece, after_blank = self._before()
        again = (pieces == self.last)[..., None]  # needs a blank in between
        begins = jnp.where(again, after_blank, jnp.logaddexp(after_piece, after_blank))

        def move(before: Any, here: Any) -> tuple[Any, Any]:
            (piece, blank), (begin, said, silent) = before, here
            new = (
                jnp.logaddexp(piece, begin) + said,
                jnp.logaddexp(piece, blank) + silent[:, None],
            )
            return new, new

        none = jnp.full_like(self.psi, _NEVER)
        along = (*(jnp.moveaxis(x, 2, 0) for x in (begins, said)), paths[:, :, PAD].T)
        _, ends = jax.lax.scan(move, (none, none), along)
        by_piece, by_blank = (jnp.moveaxis(x, 0, 2) for x in ends)
        psi = jax.nn.logsumexp(begins + said, axis=2)
        return Prefixes(by_piece, by_blank, psi, pieces)

    def next(self, paths: Float[Array, "B S V"]) -> Float[Array, "B W V"]:
        """Return the log-probability of each next piece, and of EOS as the end. PAD and a piece
        that no path can write any more have minus infinity.
        """
        after_piece, after_blank = self._before()
        begins = jnp.logaddexp(after_piece, after_blank)
        most = begins.max(2, keepdims=True)
        # A sum of products, not of exponentials of sums [B W S V].
        shares = jnp.exp(begins - most), jnp.exp(paths)
        psi = jnp.log(jnp.einsum("BWS,BSV->BWV", *shares, precision="highest")) + most
        said = jnp.take_along_axis(paths, self.last[:, None], axis=2).swapaxes(1, 2)
        again = jax.nn.logsumexp(after_blank + said, axis=2, keepdims=True)
        end = jnp.logaddexp(self.by_piece[..., -1:], self.by_blank[..., -1:])
        piece = jnp.arange(paths.shape[2]).reshape(1, 1, -1)
        psi = jnp.where(piece == self.last[..., None], again, psi)
        psi = jnp.where(piece == EOS, end, psi)
        lost = (self.psi < _NEVER / 2)[..., None]  # whatever follows
        following = jnp.where(lost, 0, jnp.minimum(psi - self.psi[..., None], 0))
        return jnp.where(piece == PAD, -jnp.inf, following)

    def reorder(self, parents: Int[Array, "B W"]) -> "Prefixes":
        """Let hypothesis w continue hypothesis parents[w]."""

        def choose(x: Array) -> Array:
            where = parents.reshape(*parents.shape, *[1] * (x.ndim - 2))
            return jnp.take_along_axis(x, where, axis=1)

        return jax.tree.map(choose, self)

    def grow(self, length: int) -> "Prefixes":
        """Return the same with padding, which is certain to be blank, up to so many positions."""
        more = ((0, 0), (0, 0), (0, length - self.by_piece.shape[2]))
        both = jnp.logaddexp(self.by_piece[..., -1:], self.by_blank[..., -1:])
        tail = jnp.broadcast_to(both, (*both.shape[:2], more[2][1]))
        return replace(
            self,
            by_piece=jnp.pad(self.by_piece, more, constant_values=_NEVER),
            by_blank=jnp.concatenate([self.by_blank, tail], axis=2),
        )


@struct.dataclass
class JointState:
    """The model's state, which has `paths`, and the prefixes of its hypotheses."""

    model: Any
    prefixes: Prefixes


@dataclass(frozen=True)
class JointStepper:
    """A Stepper whose logits are (1 - weight) log p by attention + weight log p by CTC. They are
    log-probabilities of less than 1 in all: the rest is PAD's, which no search writes. So a search
    that normalises them leaves them as they are, and scores as in the paper.
    """

    stepper: Any
    weight: float

    def context(self, side: Side) -> Batch:
        """See Stepper."""
        return self.stepper.context(side)

    def start(
        self, batch: Batch, width: int, length: int, reach: int = 1, shortlist: Any = None
    ) -> JointState:
        """See Stepper."""
        state = self.stepper.start(batch, width, length, reach, shortlist)
        return JointState(state, Prefixes.empty(state.paths, width))

    def step(
        self, state: JointState, tokens: Int[Array, "B W 1"], positions: Int[Array, "B 1"],
        active: Bool[Array, "B"],
    ) -> tuple[Float[Array, "B W 1 V"], Any, JointState]:  # fmt: skip
        """See Stepper: a single token a step."""
        assert tokens.shape[2] == 1
        logits, attention, model = self.stepper.step(state.model, tokens, positions, active)
        written = (active & (positions[:, 0] > 0))[:, None]  # not the first token, BOS
        extended = state.prefixes.extended(model.paths, tokens[..., 0])

        def choose(new: Array, old: Array) -> Array:
            return jnp.where(written.reshape(-1, *[1] * (new.ndim - 1)), new, old)

        prefixes = jax.tree.map(choose, extended, state.prefixes)
        by_attention = jax.nn.log_softmax(at_least_float32(logits[:, :, 0]))
        by_ctc = prefixes.next(model.paths).astype(by_attention.dtype)
        joint = (1 - self.weight) * by_attention + self.weight * by_ctc
        rest = 1 - jnp.exp(joint).sum(-1)  # that of PAD is 0
        rest = jnp.log(jnp.maximum(rest, jnp.finfo(joint.dtype).tiny))
        joint = joint.at[:, :, PAD].set(rest)
        return joint[:, :, None], attention, JointState(model, prefixes)

    def reorder(self, state: JointState, parents: Int[Array, "B W"]) -> JointState:
        """See Stepper."""
        model = self.stepper.reorder(state.model, parents)
        return JointState(model, state.prefixes.reorder(parents))

    def rewind(self, state: JointState, position: Int[Array, "B"]) -> JointState:
        """See Stepper: only drafts are rewound, and joint search has none."""
        raise NotImplementedError

    def grow(self, state: JointState, src_length: int, length: int) -> JointState:
        """See Stepper."""
        model = self.stepper.grow(state.model, src_length, length)
        return JointState(model, state.prefixes.grow(model.paths.shape[1]))


@dataclass(frozen=True)
class Joint:
    """A Model that wraps another, which predicts "ctc" besides "tokens", for joint search."""

    model: Any
    weight: float

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # not those by which a copy is made, before it has a model
            raise AttributeError(name)
        return getattr(self.model, name)

    def stepper(self, params: Any) -> Stepper:
        """See Model."""
        return JointStepper(self.model.stepper(params), self.weight)


def joint(weight: float, models: list[Model]) -> list[Model]:
    """Return models for a search in which CTC has this weight; the same ones if it is 0."""
    wrapped: list[Any] = [Joint(model, weight) for model in models] if weight else [*models]
    return wrapped
