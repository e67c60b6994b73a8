"""Live streams of sentences not known in advance, for translation and generation."""

from typing import Any

from transformer_jax.config import DecodingConfig
from transformer_jax.decoding.batching.batch_shapes import live_shapes
from transformer_jax.decoding.batching.live import LiveStream
from transformer_jax.decoding.batching.rows import Numbers, Sentence
from transformer_jax.decoding.search.request import Form
from transformer_jax.decoding.text.generate import Generator
from transformer_jax.decoding.text.searching import check_contiguous, held
from transformer_jax.decoding.text.translate import Translator

PREFIX = 32  # most pieces of a translation's prefix


def live_translation(translator: Translator, params: Any, rows: int) -> LiveStream:
    """Return the stream of a Translator's sentences, at most `rows` per device at a time."""
    longest = translator.longest
    # If source and output share positions, a longer source leaves fewer for the output.
    most = max(translator.sentence([0] * n, [], 0, 0).limit for n in range(1, longest + 1))
    shapes = live_shapes(longest, most, rows, translator.positions)
    form = Form(PREFIX, asked=True, shortlist=translator.shortlist)
    return _stream(translator, params, shapes, form)


def live_generation(
    generator: Generator, params: Any, rows: int, longest: int, most: int
) -> LiveStream:
    """Return the stream of a Generator's prompts of up to `longest` pieces, followed by texts of
    up to `most`.
    """
    shapes = live_shapes(longest, most, rows, generator.positions)
    return _stream(generator, params, shapes, Form(asked=True))


def numbered(sentence: Sentence, config: DecodingConfig, wanted: int, lane: int = 0) -> Sentence:
    """Return a sentence with the numbers of a config, for a live stream."""
    samples = config.search == "sample"
    temperature = config.temperature if samples else 0.0
    seed = config.seed % 2**32
    top_k = min(config.top_k, 2**31 - 1)
    numbers = Numbers(wanted, temperature, top_k, config.top_p, seed, lane)
    return sentence._replace(numbers=numbers)


def _stream(who: Translator | Generator, params: Any, shapes: list, form: Form) -> LiveStream:
    check_contiguous(who.config, "a server's stream")
    params = held(who.models, params, who.draft)
    return LiveStream(who.engine, who.mesh, who.search, params, shapes, form)
