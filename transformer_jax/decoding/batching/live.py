"""Continuous batching of sentences that arrive while others are searched, and may be cancelled.

Uses the batches and programs of `stream`, which takes sentences known in advance. Here the shapes
are fixed, so that all programs can be compiled before the first sentence arrives, and a batch
advances a few steps at a time, between which sentences come and go.
"""

import itertools
import time
from collections import defaultdict
from collections.abc import Collection, Generator, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from transformer_jax.base.vocabulary import UNK
from transformer_jax.decoding.batching.batch_shapes import BatchShape
from transformer_jax.decoding.batching.engine import Engine
from transformer_jax.decoding.batching.rows import Found, Moving, Rows, Sentence
from transformer_jax.decoding.search.request import Form
from transformer_jax.decoding.search.state import Search

# A batch advances one turn at a time, until a share of its rows is free, so that these are not idle
# and results do not wait. Newcomers wait for a turn to end, and each turn costs some milliseconds:
# so it takes at most 0.03 s, or up to 0.05 s if that is less than four steps. If rows are few and
# newcomers wait in any case, 0.05 s: with a tiny model on two cores, 0.1 s served no more.
_SHORT, _LONG = 0.03, 0.05
_STEPS = 4, 32  # at least and at most
_SHARES = 8  # of a batch's rows that can be admitted in a turn
_PER_ROW = 2  # sentences up to which a batch is enough, until its steps are measured
_MEASURED = 4  # steps
# Share of a larger batch's rows that are taken to be searching. Where a step of four rows takes
# three times as long as one of a single row (tiny models on CPUs), one row for up to four sentences
# served best.
_BUSY = 0.75


class Queues(NamedTuple):
    """The sentences that a batch may admit: for each device, numbered and in order."""

    devices: list[list[tuple[int, Sentence]]]
    full: bool = False  # whether there are too few rows


