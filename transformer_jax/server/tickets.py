"""Tickets of requests, and the events delivered for them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import numpy as np

from transformer_jax.base.vocabulary import OURS, Special
from transformer_jax.decoding.batching.live import LiveStream
from transformer_jax.decoding.batching.rows import Sentence
from transformer_jax.server.processes.spread import SpreadStream

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
