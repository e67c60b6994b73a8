"""Continuous batching: sentences flow through a batch and take the places of finished ones.

A batch has static shapes: so many sentences of such a length with room for so many tokens.
Sentences are taken shortest first. When those that fit one shape have all begun, what is still
active moves on to the next one, among longer sentences; so do sentences whose output outgrew their
room. The last shapes hold ever fewer sentences, so that stragglers do not drag a full batch along.

On several devices each has rows of its own and loops on its own; nothing is exchanged.
"""

import itertools
from collections.abc import Generator, Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import jax
import numpy as np

from transformer_jax.decoding.batching.batch_shapes import BatchShape, batch_shapes
from transformer_jax.decoding.batching.engine import Engine
from transformer_jax.decoding.search.acceptance import Acceptance
from transformer_jax.decoding.search.state import (
    Search,
    SearchRequest,
    SearchState,
    has_room,
)
from transformer_jax.vocabulary import BOS

Owners = np.ndarray  # [devices rows], the number of the sentence in each row, or -1
Found = tuple[int, np.ndarray, np.ndarray]  # a sentence's number, tokens [W L] and scores [W]


class Sentence(NamedTuple):
    """A sentence to translate; see `SearchRequest`."""

    ids: Any  # a sequence of them, or vectors [L C]
    limit: int
    least: int = 0
    prefix: Sequence[int] = ()
    seed: int = 0
    line: int = 0  # that it is part of; for the caller's use
    first: int = BOS
    words: int = 0  # of its text, for a constraint


def stream(
    engine: Engine,
    search: Search,
    params: Any,
    sentences: Sequence[Sentence],
    budget: int,
    positions: int = 1 << 30,
    acceptance: Acceptance | None = None,
) -> Iterator[Found]:
    """Yield what is found for each sentence, best hypothesis first, in the order of finishing.

    `budget` is the most source positions times hypotheses at a time on a device; `positions` is how
    many the model knows; `acceptance` counts how drafts fare, where there are any.
    """
    if not sentences:
        return
    lengths = [len(sentence.ids) for sentence in sentences]
    limits = [sentence.limit for sentence in sentences]
    order = sorted(range(len(sentences)), key=lengths.__getitem__)
    shapes = batch_shapes(lengths, limits, search.width, budget, engine.devices, positions)
    moving: list[tuple[SearchState, Owners]] = []
    for shape, following in itertools.zip_longest(shapes, shapes[1:]):
        mine = [i for i in order if lengths[i] <= shape.src_length]
        order = order[len(mine) :]
        next_rows = 0 if following is None else following.rows
        prefix = _prefix_length(sentences)
        channels = _channels(sentences)
        batch = _Batch(engine, search, params, shape, next_rows, prefix, channels, acceptance)
        moving = yield from batch.drain(moving, _requests(engine, shape, mine, sentences))


def _requests(
    engine: Engine, shape: BatchShape, order, sentences: Sequence[Sentence]
) -> Iterator[tuple[SearchRequest, Owners]]:
    """Yield the sentences that begin in a shape, a share of its rows at a time."""
    size = shape.share * engine.devices
    prefix = _prefix_length(sentences)
    for start in range(0, len(order), size):
        part = [(i, sentences[i]) for i in order[start : start + size]]
        empty = SearchRequest.empty(size, shape.src_length, prefix, _channels(sentences))
        yield _request(engine.devices, shape.share, empty, part)


def _channels(sentences: Sequence[Sentence]) -> int | None:
    first = sentences[0].ids
    return first.shape[1] if isinstance(first, np.ndarray) and first.ndim == 2 else None


