"""Live streams of sentences not known in advance, for translation and generation."""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
from jax.sharding import Mesh

from transformer_jax.config import DecodingConfig
from transformer_jax.decoding.batching.batch_shapes import BatchShape, live_shapes
from transformer_jax.decoding.batching.live import LiveStream
from transformer_jax.decoding.batching.rows import Numbers, Sentence
from transformer_jax.decoding.search.request import Form
from transformer_jax.decoding.search.state import Search
from transformer_jax.decoding.text.generate import Generator
from transformer_jax.decoding.text.searching import check_contiguous, held, make_engine
from transformer_jax.decoding.text.translate import Translator
from transformer_jax.models.model import Model

PREFIX = 32  # most pieces of a translation's prefix


@dataclass(frozen=True)
class LivePlan:
    """All that a live stream is made from; another process can make it from a copy."""

    models: tuple[Model, ...]
    ensemble: str
    draft: Model | None
    search: Search
    params: Any  # as searches hold them
    shapes: Sequence[BatchShape]
    form: Form

    def stream(self) -> LiveStream:
        """Return a stream on all devices of this process."""
        mesh = Mesh(jax.local_devices(), "rows")
        engine = make_engine(self.models, self.ensemble, mesh, self.draft)
        return LiveStream(engine, mesh, self.search, self.params, self.shapes, self.form)

    def takes(self, sentence: Sentence) -> bool:
        """Return whether there is a shape for a sentence."""
        shape = self.shapes[-1]
        fits = len(sentence.ids) <= shape.src_length and sentence.limit <= shape.room
        return fits and len(sentence.prefix) <= self.form.prefix

    def to_host(self) -> "LivePlan":
        """Return it with its arrays in the host's memory, to be sent to another process."""
        arrays = {"search": jax.device_get(self.search), "params": jax.device_get(self.params)}
        return dataclasses.replace(self, **arrays)

    def to_device(self) -> "LivePlan":
        """Return it with its parameters on a device, so that its streams share them."""
        return dataclasses.replace(self, params=jax.device_put(self.params))


class LocalStreams:
    """The streams of a model, by kind of search, in this process."""

    def __init__(self, plans: Mapping[str, LivePlan]) -> None:
        self._plans = plans
        self.streams = {kind: plan.stream() for kind, plan in plans.items()}

    def compile(self) -> None:
        """Compile all programs."""
        for stream in self.streams.values():
            stream.compile()

    def renew(self, kind: str) -> None:
        """Restart a stream, without its sentences."""
        self.streams[kind] = self._plans[kind].stream()


def live_translation(translator: Translator, params: Any, rows: int) -> LivePlan:
    """Return the plan for a Translator's sentences, at most `rows` per device at a time."""
    longest = translator.longest
    # If source and output share positions, a longer source leaves fewer for the output.
    most = max(translator.sentence([0] * n, [], 0, 0).limit for n in range(1, longest + 1))
    shapes = live_shapes(longest, most, rows, translator.positions)
    form = Form(PREFIX, asked=True, shortlist=translator.shortlist)
    return _plan(translator, params, shapes, form)


def live_generation(
    generator: Generator, params: Any, rows: int, longest: int, most: int
) -> LivePlan:
    """Return the plan for a Generator's prompts of up to `longest` pieces, followed by texts of
    up to `most`.
    """
    shapes = live_shapes(longest, most, rows, generator.positions)
    return _plan(generator, params, shapes, Form(asked=True))


def numbered(sentence: Sentence, config: DecodingConfig, wanted: int, lane: int = 0) -> Sentence:
    """Return a sentence with the numbers of a config, for a live stream."""
    temperature = config.temperature if config.draws else 0.0
    seed = config.seed % 2**32
    top_k = min(config.top_k, 2**31 - 1)
    numbers = Numbers(
        wanted, temperature, top_k, config.top_p, config.min_p, config.repetition_penalty, seed,
        lane,
    )  # fmt: skip
    return sentence._replace(numbers=numbers)


def _plan(who: Translator | Generator, params: Any, shapes: list, form: Form) -> LivePlan:
    check_contiguous(who.config, "a server's stream")
    params, draft = held(who.models, params, who.draft), who.draft and who.draft.model
    models, ensemble = tuple(who.models), who.config.ensemble
    return LivePlan(models, ensemble, draft, who.search, params, shapes, form)
