"""What a teacher predicts, in files and in batches."""

import json
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from transformer_jax.base.errors import UserError
from transformer_jax.config import DataConfig, ObjectiveConfig
from transformer_jax.config.choices.objectives import OBJECTIVES as RECORDS
from transformer_jax.config.choices.record import with_
from transformer_jax.data.batches.batch import Ragged, one_per_row
from transformer_jax.data.batches.batching import PLANS, BatchSource, Shape, blank
from transformer_jax.data.codecs.codec import SPECIAL
from transformer_jax.data.objectives import OBJECTIVES
from transformer_jax.data.objectives.taught import Taught
from transformer_jax.data.store.teacher_files import (
    Header,
    Predictions,
    TeacherStore,
    digest_of,
    write,
)
from transformer_jax.data.store.token_store import TokenStore

DATA = DataConfig(max_length=24, tokens_per_batch=200, num_buckets=3, rows_divisible_by=4)
CODEC: Any = SimpleNamespace(size=3000, special={**SPECIAL, "mask": 4})
STEADY = with_(RECORDS, steady=True)
TOP_K, TEMPERATURES = 3, (1.0, 2.0)
HEADER = Header("digest", "runs/teacher, step 3", 50, TOP_K, TEMPERATURES)


def items_of(name: str) -> TokenStore:
    """Texts whose pieces count up, so that none occurs twice."""
    objective, config = OBJECTIVES[name], ObjectiveConfig(name, window=7)
    generator = np.random.default_rng(3)
    sides = []
    for first, lengths in zip((2000, 1000), generator.integers(2, 13, (2, 40)), strict=True):
        numbers = np.split(np.arange(first, first + lengths.sum()), np.cumsum(lengths)[:-1])
        if name == "chat" and first == 1000:
            numbers = [np.where(np.arange(len(x)) % 3 == 0, x, ~x) for x in numbers]
        sides.append(Ragged.from_lists([x.tolist() for x in numbers]))
    if RECORDS[name].one_sided:
        sides[0] = Ragged.from_lists([])
    return objective.items(TokenStore(*sides), config, CODEC)


def predictions(labels: np.ndarray) -> Predictions:
    """The likeliest piece is the label; all numbers are functions of it."""
    ids = labels[:, None] + np.arange(TOP_K)
    log_probs = -np.log(2 + ids.astype(np.float64))
    return Predictions(ids, log_probs, np.stack([log_probs[:, 0], log_probs[:, 1]], 1))


def rows_of(name: str, items: TokenStore) -> list[np.ndarray]:
    """The packed predictions of each item, by the labels of a batch with one item a row."""
    count, longest = len(items), int(max(side.max(initial=0) for side in items.lengths))
    batch = OBJECTIVES[name].examples(items, one_per_row(np.arange(count)), count, longest, longest)
    labels, weight = batch.targets["tokens"]
    return [predictions(labels[row][weight[row] > 0]).packed for row in range(count)]


def parts_of(rows, size: int = 7):
    """What `write` takes: blocks of items from a number on."""

    def parts(first: int):
        for begin in range(first, len(rows), size):
            yield Ragged.from_lists(rows[begin : begin + size])

    return parts


@pytest.mark.parametrize("plan", PLANS)
@pytest.mark.parametrize("name", STEADY)
def test_predictions_stand_where_their_pieces_are_predicted(name, plan, tmp_path):
    """In packed rows, behind prompts, in either process's share of the rows."""
    items = items_of(name)
    write(tmp_path / "taught", HEADER, parts_of(rows_of(name, items)))
    objective = Taught(OBJECTIVES[name], TeacherStore(tmp_path / "taught", "digest", 2.0))
    epoch = PLANS[plan](items, objective.select(items, DATA).pairs, DATA, 5)
    seen = 0
    for process in range(2):
        source = BatchSource(items, epoch, objective, process, 2)
        for number in range(len(epoch)):
            batch = source[number]
            labels, weight = batch.targets["tokens"]
            ids, log_probs = batch.teacher
            at = weight > 0
            np.testing.assert_array_equal(ids[at][:, 0], labels[at])
            assert not ids[~at].any()
            assert not log_probs[~at].any()
            np.testing.assert_allclose(np.exp(log_probs[at]).sum(-1), 1, rtol=1e-6)
            seen += int(at.sum())
    assert seen == sum(len(rows) for rows in rows_of(name, items))
    shape = Shape(4, 6 * (not RECORDS[name].one_sided), 6)
    abstract = blank(objective, shape).teacher
    assert [x.shape for x in abstract] == [(4, 6, TOP_K), (4, 6, TOP_K + 1)]
    assert [x.dtype for x in abstract] == [x.dtype for x in batch.teacher]


