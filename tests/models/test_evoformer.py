"""Laws of distances that the Evoformer completes, and of the chains that they are from."""

import dataclasses
from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tiny import random_params

from transformer_jax.base.errors import UserError
from transformer_jax.config import DataConfig, ModelConfig, ObjectiveConfig, SourceConfig
from transformer_jax.data.batches.batch import Batch, Ragged, Side, one_per_row
from transformer_jax.data.codecs import coordinates
from transformer_jax.data.objectives import objective_named
from transformer_jax.data.objectives.distances import UNKNOWN, distances_of
from transformer_jax.data.random import VALIDATION, Draw
from transformer_jax.data.sources import chains
from transformer_jax.data.store.token_store import TokenStore
from transformer_jax.evaluation import distances as scores
from transformer_jax.models.build import build
from transformer_jax.models.model import Keys
from transformer_jax.nn.distributions import Bins

CONFIG = ModelConfig(
    architecture="evoformer", stem="pairs", positions="none", d_model=8, num_heads=2,
    num_encoder_layers=1, pair_width=8, pair_heads=2, outer_width=3, recycling=2, distance_bins=6,
    nearest_distance=0.5, farthest_distance=6.5, dropout_rate=0.0,
)  # fmt: skip
OBJECTIVE = ObjectiveConfig("distances", known_share=0.4)
MADE = DataConfig(source="chains", num_examples=(6, 3, 3), example_lengths=(5, 9))


@cache
def model():
    return build(CONFIG, 3, 3, predicts=("distances",))


@cache
def params():
    return random_params(model())


def made(split="train"):
    return chains.load(MADE, split)[0]


def batch_of(values, length=None, draw=VALIDATION) -> Batch:
    codec = coordinates.train(SourceConfig(), values)
    target = Ragged.from_lists(codec.encode(values))._replace(read=codec.reader())
    nothing = Ragged.from_lists([[]] * len(values))
    task = objective_named("distances")
    items = task.items(TokenStore(nothing, target), OBJECTIVE)
    placement = one_per_row(np.arange(len(values)))
    return task.examples(items, placement, len(values), length or 9, 0, draw)


@jax.jit
def outputs(params, batch) -> jax.Array:
    return model().outputs(params, batch, None)["distances"].logits()


def said(batch) -> np.ndarray:
    size = batch.src.seg.shape[1]
    return np.asarray(outputs(params(), batch)).reshape(-1, size, size, CONFIG.distance_bins)


def test_chains_have_bonds_of_one_avoid_themselves_and_differ_by_split():
    for chain in made():
        apart = distances_of(chain.astype(np.float64))
        assert 5 <= len(chain) <= 9
        np.testing.assert_allclose(np.diagonal(apart, 1), 1, atol=1e-5)
        assert apart[np.triu_indices(len(chain), 2)].min() >= 1 - 1e-5
    assert all(np.array_equal(*both) for both in zip(made(), made(), strict=True))
    assert not any(
        one.shape == other.shape and np.allclose(one, other)
        for one in made() for other in made("test")
    )  # fmt: skip


def test_predictions_are_the_same_both_ways_and_do_not_depend_on_padding():
    values = made()
    logits = said(batch_of(values))
    np.testing.assert_allclose(logits, logits.swapaxes(1, 2), atol=1e-5)
    assert np.std(logits) > 0.1
    row = int(np.argmin([*map(len, values)]))
    size = len(values[row])
    known = batch_of(values).src.inputs[row : row + 1, :size, :size]
    side = Side(known, np.arange(size)[None], np.ones((1, size), np.int32))
    alone = said(Batch(side, None, {}))
    np.testing.assert_allclose(alone[0], logits[row, :size, :size], atol=2e-4)


def test_a_known_distance_moves_predictions_of_other_pairs():
    batch = batch_of(made())
    src = batch.src
    other = src.inputs.copy()
    other[0, 0, 3] = other[0, 3, 0] = 4.0
    moved = np.abs(said(batch._replace(src=src._replace(inputs=other))) - said(batch))
    assert moved[0, 1, 2].max() > 1e-6
    assert moved[1:].max() == 0


def test_the_known_are_drawn_by_item_and_epoch_alike_both_ways_and_whatever_the_padding():
    values = made()
    one, wide, other = batch_of(values), batch_of(values, 12), batch_of(values, draw=Draw(1, 1))
    known = one.src.inputs
    assert np.array_equal(known, known.swapaxes(1, 2))
    assert np.array_equal(known, wide.src.inputs[:, :9, :9])
    assert (wide.src.inputs[:, 9:] == UNKNOWN).all()
    assert not np.array_equal(known, other.src.inputs)
    true = one.targets["distances"].labels.reshape(known.shape)
    read = known != UNKNOWN
    weight = one.targets["distances"].weight.reshape(known.shape)
    assert (weight[read] == 1).all()
    assert not weight[:, range(9), range(9)].any()
    assert 0.25 < read.sum() / weight.sum() < 0.55
    off = (known - true)[read]
    assert 0.05 < off.std() < 0.2


