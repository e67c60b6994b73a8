"""Tickets for coroutines: submitted, awaited, cancelled when the client disconnects."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import suppress
from typing import Any, TypeVar

import numpy as np
from starlette.requests import Request

from transformer_jax.data.codecs.codec import special_of
from transformer_jax.server.model import Asking, Served
from transformer_jax.server.refusals import Refusal
from transformer_jax.server.tickets import Closed, Ended, Found, Full, Ticket, TooLarge, Written
from transformer_jax.server.worker import Worker

T = TypeVar("T")
Hypotheses = tuple[np.ndarray, np.ndarray]  # tokens [W L] and scores [W]


class Gone(Exception):
    """The client has disconnected: there is nobody to answer."""


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


async def unless_gone(request: Request, work: Coroutine[Any, Any, T]) -> T:
    """Return the result of a coroutine; cancel it if the client disconnects.

    Raises:
      Gone: if the client disconnected.
    """
    working, leaving = asyncio.ensure_future(work), asyncio.ensure_future(left(request))
    try:
        await asyncio.wait((working, leaving), return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise Gone
        return working.result()
    finally:
        for task in (working, leaving):
            task.cancel()
        with suppress(BaseException):
            await asyncio.gather(working, leaving, return_exceptions=True)


async def left(request: Request) -> None:
    """Wait until the client disconnects; the body must have been read."""
    while (await request.receive())["type"] != "http.disconnect":
        pass
