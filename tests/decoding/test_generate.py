"""A language model's continuation of a prompt matches one pass over the whole text."""

import dataclasses
import functools
import itertools
import string

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tiny import MODEL as TINY
from tiny import VARIANTS, make

from transformer_jax.base.errors import UserError
from transformer_jax.base.vocabulary import BOS, EOS, PAD
from transformer_jax.config import DecodingConfig, ObjectiveConfig, TokenizerConfig
from transformer_jax.config.choices.texts import FIM_PIECES
from transformer_jax.data.batches.batch import Batch, Side
from transformer_jax.data.codecs import characters
from transformer_jax.data.codecs.pair import TokenizerPair
from transformer_jax.decoding.loaded import Loaded
from transformer_jax.decoding.stepper import ENSEMBLES, Ensemble
from transformer_jax.decoding.text.generate import Generator
from transformer_jax.decoding.text.score import score_pairs, score_texts
from transformer_jax.decoding.text.searching import room_behind
from transformer_jax.decoding.text.translate import Translator
from transformer_jax.models.build import build

CODEC = characters.train(TokenizerConfig(), [string.ascii_lowercase])  # 30 pieces, as tiny's VOCAB
MODEL = dataclasses.replace(VARIANTS["decoder"], positions="learned", max_positions=24)
LINES = ObjectiveConfig("language_model", window=8)
FILES = ObjectiveConfig("language_model", window=8, document="file")
PREFIX = ObjectiveConfig("prefix_lm")
WINDOWS = ObjectiveConfig("text_prefix_lm", window=8)
RANKED = (PREFIX, WINDOWS)
GREEDY = DecodingConfig(beam_size=1)
SAMPLES = DecodingConfig(search="sample", num_samples=2, seed=3)
PROMPTS = ["", "ab", "helloworld"]


def made(objective: ObjectiveConfig):
    return make(MODEL, "ranked" if objective in RANKED else "causal")


def loaded(objective: ObjectiveConfig) -> Loaded:
    return Loaded(*made(objective), TokenizerPair(CODEC, CODEC), objective)


def generator(objective: ObjectiveConfig, decoding: DecodingConfig = GREEDY, n_best: int = 1):
    return Generator(made(objective)[0], CODEC, objective, decoding, n_best)


@functools.partial(jax.jit, static_argnums=0)
def one_pass(model, params, side: Side):
    return model.outputs(params, Batch(None, side, {}), None)["tokens"].logits()


def logits(objective: ObjectiveConfig, texts: list[list[int]], prefixes: list[int]) -> np.ndarray:
    """Return the logits of one pass over whole texts; with ranks, their first `prefixes` positions
    have rank 0."""
    inputs = np.zeros((len(PROMPTS), MODEL.max_positions), np.int32)  # one shape for all tests
    for row, text in enumerate(texts):
        inputs[row, : len(text)] = text
    pos = np.broadcast_to(np.arange(MODEL.max_positions, dtype=np.int32), inputs.shape)
    rank = None
    if objective in RANKED:
        rank = np.maximum(pos - np.resize(prefixes, len(inputs))[:, None] + 1, 0)
    side = Side(inputs, pos, (inputs > 0).astype(np.int32), rank)
    return np.array(one_pass(*made(objective), side))


def log_softmax(logits: np.ndarray) -> np.ndarray:
    logits = np.float64(logits)
    return logits - np.log(np.exp(logits).sum(-1, keepdims=True))


def prompts_of(objective: ObjectiveConfig) -> tuple[list[list[int]], list[int]]:
    """Return the pieces read for each prompt, and how many of them are a prefix."""
    letters = [CODEC.encode([prompt], eos=False)[0] for prompt in PROMPTS]
    if objective == PREFIX:
        return [[*ids, EOS, BOS] for ids in letters], [len(ids) + 1 for ids in letters]
    if objective == FILES:  # mid-text, unless the prompt is empty
        return [ids or [BOS] for ids in letters], [0, 0, 0]
    return [[BOS, *ids] for ids in letters], [len(ids) * (objective == WINDOWS) for ids in letters]


@pytest.mark.one_in(2)
@pytest.mark.parametrize("objective", [LINES, FILES, *RANKED], ids=lambda x: x.name + x.document)
def test_greedy_text_is_the_argmax_of_one_full_pass(objective):
    """Token by token, after prompts of different lengths in one batch."""
    texts, prefixes = prompts_of(objective)
    begun = [len(text) for text in texts]
    banned = [PAD, BOS] + [EOS] * (objective == FILES)
    for _ in range(10):
        whole = logits(objective, texts, prefixes)
        for text, row in zip(texts, whole, strict=True):
            if text[-1] != EOS:
                row[:, banned] = -np.inf
                text.append(int(row[len(text) - 1].argmax()))
    found = generator(objective).generate(made(objective)[1], PROMPTS, 10)
    scores = log_softmax(logits(objective, texts, prefixes))
    for (one,), text, length, row in zip(found, texts, begun, scores, strict=True):
        assert one.ids == text[length:]
        shown = text[length:] if objective == PREFIX else text
        assert one.text == CODEC.decode(shown)
        expected = sum(row[i - 1, text[i]] for i in range(length, len(text)))
        assert one.log_prob == pytest.approx(expected, abs=1e-4)


