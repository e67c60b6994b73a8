"""What codecs change in a text is said before training, with an example and the remedy."""

import dataclasses
from types import SimpleNamespace

import pytest
from tiny import RUN

from transformer_jax.config import (
    Experiment,
    ObjectiveConfig,
    SideConfig,
    SourceConfig,
    TokenizerConfig,
)
from transformer_jax.config.convert import door, override, parse
from transformer_jax.data.codecs.pair import TokenizerPair, train_pair
from transformer_jax.data.codecs.utf8 import Bytes
from transformer_jax.data.sources import Corpus
from transformer_jax.experiments import round_trip
from transformer_jax.experiments.round_trip import kept, notes_and_warnings

CHINESE = [f"我喜欢，第{number}个苹果！" for number in range(20)]
SIGNS = [f"½ m² № {number} ™" for number in range(20)]
SPACES = [f"ein  haus und {number} hunde" for number in range(20)]
NO_BREAK = [f"10\u00a0000 km und {number} m" for number in range(20)]
UPPER = [f"Ein Haus und {number} Hunde" for number in range(20)]
PUNCTUATED = [f"ein haus, und {number} {{hunde}}." for number in range(20)]


def made(codec: str, lines: list[str], **tokenizer) -> tuple[Experiment, TokenizerPair]:
    size = {"subwords": 40, "wordpiece": 60, "words": 12}.get(codec, TokenizerConfig.vocab_size)
    config = TokenizerConfig(**{"vocab_size": size} | tokenizer)
    experiment = dataclasses.replace(
        RUN, tokenizer=config, src=SourceConfig(codec), tgt=SideConfig(codec)
    )
    return experiment, train_pair(config, lines, lines, experiment.codecs)


def said(experiment, codecs, lines, held_out=()) -> tuple[list[str], list[str]]:
    train, validation = Corpus(lines, lines, ""), Corpus(held_out, held_out, "")
    return notes_and_warnings(experiment, codecs, train, validation)


@pytest.mark.parametrize(
    ("codec", "lines", "change", "remedy"),
    [
        ("subwords", CHINESE, "characters: '我喜欢，第0个苹果！' becomes '我喜欢,第0个苹果!'",
         {"tokenizer.normalization": "identity"}),
        ("subwords", SIGNS, "characters: ", {"tokenizer.normalization": "identity"}),
        ("subwords:nmt_nfkc_cf", UPPER, "case: 'Ein Haus und 0 Hunde' becomes 'ein haus",
         {"tokenizer.normalization": "identity"}),
        ("wordpiece", PUNCTUATED, "spaces: ", None),
        ("wordpiece:lower", UPPER, "case: ", {"tokenizer.lowercase": False}),
        ("words:lower", UPPER, "case: ", {"tokenizer.lowercase": False}),
    ],
)  # fmt: skip
def test_target_lines_that_a_codec_rewrites_are_counted(codec, lines, change, remedy):
    """And the remedy is a change of the config after which none are rewritten."""
    name, _, option = codec.partition(":")
    size = {"subwords": 40, "wordpiece": 45, "words": 28}[name]
    options = {"lower": {"lowercase": True}, "": {}}.get(option, {"normalization": option})
    experiment, codecs = made(name, lines, vocab_size=size, **options)
    notes, (line,) = said(experiment, codecs, lines, lines[:3])
    counted = f"tgt.codec='{name}': 20 of 20 training lines and 3 of 3 validation lines differ"
    assert line.startswith(counted)
    assert change in line
    assert "references stay as they are" in line
    assert notes == [
        "unknown pieces: 0.00% of the source side, 0.00% of the target side, in the training text"
    ]
    if remedy is None:
        assert "choose 'subwords' or 'characters'" in line
        return
    config = door(experiment)
    for field, value in remedy.items():
        assert f"--config.{field}={value}" in line
        override(config, field, str(value))
    experiment = parse(config)
    codecs = train_pair(experiment.tokenizer, lines, lines, experiment.codecs)
    assert said(experiment, codecs, lines)[1] == []


@pytest.mark.parametrize("codec", ["subwords", "words"])
@pytest.mark.parametrize("lines", [SPACES, NO_BREAK])
def test_runs_of_spaces_are_mentioned_only(codec, lines):
    """Scores see the same text; words keep no-break spaces."""
    size = {"subwords": 40, "words": 28}[codec]
    experiment, codecs = made(codec, lines, vocab_size=size)
    notes, warnings = said(experiment, codecs, lines)
    assert warnings == []
    changed = notes[1:]
    if codec == "words" and lines is NO_BREAK:
        assert changed == []
    else:
        (line,) = changed
        assert line.startswith(f"tgt.codec='{codec}': 20 of 20 training lines differ once encoded")
        assert line.endswith("which scores ignore")


