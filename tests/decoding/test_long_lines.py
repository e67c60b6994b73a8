"""Lines that are too long are translated in parts, and nothing is lost."""

import dataclasses
import functools
import itertools
import logging

import pytest
from decoding.lines import BEAM, GREEDY, LINES, assert_same, parts
from hypothesis import given
from hypothesis import strategies as st
from tiny import MODEL, random_params

from transformer_jax.base.vocabulary import EOS
from transformer_jax.decoding.text import long_lines
from transformer_jax.decoding.text.long_lines import alike, split, words_before
from transformer_jax.decoding.text.translate import Translator
from transformer_jax.decoding.text.translation import Translation, join
from transformer_jax.models.build import build

LONGEST = 12
LONG = " ".join(LINES * 2)
AMONG_OTHERS = ["a dog", LONG, "", "a man"]


def lengths(texts) -> list[int]:
    return list(map(len, texts))


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("short", ["short"]),
        ("One two. Three four. Five!", ["One two.", "Three four.", "Five!"]),
        ('"One two." Three four.', ['"One two."', "Three four."]),
        ("one two three four", ["one two", "three four"]),
        ("onetwothreefour", ["onetwot", "hreefour"]),
        ("一二三四。五六七八九十百千", ["一二三四。", "五六七八九十百千"]),
        ("3.14159265 is pi", ["3.14159265", "is pi"]),
        ("", [""]),
    ],
)
def test_where_lines_are_cut(text, found):
    """At sentence ends, else at spaces, else anywhere; nearest to the middle."""
    assert split(text, lengths, 11) == found


@given(st.text(), st.integers(1, 9))
def test_splitting_loses_no_text(text, longest):
    """All characters but spaces are kept, in order, in parts that fit."""
    found = split(text, lengths, longest)
    assert "".join("".join(found).split()) == "".join(text.split())
    assert all(len(part) <= longest for part in found)
    assert all(found) or not text.strip()


def by_definition(text: str, longest: int) -> list[str]:
    """Return the parts of a text, cutting each one separately."""
    text = text.strip()
    if len(text) < 2 or len(text) <= longest:
        return [text]
    cut = middle = len(text) // 2
    for pattern in long_lines._CUTS:
        ends = [found.end() for found in pattern.finditer(text) if found.end() < len(text)]
        if ends:
            cut = min(ends, key=lambda end: abs(end - middle))
            break
    return by_definition(text[:cut], longest) + by_definition(text[cut:], longest)


@given(st.text('ab .?。”"\n\x1f', max_size=200), st.integers(1, 9))
def test_cuts_match_their_definition(text, longest):
    assert split(text, lengths, longest) == by_definition(text, longest)