def test_samples_depend_only_on_the_prompt_and_its_number():
    params = made(FILES)[1]
    sampler = generator(FILES, SAMPLES, 2)
    together = sampler.generate(params, PROMPTS, 6)
    others = sampler.generate(params, [PROMPTS[1], "jumps", "overtheend"], 6, first=2)
    assert [item.ids for item in others[0]] == [item.ids for item in together[1]]
    assert others[0][0].ids != others[0][1].ids
    assert {len(item.ids) for items in together for item in items} == {6}  # no EOS in a file


@pytest.mark.thorough
@pytest.mark.parametrize("kind", ["linear", "favor"])
def test_an_empty_prompt_does_not_depend_on_the_rest_of_the_batch(kind):
    model, params = make(dataclasses.replace(VARIANTS["decoder"], decoder_pattern=(kind,)))
    writer = Generator(model, CODEC, LINES, GREEDY)
    (alone,) = writer.generate(params, [""], 6)
    beside, _ = writer.generate(params, ["", "helloworld"], 6)
    assert alone[0].ids == beside[0].ids
    assert alone[0].log_prob == pytest.approx(beside[0].log_prob, abs=1e-4)


def test_no_repeat_ngram_ignores_the_prompt():
    """The last piece of a prompt may occur once more."""
    texts, prefixes = prompts_of(FILES)
    begun = [len(text) for text in texts]
    for _ in range(10):
        for text, row, start in zip(texts, logits(FILES, texts, prefixes), begun, strict=True):
            row[:, [PAD, BOS, EOS]] = -np.inf
            row[:, text[start:]] = -np.inf
            text.append(int(row[len(text) - 1].argmax()))
    once = dataclasses.replace(GREEDY, no_repeat_ngram=1)
    found = generator(FILES, once).generate(made(FILES)[1], PROMPTS, 10)
    assert [one.ids for (one,) in found] == [
        text[start:] for text, start in zip(texts, begun, strict=True)
    ]
    assert any(text[start - 1] in text[start:] for text, start in zip(texts, begun, strict=True))


def test_the_repetition_penalty_counts_the_prompt():
    """As in `transformers`: what is read and what is written, the first token included."""
    texts, prefixes = prompts_of(FILES)
    begun = [len(text) for text in texts]
    for _ in range(10):
        for text, row in zip(texts, logits(FILES, texts, prefixes), strict=True):
            known, last = sorted({*text}), row[len(text) - 1]
            last[known] *= np.where(last[known] > 0, 1 / 5, 5)
            last[[PAD, BOS, EOS]] = -np.inf
            text.append(int(last.argmax()))
    expected = [text[start:] for text, start in zip(texts, begun, strict=True)]
    penalized = dataclasses.replace(GREEDY, repetition_penalty=5.0)
    assert GREEDY.repetition_penalty == 1.0
    for config in (penalized, dataclasses.replace(penalized, cache="paged", cache_block=4)):
        found = generator(FILES, config).generate(made(FILES)[1], PROMPTS, 10)
        assert [one.ids for (one,) in found] == expected
    plain = generator(FILES, GREEDY).generate(made(FILES)[1], PROMPTS, 10)
    assert [one.ids for (one,) in plain] != expected


