"""Coroutines that answer requests: translations of lines, continuations of prompts. Each submits
tickets, and awaits what is delivered for them.
"""

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import suppress
from typing import Any, NamedTuple, TypeVar

import numpy as np

from transformer_jax.data.codecs.codec import special_of
from transformer_jax.decoding.text.generate import Generated, Generator
from transformer_jax.decoding.text.searching import until_eos
from transformer_jax.decoding.text.streaming import Parts
from transformer_jax.decoding.text.translation import Translation
from transformer_jax.server.http import Refusal
from transformer_jax.server.model import BEAM, Asking, Served
from transformer_jax.server.service import Service
from transformer_jax.server.tickets import (
    Closed,
    Ended,
    Found,
    Full,
    Ticket,
    TooLarge,
    Worker,
    Written,
)

_ALIGNED = 8  # texts per call; searches continue between calls
_MUCH = 2000  # characters: above this, encoding and decoding must not make others wait

T = TypeVar("T")
Hypotheses = tuple[np.ndarray, np.ndarray]  # tokens [W L] and scores [W]


class Answer:
    """The results of a ticket. As a context manager, it cancels what is left on exit."""

    def __init__(
        self, worker: Worker, model: Served, asking: Asking, seconds: float,
        watched: bool = False, low: bool = False,
    ) -> None:  # fmt: skip
        loop, self._events = asyncio.get_running_loop(), asyncio.Queue[Any]()

        def deliver(event: Any) -> None:
            with suppress(RuntimeError):  # the loop is closed: nobody waits
                loop.call_soon_threadsafe(self._events.put_nowait, event)

        self._worker, self._count = worker, len(asking.sentences)
        self._left = set(range(self._count))  # texts whose end has not arrived yet
        deadline = time.monotonic() + seconds
        self.ticket = Ticket(
            model, asking.kind, asking.sentences, deadline, deliver, watched, low,
            special_of(model.trained.tokenizers.tgt),
        )  # fmt: skip

    def __enter__(self) -> "Answer":
        with refused():
            self._worker.submit(self.ticket)
        return self

    def __exit__(self, *_: object) -> None:
        self._worker.cancel(self.ticket)

    def drop(self, index: int) -> None:
        """Cancel one text."""
        self._left.discard(index)
        self._worker.cancel(self.ticket, index)

    async def events(self) -> AsyncIterator[Found | Written]:
        """Yield what is written and found, until all texts are finished or cancelled.

        Raises:
          Refusal: if the ticket ends early.
        """
        while self._left:
            event = await self._events.get()
            if isinstance(event, Ended):
                raise Refusal(event.status, event.message, 5 if event.status == 503 else None)
            if event.place in self._left:
                if isinstance(event, Found):
                    self._left.discard(event.place)
                yield event

    async def found(self) -> list[Hypotheses]:
        """Return the hypotheses of each text.

        Raises:
          Refusal: if the ticket ends early.
        """
        results: dict[int, Hypotheses] = {}
        async for event in self.events():
            if isinstance(event, Found):
                results[event.place] = event.tokens, event.scores
        return [results[index] for index in range(self._count)]


class refused:
    """Turn the exceptions of a worker into refusals for a client."""

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: Any, error: BaseException | None, _: object) -> None:
        if isinstance(error, Full):
            raise Refusal(429, "too many texts are waiting; try again later", error.seconds)
        if isinstance(error, TooLarge):
            raise Refusal(413, "more or longer texts than the queue can hold; send fewer")
        if isinstance(error, Closed):
            raise Refusal(503, "the server is shutting down", 5)


async def called(
    worker: Worker, function: Callable[[], T], seconds: float, goes_on: bool = False
) -> T:
    """Have the search thread call a function, and return its result.

    Raises:
      Refusal: if the thread has no time for it, or ends.
    """
    try:
        with refused():
            future = worker.call(function, goes_on)
            async with asyncio.timeout(seconds):
                return await asyncio.wrap_future(future)
    except TimeoutError:
        raise Refusal(504, "not finished by the deadline; try again later") from None


class Patience(NamedTuple):
    """How long a request waits, and whether others come first."""

    seconds: float
    low: bool = False


def check_aligns(model: Served, aligned: bool) -> None:
    """Refuse alignments if the model gives none."""
    if aligned and not model.aligns:
        raise Refusal(400, "alignments: this model gives none; leave them out")


