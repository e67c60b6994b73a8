"""Each line gets what it asked for, in its place. The model is a toy, which compiles fast."""

import functools
from dataclasses import dataclass, replace

import jax
import numpy as np
import pytest
import sacrebleu
from decoding import lines, plainly
from decoding.lines import BEAM, EXTRA, assert_same, parts
from decoding.toy import Toy
from tiny import MODEL

from transformer_jax.base.errors import UserError
from transformer_jax.base.vocabulary import EOS
from transformer_jax.config import DecodingConfig
from transformer_jax.decoding.batching.stream import Sentence
from transformer_jax.decoding.loaded import Loaded
from transformer_jax.decoding.search.beam import BeamSearch
from transformer_jax.decoding.search.sampling import Sampling
from transformer_jax.decoding.search.state import NOTHING, complete
from transformer_jax.decoding.text.attention import cross_attention
from transformer_jax.decoding.text.rerank import RERANKERS
from transformer_jax.decoding.text.translate import Translator

LINES = lines.LINES[:-1]  # short ones, so that all fit in one batch
SAMPLING = DecodingConfig(
    search="sample", num_samples=6, temperature=0.5, top_k=5, max_extra_length=EXTRA
)


COMPILED: list[str] = []


def _count(event: str, seconds: float, **_: object) -> None:
    if event == "/jax/core/compile/backend_compile_duration":
        COMPILED.append(event)


jax.monitoring.register_event_duration_secs_listener(_count)


@pytest.fixture
def compiled() -> list[str]:
    """A list with an entry for each program compiled, or read from the cache."""
    COMPILED.clear()
    return COMPILED


@dataclass(frozen=True)
class ToyModel:
    """A toy in place of a model."""

    config = MODEL

    def stepper(self, params) -> Toy:
        return Toy(vocab=parts()[2].tgt.size)

    def _nothing(self, *_, **__):
        raise NotImplementedError

    example = init = outputs = _nothing


@functools.cache
def translator(config: DecodingConfig, n_best: int = 1) -> Translator:
    return Translator(ToyModel(), parts()[2], config, n_best)


def hypotheses(config, n_best, lines=LINES, **asked):
    return translator(config, n_best).hypotheses((), lines, **asked)


@pytest.mark.thorough
def test_order_and_batching_do_not_change_translations():
    """All at once, in another order, or one at a time: each line's translation is the same."""
    together = translator(BEAM).translate((), LINES)
    assert_same(together[::-1], translator(BEAM).translate((), LINES[::-1]))
    narrow = translator(replace(BEAM, tokens_per_batch=1))
    assert_same(together, narrow.translate((), LINES))
    assert len({item.text for item in together}) > 5  # or a wrong order would go unnoticed


NUMBERS = {
    "beam": (
        replace(BEAM, coverage_penalty=0.1, max_extra_length=10),
        {"alpha": 1.4, "coverage_penalty": 2.0, "min_length_ratio": 0.9, "max_extra_length": 8},
    ),
    "sample": (
        SAMPLING,
        {"alpha": 1.4, "temperature": 2.5, "top_p": 0.4, "top_k": 2, "seed": 2**32 - 1},
    ),
}


@pytest.mark.one_in(2)
@pytest.mark.parametrize("kind", NUMBERS)
def test_changing_a_number_does_not_recompile(kind, compiled):
    """Settings that differ only in numbers share their programs, and each number has its effect."""
    config, numbers = NUMBERS[kind]
    first = translator(config).translate((), LINES)
    assert compiled  # compilations are counted
    compiled.clear()
    for name, number in numbers.items():
        other = translator(replace(config, **{name: number})).translate((), LINES)
        assert other != first, name
    assert not compiled


@pytest.mark.one_in(2)
@pytest.mark.parametrize("kind", NUMBERS)
def test_numbers_may_be_constants(kind):
    """A search finds the same whether its numbers are arguments of its program or constants."""
    config, numbers = NUMBERS[kind]
    config = replace(config, **numbers)
    search = BeamSearch.of(config, 2) if kind == "beam" else Sampling.of(config)
    some = [Sentence((5 + n, 3), limit=6, least=n % 4, seed=n) for n in range(9)]
    constant = jax.jit(lambda request: complete(search, Toy(), request, 6))
    arrays = map(np.asarray, constant(plainly.arrays(some, 3)))
    found = [plainly.scored(*row) for row in zip(*arrays, strict=True)]
    if kind == "beam":  # with arguments, it matches the reference: tests/decoding/test_beam.py
        expected = [plainly.beam(Toy(), config, (), sentence, 2) for sentence in some]
        found = [items[:2] for items in found]
    else:
        expected = plainly.run(search, some, room=6)
    plainly.assert_same(found, expected)


