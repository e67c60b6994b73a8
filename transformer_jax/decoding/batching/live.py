"""Continuous batching of sentences that arrive while others are searched, and may be called off.

What `stream` does with sentences that are known beforehand, by the same batches and programs: here
the shapes are fixed, so that all programs can be compiled before the first sentence comes, and a
batch goes on for a few steps at a time, between which sentences come and go.
"""

import itertools
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from transformer_jax.decoding.batching.batch_shapes import BatchShape
from transformer_jax.decoding.batching.engine import Engine
from transformer_jax.decoding.batching.rows import Found, Moving, Rows, Sentence, request_of
from transformer_jax.decoding.search.request import Form
from transformer_jax.decoding.search.state import Search

_TURN = 0.03  # seconds that a batch goes on at a time: what a newcomer waits for at most
_STEPS = 32  # at most, however fast they are


class LiveStream:
    """Sentences in turn, in batches of these shapes, by length and then by rows.

    A sentence starts in a batch of the shortest fitting shape: the smallest that could hold half of
    all that are there and wait. So few sentences go through a small batch, whose steps are short,
    and many through a large one alone, since batches take turns. Those that outgrow their room move
    on. `form` is that of all requests. Not for several threads at a time.
    """

    def __init__(
        self, engine: Engine, mesh: Mesh, search: Search, params: Any, shapes: Sequence[BatchShape],
        form: Form,
    ) -> None:  # fmt: skip
        self._engine, self._mesh, self._form = engine, mesh, form
        with jax.set_mesh(mesh):
            params = jax.device_put(params, NamedSharding(mesh, PartitionSpec()))
            kinds = itertools.groupby(shapes, key=lambda shape: shape[1:])
            tiers = [list(tier) for _, tier in kinds]
            self._tiers = [
                [Rows(engine, search, params, shape, beyond, form) for shape in tier]
                for tier, beyond in zip(tiers, [*(t[0].rows for t in tiers[1:]), 0], strict=True)
            ]
        self._moving: list[Moving] = [[] for _ in tiers]  # into each of them
        self._steps = dict.fromkeys(map(id, self._batches), 1)

    def compile(self) -> None:
        """Compile all programs, so that no sentence waits for one."""
        with jax.set_mesh(self._mesh):
            for tier, beyond in zip(self._tiers, [*self._tiers[1:], []], strict=True):
                for rows in tier:
                    rows.compile(_share(rows), beyond)

    @property
    def _batches(self) -> list[Rows]:
        return [rows for tier in self._tiers for rows in tier]

    @property
    def numbers(self) -> set[int]:
        """The sentences that are being searched."""
        owners = [rows.owners for rows in self._batches]
        owners += [owners for moving in self._moving for _, owners in moving]
        return {int(n) for array in owners for n in array[array >= 0]}

    @property
    def capacity(self) -> int:
        """Sentences that can be searched at a time."""
        return sum(rows.owners.size for rows in self._batches)

    def takes(self, sentence: Sentence) -> bool:
        """Say whether there is a shape for a sentence."""
        shape = self._tiers[-1][0].shape
        fits = len(sentence.ids) <= shape.src_length and sentence.limit <= shape.room
        return fits and len(sentence.prefix) <= self._form.prefix

    def enter(self, waiting: Iterable[tuple[int, Sentence]]) -> list[int]:
        """Begin with those of some numbered sentences that there are rows for; say which.

        Those who come first go first; one that finds no row does not stop others of its kind from
        being passed by shorter or longer ones.
        """
        self._move()
        leveled = [(self._tier_of(item[1]), *item) for item in waiting]
        crowd = Counter(level for level, *_ in leveled)
        chosen = [self._batch_for(level, crowd[level]) for level in range(len(self._tiers))]
        free = {id(rows): (rows.owners < 0).sum(1) for rows in chosen}
        parts: dict[int, list[tuple[int, int, Sentence]]] = {id(rows): [] for rows in chosen}
        entered = []
        for level, number, sentence in leveled:
            rows = chosen[level]
            if not free[id(rows)].any():
                continue
            device = int(free[id(rows)].argmax())
            free[id(rows)][device] -= 1
            parts[id(rows)].append((device, number, sentence))
            entered.append(number)
        with jax.set_mesh(self._mesh):
            for rows in chosen:
                self._begin(rows, parts[id(rows)])
        return entered

    def turn(self) -> Iterator[Found]:
        """Go on for a moment; yield what is found for sentences that are finished."""
        self._move()
        with jax.set_mesh(self._mesh):
            for level, tier in enumerate(self._tiers):
                for rows in tier:
                    if (rows.owners >= 0).any():
                        began = time.perf_counter()
                        steps = self._steps[id(rows)]
                        rows.run(0, steps)
                        left = yield from rows.harvest()
                        each = (time.perf_counter() - began) / steps
                        self._steps[id(rows)] = int(np.clip(_TURN / max(each, 1e-6), 1, _STEPS))
                        if left:
                            self._moving[level + 1] += left

    def written(self) -> Iterator[tuple[int, np.ndarray]]:
        """Yield what each sentence has written so far, [W l]."""
        with jax.set_mesh(self._mesh):
            for rows in self._batches:
                if (rows.owners >= 0).any():
                    yield from rows.written()

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
        """Return the smallest batch that could hold half of a tier, or the largest: waiting for a
        row costs as long as steps that are twice as short save.
        """
        tier = self._tiers[level]
        crowd = waiting + sum(int((rows.owners >= 0).sum()) for rows in tier)
        return next((rows for rows in tier if crowd <= 2 * rows.owners.size), tier[-1])

    def _begin(self, rows: Rows, part: Sequence[tuple[int, int, Sentence]]) -> None:
        """Let sentences, each with its device, into a batch, a share at a time."""
        devices, share = self._engine.devices, _share(rows)
        lines = [[item for item in part if item[0] == device] for device in range(devices)]
        for start in range(0, max(map(len, lines)), share):
            chosen = [line[start : start + share] for line in lines]
            places = [d * share + i for d, line in enumerate(chosen) for i in range(len(line))]
            numbered = [(number, sentence) for line in chosen for _, number, sentence in line]
            length = rows.shape.src_length
            rows.enter(*request_of(devices, share, length, self._form, numbered, places))

    def _move(self) -> None:
        """Let those who outgrew their room into the next batch, where there are rows."""
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


def _share(rows: Rows) -> int:
    """Return how many sentences of a device come in at a time: a newcomer alone costs as much."""
    return max(1, rows.shape.rows // 4)