def test_splitting_takes_linear_time():
    """Each character is counted a few times and in few calls, however long the line."""
    for size in (10_000, 80_000):
        counted = []

        def count(texts, counted=counted):
            counted.append(sum(map(len, texts)))
            return [len(text) // 4 for text in texts]

        text = "two dogs. " * (size // 10)
        assert len(split(text, count, 20)) >= size / 100
        assert sum(counted) < 8 * size
        assert len(counted) < 40


def test_hypotheses_of_equal_rank_go_together():
    assert alike([["a", "b"], ["c"]]) == [["a", "c"], ["b", "c"]]


def test_joined_translations():
    """Texts and pieces are concatenated, EOS last; scores add up; word numbers continue."""
    one = Translation("a b", [5, 6, EOS], -1.0, [(0, 0), (1, 1)])
    two = Translation("", [EOS], -0.5, [])
    three = Translation("c", [7, EOS], -2.0, [(0, 0)])
    joined = join([one, two, three], [0, 2, 3])
    assert joined == Translation("a b c", [5, 6, 7, EOS], -3.5, [(0, 0), (1, 1), (3, 2)])
    cut = join([one, three._replace(ids=[7], alignments=None)], [0, 2])
    assert cut.ids == [5, 6, 7]
    assert join([one._replace(alignments=None)] * 2, [0, 2]).alignments is None


@pytest.mark.parametrize(
    ("one", "other", "joined"),
    [
        ("他来了。", "我走了。", "他来了。我走了。"), ("行きました", "東京", "行きました東京"),
        ("使用 GPT。", "OK", "使用 GPT。OK"), ("It works.", "Yes.", "It works. Yes."),
        ("그는 갔다.", "나도.", "그는 갔다. 나도."), ("ไปแล้ว", "มาแล้ว", "ไปแล้ว มาแล้ว"),
        ("", "a", "a"), ("a", "", "a"),
    ],
)  # fmt: skip
def test_sentences_are_joined_as_their_script_joins_them(one, other, joined):
    """And words of the whole are counted: nothing between two parts can make one word of two."""
    parts = [Translation(text, [], 0.0, [(0, 0)] if text else []) for text in (one, other)]
    found = join(parts, [0, 1])
    assert found.text == joined
    assert {target for _, target in found.alignments or ()} == {
        len(joined[: joined.index(text) + 1].split()) - 1 for text in (one, other) if text
    }


@given(st.text("ab .。", max_size=40), st.lists(st.integers(0, 40), max_size=4))
def test_words_before_a_part_are_those_of_the_text(text, cuts):
    ends = [0, *sorted(cuts), len(text)]
    parts = [text[a:b].strip() for a, b in itertools.pairwise(ends)]
    found = words_before(text, parts, str)
    here = 0
    for part, before in zip(parts, found, strict=True):
        if part:
            here = text.index(part, here)
            assert before == len(text[: here + 1].split()) - 1
            here += len(part)


@functools.cache
def model_of_length(longest: int):
    """Return a model with `longest` positions, and its parameters."""
    _, _, tokenizers = parts()
    shape = dataclasses.replace(MODEL, positions="learned", max_positions=longest)
    model = build(shape, tokenizers.src.size, tokenizers.tgt.size)
    return model, random_params(model)


def hypotheses(lines, config=BEAM, longest=LONGEST, n_best=2, **options):
    """Return two hypotheses per line: another number would need other programs."""
    model, params = model_of_length(longest)
    return Translator(model, parts()[2], config, n_best).hypotheses(params, lines, **options)


@pytest.mark.thorough
def test_a_long_line_is_the_sum_of_its_parts(caplog):
    """Each part is translated as if it were alone; the warning names the line."""
    tokenizers = parts()[2]

    pieces = split(LONG, lambda texts: list(map(len, tokenizers.src.encode(texts))), LONGEST)
    assert len(pieces) > 3
    # As many as the parts of all lines, so that the programs are the same.
    alone = hypotheses([*pieces, *AMONG_OTHERS[::3]], align=True)[: len(pieces)]
    with caplog.at_level(logging.WARNING, "transformer_jax"):
        found = hypotheses(AMONG_OTHERS, align=True, first=11)
    (record,) = caplog.records
    assert record.getMessage().startswith("line 12: ")
    assert record.getMessage().endswith(f" {LONGEST} allowed: translated in {len(pieces)} parts")
    ends = [*itertools.accumulate(len(piece.split()) for piece in pieces)]
    expected = [join(items, [0, *ends[:-1]]) for items in alike(alone)]
    assert_same(found[1], expected)
    assert [x.alignments for x in found[1]] == [x.alignments for x in expected]
    assert found[2] == [Translation("", [], 0.0, [])]
    assert [len(items) for items in found] == [2, 2, 1, 2]


def test_progress_counts_each_line_once():
    """Empty lines are not counted, and others once all of their parts are done."""
    seen: list[int] = []

    def watch(lines):
        for line in lines:
            seen.append(line)
            yield line

    hypotheses(AMONG_OTHERS, progress=watch)
    assert sorted(seen) == [0, 1, 3]


def test_an_unsplittable_part_is_truncated():
    """What cannot be split is translated as far as it fits."""
    (found,) = hypotheses(["a dog runs"], GREEDY, longest=2, n_best=1)
    assert found[0].ids


def test_a_long_line_is_truncated_on_request():
    """A model trained on truncated lines reads as many pieces as it can, and EOS."""
    model, _ = model_of_length(LONGEST)
    translator = Translator(model, parts()[2], BEAM, 2, cut=True)
    whole = parts()[2].src.encode(AMONG_OTHERS)
    assert len(whole[1]) > LONGEST
    expected = [ids if len(ids) <= LONGEST else [*ids[: LONGEST - 1], EOS] for ids in whole]
    found = translator.sentences(AMONG_OTHERS, None, 1)
    assert [part.ids for part in found] == [ids for ids in expected if len(ids) > 1]


def test_a_prefix_begins_only_the_first_part():
    tokenizers = parts()[2]
    (prefix,) = tokenizers.tgt.encode(["the"])
    found = hypotheses(AMONG_OTHERS, prefixes=["", "the", "", ""])[1]
    other = hypotheses(AMONG_OTHERS)[1]
    assert found[0].ids[: len(prefix) - 1] == prefix[:-1]
    ends = (items[0].ids[-5:] for items in (found, other))
    assert next(ends) == next(ends)
