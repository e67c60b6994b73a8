"""Multi-task training: a batch is what each objective makes of its own items."""

import dataclasses
from collections import Counter
from types import SimpleNamespace
from typing import Any

import jax
import numpy as np
import pytest

from transformer_jax.base.errors import UserError
from transformer_jax.config import DataConfig, ObjectiveConfig
from transformer_jax.config.choices.objectives import OBJECTIVES as KNOWN
from transformer_jax.data.batches.batch import Batch, Ragged, one_per_row
from transformer_jax.data.batches.batching import PLANS, BatchSource, blank
from transformer_jax.data.batches.blend import Blend, Several
from transformer_jax.data.batches.mixing import mixture_of
from transformer_jax.data.codecs.codec import SPECIAL
from transformer_jax.data.objectives import OBJECTIVES
from transformer_jax.data.random import Draw
from transformer_jax.data.store.token_store import TokenStore

DATA = DataConfig(
    train=("one", "other"), max_length=24, tokens_per_batch=200, num_buckets=3, rows_divisible_by=4
)
SEED = 5
CODEC: Any = SimpleNamespace(
    size=3000, special={**SPECIAL, "mask": 4}, decode=lambda ids: "." if ids[0] % 5 == 0 else "x",
    piece_id=lambda piece: 4 if piece == "<mask>" else 10 + int(piece[10:-1]),
)  # fmt: skip
PAIRS = [(name, other) for name, known in KNOWN.items() for other in known.beside]


def texts(first: int, count: int) -> Ragged:
    """Return texts in which no piece occurs twice."""
    lengths = np.random.default_rng(first).integers(3, 13, count)
    pieces = np.arange(first, first + lengths.sum())
    return Ragged.from_lists([x.tolist() for x in np.split(pieces, np.cumsum(lengths)[:-1])])


@pytest.fixture(params=PAIRS, ids="-".join)
def blended(request) -> tuple[Several, Blend]:
    """Return an objective combined with another, and 40 and 25 texts as their items."""
    name, other = request.param
    config = ObjectiveConfig(name, parts=(f"other={other}",))
    members, stores = [], []
    for number, one in enumerate((name, other)):
        count, first = (40, 25)[number], 1000 * (1 + number)
        sided = OBJECTIVES[one].predicts == ("tokens",) and not config.alone(one).one_sided
        src = texts(first + 5000, count) if sided else Ragged.from_lists([])
        stores.append(TokenStore(src, texts(first, count)))
        members.append((OBJECTIVES[one], config.alone(one)))
    objective = Several(members)
    blend = objective.items(Blend.of(stores), config, CODEC)
    assert isinstance(blend, Blend)
    return objective, blend


@pytest.fixture(params=PLANS)
def source(request, blended) -> BatchSource:
    objective, items = blended
    plan = PLANS[request.param](items, objective.select(items, DATA).pairs, DATA, SEED)
    return BatchSource(items, plan, objective)


def segments(batch: Batch) -> list[tuple[Any, ...]]:
    """Return the content of each segment of both sides, as plain numbers."""
    found = []
    seg = batch.tgt.seg
    for row in range(len(seg)):
        for segment in range(1, int(seg[row].max(initial=0)) + 1):
            at = seg[row] == segment
            read = []
            for side in (batch.src, batch.tgt):
                here = None if side is None else side.seg[row] == segment
                fields = [] if side is None else [side.inputs, side.pos, side.rank]
                read += [None if x is None else tuple(x[row, here].tolist()) for x in fields]
            read += [tuple(x[row, at].tolist()) for x in batch.targets["tokens"]]
            found.append(tuple(read))
    return found


def alone(blended, number: int, order: str) -> list[tuple[Any, ...]]:
    """Return the segments that one of the objectives alone makes of all its items."""
    objective, items = blended
    one, _ = objective._members[number]
    store = items.members[number]
    pairs = one.select(store, DATA).pairs
    src, tgt = (int(side.max(initial=0)) for side in store.lengths)
    batch = one.examples(store, one_per_row(pairs), len(pairs), src, tgt, Draw(SEED, 0))
    if order == "ranked" and batch.tgt.rank is None:
        batch = batch._replace(tgt=batch.tgt._replace(rank=batch.tgt.pos))
    return segments(batch)


def test_an_epoch_contains_what_each_objective_makes_alone(blended, source):
    """Every item appears once, with the same noise as alone, whatever else is in its batch."""
    made = Counter(x for i in range(len(source._plan)) for x in segments(source[i]))
    order = blended[0].order
    assert made == Counter(alone(blended, 0, order) + alone(blended, 1, order))
    assert sum(made.values()) > 60