@pytest.mark.parametrize("codec", ["characters", "bytes"])
@pytest.mark.parametrize("lines", [CHINESE, SIGNS, SPACES, NO_BREAK, UPPER])
def test_codecs_that_keep_every_text_have_nothing_to_say(codec, lines):
    experiment, codecs = made(codec, lines)
    notes, warnings = said(experiment, codecs, lines, lines)
    assert (len(notes), warnings) == (1, [])


@pytest.mark.parametrize(
    ("codec", "remedy"),
    [("subwords", "set --config.tokenizer.byte_fallback=True"),
     ("words", "raise tokenizer.vocab_size=12, or choose 'subwords'"),
     ("wordpiece", "choose 'subwords' or 'characters'")],
)  # fmt: skip
def test_unknown_pieces_are_counted(codec, remedy):
    """Above 1 % with a warning, which says for each codec what to do."""
    experiment, codecs = made(codec, UPPER)
    lines = ["Ein Haus"] * 99 + ["Ж Haus"]
    ids = [x for row in codecs.src.encode(lines, eos=False) for x in row]
    share = ids.count(codecs.src.special["unk"]) / len(ids)
    assert 0 < share < 0.01
    (note, *_), warnings = said(experiment, codecs, lines)
    assert note.startswith(f"unknown pieces: {share:.2%} of the source side, {share:.2%} of")
    assert not any("unknown pieces" in line for line in warnings)
    notes, warnings = said(experiment, codecs, ["Ein Ж Haus"] * 9)
    assert not any("unknown pieces" in line for line in notes)
    (line,) = (line for line in warnings if line.startswith("unknown pieces: "))
    assert line.endswith(remedy)
    (line,) = (line for line in warnings if "in pieces that are unknown: 'Ein Ж Haus'" in line)
    assert line.endswith(remedy)


def test_what_only_validation_has_is_found_too():
    """Characters are those of the training text."""
    experiment, codecs = made("characters", UPPER)
    _, (line,) = said(experiment, codecs, UPPER, ["Ein Ж", "Ein Haus"])
    assert "0 of 20 training lines and 1 of 2 validation lines" in line
    assert "'Ein Ж' becomes 'Ein ⁇'" in line


@pytest.mark.parametrize("count", [10, 30_000])
def test_the_cost_is_bounded(monkeypatch, count):
    """However many lines there are, and however long they are; a cut line is no changed one."""
    lines = ["ein haus und " * 50] * count
    monkeypatch.setattr(round_trip, "_MOST_CHARACTERS", 20_000)
    monkeypatch.setattr(round_trip, "_MOST_LINES", 100)
    seen = []
    encode = Bytes.encode
    monkeypatch.setattr(Bytes, "encode", lambda self, texts, **x: (
        seen.extend(texts), encode(self, texts, **x))[1])  # fmt: skip
    found = kept(Bytes(), lines)
    assert (found.lines, found.changed) == (min(count, 100), {})
    assert 5000 < sum(map(len, seen)) <= 20_000
    assert all(text.endswith(("haus", "ein", "und", " ")) for text in seen)


@pytest.mark.parametrize("lines", [CHINESE, SPACES])
@pytest.mark.parametrize("kind", ["language_model", "masked_lm"])
def test_language_models_lose_bits_per_character(kind, lines):
    """Even by spaces. Models that write no text are not said to rewrite any."""
    experiment, codecs = made("subwords", lines)
    one_sided = SimpleNamespace(
        objective=ObjectiveConfig(kind, window=16), tokenizer=experiment.tokenizer,
        tgt=experiment.tgt, codecs=experiment.codecs,
    )  # fmt: skip
    train, held_out = Corpus((), lines, ""), Corpus((), lines, "")
    notes, warnings = notes_and_warnings(one_sided, codecs, train, held_out)  # type: ignore[arg-type]
    assert notes == ["unknown pieces: 0.00% of the target side, in the training text"]
    if kind == "masked_lm":
        assert warnings == []
    else:
        assert "bits per character and per byte are left out; " in warnings[0]
        assert "references" not in warnings[0]