def _prefix_length(sentences: Sequence[Sentence]) -> int:
    longest = max(len(sentence.prefix) for sentence in sentences)
    return -(-longest // 8) * 8  # few shapes


def _request(
    devices: int, share: int, request: SearchRequest, part: Sequence[tuple[int, Sentence]]
) -> tuple[SearchRequest, Owners]:
    """Fill numbered sentences into arrays. Neighbours go to different devices."""
    size = devices * share
    owners, words = np.full(size, -1), np.zeros(size, np.int32)
    for place, (index, sentence) in zip(
        np.arange(size).reshape(devices, share).T.reshape(-1), part, strict=False
    ):
        request.src_ids[place, : len(sentence.ids)] = sentence.ids
        request.src_lengths[place], request.first[place] = len(sentence.ids), sentence.first
        request.prefix[place, : len(sentence.prefix)] = sentence.prefix
        request.limits[place], request.least[place] = sentence.limit, sentence.least
        request.seeds[place], words[place] = sentence.seed, sentence.words
        owners[place] = index
    return replace(request, words=words), owners.reshape(devices, share)


class _Batch:
    """The batch of one shape; the next shape has room for `next_rows` sentences."""

    def __init__(
        self,
        engine: Engine,
        search: Search,
        params: Any,
        shape: BatchShape,
        next_rows: int,
        prefix: int,
        channels: int | None,
        acceptance: Acceptance | None,
    ) -> None:
        self._engine, self._search, self._params, self._shape = engine, search, params, shape
        self._next_rows, self._acceptance = next_rows, acceptance
        self._owners = np.full((engine.devices, shape.rows), -1)
        self._state = engine.empty(params, search, shape, prefix, channels)

    def drain(
        self,
        moving: list[tuple[SearchState, Owners]],
        fresh: Iterator[tuple[SearchRequest, Owners]],
    ) -> Generator[Found, None, list[tuple[SearchState, Owners]]]:
        """Search until the next shape can take over; yield what is found, return what is left.

        Sentences on the move from the shape before come in ahead of the fresh ones.
        """
        left: list[tuple[SearchState, Owners]] = []
        waiting = next(fresh, None)
        nobody = None
        if waiting is not None:  # admitting nobody is no other program than admitting somebody
            nobody = jax.tree.map(np.zeros_like, waiting[0]), np.full_like(waiting[1], -1)
        while True:
            while moving and self._fits(moving[-1][1]):
                self._put(*moving.pop())
            entering = nobody
            if waiting is not None and not moving and self._fits(waiting[1]):
                entering, waiting = waiting, next(fresh, None)
            following = moving[-1] if moving else waiting
            wake = self._wake(None if following is None else following[1])
            if entering is nobody and (self._owners >= 0).sum(1).max() <= wake:
                return left + list(self._remove(self._owners >= 0))
            self._run(entering, np.int32(wake))
            left += yield from self._harvest()

    def _wake(self, following: Owners | None) -> int:
        """Return how many active sentences of a device are few enough for others to come in."""
        if following is None:
            return self._next_rows
        return self._shape.rows - int((following >= 0).sum(1).max())

    def _run(self, entering: tuple[SearchRequest, Owners] | None, wake: np.int32) -> None:
        engine, given = self._engine, (self._params, self._search)
        if entering is None:
            self._state = engine.run(*given, self._state, wake)
            return
        request, owners = entering
        arrays = jax.device_put((request, self._claim(owners)), engine.sharding)
        self._state = engine.admit(*given, self._state, *arrays, wake)

    def _claim(self, owners: Owners) -> np.ndarray:
        """Give free rows to sentences, and return which: [devices rows] as one axis."""
        where = np.full(owners.shape, self._shape.rows)  # beyond the batch: nowhere
        for device, mine in enumerate(owners):
            rows = np.flatnonzero(mine >= 0)
            where[device, rows] = np.flatnonzero(self._owners[device] < 0)[: len(rows)]
            self._owners[device, where[device, rows]] = mine[rows]
        return where.reshape(-1)

    def _fits(self, owners: Owners) -> bool:
        return bool(((owners >= 0).sum(1) <= (self._owners < 0).sum(1)).all())

    def _put(self, state: SearchState, owners: Owners) -> None:
        where = jax.device_put(self._claim(owners), self._engine.sharding)
        self._state = self._engine.put(
            self._params, self._state, state, where, src_length=self._shape.src_length
        )

    def _harvest(self) -> Generator[Found, None, list[tuple[SearchState, Owners]]]:
        """Yield what is done; take out and return what is paused."""
        s = self._state
        # Sliced here: a slice on the device would be a program of its own.
        wanted = s.done, s.position, s.request.limits, s.finished, s.scores, s.drafts
        done, position, limits, tokens, scores, drafts = jax.device_get(wanted)
        done = done.reshape(self._owners.shape)
        if self._acceptance is not None and drafts is not None:
            rows = (done & (self._owners >= 0)).reshape(-1)
            self._acceptance.add(position[rows], drafts[rows])
        for device, row in zip(*np.nonzero(done & (self._owners >= 0)), strict=True):
            where = device * self._shape.rows + row
            yield int(self._owners[device, row]), tokens[where, :, 1:], scores[where]
        self._owners[done] = -1
        fits = has_room(position, limits, self._shape.room, s.stride).reshape(self._owners.shape)
        return list(self._remove(~fits & (self._owners >= 0)))

    def _remove(self, which: np.ndarray) -> Iterator[tuple[SearchState, Owners]]:
        """Take the marked sentences out, as many at a time as the next shape has room for."""
        share = max(1, min(self._shape.share, self._next_rows // 4))
        rows = [np.flatnonzero(marked) for marked in which]
        for start in range(0, max(map(len, rows)), share):
            where = np.zeros((len(rows), share), np.int64)
            owners = np.full(where.shape, -1)
            for device, mine in enumerate(rows):
                part = mine[start : start + share]
                where[device, : len(part)] = part
                owners[device, : len(part)] = self._owners[device, part]
            where = jax.device_put(where.reshape(-1), self._engine.sharding)
            yield self._engine.take(self._state, where), owners
        self._owners[which] = -1