def test_a_gap_is_filled_with_what_follows_its_suffix():
    """Alone, up to EOS, without the sentinels; streamed too."""
    codec = characters.train(TokenizerConfig(), [string.ascii_lowercase[:23]], FIM_PIECES)
    config = dataclasses.replace(FILES, fim_rate=0.5)
    params, model = made(FILES)[1], made(FILES)[0]
    writer = Generator(model, codec, config, GREEDY)
    read = [writer.reader.gap(*pair) for pair in (("ab", "cd"), ("", "hello"), ("b", ""))]
    prefix, middle, suffix = map(codec.piece_id, FIM_PIECES)
    a = codec.piece_id("a")
    assert read[0] == [prefix, suffix, a + 2, a + 3, middle, a, a + 1]
    assert read[1][-1] == middle
    psm = Generator(model, codec, dataclasses.replace(config, fim_spm_rate=0.0), GREEDY)
    assert psm.reader.gap("ab", "cd") == [prefix, a, a + 1, suffix, a + 2, a + 3, middle]
    never, texts = [PAD, BOS, prefix, middle, suffix], [[*ids] for ids in read]
    for _ in range(6):
        rows = logits(FILES, texts, [0, 0, 0])
        for text, row, begun in zip(texts, rows, read, strict=True):
            row[:, never] = -np.inf
            if EOS not in text[len(begun) :]:
                text.append(int(row[len(text) - 1].argmax()))
    found = writer.generate(params, read, 6)
    for (one,), text, begun in zip(found, texts, read, strict=True):
        assert one.ids == text[len(begun) :]
        assert one.text == codec.decode(one.ids)
    assert "".join(writer.stream(params, read[0], 6)) == found[0][0].text
    with pytest.raises(UserError, match=r"^suffix='cd': the tokenizer has no pieces <fim_prefix>"):
        generator(FILES).reader.gap("ab", "cd")


@functools.partial(jax.jit, static_argnums=0)
def both_sides(model, params, src: Side, tgt: Side):
    return model.outputs(params, Batch(src, tgt, {}), None)["tokens"].logits()


def padded(ids: list[int]) -> Side:
    inputs = np.zeros((1, 13), np.int32)
    inputs[0, : len(ids)] = ids
    pos = np.minimum(np.arange(13, dtype=np.int32), len(ids) - 1)[None]
    return Side(inputs, pos, (np.arange(13, dtype=np.int32) < len(ids))[None].astype(np.int32))


@pytest.mark.parametrize("name", ["span_corruption", "denoising", "text_continuation"])
def test_a_pretrained_encoder_decoder_answers_a_prompt(name):
    """Greedy text matches one pass over both sides; each side may use all positions."""
    model, params = make(dataclasses.replace(TINY, positions="learned", max_positions=13))
    writer = Generator(model, CODEC, ObjectiveConfig(name), GREEDY)
    found = writer.generate(params, PROMPTS)
    for prompt, (one,) in zip(PROMPTS, found, strict=True):
        source, target = CODEC.encode([prompt])[0], [BOS]
        while len(target) <= 13 and target[-1] != EOS:
            whole = both_sides(model, params, padded(source), padded(target))
            row = np.array(whole[0, len(target) - 1])
            row[[PAD, BOS]] = -np.inf
            target.append(int(row.argmax()))
        assert one.ids == target[1:]
        assert one.text == CODEC.decode(target[1:])
    with pytest.raises(UserError, match=r"prompt 1: 16 pieces, more than .*max_positions=13"):
        writer.generate(params, ["a" * 14])


def test_each_model_of_an_ensemble_reads_a_source_in_its_own_way():
    """An encoder, and a decoder by ranks, which has positions for source and text together."""
    models, params = zip(make(TINY), made(PREFIX), strict=True)
    steppers = [model.stepper(mine) for model, mine in zip(models, params, strict=True)]
    one, side = jnp.ones((1, 1), jnp.int32), jax.device_put(padded([5, 6, 7, EOS]))

    def said(stepper):
        state = stepper.start(stepper.context(side), 1, 2)
        return jax.nn.softmax(stepper.step(state, one[None], one - 1, jnp.ones(1, bool))[0])

    ensemble = Ensemble(steppers, ENSEMBLES["probabilities"])
    first, second, both = jax.jit(lambda: [said(x) for x in (*steppers, ensemble)])()
    assert np.abs(first - second).max() > 0.01
    np.testing.assert_allclose(both, (first + second) / 2, rtol=1e-4)
    short = build(dataclasses.replace(TINY, positions="learned", max_positions=13), 9, 9)
    for some in itertools.permutations((short, models[1])):
        assert [room_behind(some, length) for length in (10, 20)] == [13, 4]


