"""Streamed parts add up to the text; stop strings end it."""

import dataclasses
import string

import pytest
from decoding.test_generate import CODEC, GREEDY, LINES, PREFIX, SAMPLES, generator, made
from tiny import MODEL as TINY
from tiny import make
from tokenizers import AddedToken, Tokenizer, decoders, models

from transformer_jax.base.errors import UserError
from transformer_jax.base.vocabulary import BOS, EOS
from transformer_jax.data.codecs.codec import SPECIAL, SPELLED
from transformer_jax.data.codecs.imported import Imported
from transformer_jax.data.codecs.pair import TokenizerPair
from transformer_jax.decoding.text.generate import Generator
from transformer_jax.decoding.text.streaming import cut, held_back
from transformer_jax.decoding.text.translate import Translator

ONE = dataclasses.replace(SAMPLES, num_samples=1)
DRAFTED = dataclasses.replace(GREEDY, draft="ngram")


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("objective", "decoding"), [(LINES, DRAFTED), (LINES, ONE), (PREFIX, GREEDY)],
    ids=["drafted", "sampled", "prefixes"],
)  # fmt: skip
def test_the_parts_add_up_to_the_text(objective, decoding):
    """One part for the prompt and one per piece; samples depend on the prompt's number."""
    writer, params = generator(objective, decoding), made(objective)[1]
    for number, prompt in ((1, "ab"), (7, "")):
        ((whole,),) = writer.generate(params, [prompt], 9, first=number)
        parts = list(writer.stream(params, prompt, 9, number))
        assert "".join(parts) == whole.text
        assert len(parts) == 1 + len(whole.ids)
        behind = whole.text.removeprefix(prompt)
        stop = behind[2:4]
        if len(stop) == 2:
            end = whole.text[: whole.text.index(stop, len(whole.text) - len(behind))]
            passes = writer.acceptance.passes
            assert "".join(writer.stream(params, prompt, 9, number, [stop])) == end
            assert (writer.acceptance.passes > passes) == (decoding.draft is not None)
            ((short,),) = writer.generate(params, [prompt], 9, first=number, stop=["?", stop])
            assert (short.text, short.ids) == (end, whole.ids)


def chatting() -> Imported:
    """Return a tokenizer of letters that finds special pieces in a text."""
    pieces = [*SPELLED, *string.ascii_lowercase]  # as many as CODEC has, with the same ids
    tokenizer = Tokenizer(models.BPE({piece: i for i, piece in enumerate(pieces)}, []))
    tokenizer.decoder = decoders.Fuse()
    tokenizer.add_special_tokens([AddedToken(x, special=True, normalized=False) for x in SPELLED])
    return Imported.of(tokenizer.to_str(), SPECIAL, len(pieces))


def test_a_prompt_that_contains_eos_loses_nothing():
    """As those of chats do: only what a search writes ends there."""
    codec = chatting()
    (model, params), prompt = made(LINES), "a</s>b</s>"
    writer = Generator(model, codec, LINES, GREEDY)
    assert writer.reader.read(prompt) == [BOS, 4, EOS, 5, EOS]
    ((whole,),) = writer.generate(params, [prompt], 9)
    assert len(whole.ids) > 3
    assert whole.text == "ab" + codec.decode(whole.ids)
    assert "".join(writer.stream(params, prompt, 9)) == whole.text
    ((short,),) = writer.generate(params, [prompt], 9, stop=[whole.text[3:5]])
    assert short.text == whole.text[:3]


def test_a_prefix_that_ends_a_translation_is_refused():
    codec = chatting()
    translator = Translator(make(TINY)[0], TokenizerPair(codec, codec), GREEDY)
    begun = translator.sentences(["ab", "c"], ["", "d"])
    assert [sentence.prefix for sentence in begun] == [[], codec.encode(["d"], eos=False)[0]]
    with pytest.raises(UserError, match="line 8: its prefix contains the piece that ends a text"):
        translator.sentences(["ab", "c"], ["", "d</s>d"], first=7)


def test_incomplete_stop_strings_and_characters_are_held_back():
    assert cut("abcabc", ["ca", "bc"]) == "a"
    assert cut("abcabc", ["ab"], 1) == "abc"
    assert held_back("xab", ["abc", "b!"], 0) == 2
    assert held_back("xab", ["abc"], 2) == 0  # no stop string begins in the prompt
    assert held_back("x\ufffd", [], 0) == 1


def test_more_than_one_text_is_rejected():
    params = made(LINES)[1]
    with pytest.raises(UserError, match="only a single text can be streamed: use greedy"):
        list(generator(LINES, SAMPLES).stream(params, "ab"))
    beam = Generator(made(LINES)[0], CODEC, LINES, dataclasses.replace(GREEDY, beam_size=2))
    with pytest.raises(UserError, match=r"decoding\.beam_size=1"):
        list(beam.stream(params, "ab"))
