"""Text generation from prompts, in input order."""

import dataclasses
import functools
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from transformer_jax.base.errors import UserError
from transformer_jax.config import HELD_POSITIONS, DecodingConfig, ObjectiveConfig
from transformer_jax.data.codecs.chat import ChatTemplate
from transformer_jax.data.codecs.codec import Codec, settled
from transformer_jax.decoding.batching.paged import PagedStream
from transformer_jax.decoding.batching.stream import Sentence, stream
from transformer_jax.decoding.search.acceptance import Acceptance
from transformer_jax.decoding.search.penalties import divisor
from transformer_jax.decoding.search.speculative import FUTURE
from transformer_jax.decoding.search.state import NOTHING
from transformer_jax.decoding.stepper import NO_LIMIT
from transformer_jax.decoding.text.prompt_cache import PromptCache
from transformer_jax.decoding.text.prompts import PROMPTS, Reader, check_prompts, forbidden
from transformer_jax.decoding.text.searching import (
    Draft,
    check_contiguous,
    check_n_best,
    check_pages,
    drafting_in,
    fewest_positions,
    foreseeing,
    held,
    make_engine,
    make_search,
    room_behind,
    until_eos,
)
from transformer_jax.decoding.text.sliding import NEXT_TEXT, Sliding
from transformer_jax.decoding.text.streaming import Alone, Parts, cut
from transformer_jax.decoding.text.translation import first_of_each
from transformer_jax.decoding.weights import computing_in
from transformer_jax.models.model import Model

MAX_TOKENS = 256  # by default


class Generated(NamedTuple):
    """One generated text."""

    text: str  # a language model's with the prompt; without a stop string, unlike the rest
    ids: list[int]  # the pieces written, with EOS if the search reached it
    score: float  # log-probability / length penalty: what the search ranks by
    log_prob: float  # of the pieces written, nats


