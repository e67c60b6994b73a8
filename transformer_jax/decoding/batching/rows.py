"""The rows of a batch: their owners, admission of sentences, and results."""

from collections.abc import Generator, Iterator, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from transformer_jax.base.vocabulary import BOS
from transformer_jax.decoding.batching.batch_shapes import BatchShape
from transformer_jax.decoding.batching.drain import Outcome
from transformer_jax.decoding.batching.engine import Engine
from transformer_jax.decoding.batching.packing import Layout, pack
from transformer_jax.decoding.batching.results import Results
from transformer_jax.decoding.search.acceptance import Acceptance
from transformer_jax.decoding.search.request import Form
from transformer_jax.decoding.search.state import (
    ENDLESS,
    Search,
    SearchRequest,
    SearchState,
    has_room,
)

Owners = np.ndarray  # [devices rows], the number of the sentence in each row, or -1
Found = tuple[int, np.ndarray, np.ndarray]  # a sentence's number, tokens [W L] and scores [W]
Moving = list[tuple[SearchState, Owners]]  # sentences on their way to another batch


class Numbers(NamedTuple):
    """Per-sentence numbers that replace the search's; see `Asked`."""

    wanted: int = 1
    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    seed: int = 0
    lane: int = 0


class Sentence(NamedTuple):
    """A sentence to translate; see `SearchRequest`."""

    ids: Any  # a sequence of them, or vectors [L C]
    limit: int
    least: int = 0
    prefix: Sequence[int] = ()
    seed: int = 0
    line: int = 0  # that it is part of; for the caller's use
    first: int = BOS
    numbers: Numbers | None = None
    words: int = 0  # in its text, for a constraint
    shortlist: Any = None  # pieces that may be written [K]; None: all
    words_before: int = 0  # of its line, if it is not the first part; for the caller's use


Queue = Sequence[tuple[int, Sentence]]  # numbered sentences, in order


def request_of(
    queues: Sequence[Queue], size: int, length: int, form: Form
) -> tuple[SearchRequest, Owners]:
    """Return queues of numbered sentences, one per device, as arrays of a form, [devices size]."""
    request = SearchRequest.empty(len(queues) * size, length, form)
    owners = np.full((len(queues), size), -1)
    for device, queue in enumerate(queues):
        for i, (number, sentence) in enumerate(queue):
            place, owners[device, i] = device * size + i, number
            request.src_ids[place, : len(sentence.ids)] = sentence.ids
            request.src_lengths[place], request.first[place] = len(sentence.ids), sentence.first
            request.prefix[place, : len(sentence.prefix)] = np.add(sentence.prefix, 1)
            request.limits[place], request.least[place] = sentence.limit, sentence.least
            request.seeds[place], request.words[place] = sentence.seed, sentence.words
            if request.shortlist is not None:
                request.shortlist[place] = sentence.shortlist
            if request.asked is not None:
                for name, value in (sentence.numbers or Numbers())._asdict().items():
                    getattr(request.asked, name)[place] = value
    return request, owners


class Drained(NamedTuple):
    """The outcome of draining queues into a batch."""

    paused: Moving  # taken out for lack of room
    entered: np.ndarray  # number admitted from each queue
    steps: int