@pytest.mark.thorough
def test_training_draws_the_number_of_passes_and_only_the_last_has_a_gradient():
    batch = jax.tree.map(jnp.asarray, batch_of(made()))

    def loss(params, key, config=CONFIG):
        keys = Keys(key, key)
        output = build(config, 3, 3, predicts=("distances",)).outputs(params, batch, keys)
        return output["distances"].logits().mean(), output["distances"].logits()

    keys = jax.random.split(jax.random.key(0), 12)
    run = jax.jit(jax.grad(loss, has_aux=True))
    results = [run(params(), key) for key in keys]
    once = np.asarray(loss(params(), keys[0], dataclasses.replace(CONFIG, recycling=0))[1])
    logits = np.stack([np.asarray(made) for _, made in results])
    kinds = np.unique(logits.round(3), axis=0)
    assert len(kinds) == 3  # none, one or two passes before the last
    assert np.abs(kinds - once[None]).max((1, 2, 3)).min() < 2e-3
    for gradient, _ in results:
        leaves = jax.tree.leaves(gradient)
        assert all(np.isfinite(leaf).all() for leaf in leaves)


def test_bins_hold_distances_and_their_median_lies_within():
    bins = Bins(6, 0.5, 6.5)
    distances = jnp.array([0.0, 0.5, 1.49, 1.5, 6.4, 99.0])
    assert bins.of(distances).tolist() == [0, 0, 0, 1, 5, 5]
    certain = np.full((6, 6), -50.0)
    np.fill_diagonal(certain, 50)
    np.testing.assert_allclose(bins.point(certain), bins.centres, atol=1e-6)
    halves = np.array([0.0, 0, -99, -99, -99, -99])  # half in each of two bins: where they meet
    np.testing.assert_allclose(bins.point(halves), 1.5, atol=1e-6)
    loss = bins.loss(jnp.zeros((1, 6, 6)), distances[None])
    np.testing.assert_allclose(loss, np.log(6), rtol=1e-6)


def test_controls_are_what_they_say():
    chain = made()[0].astype(np.float64)
    true = distances_of(chain)
    np.testing.assert_allclose(scores.scaled(true), true, atol=1e-6)
    known = np.full_like(true, np.nan)
    most = scores.shortest_paths(known, 1.0)
    places = np.arange(len(true))
    np.testing.assert_allclose(most, np.abs(places[:, None] - places))  # along the chain
    assert (most >= true - 1e-5).all()
    known[0, 4] = known[4, 0] = true[0, 4]
    assert scores.shortest_paths(known, 1.0)[0, 4] == true[0, 4]
    middle = scores.middle(known, 1.0)
    assert middle[0, 4] == pytest.approx(true[0, 4])
    assert (middle <= scores.shortest_paths(known, 1.0) + 1e-9).all()
    means = scores.by_separation(made(), 9)
    assert means[:2] == pytest.approx([0, 1])
    assert scores.separated(known, means)[0, 4] == true[0, 4]
    assert scores.lddt(true, true, known) == 1
    assert 0 < scores.lddt(most, true, known) < 1
    assert scores.unseen_error(true + 0.5, true, known) == pytest.approx(0.5)


@pytest.mark.parametrize(
    ("values", "words"),
    [
        (np.zeros((4, 2)), ["chain 1", "(4, 2)", "[points 3]"]),
        (np.array([[0, 0, 0], [0, np.nan, 0]]), ["chain 1", "point 2", "nan"]),
    ],
)
def test_malformed_chains_are_named(values, words):
    with pytest.raises(UserError) as error:
        coordinates.train(SourceConfig(), []).encode([values])
    assert all(word in str(error.value) for word in words)


@pytest.mark.parametrize(
    ("matrix", "words"),
    [
        (np.zeros((3, 4)), ["(3, 4)", "[points points]"]),
        (np.array([[0, 1.0], [2, 0]]), ["not symmetric"]),
        (np.array([[0, -1.0], [-1, 0]]), ["negative"]),
    ],
)
def test_malformed_matrices_are_named(matrix, words):
    with pytest.raises(UserError) as error:
        coordinates.train(SourceConfig(), []).prepared(matrix, "known.npy", DataConfig())
    assert all(word in str(error.value) for word in ["known.npy", *words])
