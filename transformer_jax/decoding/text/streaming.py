"""Streaming a text piece by piece, and stop strings."""

import bisect
import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from transformer_jax.base.errors import UserError
from transformer_jax.decoding.batching.batch_shapes import batch_shapes
from transformer_jax.decoding.batching.stream import Sentence
from transformer_jax.decoding.search.acceptance import Acceptance
from transformer_jax.decoding.search.sampling import Sampling
from transformer_jax.decoding.search.speculative import Speculative
from transformer_jax.decoding.search.state import (
    ENDLESS,
    Search,
    SearchRequest,
    SearchState,
    begin,
    run,
)
from transformer_jax.decoding.stepper import NO_LIMIT
from transformer_jax.decoding.text.prompt_cache import PromptCache
from transformer_jax.decoding.text.searching import (
    Draft,
    stepper_maker,
    together,
    until_eos,
)
from transformer_jax.models.model import Model


class Stop(NamedTuple):
    """A stop string in a text."""

    end: int  # the character behind it; of several, the first to be complete ends the text
    begin: int


def first_stop(text: str, stop: Sequence[str], start: int = 0) -> Stop | None:
    """Return the first stop string to be complete of those that begin at `start` or later."""
    places = [(text.find(string, start), len(string)) for string in stop]
    return min((Stop(at + size, at) for at, size in places if at >= 0), default=None)


def cut(text: str, stop: Sequence[str], start: int = 0) -> str:
    """Return a text up to the first stop string to be complete; see `first_stop`."""
    stopped = first_stop(text, stop, start)
    return text if stopped is None else text[: stopped.begin]


def held_back(text: str, stop: Sequence[str], start: int) -> int:
    """Return how many characters at the end of a text may turn out not to belong to it: those of a
    stop string that has begun, and placeholders for bytes of an incomplete character.
    """
    begun = [
        size
        for string in stop
        for size in range(1, min(len(string), len(text) - start + 1))
        if text.endswith(string[:size])
    ]
    return max([*begun, len(text) - len(text.rstrip("\ufffd"))])


class Parts:
    """A text as it is written, in parts that are final. It ends with EOS, after `limit` pieces, or
    before a string of `stop`.

    `text` returns the text of pieces, with what comes before them; `settled` as much of it as
    further pieces cannot change. Nothing depends on how many pieces come at a time.
    """

    def __init__(
        self, text: Callable[[list[int]], str], settled: Callable[[list[int]], str], limit: int,
        eos: int, stop: Sequence[str] = (),
    ) -> None:  # fmt: skip
        self._text, self._settled, self._limit, self._eos, self._stop = (
            text, settled, limit, eos, stop
        )  # fmt: skip
        self.ids: list[int] = []  # pieces so far; in the end without those behind a stop string
        self.start = self._shown = len(text([]))  # what comes before is not a part
        self.text = ""  # the whole, at its end
        self.ended: str | None = None  # by what: "stop" or "length"
        self.stopped = False  # by a stop string

    def begin(self) -> str:
        """Return what comes before the pieces as the first part, as much as is final."""
        before = self._settled([])
        self._shown = len(before)
        return before

    def add(self, pieces: Sequence[int]) -> str:
        """Return what one or more pieces add, which may be nothing yet."""
        self.ids += pieces
        if self._eos in pieces:
            self.ended = "stop"
        elif len(self.ids) >= self._limit:
            self.ended = "length"
        return self._part()

    def finish(self) -> str:
        """Return what was held back, at the end of a search that found nothing more to write."""
        if self.ended is not None:
            return ""
        self.ended = "stop"
        return self._part()

    def _part(self) -> str:
        text = (self._settled if self.ended is None else self._text)(self.ids)
        stopped = first_stop(text, self._stop, self.start)
        if stopped is not None:
            self.ended, self.stopped = "stop", True
            self.ids = self.ids[: self._needed(text[: stopped.end])]
            text = text[: stopped.begin]
        elif self.ended is None:
            text = text[: len(text) - held_back(text, self._stop, self.start)]
        self.text = text
        part = text[self._shown :]
        self._shown = max(self._shown, len(text))
        return part

    def _needed(self, text: str) -> int:
        """Return how many pieces write a text: the fewest."""
        count = bisect.bisect_left(
            range(len(self.ids)), len(text), key=lambda n: len(self._settled(self.ids[:n]))
        )
        while count and self._text(self.ids[: count - 1]).startswith(text):
            count -= 1
        return count


