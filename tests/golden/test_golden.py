"""Our model and loss equal recorded results of `transformers`; tests/oracle computes them live."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax.traverse_util import flatten_dict
from golden.record import ARRAYS, HERE, VOCAB
from oracle.batches import unflat
from oracle.compare import (
    CONVENTIONS,
    EPSILON,
    Results,
    apply,
    as_tree,
    assert_same,
    predicted,
    shapes,
)
from oracle.weights import TRANSFORMERS, from_torch

from transformer_jax.models.build import build
from transformer_jax.training.loss import loss_sums


def ours(config, params, batch) -> Results:
    """Run our model in float64: both losses, and the gradients of the recorded one."""
    with jax.enable_x64(True):
        model = build(config, VOCAB, VOCAB, dtype="float64")

        def recorded(params, batch):
            logits, target = apply(model, params, batch), batch.targets["tokens"]
            sums = [loss_sums(logits, *target, EPSILON, smoothing) for smoothing in CONVENTIONS]
            losses = jnp.stack([one.loss / one.tokens for one in sums])
            return losses[CONVENTIONS.index("tensor2tensor")], (losses, logits)

        gradients, (losses, logits) = jax.jit(jax.grad(recorded, has_aux=True))(
            as_tree(params, "float64"), batch
        )
        assert logits.dtype == "float64"
        leaves = flatten_dict(jax.device_get(gradients), sep="/")
        named = dict(zip(CONVENTIONS, np.asarray(losses), strict=True))
        return Results(np.asarray(logits)[predicted(batch)], named, {"tensor2tensor": leaves})


@pytest.mark.parametrize("residual", sorted(ARRAYS))
def test_equals_the_recorded_arrays(residual):
    with np.load(HERE / f"{residual}.npz") as file:
        recorded = dict(file)

    def under(prefix):
        names = (name for name in recorded if name.startswith(prefix))
        return {name.removeprefix(prefix): recorded[name] for name in names}

    tree = shapes(ARRAYS[residual], VOCAB, VOCAB)
    weights, gradients = (
        from_torch({name: pair[i] for name, pair in under("tensors/").items()}, tree, TRANSFORMERS)
        for i in range(2)
    )
    mine = ours(ARRAYS[residual], weights, unflat(under("batch/")))
    theirs = Results(recorded["logits"], under("losses/"), {"tensor2tensor": gradients})
    assert mine.losses.keys() == theirs.losses.keys()
    assert_same(mine, theirs)