def test_invalid_requests_are_rejected():
    params = made(LINES)[1]
    for objective, decoding, message in (
        (ObjectiveConfig(), GREEDY, r"objective\.name='translate': such a model does not contin"),
        (LINES, DecodingConfig(rerank="chrf"), r"decoding\.rerank='chrf': is for translations"),
        (LINES, DecodingConfig(coverage_penalty=0.2), r"coverage_penalty=0\.2: is for transl"),
    ):
        with pytest.raises(UserError, match=message):
            generator(objective, decoding)
    with pytest.raises(UserError, match=r"n_best=3: must lie between 1 and decoding\.num_samples"):
        generator(LINES, SAMPLES, 3)
    with pytest.raises(UserError, match="stop: an empty string would end every text"):
        generator(LINES).generate(params, ["a"], 1, stop=["b", ""])
    for prompt, tokens, message in (
        ("a" * 24, 1, r"prompt 2: 25 pieces, more than config\.model\.max_positions=24; shorten"),
        ("a", 0, "max_tokens=0: must be at least 1"),
    ):
        with pytest.raises(UserError, match=message):
            generator(LINES).generate(params, ["", prompt], tokens)
    for unslid in ({"beam_size": 2}, {"no_repeat_ngram": 3}):  # see test_sliding.py
        writer = generator(LINES, dataclasses.replace(GREEDY, **unslid))
        with pytest.raises(
            UserError,
            match=r"max_tokens=12: after the 14 pieces of prompt 2, .*"
            "room for 11; lower it, shorten the prompt, or train with .*rope",
        ):
            writer.generate(params, ["", "a" * 13], 12)
    many = dataclasses.replace(SAMPLES, num_samples=10_000, max_extra_length=1)
    with pytest.raises(UserError, match=r"max_tokens=256: .* with 10000 hypotheses at most 26"):
        Generator(make(VARIANTS["decoder"])[0], CODEC, LINES, many).generate({}, ["a"])


def test_every_piece_of_a_text_is_scored_once():
    """Given the pieces before it in its window."""
    texts = ["thequickbrownfox", "", "jump"]
    found = score_texts(loaded(LINES), texts)
    for text, scored in zip(texts, found, strict=True):
        ids = CODEC.encode([text], bos=True)[0]
        assert scored.ids == ids[1:]
        for begin in range(0, len(ids) - 1, LINES.window):
            window = ids[begin : begin + LINES.window + 1]
            whole = logits(LINES, [window], [0])[0]
            expected = log_softmax(whole)[np.arange(len(window) - 1), window[1:]]
            part = scored.log_probs[begin : begin + LINES.window]
            np.testing.assert_allclose(part, expected, atol=1e-5)
        assert scored.bits_per_character == scored.bits_per_byte
        bits = -scored.total / np.log(2)
        assert scored.bits_per_character == pytest.approx(bits / (len(text) + 1))
        assert scored.perplexity == pytest.approx(2 ** (bits / len(scored.ids)))
    (unknown,) = score_texts(loaded(LINES), ["a b"])
    assert unknown.bits_per_character is None
    # Even where training joins texts, each is scored by itself.
    joined = dataclasses.replace(LINES, document="joined")
    assert score_texts(dataclasses.replace(loaded(LINES), objective=joined), texts) == found
    assert score_texts(loaded(LINES), []) == []


def test_a_target_is_scored_given_its_prefix():
    src, tgt = ["ab", "wxyz"], ["cde", "f"]
    found = score_pairs(loaded(PREFIX), src, tgt)
    for one, other, scored in zip(src, tgt, found, strict=True):
        prefix, target = CODEC.encode([one, other])
        whole = logits(PREFIX, [[*prefix, BOS, *target]], [len(prefix)])[0, len(prefix) :]
        expected = log_softmax(whole)[np.arange(len(target)), target]
        assert scored.ids == target
        np.testing.assert_allclose(scored.log_probs, expected, atol=1e-5)


def test_a_source_and_its_translation_share_the_positions_of_one_sequence():
    """A prompt that leaves n positions gets at most n pieces; one that leaves none is rejected."""
    model, params = made(PREFIX)
    config = dataclasses.replace(GREEDY, forbidden=("</s>",))
    translator = Translator(model, TokenizerPair(CODEC, CODEC), config)
    sources = ["a" * length for length in (10, 20, 22)]
    written = [len(found.ids) for found in translator.translate(params, sources)]
    assert written == [MODEL.max_positions - len(source) - 1 for source in sources]  # 1: EOS
    with pytest.raises(UserError, match=r"line 1: 24 pieces .*max_positions=24"):
        translator.translate(params, ["a" * 23])


def test_a_beam_lists_a_text_once():
    """Also those that a stop string makes equal; samples are listed as they were drawn."""
    (read,), (one,), (other,) = (CODEC.encode([x], eos=False) for x in ("ab", "cd", "ce"))
    rows, scores = np.array([[*one, EOS], [*one, EOS], [*other, EOS]]), np.array([-1.0, -2, -3])
    beam = generator(LINES, DecodingConfig(beam_size=3), 3)
    assert [x.text for x in beam.texts(read, rows, scores)] == ["abcd", "abce"]
    assert [x.score for x in beam.texts(read, rows, scores)] == [-1, -3]
    short = [x._replace(text="abc") for x in beam.texts(read, rows, scores)]
    assert beam._listed(short) == short[:1]
    drawn = generator(LINES, dataclasses.replace(SAMPLES, num_samples=3), 3)
    assert [x.text for x in drawn.texts(read, rows, scores)] == ["abcd", "abcd", "abce"]