class Alone(NamedTuple):
    """A search for a single text; see `batching.stream` for several."""

    models: tuple[Model, ...]
    ensemble: str
    params: list[Any]  # of all models, those of the draft last: see `searching.held`
    search: Search
    sentence: Sentence
    positions: int = NO_LIMIT
    draft: Draft | None = None
    acceptance: Acceptance | None = None
    prompts: Sequence[PromptCache] = ()  # of each model, if any

    def begin(self) -> SearchState:
        """Return the initial state of the search."""
        sentence, search = self.sentence, self.search
        lengths = [len(sentence.ids)], [sentence.limit]
        shape = batch_shapes(*lengths, search.width, 1, 1, self.positions)[-1]
        request = SearchRequest.empty(1, shape.src_length)
        request.src_ids[0, : len(sentence.ids)] = sentence.ids
        request.src_lengths[0], request.first[0] = len(sentence.ids), sentence.first
        request.limits[0], request.seeds[0] = sentence.limit, sentence.seed
        if not self.prompts:
            return self._programs[0](self.params, search, request, shape.room)
        sizes = sentence.ids, shape.src_length, search.width, shape.room, search.stride
        read = together([own.state(*sizes) for own in self.prompts], self.draft is not None)
        return _behind(search, request, shape.room, read)

    def pieces(self) -> Iterator[int]:
        """Yield the pieces of one text as a search of one hypothesis writes them, EOS included.

        They are those of `batching.stream`, including random ones.

        Raises:
          UserError: if the search keeps several hypotheses.
        """
        search, limit = self.search, self.sentence.limit
        if search.width != 1 or not isinstance(search, Sampling | Speculative):
            raise UserError(
                "only a single text can be streamed: use greedy search, decoding.beam_size=1, or "
                "decoding.search='sample' with num_samples=1"
            )
        state, shown, done = self.begin(), 0, False
        position = drafts = None
        try:
            while not done and shown < limit:
                state = self._programs[1](self.params, search, state)
                now = state.tokens, state.position, state.drafts, state.done
                tokens, position, drafts, (done,) = jax.device_get(now)
                pieces = tokens[0, 0, shown + 1 : position[0] + 1].tolist()
                shown = position[0]
                yield from until_eos(pieces, search.special)
        finally:  # also if nobody wants the rest
            self._count(position, drafts)

    def found(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the hypotheses [W L], best first, and their scores [W]."""
        state = self._programs[2](self.params, self.search, self.begin())
        tokens, scores, *counts = jax.device_get(
            (state.finished, state.scores, state.position, state.drafts)
        )
        self._count(*counts)
        return tokens[0, :, 1:], scores[0]

    def _count(self, position: Any, drafts: Any) -> None:
        if drafts is not None and self.acceptance is not None:
            self.acceptance.add(position, drafts)

    @property
    def _programs(self) -> tuple[Any, Any, Any]:
        return _programs(self.models, self.ensemble, self.draft and self.draft.model)


@functools.partial(jax.jit, static_argnums=2, donate_argnums=3)
def _behind(search: Search, request: SearchRequest, room: int, read: Any) -> SearchState:
    """Return the initial state of a search after what was read."""
    return search.start(request, room, read)


@functools.lru_cache(maxsize=8)
def _programs(models: tuple[Model, ...], ensemble: str, draft: Model | None) -> tuple[Any, ...]:
    """Return compiled functions: the start of a search, one step, and all steps."""
    make_stepper = stepper_maker(models, ensemble, draft)

    def start(params: Any, search: Search, request: SearchRequest, room: int) -> Any:
        return begin(search, make_stepper(params), request, room)

    def advance(params: Any, search: Search, state: Any) -> Any:
        return search.advance(make_stepper(params), state)

    def finish(params: Any, search: Search, state: Any) -> Any:
        return run(search, make_stepper(params), state, jnp.int32(0), jnp.asarray(ENDLESS))[0]

    begun = jax.jit(start, static_argnums=3)
    return begun, *(jax.jit(function, donate_argnums=2) for function in (advance, finish))
