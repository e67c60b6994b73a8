"""Records of choices: each word has one, and each field somebody who reads it."""

import ast
import dataclasses
import importlib
import typing
from pathlib import Path
from typing import Any

import pytest

import transformer_jax
from transformer_jax.config import (
    DataConfig,
    DecodingConfig,
    Experiment,
    MixerKind,
    ModelConfig,
    ObjectiveConfig,
    OptimizerConfig,
    SideConfig,
    SourceConfig,
    TokenizerConfig,
)
from transformer_jax.config.choices import (
    architectures,
    codecs,
    kernels,
    layers,
    mixers,
    objectives,
    optimizers,
    parametrizations,
    positions,
    searches,
    sources,
    stems,
)
from transformer_jax.config.choices.record import readers
from transformer_jax.config.fields import declarations
from transformer_jax.config.registry import found_in
from transformer_jax.data import codecs as coding
from transformer_jax.data import objectives as of_data
from transformer_jax.data.sources import corpus as of_files
from transformer_jax.decoding.text import prompts, searching
from transformer_jax.evaluation import language
from transformer_jax.nn.mixers import kinds

# A table of records -> the section and the field that has its words, and those of its readers.
TABLES: dict[str, tuple[dict[str, Any], Any, tuple[Any, ...]]] = {
    "mixers": (mixers.MIXERS, MixerKind, (ModelConfig,)),
    "architectures": (architectures.ARCHITECTURES, (ModelConfig, "architecture"), (ModelConfig,)),
    "stems": (stems.STEMS, (ModelConfig, "stem"), (ModelConfig,)),
    "kernels": (kernels.KERNELS, (ModelConfig, "attention"), ()),
    "residuals": (layers.RESIDUALS, (ModelConfig, "residual"), ()),
    "feed_forwards": (
        layers.FEED_FORWARDS, (ModelConfig, "feed_forward_pattern"), (ModelConfig,)
    ),
    "multi_tokens": (layers.MULTI_TOKENS, (ModelConfig, "multi_token"), (ModelConfig,)),
    "parametrizations": (
        parametrizations.PARAMETRIZATIONS, (ModelConfig, "parametrization"), (ModelConfig,)
    ),
    "positions": (positions.POSITIONS, (ModelConfig, "positions"), ()),
    "relative_positions": (
        positions.RELATIVE_POSITIONS, (ModelConfig, "relative_positions"), (ModelConfig,)
    ),
    "rope_scalings": (positions.ROPE_SCALINGS, (ModelConfig, "rope_scaling"), (ModelConfig,)),
    "objectives": (objectives.OBJECTIVES, (ObjectiveConfig, "name"), (ObjectiveConfig,)),
    "codecs": (codecs.CODECS, (SideConfig, "codec"), (SourceConfig, TokenizerConfig)),
    "sources": (sources.SOURCES, (DataConfig, "source"), (DataConfig,)),
    "augmentations": (sources.AUGMENTATIONS, (DataConfig, "augment"), (DataConfig,)),
    "searches": (searches.SEARCHES, (DecodingConfig, "search"), (DecodingConfig,)),
    "optimizers": (optimizers.OPTIMIZERS, (OptimizerConfig, "algorithm"), (OptimizerConfig,)),
    "schedules": (optimizers.SCHEDULES, (OptimizerConfig, "schedule"), (OptimizerConfig,)),
}  # fmt: skip
SECTIONS = (
    ModelConfig,
    ObjectiveConfig,
    SourceConfig,
    TokenizerConfig,
    DataConfig,
    OptimizerConfig,
    DecodingConfig,
)


def words_of(place: Any) -> list[str]:
    """Return the words of a Literal, or of a field that has one or several."""
    hint = typing.get_type_hints(place[0])[place[1]] if isinstance(place, tuple) else place
    while typing.get_origin(hint) is tuple:
        hint = typing.get_args(hint)[0]
    return list(typing.get_args(hint))


def unowned(kinds_: typing.Iterable[type], records: dict[str, dict[str, Any]]) -> list[str]:
    """Return the fields that are declared for words of a table, none of which reads them."""
    found = []
    for kind in kinds_:
        for path, known in declarations(kind):
            fields = readers(records[known.of]) if known.of in records else {}
            tokenizing = [x for r in records.get(known.of, {}).values()
                          for x in getattr(r, "tokenizer", ())]  # fmt: skip
            if known.of and path not in (*fields, *tokenizing):
                found.append(path)
    return found


