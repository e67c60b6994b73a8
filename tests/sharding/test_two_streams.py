"""Diffusion transformers of two streams and Decision Transformers have the same gradients on a mesh
as on one device.
"""

import jax
import numpy as np
import pytest
from models import test_decision_transformer as decisions
from models.test_diffusion_transformer import CHANNELS, CONFIGS, RNG, VECTORS, batch_of, side
from tiny import random_params

from transformer_jax.config import MeshConfig, TrainingConfig
from transformer_jax.data.batches.batch import Target
from transformer_jax.models.build import abstract_params, build
from transformer_jax.sharding.mesh import make_mesh, place_whole
from transformer_jax.sharding.rules import param_shardings
from transformer_jax.training.step import batch_sums

PIECES = 4


@pytest.mark.thorough
@pytest.mark.parametrize("name", ["joint", "clip"])
def test_gradients_of_diffusion_transformers(name):
    """Of two streams, and of layers along axes of a clip."""
    model = build(CONFIGS[name], CHANNELS, PIECES, predicts=("diffusion",))
    params = jax.device_get(random_params(model))
    rows = 8
    tgt = side(RNG.integers(0, PIECES, (rows, 2 if name == "joint" else 1)))
    batch = batch_of(tgt, np.linspace(0.1, 0.9, rows, dtype=np.float32), VECTORS[[0, 1, 2, 0] * 2])
    labels = RNG.normal(size=batch.src.inputs.shape).astype(np.float32)
    target = Target(labels, np.ones(labels.shape[:2], np.float32))
    gradients_agree(model, params, batch._replace(targets={"diffusion": target}))


@pytest.mark.thorough
def test_gradients_of_a_decision_transformer():
    model, params = decisions.model_of("discrete")
    rows = [0, 1] * 4
    batch = decisions.batch_of(decisions.READ[rows], decisions.done("discrete")[rows])
    weight = np.ones(batch.tgt.seg.shape, np.float32)
    target = Target(batch.tgt.inputs, weight)
    batch = batch._replace(targets={"action": target})
    # The gradients of biases of keys are exactly zero, except for rounding.
    gradients_agree(model, jax.device_get(params), batch, besides="key/bias")


def gradients_agree(model, params, batch, besides="nothing"):
    """Check gradients on 2 x 2 x 2 devices, but for those of parameters whose names end so."""

    def loss(params, batch):
        return batch_sums(model, TrainingConfig(), params, batch, None).loss

    def gradient(*sizes):
        mesh = make_mesh(MeshConfig(*sizes), jax.devices()[: np.prod(sizes)])
        placed = jax.device_put(params, param_shardings(abstract_params(model), mesh))
        with jax.set_mesh(mesh):
            step = jax.jit(jax.value_and_grad(loss))
            return jax.device_get(step(placed, place_whole(batch, mesh)))

    (one, ours), (other, theirs) = gradient(2, 2, 2), gradient(1, 1, 1)
    assert one == pytest.approx(other, rel=1e-5)
    for (path, here), there in zip(
        jax.tree.leaves_with_path(ours), jax.tree.leaves(theirs), strict=True
    ):
        if jax.tree_util.keystr(path, simple=True, separator="/").endswith(besides):
            continue
        size = 1e-3 + np.abs(there).max()
        np.testing.assert_allclose(here / size, there / size, atol=2e-4)
