"""A live stream whose sentences are searched in several processes."""

import logging
from collections import deque
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from transformer_jax.decoding.batching.rows import Found, Sentence

if TYPE_CHECKING:
    from transformer_jax.decoding.text.live import LivePlan
    from transformer_jax.server.processes.pool import SearchPool, SearchProcess

log = logging.getLogger("transformer_jax")

_MOMENT = 0.05  # seconds that a turn waits for news


@dataclass
class _Text:
    sentence: Sentence
    watched: bool
    process: "SearchProcess | None" = None  # where it is searched
    failed: bool = False  # whether a search of it has failed


class SpreadStream:
    """Does what a `LiveStream` does. Each process has its own batches, and goes on by itself; a
    sentence goes to the process with the fewest. If a search fails, or a process ends, its
    sentences start again, once.
    """

    def __init__(self, pool: "SearchPool", model: int, kind: str, plan: "LivePlan") -> None:
        self._pool, self._key = pool, (model, kind)
        self._most = 2 * max(shape.rows for shape in plan.shapes)  # sentences per process
        self._texts: dict[int, _Text] = {}
        self._written: dict[int, np.ndarray] = {}
        self._heard: deque[tuple[SearchProcess, str, tuple]] = deque()

    def hear(self, process: "SearchProcess", name: str, *values: Any) -> None:
        """Take a message of a process, for the next turn."""
        self._heard.append((process, name, values))

    @property
    def numbers(self) -> set[int]:
        """The numbers of the sentences being searched."""
        return set(self._texts)

    def turn(
        self, waiting: Iterable[tuple[int, Sentence]] = (), watched: Collection[int] = ()
    ) -> Iterator[Found]:
        """Hand waiting sentences to processes that have room, and yield the results of a moment;
        see `LiveStream.turn`.

        Raises:
          RuntimeError: if a search has failed twice, or no process is left.
        """
        self._pool.forget()
        self._deal(waiting, watched)
        if not self._heard:
            self._pool.news.wait(_MOMENT)
        self._pool.news.clear()
        while self._heard:
            process, name, values = self._heard.popleft()
            if name == "found":
                number, tokens, scores = values
                if self._drop(number):
                    yield number, tokens, scores
            elif name == "written":
                self._written |= {n: tokens for n, tokens in values[0] if n in self._texts}
            else:
                self._failed(process, values[0])
        if not self._pool.processes:
            raise RuntimeError("all search processes have ended")

    def written(self) -> Iterator[tuple[int, np.ndarray]]:
        """Yield the number of each watched sentence that has grown, and what it has so far."""
        pieces, self._written = self._written, {}
        yield from pieces.items()

    def release(self, number: int) -> None:
        """Drop a sentence."""
        text = self._texts.get(number)
        if text is not None and text.process is not None:
            text.process.send("release", *self._key, number)
        self._drop(number)

    def wake(self) -> None:
        """End the turn in progress, since there is something to do; from any thread."""
        self._pool.news.set()

    def _deal(self, waiting: Iterable[tuple[int, Sentence]], watched: Collection[int]) -> None:
        model, _ = self._key
        ready = [process for process in self._pool.processes if model in process.models]
        again = [number for number, text in self._texts.items() if text.process is None]
        new = {number: _Text(sentence, number in watched) for number, sentence in waiting}
        dealt: dict[SearchProcess, list[int]] = {process: [] for process in ready}
        here = [text.process for text in self._texts.values()]
        counts = {process: here.count(process) for process in ready}
        for number in [*again, *new]:
            process = min(ready, key=lambda process: process.texts, default=None)
            if process is None or counts[process] >= self._most:
                break
            text = self._texts[number] = self._texts.get(number) or new[number]
            text.process = process
            process.texts += 1
            counts[process] += 1
            dealt[process].append(number)
        for process, numbers in dealt.items():
            if numbers:
                sentences = [(number, self._texts[number].sentence) for number in numbers]
                followed = [number for number in numbers if self._texts[number].watched]
                process.send("admit", *self._key, sentences, followed)

    def _drop(self, number: int) -> bool:
        """Forget a sentence; return whether it was there."""
        text = self._texts.pop(number, None)
        self._written.pop(number, None)
        if text is not None and text.process is not None:
            text.process.texts -= 1
        return text is not None

    def _failed(self, process: "SearchProcess", reason: str) -> None:
        """Have the sentences of a process start again.

        Raises:
          RuntimeError: if they have before.
        """
        texts = [text for text in self._texts.values() if text.process is process]
        if any(text.failed for text in texts):
            raise RuntimeError(reason)
        if texts:
            log.error("%d texts are searched again: %s", len(texts), reason)
        for text in texts:
            text.process, text.failed = None, True
            process.texts -= 1