class LiveStream:
    """A stream of sentences through batches of these shapes, by length and then by rows.

    A sentence starts in a batch of the shortest shape that fits it: the smallest that is enough for
    all that run or wait, or a larger one that is running and not far too large. So a few sentences
    go through a small batch, whose steps are short, and many through a large one alone, since
    batches take turns. A batch is enough until the next one would finish more sentences in the same
    time, by their steps as measured. Sentences that outgrow their room move on. All requests have
    the form `form`. Not thread-safe.
    """

    def __init__(
        self, engine: Engine, mesh: Mesh, search: Search, params: Any, shapes: Sequence[BatchShape],
        form: Form,
    ) -> None:  # fmt: skip
        self._engine, self._mesh = engine, mesh
        self._form = form
        self._watched: Collection[int] = ()
        with jax.set_mesh(mesh):
            # Numbers of the search as well, or every call puts them there again.
            everywhere = NamedSharding(mesh, PartitionSpec())
            params, search = jax.device_put((params, search), everywhere)
            kinds = itertools.groupby(shapes, key=lambda shape: shape[1:])
            tiers = [list(tier) for _, tier in kinds]
            self._tiers = [
                [Rows(engine, search, params, shape, beyond, form) for shape in tier]
                for tier, beyond in zip(tiers, [*(t[0].rows for t in tiers[1:]), 0], strict=True)
            ]
        self._moving: list[Moving] = [[] for _ in tiers]  # into each tier
        self._each = dict.fromkeys(map(id, self._batches), _SHORT)  # seconds per step
        self._enough = {id(rows): _PER_ROW * rows.owners.size for rows in self._batches}

    def compile(self, begin: float = 0.0) -> None:
        """Compile all programs, first those after the fraction `begin` of them, so that no sentence
        waits for one; and measure a step of each batch.
        """
        tiers = zip(self._tiers, [*self._tiers[1:], []], strict=True)
        batches = [(rows, beyond) for tier, beyond in tiers for rows in tier]
        first = int(begin * len(batches))
        with jax.set_mesh(self._mesh):
            for rows, beyond in batches[first:] + batches[:first]:
                rows.compile(_queue(rows), beyond)
            self._measure()

    def _measure(self) -> None:
        """Determine for how many sentences each batch is enough."""
        seconds: dict[int, float] = {}  # by rows: ratios are much the same for longer shapes
        for pair in itertools.chain(*map(itertools.pairwise, self._tiers)):
            for rows in pair:
                if not seconds.get(rows.shape.rows):
                    seconds[rows.shape.rows] = self._seconds_per_step(rows)
            own, of_next = (seconds[rows.shape.rows] for rows in pair)
            if own and of_next:
                size = pair[0].owners.size
                self._enough[id(pair[0])] = round(of_next / own / _BUSY * size)

    def _seconds_per_step(self, rows: Rows) -> float:
        """Return how long a step of a batch takes, or 0 if it has no room for a few steps."""
        room = rows.shape.room  # all of which is used: none ends before
        sentence = Sentence([UNK], room, room, shortlist=range(self._form.shortlist))
        queue = list(enumerate([sentence] * min(rows.shape.rows, _queue(rows))))
        queues, wake = [queue] * len(rows.owners), np.zeros(len(rows.owners))
        few, many = 1, 1 + _MEASURED
        took = {few: np.inf, many: np.inf}
        for steps in (few, many) * 3:
            began = time.perf_counter()
            finished = list(rows.drain(queues, _queue(rows), wake, steps))
            took[steps] = min(took[steps], time.perf_counter() - began)
            searching = (rows.owners >= 0).sum(1)
            rows.owners[:] = -1
            if finished or (searching < len(queue)).any():
                return 0.0
        return max(took[many] - took[few], 0.0) / _MEASURED

    @property
    def _batches(self) -> list[Rows]:
        return [rows for tier in self._tiers for rows in tier]

    @property
    def numbers(self) -> set[int]:
        """The numbers of the sentences being searched."""
        owners = [rows.owners for rows in self._batches]
        owners += [owners for moving in self._moving for _, owners in moving]
        return {int(n) for array in owners for n in array[array >= 0]}

    @property
    def capacity(self) -> int:
        """Number of sentences that can be searched at a time."""
        return sum(rows.owners.size for rows in self._batches)

    def turn(
        self, waiting: Iterable[tuple[int, Sentence]] = (), watched: Collection[int] = ()
    ) -> Iterator[Found]:
        """Advance for a moment, admitting waiting sentences where there are rows; yield results.
        Sentences admitted but not finished are among `numbers` afterwards, and what those among
        `watched` have so far is then `written`.

        First come, first served, except that sentences that wait for a row may be passed by shorter
        or longer ones.
        """
        self._watched = watched
        self._move()
        queues = self._queues(waiting)
        with jax.set_mesh(self._mesh):
            for level, tier in enumerate(self._tiers):
                for rows in tier:
                    mine = queues.get(id(rows), Queues([]))
                    if any(mine.devices) or (rows.owners >= 0).any():
                        paused = yield from self._go_on(rows, mine)
                        if paused:
                            self._moving[level + 1] += paused

    def written(self) -> Iterator[tuple[int, np.ndarray]]:
        """Yield the number of each watched sentence and what it has written so far, [W l]."""
        with jax.set_mesh(self._mesh):
            for rows in self._batches:
                if not set(self._watched).isdisjoint(rows.owners.ravel().tolist()):
                    yield from (item for item in rows.written() if item[0] in self._watched)

    def wake(self) -> None:
        """Do nothing: a turn never waits."""

    def release(self, number: int) -> None:
        """Drop a sentence; its row is free at once."""
        for rows in self._batches:
            rows.release(number)
        for moving in self._moving:
            for _, owners in moving:
                owners[owners == number] = -1

    def _tier_of(self, sentence: Sentence) -> int:
        fits = (len(sentence.ids) <= tier[0].shape.src_length for tier in self._tiers)
        return next(level for level, there in enumerate(fits) if there)

    def _batch_for(self, level: int, waiting: int) -> Rows:
        """Return the smallest batch with enough rows for a tier, or the largest: waiting for a row
        costs as much time as shorter steps save. Or a larger one that is running and has a free
        row, unless the tier would fill at most a quarter of it: otherwise both take turns.
        """
        taken = [int((rows.owners >= 0).sum()) for rows in self._tiers[level]]
        crowd, chosen = waiting + sum(taken), None
        for rows, busy in zip(self._tiers[level], taken, strict=True):
            size = rows.owners.size
            if crowd <= self._enough[id(rows)]:
                chosen = chosen or rows
                if 0 < busy < size < 4 * crowd:
                    return rows
        return chosen or self._tiers[level][-1]

    def _queues(self, waiting: Iterable[tuple[int, Sentence]]) -> dict[int, Queues]:
        """Return the sentences that each batch may admit, by its identity."""
        leveled: dict[int, list[tuple[int, Sentence]]] = defaultdict(list)
        for item in waiting:
            leveled[self._tier_of(item[1])].append(item)
        queues = {}
        for level, items in leveled.items():
            if not self._moving[level]:  # they come first
                rows = self._batch_for(level, len(items))
                queues[id(rows)] = _dealt(rows, items)
        return queues

    def _go_on(self, rows: Rows, queues: Queues) -> Generator[Found, None, Moving]:
        """Advance a batch for a moment, admitting from queues; return those with no room left."""
        waiting = queues.devices or [[] for _ in rows.owners], _queue(rows)
        active = (rows.owners >= 0).sum(1) + [len(queue) for queue in waiting[0]]
        wake = np.maximum(np.minimum(active, rows.shape.rows) - rows.shape.share, 0)
        each, (least, most), began = self._each[id(rows)], _STEPS, time.perf_counter()
        seconds = _LONG if queues.full else np.clip(least * each, _SHORT, _LONG)
        steps = int(np.clip(seconds / each, 1, most))
        drained = yield from rows.drain(*waiting, wake, steps)
        self._each[id(rows)] = (time.perf_counter() - began) / max(drained.steps, 1)
        return drained.paused

    def _move(self) -> None:
        """Move sentences that outgrew their room into the next batch, where there are rows."""
        with jax.set_mesh(self._mesh):
            for tier, moving in zip(self._tiers, self._moving, strict=True):
                staying: Moving = []
                for state, owners in moving:
                    rows = next((rows for rows in tier if rows.fits(owners)), None)
                    if rows is not None:
                        rows.put(state, owners)
                    elif (owners >= 0).any():
                        staying.append((state, owners))
                moving[:] = staying


def _dealt(rows: Rows, items: Sequence[tuple[int, Sentence]]) -> Queues:
    """Deal sentences to the devices with the fewest, as many as can be admitted in a turn."""
    taken = (rows.owners >= 0).sum(1)
    devices: list[list[tuple[int, Sentence]]] = [[] for _ in taken]
    for item in items[: len(devices) * _queue(rows)]:
        device = int(taken.argmin())
        if len(devices[device]) == _queue(rows):
            break
        devices[device].append(item)
        taken[device] += 1
    return Queues(devices, len(items) > (rows.owners < 0).sum())


def _queue(rows: Rows) -> int:
    """Return how many sentences per device can be admitted in a turn."""
    return _SHARES * rows.shape.share
