"""A trained model, ready to serve requests."""

import dataclasses
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any, NamedTuple

from transformer_jax.api import TrainedEnsemble, TrainedModel
from transformer_jax.base.errors import UserError
from transformer_jax.config import DecodingConfig, Experiment
from transformer_jax.config.choices.codecs import VECTORS
from transformer_jax.config.choices.searches import GREEDY
from transformer_jax.config.convert import parse
from transformer_jax.data.codecs.codec import VectorCodec
from transformer_jax.decoding import inputs
from transformer_jax.decoding.batching.rows import Sentence
from transformer_jax.decoding.loaded import Loaded
from transformer_jax.decoding.predict import READERS, WRITERS, Row
from transformer_jax.decoding.stepper import NO_LIMIT, has_attention
from transformer_jax.decoding.text.generate import MAX_TOKENS, Generator
from transformer_jax.decoding.text.likelihood import Likelihood, likelihoods
from transformer_jax.decoding.text.live import (
    PREFIX,
    LivePlan,
    LocalStreams,
    live_generation,
    live_translation,
    numbered,
)
from transformer_jax.decoding.text.score import log_probs_of, score_pairs, score_texts
from transformer_jax.decoding.text.translate import Translator
from transformer_jax.decoding.text.translation import Translation
from transformer_jax.server.processes.pool import SearchPool
from transformer_jax.server.settings import Settings
from transformer_jax.server.tickets import Stream

TOKENS = 512  # positions scored or aligned at a time
ALTERNATIVES = 20  # most probable tokens of each position that a request can ask for, at most
# Kinds of search.
TRANSLATE = "translate"  # the config's
SINGLE = "single"  # one hypothesis, greedy or random
BEAM = "beam"  # several, for prompts


class Asking(NamedTuple):
    """What a request asks of a search."""

    kind: str
    sentences: list[Sentence]


def reads_whole(experiment: Experiment) -> bool:
    """Return whether a model says something of its whole input at once, or reads no text: nothing
    that searches of texts could share.
    """
    vectors = experiment.codecs[0] in VECTORS or experiment.objective.record.best_path
    return experiment.verb in READERS or (vectors and experiment.verb in WRITERS)


def samples(loaded: Loaded) -> Iterator[Any]:
    """Yield inputs of growing length, which need all programs that predictions need."""
    codec, window = loaded.reads, loaded.objective.window
    if isinstance(codec, VectorCodec):
        longest = loaded.data.max_length if loaded.objective.translates else window
        yield from codec.samples(longest)
        return
    length = 1
    while length < 2 * window:
        text = " ".join("a" * length)
        yield f"{text}\t{text}" if loaded.objective.record.segments > 1 or (
            loaded.objective.record.paired) else text  # fmt: skip
        length *= 2


