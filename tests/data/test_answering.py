"""Extractive question answering: labelled positions, windows and batches; malformed data."""

import dataclasses

import numpy as np
import pytest

from transformer_jax.base.errors import UserError
from transformer_jax.base.vocabulary import BOS, EOS
from transformer_jax.config import DataConfig, ObjectiveConfig, TokenizerConfig
from transformer_jax.data import sources
from transformer_jax.data.batches.batch import one_per_row
from transformer_jax.data.batches.batching import PLANS, BatchSource, blank
from transformer_jax.data.codecs.pair import TokenizerPair, train_pair
from transformer_jax.data.objectives.answering import Answer
from transformer_jax.data.sources import Corpus
from transformer_jax.data.sources.questions import Asked, answers_of
from transformer_jax.data.store.token_store import TokenStore, open_store

ANSWER = Answer()
WORDS = ["red", "green", "house", "tree", "river", "hill", "bird"]
DATA = DataConfig(
    max_length=64, tokens_per_batch=64 * 8, num_buckets=3, rows_divisible_by=4, train=("part",),
    source_language="asked", target_language="answer",
)  # fmt: skip


@pytest.fixture(scope="module")
def stored(tmp_path_factory) -> tuple[Corpus, TokenizerPair, TokenStore]:
    """Return questions about texts of words and punctuation, and their store; pieces are bytes, so
    that any span can be decoded.
    """
    directory = tmp_path_factory.mktemp("asked")
    generator, asked, answers = np.random.default_rng(0), [], []
    for number in range(30):
        words = generator.choice(WORDS, generator.integers(3, 9)).tolist()
        context = ", ".join(words) + "!"
        first = int(generator.integers(len(words)))
        last = min(first + int(generator.integers(2)), len(words) - 1)
        answer = ", ".join(words[first : last + 1])
        begin = len("".join(f"{word}, " for word in words[:first]))
        asked.append(f"what {number}?\t{context}")
        answers.append(f"{begin}\t{answer}")
    for ending, lines in (("asked", asked), ("answer", answers)):
        (directory / f"part.{ending}").write_text("".join(f"{line}\n" for line in lines))
    config = ObjectiveConfig("answer")
    data = dataclasses.replace(DATA, directory=str(directory))
    corpus = sources.load(data, "train", config)
    pair = train_pair(TokenizerConfig(joint=False), corpus.src, corpus.tgt, ("bytes", "spans"))
    return corpus, pair, open_store(corpus, pair, directory / "cache", frame=ANSWER.frame(config))


def read(batch, pair) -> list[tuple[str, str, str]]:
    """Return (question, context, labelled span) of each segment."""
    labels, _ = batch.targets["span"]
    found = []
    for row in range(len(labels)):
        for segment in range(1, int(batch.src.seg[row].max(initial=0)) + 1):
            first, last = labels[row][batch.tgt.seg[row] == segment]
            at = batch.src.seg[row] == segment
            ids, kind = batch.src.inputs[row, at], batch.src.kind[row, at]
            assert batch.src.pos[row, at].tolist() == list(range(at.sum()))
            assert (ids[0], ids[-1], kind[0], kind[-1]) == (BOS, EOS, 0, 1)
            assert at[first]
            assert at[last]
            span = batch.src.inputs[row, first : last + 1]
            found.append(tuple(pair.src.decode(x[x != EOS])
                               for x in (ids[kind == 0], ids[kind == 1], span)))  # fmt: skip
            assert (batch.src.pos[row, first] == 0) == (span.tolist() == [BOS])
    return found


def whole(store: TokenStore, window: int):
    items = ANSWER.items(store, ObjectiveConfig("answer", window=window))
    longest = int(items.lengths.src.max())
    assert longest <= window
    place = one_per_row(np.arange(len(items)))
    return items, ANSWER.examples(items, place, len(items), longest, 2)


def test_labels_point_at_the_answer(stored):
    corpus, pair, store = stored
    _, batch = whole(store, 256)
    for line, target, (question, context, span) in zip(
        corpus.src, corpus.tgt, read(batch, pair), strict=True
    ):
        assert f"{question}\t{context}" == line
        assert span.strip() == answers_of(target.partition("\t")[2])[0]


def test_long_contexts_are_split_into_windows(stored):
    """Contexts are read whole and once; an answer is in one window, or in none if it is split."""
    corpus, pair, store = stored
    items, batch = whole(store, 40)
    assert len(items) > len(corpus)
    found = read(batch, pair)
    for number, line in enumerate(corpus.src):
        mine = [x for x, whose in zip(found, items.line, strict=True) if whose == number]
        assert "".join(context for _, context, _ in mine) == line.partition("\t")[2]
        answer = answers_of(corpus.tgt[number].partition("\t")[2])[0]
        spans = [span.strip() for _, _, span in mine if span]
        assert spans in ([answer], [])
        assert spans or ", " in answer


@pytest.mark.parametrize("plan", PLANS)
def test_batches_contain_the_same_examples(stored, plan):
    _, pair, store = stored
    items, batch = whole(store, 40)
    made = PLANS[plan](items, ANSWER.select(items, DATA).pairs, DATA, 5)
    source, found = BatchSource(items, made, ANSWER), []
    for index in range(len(made)):
        shape, one = made.batch(index)[0], source[index]
        assert one.src.seg.shape == (shape.rows, shape.src_length)
        assert one.tgt.seg.shape == (shape.rows, shape.tgt_length)
        np.testing.assert_array_equal(one.targets["span"].weight, one.tgt.seg > 0)
        found += read(one, pair)
        assert blank(ANSWER, shape).targets["span"].labels.shape == one.tgt.seg.shape
    assert sorted(found) == sorted(read(batch, pair))
    most = max(int(made.batch(i)[1].segment.max()) for i in range(len(made)))
    assert (most > 1) == (plan == "pack")
    assert max(shape.tgt_length for shape in made.shapes) == 2 * most


def test_units_are_words_and_punctuation():
    asked = Asked.read("who?\tIt's 3.5 km, (he said).")
    assert asked.parts() == ["who?", "It", "'", "s", " 3", ".", "5", " km", ",", " (", "he",
                             " said", ")", "."]  # fmt: skip
    assert asked.place(5, 8) == (3, 5)
    assert asked.place(6, 11) == (4, 6)


@pytest.mark.parametrize(
    ("source", "target", "message"),
    [
        ("who?\tA tree.", "2\thouse", r"part\.asked:1: the answer 'house' is not in the context "
                                      r"at character 2, which reads 'tree\.'"),
        ("who?\tA tree.", "3\ttree", r"the answer 'tree' is not .* which reads 'ree\.'"),
        ("who?\tA tree.", "tree", r"its answer 'tree' must be the number of characters"),
        ("who?\tA tree.", "2\ttree\t1", r"must be the number of characters"),
        ("who?\tA tree.", "0\t", r"the answer '' is not in the context"),
        ("who? A tree.", "2\ttree", r"must be a question, a TAB and a context"),
        ("\tA tree.", "2\ttree", r"must be a question, a TAB and a context"),
    ],
)  # fmt: skip
def test_malformed_questions_and_answers_are_rejected(source, target, message, tmp_path):
    (tmp_path / "part.asked").write_text(f"{source}\n")
    (tmp_path / "part.answer").write_text(f"{target}\n")
    data = dataclasses.replace(DATA, directory=str(tmp_path))
    with pytest.raises(UserError, match=message):
        sources.load(data, "train", ObjectiveConfig("answer"))