def test_the_temperature_is_applied_to_all_of_the_distribution(tmp_path):
    """Exactly, though most pieces are only known by their sum."""
    logits = np.random.default_rng(0).normal(size=(5, 20))
    logs = logits - np.logaddexp.reduce(logits, axis=1, keepdims=True)
    ids = np.argsort(-logs, axis=1)
    named, others = (np.take_along_axis(logs, x, 1) for x in (ids[:, :TOP_K], ids[:, TOP_K:]))
    rest = [np.logaddexp.reduce(others / t, axis=1) for t in TEMPERATURES]
    known = Predictions(ids[:, :TOP_K], named, np.stack(rest, 1))
    write(tmp_path / "taught", HEADER, parts_of([known.packed]))
    for temperature in TEMPERATURES:
        found, log_probs = TeacherStore(tmp_path / "taught", "digest", temperature).of(
            np.array([0])
        )
        soft = np.exp(logs / temperature)
        soft /= soft.sum(1, keepdims=True)
        wanted = np.take_along_axis(soft, ids, 1)
        np.testing.assert_array_equal(found, ids[:, :TOP_K])
        np.testing.assert_allclose(np.exp(log_probs[:, :-1]), wanted[:, :TOP_K], rtol=1e-6)
        np.testing.assert_allclose(np.exp(log_probs[:, -1]), wanted[:, TOP_K:].sum(1), rtol=1e-6)


def test_writing_goes_on_where_it_stopped(tmp_path):
    rows = [predictions(np.arange(i % 4)).packed for i in range(30)]
    firsts = []

    def stopping(first: int):
        firsts.append(first)
        for number, part in enumerate(parts_of(rows)(first)):
            if number == 2 and len(firsts) == 1:
                raise KeyboardInterrupt
            yield part

    with pytest.raises(KeyboardInterrupt):
        write(tmp_path / "parted", HEADER, stopping)
    assert not (tmp_path / "parted").exists()
    assert write(tmp_path / "parted", HEADER, stopping)
    assert write(tmp_path / "whole", HEADER, parts_of(rows))
    assert firsts == [0, 14]
    names = sorted(path.name for path in (tmp_path / "whole").iterdir())
    assert names == ["sums.json", "teacher.ids", "teacher.json", "teacher.offsets"]
    for name in names:
        assert (tmp_path / "whole" / name).read_bytes() == (tmp_path / "parted" / name).read_bytes()
    assert not write(tmp_path / "whole", HEADER, stopping)  # it is complete


def test_wrong_directories_are_refused(tmp_path):
    place = tmp_path / "taught"
    with pytest.raises(UserError, match=r"config\.data\.teacher=.*does not exist.*jax teach "):
        TeacherStore(place, "digest", 1.0)
    write(place, HEADER, parts_of([predictions(np.arange(4)).packed]))
    with pytest.raises(UserError, match="was written for other training data, another tokenizer"):
        TeacherStore(place, "another", 1.0)
    with pytest.raises(UserError, match=r"distillation_temperature=3: .*was written for 1, 2;"):
        TeacherStore(place, "digest", 3.0)
    other = Header("another", *list(vars(HEADER).values())[1:])
    with pytest.raises(UserError, match="has other predictions or is damaged"):
        write(place, other, parts_of([]))
    with open(place / "teacher.ids", "r+b") as file:
        file.write(b"x")
    with pytest.raises(UserError, match="is damaged"):
        TeacherStore(place, "digest", 1.0)
    (place / "teacher.json").write_text(json.dumps({"items": "digest"}))
    with pytest.raises(UserError, match="is damaged"):
        TeacherStore(place, "digest", 1.0)


def test_a_digest_is_that_of_the_items():
    identity, items = {"training_text": "a", "tokenizer": "b"}, items_of("language_model")
    digest = digest_of(identity, "language_model", items)
    assert digest == digest_of(dict(reversed(identity.items())), "language_model", items)
    shorter = TokenStore(items.src, items.tgt._replace(lengths=items.tgt.lengths - 1))
    others = [
        digest_of({**identity, "tokenizer": "c"}, "language_model", items),
        digest_of(identity, "chat", items), digest_of(identity, "language_model", shorter),
    ]  # fmt: skip
    assert len({digest, *others}) == 4


def test_an_objective_that_draws_is_refused(tmp_path):
    """As one of your own may."""
    items = items_of("language_model")
    write(tmp_path / "taught", HEADER, parts_of(rows_of("language_model", items)))
    teacher = TeacherStore(tmp_path / "taught", "digest", 1.0)
    drawn = Taught(OBJECTIVES["text_prefix_lm"], teacher)
    with pytest.raises(UserError, match="which must be the same in every epoch"):
        drawn.examples(items, one_per_row(np.arange(4)), 4, 0, 8)