def test_three_lines_compile_two_programs(compiled):
    """One makes a batch and one searches, whatever the lengths; each takes seconds to compile."""
    searching = replace(BEAM, length_penalty="power", stop="width")  # as no other test here does
    translator(searching).translate((), ["a dog", "the men run two dogs walk " * 2, "two dogs"])
    assert len(compiled) == 2


class Blind(Toy):
    """A toy without attention."""

    def step(self, *args):
        logits, _, state = super().step(*args)
        return logits, None, state


@dataclass(frozen=True)
class BlindModel(ToyModel):
    def stepper(self, params) -> Blind:
        return Blind(vocab=parts()[2].tgt.size)


def test_models_without_attention_translate(compiled):
    """What needs attention is rejected with a reason before anything is computed."""
    _, _, tokenizers = parts()
    model = BlindModel()
    translate = Translator(model, tokenizers, BEAM).hypotheses
    with pytest.raises(UserError, match=r"alignments: needs cross-attention, which this model"):
        translate((), LINES, align=True)
    covered = Translator(model, tokenizers, replace(BEAM, coverage_penalty=0.2))
    with pytest.raises(UserError, match=r"decoding.coverage_penalty=0.2: needs cross-attention"):
        covered.translate((), LINES)
    with pytest.raises(UserError, match=r"attention: needs cross-attention"):
        cross_attention(Loaded(model, (), tokenizers), [5, EOS], [6, EOS])
    assert not compiled
    assert translate((), LINES) == hypotheses(BEAM, 1)  # attention itself changes nothing


def test_empty_lines_stay_empty():
    """A line without words has an empty translation, in its place; so does a file of such lines."""
    found = translator(BEAM).translate((), LINES)
    assert [i for i, item in enumerate(found) if not item.ids] == [1, 5]
    assert all(item.text == "" for item in translator(BEAM).translate((), ["", " "]))
    assert translator(BEAM).translate((), []) == []


FORBIDDEN = "▁dog", "s"
BOUNDED = replace(BEAM, min_length_ratio=1.0, max_length_ratio=1.5, forbidden=FORBIDDEN)
PREFIXES = [("two", "", "the men run", "a")[n % 4] for n in range(len(LINES))]


def test_n_best_hypotheses_are_ordered_and_distinct():
    """Hypotheses come best first, no two the same; an empty line has one empty translation."""
    for line, found in zip(LINES, hypotheses(BOUNDED, 3, prefixes=PREFIXES), strict=True):
        scores = [item.score for item in found]
        assert scores == sorted(scores, reverse=True)
        assert len({tuple(item.ids) for item in found}) == len(found)
        assert len(found) == (3 if line.strip() else 1)


@pytest.mark.parametrize("rerank", ["none", "chrf"])
@pytest.mark.parametrize("search", ["beam", "sample"])
def test_a_text_is_listed_once_however_it_is_segmented(search, rerank):
    """A beam holds the same text in several segmentations. Samples are listed as they were drawn,
    unless a reranker orders them.
    """
    codec = parts()[2].tgt
    (dog,), (man,) = codec.encode(["a dog"]), codec.encode(["a man"])
    letters = [codec.piece_id(piece) for piece in ("▁", "a", "▁", "d", "o", "g")]
    beam = np.zeros((4, 8), np.int32)
    for row, ids in zip(beam, ([*letters, EOS], dog, man, dog), strict=True):
        row[: len(ids)] = ids
    config = replace(BEAM, beam_size=4) if search == "beam" else replace(SAMPLING, num_samples=4)
    config = replace(config, rerank=rerank)
    scores = np.array([-1.0, -2.0, -3.0, NOTHING])
    for most in (1, 2, 3, 4):
        found = translator(config, most).translations(beam, scores)
        texts = [item.text for item in found]
        if (search, rerank) == ("sample", "none"):
            assert texts == ["a dog", "a dog", "a man"][:most]
        else:
            assert texts == ["a dog", "a man"][:most]
            assert found[0].score == -1