class Rows:
    """The rows of a batch of one shape; the next shape has room for `next_rows` sentences.

    All requests have the form `form`; `acceptance` counts accepted proposals of drafts.
    """

    def __init__(
        self,
        engine: Engine,
        search: Search,
        params: Any,
        shape: BatchShape,
        next_rows: int,
        form: Form,
        acceptance: Acceptance | None = None,
    ) -> None:
        self._form, self._acceptance = form, acceptance
        self._engine, self._search, self._params, self.shape = engine, search, params, shape
        self._next_rows = next_rows
        self.owners = np.full((engine.devices, shape.rows), -1)
        self._state = engine.empty(params, search, shape, form)
        self._outcomes: dict[int, Layout] = {}

    def drain(
        self, queues: Sequence[Queue], size: int, wake: np.ndarray, steps: int = int(ENDLESS)
    ) -> Generator[Found, None, Drained]:
        """Admit sentences from each device's queue, of at most `size`, as rows become free, and
        search until `wake` per device are active, or for `steps` steps: yield results.
        """
        devices = self._engine.devices
        request, owners = request_of(queues, size, self.shape.src_length, self._form)
        places = np.where(self.owners >= 0, np.arange(self.shape.rows), -1).astype(np.int32)
        count = (owners >= 0).sum(1).astype(np.int32)
        most = np.full(devices, steps, np.int32)
        arrays = places.reshape(-1), request, count, wake.astype(np.int32), most
        words, layout = pack(arrays, devices)
        self._state, words = self._engine.drain(
            self._params, self._search, self._state,
            jax.device_put(words, self._engine.sharding), layout=layout, share=self.shape.share,
        )  # fmt: skip
        if size not in self._outcomes:
            self._outcomes[size] = self._outcome(size)
        outcome = self._outcomes[size].split(np.asarray(words))
        numbers = np.concatenate([self.owners, owners], axis=1)
        staying = outcome.places.reshape(self.owners.shape)
        came = np.arange(owners.shape[1]) < outcome.entered[:, None]
        over = np.concatenate([self.owners >= 0, came], axis=1)
        device, row = np.nonzero(staying >= 0)
        over[device, staying[device, row]] = False
        self.owners = np.where(staying >= 0, np.take_along_axis(numbers, staying, axis=1), -1)
        yield from self._found(numbers.reshape(-1), over.reshape(-1), outcome.results)
        paused = list(self.remove(outcome.stuck.reshape(self.owners.shape)))
        return Drained(paused, outcome.entered, steps - int(outcome.steps.min()))

    def _outcome(self, queue: int) -> Layout:
        """Return the layout of what a drain returns, for queues of this size."""
        devices, rows = self._engine.devices, self.shape.rows
        one, each = np.zeros(devices, np.int32), np.zeros(devices * rows, np.int32)
        places = devices * (rows + queue)
        results = jax.tree.map(
            lambda x: np.broadcast_to(np.zeros((), x.dtype), (places, *x.shape[1:])),
            Results.of(self._state),
        )
        return Layout.of(Outcome(one, one, each, each > 0, results), devices)

    def run(self, wake: int) -> None:
        """Search until at most `wake` sentences per device are active."""
        arguments = self._params, self._search, self._state, np.int32(wake)
        self._state = self._engine.run(*arguments)

    def release(self, number: int) -> None:
        """Free the row of a sentence."""
        self.owners[self.owners == number] = -1

    def written(self) -> Iterator[tuple[int, np.ndarray]]:
        """Yield the number of each sentence and what it has written so far, [W l]."""
        position, tokens = jax.device_get((self._state.position, self._state.finished))
        for device, row in zip(*np.nonzero(self.owners >= 0), strict=True):
            where = device * self.shape.rows + row
            yield int(self.owners[device, row]), tokens[where, :, 1 : position[where] + 1]

    def compile(self, queue: int, beyond: "Sequence[Rows]") -> None:
        """Compile all operations, for queues of `queue` sentences per device, and for sentences
        that may move on to other batches.
        """
        devices = self._engine.devices
        for _ in self.drain([()] * devices, queue, np.zeros(devices)):
            pass
        where = np.zeros(devices * self._leaving, np.int64)
        for rows in beyond:
            state = self._engine.take(self._state, jax.device_put(where, self._engine.sharding))
            rows.put(state, np.full((devices, self._leaving), -1))

    @property
    def _leaving(self) -> int:
        """Number of sentences per device taken out at a time."""
        return max(1, min(self.shape.share, self._next_rows // 4))

    def _claim(self, owners: Owners) -> np.ndarray:
        """Assign free rows to sentences and return them: [devices rows] as one axis."""
        where = np.full(owners.shape, self.shape.rows)  # beyond the batch: nowhere
        for device, mine in enumerate(owners):
            rows = np.flatnonzero(mine >= 0)
            where[device, rows] = np.flatnonzero(self.owners[device] < 0)[: len(rows)]
            self.owners[device, where[device, rows]] = mine[rows]
        return where.reshape(-1)

    def fits(self, owners: Owners) -> bool:
        """Return whether there are rows for these sentences."""
        return bool(((owners >= 0).sum(1) <= (self.owners < 0).sum(1)).all())

    def put(self, state: SearchState, owners: Owners) -> None:
        """Insert sentences of another batch, which must fit."""
        where = jax.device_put(self._claim(owners), self._engine.sharding)
        self._state = self._engine.put(
            self._params, self._state, state, where, src_length=self.shape.src_length
        )

    def harvest(self) -> Generator[Found, None, Moving]:
        """Yield the results of finished sentences; take out and return paused ones."""
        # Sliced here: a slice on the device would be a program of its own.
        done = np.asarray(self._state.done)
        over, results = done & (self.owners >= 0).reshape(-1), Results.of(self._state)
        yield from self._found(self.owners.reshape(-1), over, results)
        self.owners[done.reshape(self.owners.shape)] = -1
        return self._paused()

    def _found(self, numbers: np.ndarray, over: np.ndarray, results: Results) -> Iterator[Found]:
        """Yield the results of finished sentences, and count their accepted proposals."""
        host = jax.device_get(results)
        if self._acceptance is not None and host.drafts is not None:
            self._acceptance.add(host.position[over], host.drafts[over])
        for where in np.flatnonzero(over):
            yield int(numbers[where]), host.tokens[where, :, 1:], host.scores[where]

    def _paused(self) -> Moving:
        """Take out sentences that have no room left."""
        s = self._state
        position, limits = jax.device_get((s.position, s.request.limits))
        fits = has_room(position, limits, self.shape.room, s.stride).reshape(self.owners.shape)
        return list(self.remove(~fits & (self.owners >= 0)))

    def remove(self, which: np.ndarray) -> Iterator[tuple[SearchState, Owners]]:
        """Take out the marked sentences, as many at a time as the next shape has room for."""
        share = self._leaving
        rows = [np.flatnonzero(marked) for marked in which]
        for start in range(0, max(map(len, rows)), share):
            where = np.zeros((len(rows), share), np.int64)
            owners = np.full(where.shape, -1)
            for device, mine in enumerate(rows):
                part = mine[start : start + share]
                where[device, : len(part)] = part
                owners[device, : len(part)] = self.owners[device, part]
            where = jax.device_put(where.reshape(-1), self._engine.sharding)
            yield self._engine.take(self._state, where), owners
        self.owners[which] = -1
