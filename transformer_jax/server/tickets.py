"""Tickets of requests, and the search thread, where they wait, take rows as these become free, and
are answered.

While the server runs, JAX runs only in this thread, except to load a checkpoint and compile its
programs. Others submit tickets and calls, and cancel them; results go to the ticket's own function,
from the thread.
"""

import bisect
import itertools
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import numpy as np

from transformer_jax.base.vocabulary import OURS, Special
from transformer_jax.decoding.batching.live import LiveStream
from transformer_jax.decoding.batching.rows import Sentence
from transformer_jax.decoding.text.searching import until_eos
from transformer_jax.server.processes.spread import SpreadStream

log = logging.getLogger("transformer_jax")

_BEHIND = 0.05  # seconds that each further text of a ticket queues after the one before
_LOW = 10.0  # seconds that a ticket of low priority queues later

Stream = LiveStream | SpreadStream


class Found(NamedTuple):
    """A text is finished: its hypotheses, best first, tokens [W L] and scores [W]."""

    place: int  # among the ticket's texts
    tokens: np.ndarray
    scores: np.ndarray


class Written(NamedTuple):
    """A text has grown: all tokens so far, of the first hypothesis."""

    place: int
    ids: list[int]


class Ended(NamedTuple):
    """A ticket ends unfinished: status and message as in `Refusal`."""

    status: int
    message: str


class Streams(Protocol):
    """A model, with a stream for each kind of search."""

    streams: Mapping[str, Stream]

    def renew(self, kind: str) -> None:
        """Restart a stream after a failure."""


@dataclass(eq=False)
class Ticket:
    """Texts of one request, to be searched by `deadline`, as of `time.monotonic`."""

    model: Streams
    kind: str
    sentences: Sequence[Sentence]
    deadline: float
    deliver: Callable[[Any], None]  # called from the worker's thread
    watched: bool = False  # whether partial texts are delivered
    low: bool = False  # priority
    special: Special = OURS  # pieces that end and pad a text
    left: set[int] = field(init=False)  # unfinished texts

    def __post_init__(self) -> None:
        self.left = set(range(len(self.sentences)))

    def end(self, status: int, message: str) -> None:
        """End it unfinished, unless it has ended."""
        if self.left:
            self.left.clear()
            self.deliver(Ended(status, message))


class Full(Exception):
    """Too many texts are waiting; there may be room after `seconds`."""

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self.seconds = seconds


class TooLarge(Exception):
    """There are more texts, or parts of texts, than the queue can ever hold."""


class Closed(Exception):
    """The worker accepts nothing new."""


Running = tuple[Ticket, int, Stream]  # a text of a ticket, and where it is searched


