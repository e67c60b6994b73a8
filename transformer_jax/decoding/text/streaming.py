"""One text as it is written, piece by piece, and where texts end by a string."""

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax

from transformer_jax.decoding.batching.batch_shapes import batch_shapes
from transformer_jax.decoding.batching.stream import Sentence
from transformer_jax.decoding.search.sampling import Sampling
from transformer_jax.decoding.search.state import Search, SearchRequest, begin
from transformer_jax.decoding.text.searching import NO_LIMIT, stepper_maker
from transformer_jax.errors import UserError
from transformer_jax.models.model import Model


def cut(text: str, stop: Sequence[str], start: int = 0) -> str:
    """Return a text up to the first of some strings that begins at `start` or later."""
    found = [text.find(string, start) for string in stop]
    ends = [place for place in found if place >= 0]
    return text[: min(ends)] if ends else text


def held_back(text: str, stop: Sequence[str], start: int) -> int:
    """Return how many characters at the end of a text may turn out not to be of it: those of a
    stop string that has begun, and what stands for bytes whose character is not complete.
    """
    begun = [
        size
        for string in stop
        for size in range(1, min(len(string), len(text) - start + 1))
        if text.endswith(string[:size])
    ]
    return max([*begun, len(text) - len(text.rstrip("\ufffd"))])


class Parts:
    """A text as it is written, in parts that stay; `text` returns the text of pieces, with what
    comes before them. It ends with EOS, after `limit` pieces, or before a string of `stop`.
    """

    def __init__(
        self, text: Callable[[list[int]], str], limit: int, eos: int, stop: Sequence[str] = ()
    ) -> None:
        self._text, self._limit, self._eos, self._stop = text, limit, eos, stop
        self.ids: list[int] = []  # pieces so far
        self.shown = text([])  # what there is of the text so far, what comes before it included
        self.start = len(self.shown)
        self.ended: str | None = None  # by what: "stop" or "length"

    def add(self, pieces: Sequence[int]) -> str:
        """Return what one or more pieces add, which may be nothing yet."""
        self.ids += pieces
        text = self._text(self.ids)
        kept = cut(text, self._stop, self.start)
        if len(kept) < len(text) or self._eos in pieces:
            self.ended = "stop"
        elif len(self.ids) >= self._limit:
            self.ended = "length"
        else:
            kept = text[: len(text) - held_back(text, self._stop, self.start)]
        part = kept[len(self.shown) :]
        self.shown += part
        return part

    def finish(self) -> str:
        """Return what was held back, at the end of a search that came to none of these."""
        if self.ended is None:
            self._limit = len(self.ids)
        return self.add([]) if self.ended is None else ""


def pieces_of(
    models: tuple[Model, ...],
    ensemble: str,
    params: Any,
    search: Search,
    sentence: Sentence,
    positions: int = NO_LIMIT,
) -> Iterator[int]:
    """Yield the pieces of one text as a search of one hypothesis writes them, EOS included.

    They are those of `batching.stream`, random ones too.

    Raises:
      UserError: if the search goes after several hypotheses.
    """
    if search.width != 1 or not isinstance(search, Sampling):
        raise UserError(
            "a text can be shown as it is written if it is one: with greedy search, which is "
            "decoding.beam_size=1, or with decoding.search='sample' and num_samples=1"
        )
    sizes = [len(sentence.ids)], [sentence.limit]
    shape = batch_shapes(*sizes, 1, 1, 1, positions)[-1]
    request = SearchRequest.empty(1, shape.src_length)
    request.src_ids[0, : len(sentence.ids)] = sentence.ids
    request.src_lengths[0], request.first[0] = len(sentence.ids), sentence.first
    request.limits[0], request.seeds[0] = sentence.limit, sentence.seed
    start, advance = _programs(models, ensemble)
    state = start(params, search, request, shape.room)
    for place in range(1, sentence.limit + 1):
        state = advance(params, search, state)
        tokens, done = jax.device_get((state.tokens, state.done))
        if tokens[0, 0, place] != search.special.pad:
            yield int(tokens[0, 0, place])
        if done[0]:
            return


@functools.lru_cache(maxsize=8)
def _programs(models: tuple[Model, ...], ensemble: str) -> tuple[Any, Any]:
    """Return compiled functions: the beginning of a search, and one step of it."""
    make_stepper = stepper_maker(models, ensemble)

    def start(params: Any, search: Search, request: SearchRequest, room: int) -> Any:
        return begin(search, make_stepper(params), request, room)

    def advance(params: Any, search: Search, state: Any) -> Any:
        return search.advance(make_stepper(params), state)

    return jax.jit(start, static_argnums=3), jax.jit(advance, donate_argnums=2)