async def translations(
    service: Service, model: Served, lines: Sequence[str], patience: Patience, n_best: int = 1,
    prefix: str = "", aligned: bool = False, number: int | None = None,
) -> list[list[Translation]]:  # fmt: skip
    """Return up to `n_best` translations of each line, best first. Samples depend on the first
    line's number: a new one for each line if it is None.
    """
    check_aligns(model, aligned)
    last = time.monotonic() + patience.seconds
    with refused():
        service.worker.check(len(lines))
    first = service.numbers(len(lines)) if number is None else number
    asking = await _computed(lines, lambda: model.translation(lines, n_best, prefix, first))
    translator = model.translator(n_best)
    with Answer(service.worker, model, asking, patience.seconds, low=patience.low) as answer:
        hypotheses = await answer.found()
    candidates = await _computed(lines, lambda: [translator.translations(*h) for h in hypotheses])
    for begin in range(0, len(candidates) if aligned else 0, _ALIGNED):
        some = slice(begin, begin + _ALIGNED)
        call = model.aligning(asking.sentences[some], candidates[some])
        await called(service.worker, call, max(last - time.monotonic(), 0), goes_on=True)
    return translator.by_line(len(lines), asking.sentences, candidates, aligned)


async def _computed(lines: Sequence[str], function: Callable[[], T]) -> T:
    """Return the function's result; a thread computes it only for long lines, as handing it over
    takes longer than a short one.
    """
    return function() if sum(map(len, lines)) < _MUCH else await asyncio.to_thread(function)


class Text(NamedTuple):
    """A finished text."""

    text: str  # as `generate` returns it
    start: int  # where the generated part begins
    ids: list[int]  # without those behind a stop string
    finish: str  # "stop": by EOS or a stop string; "length"
    score: float | None = None  # None if a stop string ended it
    log_prob: float | None = None

    @property
    def written(self) -> str:
        """The generated part."""
        return self.text[self.start :]


class Part(NamedTuple):
    """An addition to a text."""

    place: int  # of the text, among those of all prompts
    text: str
    finish: str | None = None  # at its end; see `Text`
    ids: Sequence[int] = ()  # of the whole text so far

    @property
    def tokens(self) -> int:
        """Number of tokens of the whole text so far."""
        return len(self.ids)


class Prompt(NamedTuple):
    """A prompt as a search sees it."""

    generator: Generator
    asking: Asking
    read: list[int]
    given: str  # the prompt itself, which the pieces read may spell differently
    stop: Sequence[str]

    def parts(self) -> list[Parts]:
        """Return the texts before anything is written."""
        return [self._begun() for _ in self.asking.sentences]

    def whole(self, found: Found) -> list[Text]:
        """Return the texts of a finished sentence."""
        texts = self.generator.texts(self.read, found.tokens, found.scores)
        return [self._whole(text) for text in texts]

    def _begun(self) -> Parts:
        return self.generator.parts(self.read, self.asking.sentences[0].limit, self.stop)

    def _whole(self, text: Generated) -> Text:
        parts = self._begun()
        parts.add(text.ids)
        parts.finish()
        scores = (None, None) if parts.stopped else (text.score, text.log_prob)
        return ended(parts, *scores)


def ended(parts: Parts, score: float | None = None, log_prob: float | None = None) -> Text:
    """Return a text that has ended."""
    assert parts.ended is not None
    return Text(parts.text, parts.start, parts.ids, parts.ended, score, log_prob)


async def texts(service: Service, model: Served, prompt: Prompt, patience: Patience) -> list[Text]:
    """Return the texts of a prompt; a stop string ends the search, too."""
    watched = bool(prompt.stop) and prompt.asking.kind != BEAM
    growing = prompt.parts()
    done: dict[int, list[Text]] = {}
    with Answer(
        service.worker, model, prompt.asking, patience.seconds, watched, patience.low
    ) as answer:
        async for event in answer.events():
            if isinstance(event, Found):
                done[event.place] = prompt.whole(event)
                continue
            parts = growing[event.place]
            parts.add(event.ids[len(parts.ids) :])
            if parts.ended:
                answer.drop(event.place)
                done[event.place] = [ended(parts)]
    return [text for index in sorted(done) for text in done[index]]


async def parts_of(
    service: Service, model: Served, prompts: Sequence[Prompt], patience: Patience
) -> AsyncGenerator[Part]:
    """Yield additions to the texts of prompts as they are written, all prompts together; texts are
    numbered across prompts. Prompts have one kind of search; a beam search takes a single prompt,
    and its texts come whole, at their end.
    """
    growing = [parts for prompt in prompts for parts in prompt.parts()]
    kind, special = prompts[0].asking.kind, prompts[0].generator.special
    asking = Asking(kind, [lane for prompt in prompts for lane in prompt.asking.sentences])
    with Answer(
        service.worker, model, asking, patience.seconds, kind != BEAM, patience.low
    ) as answer:
        async for event in answer.events():
            last = isinstance(event, Found)
            if isinstance(event, Found) and kind == BEAM:
                for rank, text in enumerate(prompts[0].whole(event)):
                    yield Part(rank, text.written, text.finish, text.ids)
                continue
            ids = until_eos(event.tokens[0].tolist(), special) if isinstance(
                event, Found) else event.ids  # fmt: skip
            parts = growing[event.place]
            new = parts.add(ids[len(parts.ids) :])
            if last and not parts.ended:
                new += parts.finish()
            if parts.ended and not last:
                answer.drop(event.place)
            if new or parts.ended:
                yield Part(event.place, new, parts.ended, [*parts.ids])