class Worker:
    """The thread and what it works on. `capacity` is how many texts may wait.

    `seen` is called with each text's number of tokens.
    """

    def __init__(self, capacity: int, seen: Callable[[int], None] = lambda _: None) -> None:
        self._capacity, self._seen = capacity, seen
        self._changed = threading.Condition()
        self._waiting: list[tuple[float, int, Ticket, int]] = []  # in order
        self._running: dict[int, Running] = {}
        self._turning: list[tuple[Stream, Streams, str]] = []  # streams that are advanced now
        self._again: set[int] = set()  # texts that were waiting when a search failed, once
        self._calls: deque[tuple[Callable[[], Any], Future]] = deque()
        self._numbers = itertools.count()
        self._closed = False
        self._interval = 0.1  # recent seconds from one finished text to the next
        self._last = time.monotonic()
        self._thread = threading.Thread(target=self._work, name="search", daemon=True)
        self._thread.start()

    @property
    def waiting(self) -> int:
        """Number of waiting texts."""
        return len(self._waiting)

    @property
    def running(self) -> int:
        """Number of texts being searched."""
        return len(self._running)

    @property
    def alive(self) -> bool:
        """Whether the thread is running."""
        return self._thread.is_alive()

    def submit(self, ticket: Ticket) -> None:
        """Queue a ticket for rows.

        Texts are ordered by arrival time: each further one of a ticket counts as having arrived a
        little later, and those of low priority later still, so that nobody waits forever.

        Raises:
          TooLarge: if the ticket has more texts than the queue can ever hold.
          Full: if too many wait.
          Closed: if the worker is closed.
        """
        now = time.monotonic() + _LOW * ticket.low
        with self._changed:
            self.check(len(ticket.sentences))
            for index in range(len(ticket.sentences)):
                place = now + _BEHIND * index, next(self._numbers), ticket, index
                bisect.insort(self._waiting, place)
            self._notify()

    def cancel(self, ticket: Ticket, index: int | None = None) -> None:
        """Cancel a ticket, or one text of it; its rows are free at the next step."""
        with self._changed:
            dropped = ticket.left if index is None else ticket.left & {index}
            if dropped:
                ticket.left -= dropped
                self._notify()

    def call(self, function: Callable[[], Any], goes_on: bool = False) -> Future:
        """Have the thread call a function between two steps. A call that continues an admitted
        request (`goes_on`) is admitted.

        Raises:
          Full: if too many wait.
          Closed: if the worker is closed.
        """
        future: Future = Future()
        with self._changed:
            self.check(0 if goes_on else 1)
            self._calls.append((function, future))
            self._notify()
        return future

    def close(self, seconds: float = 10.0) -> None:
        """End all tickets, and the thread."""
        with self._changed:
            self._closed = True
            self._notify()
        self._thread.join(seconds)

    def check(self, count: int) -> None:
        """Raise as `submit` does, before work is done for texts that could not be queued."""
        if count > self._capacity:
            raise TooLarge
        if self._closed:
            raise Closed
        waiting = len(self._waiting) + len(self._calls)
        if count and waiting + count > self._capacity:
            raise Full(min(max(waiting * self._interval, 1.0), 60.0))

    def _notify(self) -> None:
        """Have the thread look for what is new."""
        self._changed.notify()
        for stream, _, _ in self._turning:
            stream.wake()

    def _work(self) -> None:
        try:
            while self._wait():
                self._call()
                self._turn()
        finally:
            self._end()

    def _wait(self) -> bool:
        """Wait for work, and drop what nobody wants any more; return False at the end."""
        with self._changed:
            while not (self._waiting or self._running or self._calls or self._closed):
                self._changed.wait()
            if self._closed:
                return False
            now = time.monotonic()
            tickets = [entry[2] for entry in self._waiting]
            tickets += [ticket for ticket, _, _ in self._running.values()]
            for ticket in tickets:
                if ticket.deadline < now:
                    ticket.end(504, "not finished by the deadline; try again later")
            self._waiting = [entry for entry in self._waiting if entry[3] in entry[2].left]
            for number, (ticket, index, stream) in list(self._running.items()):
                if index not in ticket.left:
                    stream.release(number)
                    del self._running[number]
        return True

    def _call(self) -> None:
        with self._changed:
            if not self._calls:
                return
            function, future = self._calls.popleft()
        if not future.set_running_or_notify_cancel():
            return
        try:
            future.set_result(function())
        except Exception as error:
            future.set_exception(error)

    def _turn(self) -> None:
        """Advance every stream for a moment, admitting waiting texts in order; deliver results."""
        begun: set[int] = set()
        with self._changed:
            waiting = list(self._waiting)
            tickets = [ticket for _, _, ticket, _ in waiting]
            tickets += [ticket for ticket, _, _ in self._running.values()]
            pairs = dict.fromkeys((ticket.model, ticket.kind) for ticket in tickets)
            self._turning = [(model.streams[kind], model, kind) for model, kind in pairs]
        for stream, model, kind in self._turning:
            asking = {n: (ticket, i, stream) for _, n, ticket, i in waiting
                      if ticket.model is model and ticket.kind == kind}  # fmt: skip
            sentences = [(n, ticket.sentences[i]) for n, (ticket, i, _) in asking.items()]
            left = asking | {n: entry for n, entry in self._running.items() if entry[2] is stream}
            watched = {n for n, (ticket, _, _) in left.items() if ticket.watched}
            try:
                for number, tokens, scores in stream.turn(sentences, watched):
                    self._found(*left.pop(number)[:2], tokens, scores)
                    self._running.pop(number, None)
                    begun.add(number)
                there = stream.numbers
                self._running |= {n: entry for n, entry in left.items() if n in there}
                begun |= there
                self._tell(stream)
            except Exception:
                begun |= self._failed(model, kind, left)
        with self._changed:
            self._turning = []
            self._waiting = [entry for entry in self._waiting if entry[1] not in begun]
            self._again &= {entry[1] for entry in self._waiting}

    def _tell(self, stream: Stream) -> None:
        """Deliver what is written so far to watched tickets."""
        for number, tokens in stream.written():
            ticket, index, _ = self._running[number]
            if index in ticket.left:
                ticket.deliver(Written(index, tokens[0].tolist()))

    def _found(self, ticket: Ticket, index: int, tokens: np.ndarray, scores: np.ndarray) -> None:
        now = time.monotonic()
        self._interval = 0.95 * self._interval + 0.05 * min(now - self._last, 1.0)
        self._last = now
        self._seen(len(until_eos(tokens[0].tolist(), ticket.special)))
        if index in ticket.left:
            ticket.left.discard(index)
            ticket.deliver(Found(index, tokens, scores))

    def _failed(self, model: Streams, kind: str, there: dict[int, Running]) -> set[int]:
        """End the tickets of a failed stream, and restart it; return the numbers of the texts that
        are lost. Those that only waited get another turn.
        """
        lost = {n for n in there if n in self._running or n in self._again}
        self._again |= there.keys() - lost
        log.exception("a search failed; %d texts are lost", len(lost))
        for number in lost:
            self._running.pop(number, None)
            there[number][0].end(500, "the search failed; try again")
        model.renew(kind)
        return lost

    def _end(self) -> None:
        with self._changed:
            self._closed = True
            tickets = {entry[2] for entry in self._waiting}
            tickets |= {ticket for ticket, _, _ in self._running.values()}
            for ticket in tickets:
                ticket.end(503, "the server is shutting down")
            for _, future in self._calls:
                if future.set_running_or_notify_cancel():
                    future.set_exception(Closed())