class Served:
    """A model with its streams, compiled by `compile`; they are those of search processes, if there
    is a pool. Only one thread runs streams and calls.
    """

    def __init__(
        self, trained: TrainedModel, decoding: DecodingConfig, settings: Settings,
        pool: SearchPool | None = None,
    ) -> None:  # fmt: skip
        objective = trained.experiment.objective
        self.trained, self.decoding, self._settings = trained, decoding, settings
        whole = reads_whole(trained.experiment)
        self.predicts = whole and not isinstance(trained, TrainedEnsemble)
        if not self.predicts:
            trained.loaded.check_text("serve")
        self.translates = objective.translates and not self.predicts
        self.generates = objective.record.prompt is not None and not self.predicts
        template = trained.tokenizers.template
        self.chats = template is not None and self.generates and not self.translates
        if not self.translates and not self.generates and not self.predicts:
            raise UserError(
                f"config.objective.name={objective.name!r}: such a model neither translates nor "
                "continues prompts, and cannot be served"
            )
        ensemble = isinstance(trained, TrainedEnsemble)
        self.scores = not ensemble and (self.translates or objective.record.likelihood)
        self.gives_log_probs = not ensemble and objective.record.likelihood  # of tokens as written
        self.aligns = self.translates and not ensemble and has_attention(
            trained.model, trained.params
        )  # fmt: skip
        self._lock = threading.Lock()
        self.plans = {kind: self._plan(kind) for kind in self._kinds()}
        made = LocalStreams(self.plans) if pool is None else pool.add(self.plans)
        self.streams: Mapping[str, Stream] = made.streams
        self.renew, self._compile_streams = made.renew, made.compile

    def _kinds(self) -> list[str]:
        kinds = [TRANSLATE] * self.translates + [SINGLE] * self.generates
        return kinds + [BEAM] * (self.generates and self.decoding.competes)

    def _plan(self, kind: str) -> LivePlan:
        settings, params = self._settings, self.trained.params
        if kind == TRANSLATE:
            return live_translation(self.translator(1), params, settings.rows)
        generator = self.generator(GREEDY if kind == SINGLE else {}, 1)
        longest = min(settings.max_prompt, generator.positions)
        most = min(settings.max_tokens, generator.positions)
        rows = settings.rows if kind == SINGLE else max(1, settings.rows // 4)  # rarely asked for
        return live_generation(generator, params, rows, longest, most)

    def compile(self) -> None:
        """Compile all programs, so that no request waits for one."""
        with ThreadPoolExecutor(1) as beside:
            streams = beside.submit(self._compile_streams)
            self._compile_calls()
        streams.result()

    def _compile_calls(self) -> None:
        if self.predicts:
            for value in samples(self.trained.loaded):
                with suppress(UserError):  # a codec of other texts, such as chess positions
                    self.predicted([value], 1)
            return
        read = written = self.longest
        if self.aligns:  # the output may be longer than the source
            written = max(read, self.translator(1).sentence([0] * read, [], 0, 0).limit)
        length = 8
        while (length := 2 * length) < 2 * written:
            ids, written_ids = ([3] * (min(length, most) - 1) + [2] for most in (read, written))
            if self.aligns:
                self._aligned([ids], [[Translation("", written_ids, 0.0)]])
            if self.scores and length < 2 * read:
                loaded = self.trained.loaded
                src = [] if loaded.objective.one_sided else [ids]
                log_probs_of(loaded, src, [ids], TOKENS)
        if self.gives_log_probs:
            most, length = self.longest_text, 16
            while length < 2 * most:
                self.likelihoods([[2] * (min(length, most) + 1)])
                length *= 2

    @property
    def positions(self) -> int | None:
        """Most pieces of a prompt and its continuation together; None: any number."""
        most = self.generator({}, 1).positions if self.generates else NO_LIMIT
        return most if most < NO_LIMIT else None

    @property
    def longest(self) -> int:
        """The longest text that is scored whole, and source that is translated whole."""
        if self.translates:
            return self.translator(1).longest
        objective, positions = self.trained.experiment.objective, self.generator({}, 1).positions
        return min(objective.window if objective.windowed else self._settings.max_prompt, positions)

    @property
    def longest_text(self) -> int:
        """The most pieces that are read of a prompt and its text."""
        whole = self._settings.max_prompt + self._settings.max_tokens
        return min(whole, self.generator({}, 1).positions)

    def translator(self, n_best: int) -> Translator:
        """Return the Translator for `n_best` translations of a line.

        Raises:
          UserError: if the search keeps fewer.
        """
        with self._lock:
            writer = self.trained.translator(self.decoding, n_best, warn=False)
        assert isinstance(writer, Translator)  # CTC models are refused above
        return writer

    def generator(self, fields: dict[str, Any], n: int) -> Generator:
        """Return the Generator for `n` texts, with some decoding fields changed.

        Raises:
          UserError: if a field's value is out of bounds.
        """
        changed = dataclasses.asdict(self.decoding) | fields
        config = parse(changed, DecodingConfig, "decoding")
        make = self.trained.chat_generator if self.chats else self.trained.generator
        return make(config, n)

    @property
    def begins(self) -> bool:
        """Whether prompts begin with BOS: conversations have it in their template."""
        objective = self.trained.experiment.objective
        return objective.prompts_begin and not objective.record.chats

    def opened(self, files: Sequence[tuple[str, bytes]]) -> list:
        """Return what the model reads of files, each a name and its content.

        Raises:
          UserError: if one is malformed; begins with its name.
        """
        loaded = self.trained.loaded
        return [inputs.uploaded(data, name, loaded.reads, loaded.data) for name, data in files]

    def predicted(self, values: Sequence, top: int) -> list[Row]:
        """Return what the model predicts for values, as `predict` does; for the search thread.

        Raises:
          UserError: if one is malformed, or too long.
        """
        return self.trained.predictions(values, top, TOKENS)

    def translation(self, lines: Sequence[str], n_best: int, prefix: str, number: int) -> Asking:
        """Return what translating lines asks of a search; samples depend on the first one's number.

        Raises:
          UserError: if a line or the prefix is too long, or `n_best` too large.
        """
        translator = self.translator(n_best)
        prefixes = [prefix] * len(lines) if prefix else None
        parts = translator.sentences(lines, prefixes, number)
        wanted = n_best if self.decoding.rerank == "none" else self.decoding.hypotheses
        parts = [numbered(part, self.decoding, wanted) for part in parts]
        for part in parts:
            if not self.plans[TRANSLATE].takes(part):
                what = "prefix" if len(part.prefix) > PREFIX else "text"
                raise UserError(f"{what}: is longer than this server allows; shorten it")
        return Asking(TRANSLATE, parts)

    def aligning(
        self, parts: Sequence[Sentence], found: list[list[Translation]]
    ) -> Callable[[], Any]:
        """Return a function that adds alignments to the translations of parts."""
        return lambda: self._aligned([part.ids for part in parts], found)

    def _aligned(self, sources: Sequence, found: list[list[Translation]]) -> None:
        parts = [Sentence(ids, 1) for ids in sources]
        self.translator(1).align(self.trained.params, parts, found, TOKENS)

    def scored(self, sources: Sequence[str], targets: Sequence[str] | None) -> list:
        """Return the scores of texts, or of translations of sources; for the search thread.

        Raises:
          UserError: if one is too long.
        """
        loaded = self.trained.loaded
        if targets is None:
            return score_texts(loaded, sources, TOKENS)
        for name, texts, codec in zip(("source", "target"), (sources, targets),
                                      loaded.codecs, strict=True):  # fmt: skip
            longest = max(map(len, codec.encode(texts)))
            if longest > self.longest and (name == "target" or loaded.cut_at is None):
                raise UserError(
                    f"{name}: {longest} pieces, at most {self.longest} allowed; shorten it"
                )
        return score_pairs(loaded, sources, targets, TOKENS)

    def likelihoods(self, sequences: Sequence[Sequence[int]]) -> list[Likelihood]:
        """Return what the model gives for sequences of tokens; for the search thread."""
        return likelihoods(self.trained.loaded, sequences, ALTERNATIVES, TOKENS)

    def prompting(
        self, generator: Generator, prompt: str | Sequence[int], max_tokens: int | None, n: int,
        number: int, unless: int = MAX_TOKENS,
    ) -> tuple[Asking, list[int]]:  # fmt: skip
        """Return what continuing a prompt asks of a search, nothing if `max_tokens` is 0, and the
        pieces read. `unless` limits the tokens written if `max_tokens` is None.

        Raises:
          UserError: if the prompt, or the text asked for, is too long.
        """
        config, most = generator.config, self._settings.max_tokens
        read = generator.reader.read(prompt)
        if len(read) - 1 > self._settings.max_prompt:
            raise UserError(
                f"prompt: {len(read)} pieces, at most {self._settings.max_prompt} allowed; "
                "shorten it"
            )
        if max_tokens is None:
            max_tokens = min(unless, most, generator.limit(1, len(read), None))
        if max_tokens > most:
            raise UserError(f"max_tokens={max_tokens}: at most {most}; lower it")
        limit = generator.limit(1, len(read), max_tokens or 1)
        if max_tokens == 0:
            return Asking(SINGLE, []), read
        sentence = generator.sentence(read, 0, number, limit)
        if config.competes:
            asked = config.search, config.hypotheses
            if asked != (self.decoding.search, self.decoding.hypotheses):
                only = self.decoding.hypotheses if BEAM in self.plans else 1
                name = config.record.width
                raise UserError(f"{name}={config.hypotheses}: must be 1 or {only}")
            return Asking(BEAM, [numbered(sentence, config, n)]), read
        lanes = [numbered(sentence, config, 1, lane) for lane in range(n)]
        return Asking(SINGLE, lanes), read