def undeclared(records: dict[str, dict[str, Any]], sections: dict[str, tuple]) -> list[str]:
    """Return the fields that words of a table read and no section declares for it."""
    found = []
    for table, words in records.items():
        declared = {path for kind in sections[table] for path, known in declarations(kind)
                    if known.of == table}  # fmt: skip
        found += [f"{table}: {name}" for name in readers(words) if name not in declared]
    return found


RECORDS = {name: records for name, (records, _, _) in TABLES.items()}
READERS = {name: sections for name, (_, _, sections) in TABLES.items()}


@pytest.mark.parametrize("name", TABLES)
def test_every_word_has_a_record(name):
    """In the order of the manual; a record without a word, and a word without one, is a mistake."""
    records, place, _ = TABLES[name]
    assert list(records) == words_of(place)


def test_every_mixer_has_its_mathematics():
    """A word of a module that has no record would be missing in the table of the manual."""
    assert kinds.found().keys() == mixers.MIXERS.keys()


def test_every_field_is_read():
    """A field that only the manual names has an effect on nothing."""
    read = set()
    for path in Path(transformer_jax.__file__).parent.rglob("*.py"):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        if path.name != "manual.py":
            read |= {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
            read |= {node.value for node in ast.walk(tree) if isinstance(node, ast.Constant)}
    assert not {path.rpartition(".")[2] for path, _ in declarations(Experiment)} - read


def test_every_codec_has_its_code():
    assert found_in(coding).keys() == codecs.CODECS.keys()


def test_every_objective_has_its_examples():
    assert found_in(of_data).keys() == objectives.OBJECTIVES.keys()


def test_every_search_has_its_algorithm():
    assert searching.FOUND.keys() == searches.SEARCHES.keys()


def comparisons(text: str, attribute: str, words: typing.Iterable[str]) -> list[str]:
    """Return what a module compares an attribute with, by name: any of these words."""
    words = {*words}
    return [
        ast.unparse(node)
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Compare)
        and any(getattr(x, "attr", None) == attribute for x in ast.walk(node))
        and any(getattr(x, "value", None) in words for x in ast.walk(node)
                if isinstance(x, ast.Constant))
    ]  # fmt: skip


# The attributes that hold a word -> its records.
ASKED: dict[str, dict[str, Any]] = {
    "search": searches.SEARCHES, "kind": objectives.OBJECTIVES, "kinds": objectives.OBJECTIVES,
}  # fmt: skip


@pytest.mark.parametrize("attribute", ASKED)
def test_nobody_but_records_knows_a_choice_by_its_word(attribute):
    """A branch on the word of a search or an objective belongs into its record, as a field."""
    words = ASKED[attribute]
    assert comparisons(f"x.{attribute} in {[*words]}", attribute, words)
    known = {
        str(path): found
        for path in Path(transformer_jax.__file__).parent.rglob("*.py")
        if (found := comparisons(path.read_text("utf-8"), attribute, words))
    }
    assert known == {}


def test_what_a_record_says_of_an_objective_has_its_code():
    """Each word of these fields is one of the table of those who read it, and each is used."""
    said = objectives.OBJECTIVES.values()
    assert {of.lines for of in said} - {None} == of_files.LINES.keys()
    assert {of.prompt for of in said} - {None} == prompts.PROMPTINGS.keys()
    assert {of.also for of in said} - {None} == language.ALSO.keys()
    for module in {of.evaluated for of in said}:
        assert callable(importlib.import_module(f"transformer_jax.evaluation.{module}").evaluate)


def test_a_search_of_one_hypothesis_is_greedy_and_nothing_competes():
    for fields, greedy, competes, draws, hypotheses in (
        (searches.GREEDY, True, False, False, 1),
        ({"beam_size": 3}, False, True, False, 3),
        (searches.samples(2), False, False, True, 2),
    ):
        config = DecodingConfig(**fields)
        assert (config.greedy, config.competes) == (greedy, competes)
        assert (config.draws, config.hypotheses) == (draws, hypotheses)


def test_every_field_of_a_choice_is_read_by_one_of_its_words():
    assert unowned(SECTIONS, RECORDS) == []
    assert undeclared(RECORDS, READERS) == []


def test_a_field_that_no_word_reads_is_noticed():
    without = {**RECORDS, "mixers": {
        word: dataclasses.replace(record, reads=()) for word, record in mixers.MIXERS.items()
    }}  # fmt: skip
    assert "latent_size" in unowned(SECTIONS, without)


def test_a_word_that_reads_an_undeclared_field_is_noticed():
    odd = dataclasses.replace(mixers.MIXERS["full"], reads=("kernel_size",))
    wrong = {**RECORDS, "mixers": {**mixers.MIXERS, "full": odd}}
    assert undeclared(wrong, READERS) == ["mixers: kernel_size"]
