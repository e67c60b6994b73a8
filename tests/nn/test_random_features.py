"""Random features: what their products approximate, and when they are redrawn."""

import dataclasses
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tiny import VARIANTS, VOCAB, alone, random_params, random_store

from transformer_jax.config import ModelConfig, TrainingConfig
from transformer_jax.models.build import build
from transformer_jax.nn.mixers.random_features import Favor, RandomFeatures
from transformer_jax.training.step import batch_sums, keys_of

SIZE = 4
CONFIG = ModelConfig(
    d_model=8, num_heads=2, head_dim=SIZE, num_features=4096, decoder_pattern=("favor",)
)
CHANCE = np.random.default_rng(0)
Q, K = (CHANCE.normal(0, 0.5, (1, 3, 2, SIZE)).astype(np.float32) for _ in range(2))
X = jnp.asarray(CHANCE.normal(size=(1, 3, 8)), jnp.float32)


def products(kind, config, rngs=None) -> np.ndarray:
    """Return the products [T K S] of features of Q and of K."""
    mixer = kind(config, jnp.dtype("float32"))
    params = mixer.init(jax.random.key(0), X, method="enter")
    q, k = mixer.apply(
        params, jnp.asarray(Q)[:, :, :, None], jnp.asarray(K), method="features", rngs=rngs
    )
    return np.einsum("tkgf,skf->tks", np.asarray(q[0]), np.asarray(k[0]))


def errors(kind, config) -> float:
    """Return the root mean square error of weights that sum to 1."""
    scores = np.einsum("tkh,skh->tks", Q[0], K[0]) * SIZE**-0.5
    if kind is RandomFeatures:
        unit = (x / np.linalg.norm(x, axis=-1, keepdims=True) for x in (Q[0], K[0]))
        scores = np.einsum("tkh,skh->tks", *unit)
    both = products(kind, config), np.exp(scores)
    found, expected = (x / x.sum(-1, keepdims=True) for x in both)
    return float(np.sqrt(np.mean((found - expected) ** 2)))


@pytest.mark.parametrize("kind", [RandomFeatures, Favor])
def test_weights_approximate_a_softmax(kind):
    """For queries and keys of length 1, or of any; 16 times the features give 1/4 of the error."""
    few, many = (
        np.mean([
            errors(kind, dataclasses.replace(CONFIG, num_features=count, feature_seed=seed))
            for seed in range(6)
        ])
        for count in (256, 4096)
    )  # fmt: skip
    assert many < 0.02
    assert 2.5 < few / many < 6.5


def test_directions_are_orthogonal_with_lengths_of_normal_vectors():
    """In groups of the head size, in evaluation as in training."""
    mixer = Favor(dataclasses.replace(CONFIG, num_features=4098), jnp.dtype("float32"))
    for rngs in (None, {"features": jax.random.key(7)}):
        found = np.asarray(mixer.apply({}, method="directions", rngs=rngs))
        whole = found[:, :4096].reshape(2, -1, SIZE, SIZE)
        angles = whole @ whole.swapaxes(2, 3)
        assert np.abs(angles * (1 - np.eye(SIZE))).max() < 1e-4
        assert found.shape == (2, 4098, SIZE)
        assert np.mean(found**2) == pytest.approx(1, abs=0.03)
        assert np.var((found**2).sum(-1)) == pytest.approx(2 * SIZE, rel=0.1)  # chi squared


@pytest.mark.parametrize("kind", ["favor", "random_features", "lsh"])
def test_features_are_redrawn_every_n_steps(kind):
    """From the seed and the step."""
    features = [keys_of(3, step, 4).features for step in range(9)]
    same = [bool(one == other) for one, other in itertools.pairwise(features)]
    assert same == [True, True, True, False, True, True, True, False]
    assert keys_of(4, 0, 4).features != features[0]
    dropout = {jax.random.key_data(keys_of(3, step, 4).dropout).tobytes() for step in range(9)}
    assert len(dropout) == 9
    config = dataclasses.replace(
        VARIANTS["features"], architecture="decoder", num_encoder_layers=6, dropout_rate=0.0,
        encoder_pattern=("full",), decoder_pattern=(kind,), num_decoder_layers=1, window=None,
        position_rank=64, **({"num_features": 64, "block_size": 2} if kind == "lsh" else {}),
    )  # fmt: skip
    model = build(config, VOCAB, VOCAB, single=True)
    params, batch = random_params(model), alone(random_store([(1, 6), (1, 4)]), 2, 1, 6)
    batch = jax.device_put(batch._replace(src=None))
    loss = jax.jit(lambda keys: batch_sums(model, TrainingConfig(), params, batch, keys).loss)
    first, again, later = (float(loss(keys_of(3, step, 4))) for step in (0, 3, 4))
    assert first == again
    assert abs(later - first) > 1e-3
