"""Generation settings of Hugging Face directories: each is imported, or named in a warning."""

import dataclasses

import pytest
from tiny import VARIANTS, make

from transformer_jax.base.errors import UserError
from transformer_jax.base.vocabulary import BOS, EOS, PAD
from transformer_jax.config import (
    CheckpointConfig,
    DataConfig,
    DecodingConfig,
    EvaluationConfig,
    Experiment,
    ObjectiveConfig,
    SideConfig,
    TokenizerConfig,
)
from transformer_jax.data.codecs.characters import train
from transformer_jax.decoding.text.generate import Generator
from transformer_jax.export.ctranslate2.search_options import options, unwritten
from transformer_jax.export.huggingface import generation, settings
from transformer_jax.export.huggingface.families import MARIAN

CODEC = train(TokenizerConfig(), ["abcdefgh"])
POWER = DecodingConfig(length_penalty="power", alpha=1.0)


@pytest.mark.parametrize(
    "changes",
    [
        {"beam_size": 3, "alpha": 0.5, "stop": "width"},
        {"beam_size": 2, "no_repeat_ngram": 3},
        {"beam_size": 1, "forbidden": ("b", "g")},
        {"search": "sample", "temperature": 0.5, "top_k": 9, "top_p": 0.9, "min_p": 0.1},
        {"beam_size": 1, "repetition_penalty": 1.2},
        {"search": "sample", "repetition_penalty": 0.9},
        {"search": "sample", "no_repeat_ngram": 2, "forbidden": ("a",)},
    ],
)
def test_written_settings_are_read_back(changes):
    decoding = dataclasses.replace(POWER, **changes)
    words = generation.write(Experiment(decoding=decoding), CODEC)
    if decoding.search == "sample":  # sampling has no beams
        decoding = dataclasses.replace(decoding, beam_size=POWER.beam_size)
    assert generation.read(words, CODEC) == decoding
    assert generation.ignored(words, encodes=True) == []


def test_top_k_defaults_to_50_when_sampling():
    """As in transformers."""
    assert generation.read({"do_sample": True}, CODEC).top_k == 50
    assert generation.read({"do_sample": True, "top_k": 0}, CODEC).top_k == 0


@pytest.mark.parametrize(
    ("words", "named"),
    [
        ({"repetition_penalty": 1.2, "min_length": 0, "num_beams": 4}, ["repetition_penalty"]),
        (
            {"forced_bos_token_id": 0, "num_beam_groups": 2},
            ["forced_bos_token_id", "num_beam_groups"],
        ),
        ({"eos_token_id": [2, 5], "bad_words_ids": [[3, 4]]}, ["bad_words_ids", "eos_token_id"]),
        ({"no_repeat_ngram_size": 3}, ["no_repeat_ngram_size"]),
        ({"do_sample": True, "num_beams": 4}, ["num_beams"]),
        ({"max_length": 20, "eos_token_id": [2], "min_p": None, "stop_strings": []}, []),
        ({"use_cache": True, "_from_model_config": True, "transformers_version": "5.0"}, []),
        ({"token_healing": True, "watermarking_config": None, "low_memory": True},
         ["token_healing"]),
        ({"a_later_setting": 0.3, "another": False}, ["a_later_setting"]),
    ],
)  # fmt: skip
def test_ignored_settings_are_named_with_their_values(words, named):
    found = [warning.partition(":")[0] for warning in generation.ignored(words, encodes=False)]
    assert sorted(found) == sorted(f"{name}={words[name]!r}" for name in named)


@pytest.mark.parametrize(
    ("words", "limit", "named"),
    [
        ({"max_length": 142}, None, ["max_length=142"]),
        ({"max_length": 512}, None, []),
        ({"max_length": 512, "max_new_tokens": 20}, None, ["max_new_tokens=20"]),
        ({"max_new_tokens": 64}, 64, []),
    ],
)
def test_an_output_that_may_be_longer_here_is_named(words, limit, named):
    """Lengths are relative to a source here, unless the model has few positions."""
    found = generation.ignored(words, encodes=True, limit=limit)
    assert [warning.partition(":")[0] for warning in found] == named


def test_a_temperature_of_zero_is_rejected():
    with pytest.raises(UserError, match=r"temperature=0\.0"):
        generation.read({"do_sample": True, "temperature": 0.0}, CODEC)


@pytest.mark.parametrize("document", ["line", "file", "joined"])
@pytest.mark.parametrize("kind", ["language_model", "text_prefix_lm"])
def test_every_export_knows_what_no_text_contains(kind, document):
    """Where documents are files, `generate` writes no EOS; nor do the other engines, if told."""
    objective = ObjectiveConfig(kind, window=8, document=document)
    decoding = dataclasses.replace(POWER, forbidden=("b",))
    run = Experiment(
        model=VARIANTS["decoder"], objective=objective, decoding=decoding,
        tgt=SideConfig("characters"), checkpoint=CheckpointConfig(best_by="loss"),
        evaluation=EvaluationConfig(bleu_sentences=0), data=DataConfig(max_length=8),
    )  # fmt: skip
    written = Generator(make(run.model, "causal")[0], CODEC, objective, decoding).search.forbidden
    assert (EOS in written) == (document == "file")
    never = sorted({PAD, BOS, *written})
    words = generation.write(run, CODEC)
    assert words["suppress_tokens"] == never
    assert {CODEC.piece_id(x) for x in generation.read(words, CODEC).forbidden} == {*written}
    given = options(decoding, two_sided=False, never=unwritten(CODEC, objective, decoding))
    assert sorted(CODEC.piece_id(x) for (x,) in given["suppress_sequences"]) == never


def test_what_is_lacking_is_named():
    """A beam search that stops later than theirs."""
    for stop, named in (("optimal", ["decoding.stop='optimal'"]), ("width", [])):
        run = Experiment(decoding=dataclasses.replace(POWER, stop=stop))
        found = [text.partition(":")[0] for text in settings.lacks(MARIAN, run)]
        assert [name for name in found if name.startswith("decoding")] == named
