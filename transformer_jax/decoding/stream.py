"""Continuous batching: sentences flow through a batch, and take the places of finished ones.

A batch has static shapes, a rung: so many sentences of such a length with room for so many tokens.
Sentences are taken shortest first. When those that fit a rung have all begun, what is still active
moves up to the next one, among longer sentences; so do sentences whose output outgrew their room.
The last rungs hold ever fewer sentences, so that stragglers do not drag a full batch along.

On several devices every one has rows of its own and loops on its own; nothing is exchanged.
"""

import itertools
from collections.abc import Generator, Iterator, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from transformer_jax.decoding.engine import Engine
from transformer_jax.decoding.ladder import Rung, ladder
from transformer_jax.decoding.search import Demand, Progress, Search


class Sentence(NamedTuple):
    """One to translate; see `Demand`."""

    ids: Sequence[int]
    limit: int
    least: int = 0
    prefix: Sequence[int] = ()
    seed: int = 0


class Waiting(NamedTuple):
    """A few sentences that have not begun, the same number of rows on each device."""

    src_ids: np.ndarray
    demand: Demand
    owners: np.ndarray  # [devices rows], the sentence in each row, or -1

    def nobody(self) -> "Waiting":
        """Return the same without any sentence."""
        src_ids, demand = jax.tree.map(np.zeros_like, (self.src_ids, self.demand))
        return Waiting(src_ids, demand, np.full_like(self.owners, -1))


class Chunk(NamedTuple):
    """A few sentences under way from one batch to the next."""

    progress: Progress
    owners: np.ndarray  # as in Waiting


class Found(NamedTuple):
    """The hypotheses of one sentence, best first."""

    number: int
    tokens: np.ndarray  # [W L]
    scores: np.ndarray  # [W]


def stream(
    engine: Engine,
    search: Search,
    params: Any,
    sentences: Sequence[Sentence],
    budget: int,
    positions: int = 1 << 30,
) -> Iterator[Found]:
    """Yield what is found for each sentence, in the order in which they finish.

    `budget` is the most source positions times hypotheses at a time on a device; `positions` is how
    many the model knows.
    """
    if not sentences:
        return
    lengths = [len(sentence.ids) for sentence in sentences]
    limits = [sentence.limit for sentence in sentences]
    order = sorted(range(len(sentences)), key=lengths.__getitem__)
    rungs = ladder(lengths, limits, search.width, budget, engine.devices, positions)
    carried: list[Chunk] = []
    for rung, following in itertools.zip_longest(rungs, rungs[1:]):
        mine = [i for i in order if lengths[i] <= rung.src_length]
        order = order[len(mine) :]
        batch = _Batch(engine, search, params, rung, following, _prefix_length(sentences))
        carried = yield from batch.drain(carried, _waiting_list(engine, rung, mine, sentences))


def _waiting_list(
    engine: Engine, rung: Rung, order, sentences: Sequence[Sentence]
) -> Iterator[Waiting]:
    """Yield the sentences of a rung, a share of its rows at a time."""
    size = rung.share * engine.devices
    prefix = _prefix_length(sentences)
    for start in range(0, len(order), size):
        part = [(i, sentences[i]) for i in order[start : start + size]]
        yield _waiting(engine.devices, rung.share, rung.src_length, prefix, part)