def test_positions_outside_segments_are_zero(blended, source):
    for i in range(len(source._plan)):
        batch = source[i]
        for side in (batch.src, batch.tgt):
            if side is not None:
                fields = [x for x in side if x is not None]
                assert all((x[side.seg == 0] == 0).all() for x in fields)
        labels, weight = batch.targets["tokens"]
        assert (labels[weight == 0] == 0).all()
        assert (weight[batch.tgt.seg == 0] == 0).all()


def test_batches_have_the_structure_of_the_first_objective(blended, source):
    """So the same programs read them, and empty batches suffice to compile the programs."""
    first = blended[0]._members[0][0]
    for i in range(len(source._plan)):
        shape, _ = source._plan.batch(i)
        expected, found = blank(first, shape), source[i]
        assert jax.tree.structure(found) == jax.tree.structure(expected)
        for mine, other in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
            assert (mine.shape, mine.dtype) == (other.shape, other.dtype)


def test_processes_read_their_rows_of_the_same_batches(blended, source):
    objective, items = blended
    shares = [BatchSource(items, source._plan, objective, index, 2) for index in range(2)]
    for i in range(len(source._plan)):
        halves = jax.tree.map(lambda *x: np.concatenate(x), *(share[i] for share in shares))
        jax.tree.map(np.testing.assert_array_equal, halves, source[i])


def test_weights_of_parts_set_the_shares_of_the_objectives(blended):
    objective, items = blended
    config = dataclasses.replace(DATA, weights=("one=1", "other=3"))
    part = np.repeat([0, 1], [len(x) for x in items.members])
    pairs = objective.select(items, config).pairs
    plan = PLANS["bucket"](items, pairs, config, SEED, mixture_of(config, part, pairs))
    drawn = [pair for i in range(len(plan)) for pair in plan.batch(i)[1].pairs.tolist()]
    assert abs(part[drawn].mean() - 0.75) < 0.03


def test_a_language_model_combined_with_a_prefix_lm_has_ranks():
    """Its pieces see those before them, also in batches whose attention order is given by ranks."""
    members = [(OBJECTIVES[x], ObjectiveConfig(x)) for x in ("prefix_lm", "language_model")]
    objective = Several(members)
    blend = objective.items(
        Blend.of([
            TokenStore(*(Ragged.from_lists([]),) * 2),
            TokenStore(Ragged.from_lists([]), Ragged.from_lists([[1, 7, 8, 9]])),
        ]), ObjectiveConfig("prefix_lm"), CODEC,
    )  # fmt: skip
    batch = objective.examples(blend, one_per_row(np.array([0])), 1, 0, 4)
    assert batch.tgt.rank.tolist() == [[0, 1, 2, 0]]
    assert batch.targets["tokens"].labels.tolist() == [[7, 8, 9, 0]]


@pytest.mark.parametrize(
    ("name", "parts", "said"),
    [
        ("translate", ("one",), "must be PART=NAME"),
        ("translate", ("one=language_model",), "'span_corruption' or 'denoising'"),
        ("translate", ("one=denoising", "one=span_corruption"), "once for each part"),
        ("masked_lm", ("one=denoising",), "cannot be combined with another"),
    ],
)
def test_incompatible_objectives_are_rejected(name, parts, said):
    with pytest.raises(UserError, match=said):
        ObjectiveConfig(name, parts=parts)


def test_noise_settings_apply_to_the_parts():
    """Without parts they have no effect; an objective's own config omits fields it ignores."""
    with pytest.raises(UserError, match=r"noise_density=0\.5: has no effect"):
        ObjectiveConfig("translate", noise_density=0.5).check_reads()
    parts = ("one=span_corruption", "two=denoising")
    both = ObjectiveConfig("translate", noise_density=0.5, window=9, parts=parts)
    assert both.alone("translate") == ObjectiveConfig("translate")
    spans = both.alone("span_corruption")
    assert spans == ObjectiveConfig("span_corruption", noise_density=0.5, window=9)
    assert both.alone("denoising") == ObjectiveConfig("denoising", window=9)
    assert both.symbols[0] == "<extra_id_0>"
    assert both.symbols[-1] == "<mask>"
    assert both.of_parts(("a", "two", "one", "b")) == {
        "translate": ("a", "b"), "denoising": ("two",), "span_corruption": ("one",)
    }  # fmt: skip