class Generator:
    """A model that continues or answers prompts, and compiled searches.

    Several models form an ensemble; their parameters are then a list as well. `n_best` is the
    number of texts wanted per prompt. `max_tokens` sets lengths: those of `config` are relative to
    a source. `draft` is the model of `decoding.draft`, if it names one; `acceptance` counts its
    accepted proposals. If `prompts` are given, for each model and for the draft, they read the
    prompts, and texts are written one by one. A prompt that is a source is truncated to `cut_at`
    pieces.

    Greedy and random texts that continue a prompt may be longer than the model has positions: see
    `sliding`.

    Raises:
      UserError: if the objective does not take prompts, or a setting is one for translation.
    """

    def __init__(
        self, model: Model | Sequence[Model], codec: Codec, objective: ObjectiveConfig,
        config: DecodingConfig, n_best: int = 1, devices: Sequence[jax.Device] | None = None,
        draft: Draft | None = None, prompts: Sequence[PromptCache] = (), cut_at: int | None = None,
        template: ChatTemplate | None = None,
    ) -> None:  # fmt: skip
        check_prompts(objective, config)
        self._prompting = PROMPTS[objective.kind]
        self.reader = Reader(codec, objective, cut_at, template)
        check_n_best(config, n_best)
        models = list(model) if isinstance(model, Sequence) else [model]
        config = foreseeing(config, models)
        self.models = computing_in(config.compute_dtype, models)
        self._codec, self._objective, self.config, self._n_best = codec, objective, config, n_best
        self._cut_at = cut_at
        self.special = self.reader.special
        never = forbidden(codec, objective, config)
        self.search = make_search(
            config, n_best, never, self.special, continues=self._prompting.continued
        )
        self.mesh = Mesh(devices or jax.local_devices(), "rows")
        self.positions = fewest_positions(self.models)
        self.draft, self.acceptance = drafting_in(config, draft), Acceptance()
        self._prompts = prompts
        if config.draft == FUTURE and prompts:
            raise UserError(
                f"config.decoding.draft={FUTURE!r}: prompts that are kept in a directory lack what "
                "further predictions read; leave the prompt cache out, or choose 'ngram'"
            )
        if config.cache == "paged":
            check_pages(self.models)
            if prompts:
                raise UserError(
                    "config.decoding.cache='paged': prompts that are kept in a directory are read "
                    "into contiguous caches; leave the prompt cache out, or choose 'contiguous'"
                )
        # An n-gram that must not occur again may be anywhere in what is written.
        alone = not config.competes and not config.no_repeat_ngram
        self._slides = self._prompting.continued and alone and self.positions < NO_LIMIT
        arguments = tuple(self.models), config.ensemble, self.mesh
        self.engine = make_engine(*arguments, self.draft and self.draft.model)

    def generate(
        self,
        params: Any,
        prompts: Sequence[str | Sequence[int]],
        max_tokens: int | None = None,
        first: int = 1,
        progress: Callable[[Iterable], Iterable] = iter,
        stop: str | Sequence[str] = (),
    ) -> list[list[Generated]]:
        """Return up to n_best texts for each prompt, best first, samples in the order drawn; see
        `Reader.read` for what a prompt may be.

        A text ends with EOS or after `max_tokens` new pieces; None means 256, or as many as the
        model has positions for if its window does not slide. It is cut before the first of the
        strings `stop` after the prompt. `first` is the number of the first prompt, on which samples
        depend.
        `progress` wraps the loop over prompts, in the order in which they finish.

        Raises:
          UserError: if a prompt and its text are longer than the model can read, or a string of
            `stop` is empty.
        """
        stop = _stops(stop)
        read = [self.reader.read(prompt) for prompt in prompts]
        wanted = [self._wanted(first + i, len(ids), max_tokens) for i, ids in enumerate(read)]
        sentences = [self._first(ids, i, first, wanted[i]) for i, ids in enumerate(read)]
        continuations: list[list[Generated]] = [[] for _ in prompts]
        with jax.set_mesh(self.mesh):
            params = held(self.models, params, self.draft)
            for _ in progress(self._each(params, sentences, read, continuations)):
                pass
            if self._slides:
                self._go_on(params, sentences, read, continuations, wanted)
        if not stop:
            return continuations
        starts = [len(self.text(ids, [])) for ids in read]
        return [
            self._listed(text._replace(text=cut(text.text, stop, start)) for text in texts)
            for texts, start in zip(continuations, starts, strict=True)
        ]

    def stream(
        self,
        params: Any,
        prompt: str | Sequence[int],
        max_tokens: int | None = None,
        number: int = 1,
        stop: str | Sequence[str] = (),
    ) -> Iterator[str]:
        """Yield the text that `generate` returns for the prompt with that number, in parts: the
        prompt, if the text includes it, and what each piece adds, which may be nothing yet.

        Raises:
          UserError: if several hypotheses are searched; see `generate`.
        """
        stop = _stops(stop)
        read = self.reader.read(prompt)
        wanted = self._wanted(number, len(read), max_tokens)
        sentence = self._first(read, 0, number, wanted)
        params = held(self.models, params, self.draft)
        parts = self.parts(read, wanted, stop)
        yield parts.begin()
        for piece in self._pieces(params, sentence, read, wanted):
            yield parts.add([piece])
            if parts.ended:
                return
        yield parts.finish()

    def sentence(self, ids: list[int], place: int, first: int, max_tokens: int | None) -> Sentence:
        """Return the search's Sentence for a prompt, given the pieces read."""
        number = first + place
        limit = self.limit(number, len(ids), max_tokens)
        return Sentence(ids[:-1], limit, seed=number % 2**31, line=place, first=ids[-1])

    def _wanted(self, number: int, length: int, max_tokens: int | None) -> int:
        """Return how many pieces are written in all after a prompt of this length."""
        if not self._slides:
            return self.limit(number, length, max_tokens)
        wanted = MAX_TOKENS if max_tokens is None else max_tokens
        self.limit(number, length, min(wanted, max(room_behind(self.models, length - 1), 1)))
        return wanted

    def _first(self, ids: list[int], place: int, first: int, wanted: int) -> Sentence:
        """Return the Sentence for what is written before a window slides."""
        return self.sentence(ids, place, first, min(wanted, room_behind(self.models, len(ids) - 1)))

    def _sliding(
        self, read: list[int], sentence: Sentence, wanted: int, ids: Sequence[int], rank: int = 0
    ) -> Sliding:
        """Return one of the texts of a prompt, with what its first window holds."""
        (begins,) = self._codec.encode([""], bos=self._objective.prompts_begin, eos=False)
        seed, eos = sentence.seed + rank * NEXT_TEXT, self.special.end
        return Sliding(self.positions, read, wanted, sentence.limit, seed, eos, begins, list(ids))

    def _behind(self) -> "Generator":
        """Return what writes the further windows of a text: as this one, but each by itself."""
        if self.config.hypotheses == 1 and not self._prompts:
            return self
        one: dict[str, Any] = {self.config.record.width: 1}
        config = dataclasses.replace(self.config, **one)
        arguments = self.models, self._codec, self._objective, config
        devices = list(self.mesh.devices.flat)
        again = Generator(
            *arguments, devices=devices, draft=self.draft, cut_at=self._cut_at,
            template=self.reader.template,
        )  # fmt: skip
        again.acceptance = self.acceptance
        return again

    def _go_on(
        self, params: list, sentences: Sequence[Sentence], read: Sequence[list[int]],
        found: list[list[Generated]], wanted: Sequence[int],
    ) -> None:  # fmt: skip
        """Slide windows over the texts that are not finished, until all are."""
        texts = {
            (i, rank): self._sliding(read[i], sentence, wanted[i], text.ids, rank)
            for i, sentence in enumerate(sentences)
            for rank, text in enumerate(found[i])
        }
        while left := {place: text for place, text in texts.items() if text.goes_on}:
            again = self._behind()
            windows = [text.next_window()._replace(line=n) for n, text in enumerate(left.values())]
            more: list[list[Generated]] = [[] for _ in windows]
            before = [[*window.ids, window.first] for window in windows]
            for _ in again._each(params, windows, before, more):
                pass
            for ((i, rank), text), (new,) in zip(left.items(), more, strict=True):
                text.ids += new.ids
                found[i][rank] = self._joined(text, found[i][rank], new)

    def _joined(self, text: Sliding, one: Generated, other: Generated) -> Generated:
        """Return a text of several windows: each piece is scored given those read in its own."""
        c, log_prob = self.config, one.log_prob + (other.log_prob if other.ids else 0.0)
        score = log_prob / divisor(c.length_penalty, c.alpha, len(text.ids))
        return Generated(self.text(text.read, text.ids), list(text.ids), score, log_prob)

    def _pieces(
        self, params: list, sentence: Sentence, read: list[int], wanted: int
    ) -> Iterator[int]:
        """Yield the pieces of one text, window by window."""
        text, writer = self._sliding(read, sentence, wanted, []), self
        while True:
            for piece in writer._alone(params, sentence).pieces():
                text.ids.append(piece)
                yield piece
            if not (self._slides and text.goes_on):
                return
            sentence, writer = text.next_window(), self._behind()

    def text(self, read: list[int], ids: list[int]) -> str:
        """Return the text shown for the pieces read and written."""
        return self._codec.decode(self._spoken(read, ids))

    def parts(self, read: list[int], limit: int, stop: Sequence[str] = ()) -> Parts:
        """Return the text for the pieces read, before anything is written."""
        text = functools.partial(self.text, read)
        return Parts(text, lambda ids: settled(self._codec, self._spoken(read, ids)), limit,
                     self.special.end, stop)  # fmt: skip

    def _spoken(self, read: list[int], ids: list[int]) -> list[int]:
        """Return the pieces of the text shown: without the prompt, if it has a gap that is filled;
        an EOS in a prompt does not end it.
        """
        filled = self.reader.fills(read)
        shown = self._prompting.continued and self._prompting.shown and not filled
        pieces = [*read, *ids] if shown else ids
        return [piece for piece in pieces if piece != self.special.eos]

    def limit(self, number: int, length: int, max_tokens: int | None) -> int:
        """Return how many pieces may follow a prompt of this length, its last piece unread."""
        room = room_behind(self.models, length - 1)
        if room < 1 or length > self.positions + 1:
            raise UserError(
                f"prompt {number}: {length} pieces, more than config.model.max_positions="
                f"{self.positions}; shorten it"
            )
        max_tokens = min(MAX_TOKENS, room) if max_tokens is None else max_tokens
        if not 1 <= max_tokens * self.config.hypotheses <= HELD_POSITIONS:
            raise UserError(
                f"max_tokens={max_tokens}: must be at least 1, and with "
                f"{self.config.hypotheses} hypotheses at most "
                f"{HELD_POSITIONS // self.config.hypotheses}"
            )
        if max_tokens > room:
            raise UserError(
                f"max_tokens={max_tokens}: after the {length} pieces of prompt {number}, "
                f"config.model.max_positions={self.positions} leaves room for {room}; lower it, "
                f"shorten the prompt{self._remedy}"
            )
        return max_tokens

    @property
    def _remedy(self) -> str:
        if not self._prompting.continued:
            return ""
        return ", or train with model.relative_positions='rope', which has no such limit"

    def _each(
        self,
        params: list,
        sentences: Sequence[Sentence],
        read: Sequence[list[int]],
        found: list[list[Generated]],
    ) -> Iterator[int]:
        """Fill in the texts of each prompt; yield its number."""
        if self._prompts:
            for number, sentence in enumerate(sentences):
                tokens, scores = self._alone(params, sentence).found()
                found[number] = self.texts(read[number], tokens, scores)
                yield number
            return
        budget, size = self.config.tokens_per_batch, self.config.cache_block
        if self.config.cache == "paged":
            make: Any = self.models[0].stepper  # which is the same in every call
            paged = PagedStream(make, self.search, params[0], size, budget)
            for number, tokens, scores in paged.run(sentences):
                found[number] = self.texts(read[number], tokens, scores)
                yield number
            return
        params = jax.device_put(params, NamedSharding(self.mesh, PartitionSpec()))
        for number, tokens, scores in stream(
            self.engine, self.search, params, sentences, budget, self.positions, self.acceptance
        ):
            found[number] = self.texts(read[number], tokens, scores)
            yield number

    def _alone(self, params: list, sentence: Sentence) -> Alone:
        check_contiguous(self.config, "a text that is written by itself")
        arguments = tuple(self.models), self.config.ensemble, params, self.search, sentence
        return Alone(*arguments, self.positions, self.draft, self.acceptance, self._prompts)

    def texts(self, read: list[int], tokens: np.ndarray, scores: np.ndarray) -> list[Generated]:
        """Return the hypotheses of a prompt, tokens [W L] and scores [W], as texts; if none ended
        because nothing more may be written, the prompt with nothing after it.
        """
        c = self.config
        texts = []
        for row, score in zip(tokens.tolist(), scores.tolist(), strict=True):
            if score > NOTHING / 2:
                ids = until_eos(row, self.special)
                log_prob = score * divisor(c.length_penalty, c.alpha, len(ids))
                texts.append(Generated(self.text(read, ids), ids, score, log_prob))
        return self._listed(texts) or [Generated(self.text(read, []), [], NOTHING, NOTHING)]

    def _listed(self, texts: Iterable[Generated]) -> list[Generated]:
        """Return the n best texts, each once; samples are listed as they were drawn."""
        if not self.config.draws:
            texts = first_of_each(texts)
        return [*itertools.islice(texts, self._n_best)]


def _stops(stop: str | Sequence[str]) -> list[str]:
    """Return the strings that end a text as a list; a single one may be given alone."""
    several = [stop] if isinstance(stop, str) else list(stop)
    if "" in several:
        raise UserError("stop: an empty string would end every text; leave it out")
    return several