def _prefix_length(sentences: Sequence[Sentence]) -> int:
    longest = max(len(sentence.prefix) for sentence in sentences)
    return -(-longest // 8) * 8  # few shapes


def _waiting(
    devices: int, share: int, length: int, prefix: int, part: Sequence[tuple[int, Sentence]]
) -> Waiting:
    """Return numbered sentences in arrays. Neighbours go to different devices."""
    size = devices * share
    src_ids = np.zeros((size, length), np.int32)
    limits, least, seeds = np.zeros((3, size), np.int32)
    prefixes = np.zeros((size, prefix), np.int32)
    owners = np.full(size, -1)
    for place, (index, sentence) in zip(
        np.arange(size).reshape(devices, share).T.reshape(-1), part, strict=False
    ):
        src_ids[place, : len(sentence.ids)] = sentence.ids
        prefixes[place, : len(sentence.prefix)] = sentence.prefix
        limits[place], least[place] = sentence.limit, sentence.least
        seeds[place], owners[place] = sentence.seed, index
    demand = Demand(limits, least, prefixes, seeds)
    return Waiting(src_ids, demand, owners.reshape(devices, share))


class _Batch:
    """The batch of one rung."""

    def __init__(
        self,
        engine: Engine,
        search: Search,
        params: Any,
        rung: Rung,
        following: Rung | None,
        prefix: int,
    ) -> None:
        self._engine, self._search, self._params, self._rung = engine, search, params, rung
        self._next_rows = 0 if following is None else following.rows
        self._owners = np.full((engine.devices, rung.rows), -1)
        self._progress = engine.empty(params, search, rung, prefix)

    def drain(
        self, carried: list[Chunk], fresh: Iterator[Waiting]
    ) -> Generator[Found, None, list[Chunk]]:
        """Search until the next rung can take over; yield what is found, return what is left."""
        left: list[Chunk] = []
        waiting = next(fresh, None)
        nobody = None if waiting is None else waiting.nobody()
        while True:
            while carried and self._fits(carried[-1].owners):
                self._put(carried.pop())
            entering = nobody
            if waiting is not None and not carried and self._fits(waiting.owners):
                entering, waiting = waiting, next(fresh, None)
            wake = self._wake(carried[-1] if carried else waiting)
            if entering is nobody and (self._owners >= 0).sum(1).max() <= wake:
                return left + list(self._remove(self._owners >= 0))
            self._run(entering, np.int32(wake))
            left += yield from self._harvest()

    def _wake(self, following: Chunk | Waiting | None) -> int:
        """Return how many active sentences of a device are so few that others can come in."""
        if following is None:
            return self._next_rows
        return self._rung.rows - int((following.owners >= 0).sum(1).max())

    def _run(self, entering: Waiting | None, wake: np.int32) -> None:
        engine = self._engine
        if entering is None:
            self._progress = engine.run(self._params, self._search, self._progress, wake)
            return
        where = self._claim(entering.owners)
        arrays = jax.device_put((*entering[:2], where), engine.sharding)
        self._progress = engine.admit(self._params, self._search, self._progress, *arrays, wake)

    def _claim(self, owners: np.ndarray) -> np.ndarray:
        """Give free rows to sentences, and return which: [devices rows] as one axis."""
        where = np.full(owners.shape, self._rung.rows)  # beyond the batch: nowhere
        for device, mine in enumerate(owners):
            rows = np.flatnonzero(mine >= 0)
            where[device, rows] = np.flatnonzero(self._owners[device] < 0)[: len(rows)]
            self._owners[device, where[device, rows]] = mine[rows]
        return where.reshape(-1)

    def _fits(self, owners: np.ndarray) -> bool:
        return bool(((owners >= 0).sum(1) <= (self._owners < 0).sum(1)).all())

    def _put(self, chunk: Chunk) -> None:
        where = jax.device_put(self._claim(chunk.owners), self._engine.sharding)
        self._progress = self._engine.put(
            self._params, self._progress, chunk.progress, where, src_length=self._rung.src_length
        )

    def _harvest(self) -> Generator[Found, None, list[Chunk]]:
        """Yield what is done; take out and return what is paused."""
        p = self._progress
        # Sliced here: a slice on the device would be a program of its own.
        done, position, tokens, scores = jax.device_get((p.done, p.position, p.finished, p.scores))
        done = done.reshape(self._owners.shape)
        for device, row in zip(*np.nonzero(done & (self._owners >= 0)), strict=True):
            where = device * self._rung.rows + row
            yield Found(int(self._owners[device, row]), tokens[where, :, 1:], scores[where])
        self._owners[done] = -1
        full = position.reshape(self._owners.shape) >= self._rung.room
        return list(self._remove(full & (self._owners >= 0)))

    def _remove(self, which: np.ndarray) -> Iterator[Chunk]:
        """Take the marked sentences out, in chunks that the next rung has room for."""
        share = max(1, min(self._rung.share, self._next_rows // 4))
        rows = [np.flatnonzero(marked) for marked in which]
        for start in range(0, max(map(len, rows)), share):
            where = np.zeros((len(rows), share), np.int64)
            owners = np.full(where.shape, -1)
            for device, mine in enumerate(rows):
                part = mine[start : start + share]
                where[device, : len(part)] = part
                owners[device, : len(part)] = self._owners[device, part]
            where = jax.device_put(where.reshape(-1), self._engine.sharding)
            yield Chunk(self._engine.take(self._progress, where), owners)
        self._owners[which] = -1