def test_one_best_is_the_translation():
    """Requesting one hypothesis is the same as translating."""
    assert [[item] for item in translator(BEAM).translate((), LINES)] == hypotheses(BEAM, 1)


@pytest.mark.parametrize("count", [0, 4])
def test_n_best_must_lie_within_the_beam_size(count):
    """The message names both numbers."""
    with pytest.raises(UserError, match=f"n_best={count}.*beam_size=3"):
        hypotheses(BEAM, count)


def test_prefixes_and_limits_are_respected():
    """A translation begins with its prefix, stays within its bounds and has no forbidden piece."""
    tokenizers = parts()[2]
    ids = {tokenizers.tgt.piece_id(piece) for piece in FORBIDDEN}
    sources, begun = tokenizers.src.encode(LINES), tokenizers.tgt.encode(PREFIXES)
    found = hypotheses(BOUNDED, 3, prefixes=PREFIXES)
    for line, source, prefix, items in zip(LINES, sources, begun, found, strict=True):
        for item in items if line.strip() else ():
            length, start = len(item.ids), len(prefix) - 1  # without EOS
            assert item.ids[:start] == prefix[:-1]
            assert len(source) <= length <= int(1.5 * len(source)) + EXTRA
            assert item.ids[-1] == EOS or length == int(1.5 * len(source)) + EXTRA
            assert not ids & set(item.ids[start:])
    assert_same(
        [items[0] for items in hypotheses(BEAM, 1, prefixes=[""] * len(LINES))],
        translator(BEAM).translate((), LINES),
    )


def test_samples_depend_on_the_line_number():
    """A line's number determines its samples, wherever the file begins; others give others."""
    whole = hypotheses(SAMPLING, 6)
    assert hypotheses(SAMPLING, 6, LINES[2:], first=3) == whole[2:]
    moved = hypotheses(SAMPLING, 6, first=2)
    for line, here, there in zip(LINES, whole, moved, strict=True):
        assert (here == there) == (not line.strip())
    alike = hypotheses(SAMPLING, 6, LINES[:1] * 8)
    assert len({str(found) for found in alike}) == 8


SCORES = {"chrf": sacrebleu.sentence_chrf, "bleu": sacrebleu.sentence_bleu}
TEXTS = [
    ["a man runs", "the man runs", "a man walks", "the man runs", "two dogs", "the man"],
    ["a b c", "a b c", "a b c"], ["", "a", ""], ["x", "y"], ["one"], [],
]  # fmt: skip


def by_risk(score, texts: list[str]) -> list[int]:
    """Return the order of increasing Bayes risk, comparing every text with every text."""
    gains = [round(sum(score(text, [other]).score for other in texts), 6) for text in texts]
    return sorted(range(len(texts)), key=lambda i: (-gains[i], i))


@pytest.mark.parametrize("name", SCORES)
def test_lowest_risk_comes_first(name):
    """Texts are ordered by mean score against all texts, each counted as often as it occurs.

    Equal texts keep their order; texts of equal gain may come in any.
    """
    score = SCORES[name]
    for texts in TEXTS:
        order = RERANKERS[name](texts)
        assert sorted(order) == list(range(len(texts)))
        best = by_risk(score, texts)
        gains = {i: sum(score(texts[i], [other]).score for other in texts) for i in best}
        np.testing.assert_allclose([gains[i] for i in order], [gains[i] for i in best])
        for text in texts:
            places = [i for i in order if texts[i] == text]
            assert places == sorted(places)
    assert RERANKERS["none"](TEXTS[0]) == list(range(6))


@pytest.mark.parametrize("name", SCORES)
def test_reranking_returns_the_best_of_all_samples(name):
    """As many of them as requested, and unchanged."""
    plain = hypotheses(SAMPLING, 6)
    found = hypotheses(replace(SAMPLING, rerank=name), 2)
    for before, after in zip(plain, found, strict=True):
        order = RERANKERS[name]([item.text for item in before])
        assert after == [before[i] for i in order[:2]]
    assert any(before[:2] != after for before, after in zip(plain, found, strict=True))
