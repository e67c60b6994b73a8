"""The loss of distillation beside torch's own divergence, in float64."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from transformer_jax.data.batches.batch import Teacher
from transformer_jax.nn.embedding import Head
from transformer_jax.training.loss import fused_loss_sums

pytestmark = pytest.mark.oracle

ROWS, WIDTH, VOCAB = 12, 8, 11


@pytest.mark.parametrize("temperature", [1.0, 2.5])
@pytest.mark.parametrize("weight", [0.4, 1.0])
def test_all_pieces_of_a_teacher_are_torchs_kl_div(weight, temperature):
    """ "batchmean" over the rows, times T^2, as in its tutorials; beside its cross-entropy."""
    import torch
    import torch.nn.functional as F

    rng = np.random.default_rng(0)
    x, table = rng.normal(size=(ROWS, WIDTH)), rng.normal(size=(VOCAB, WIDTH))
    bias, said = rng.normal(size=VOCAB), 3 * rng.normal(size=(ROWS, VOCAB))
    labels = rng.integers(0, VOCAB, ROWS)
    given = [torch.tensor(a, requires_grad=True) for a in (x, table, bias)]
    logits = given[0] @ given[1].T + given[2]
    q = torch.log_softmax(torch.tensor(said) / temperature, -1)
    p = torch.log_softmax(logits / temperature, -1)
    kl = F.kl_div(p, q, reduction="batchmean", log_target=True)
    cross_entropy = F.cross_entropy(logits, torch.tensor(labels), label_smoothing=0.1)
    theirs = (1 - weight) * cross_entropy + weight * temperature**2 * kl
    theirs.backward()

    with jax.enable_x64(True):
        order = np.argsort(-q.numpy(), axis=-1)
        named = np.take_along_axis(q.numpy(), order, -1)
        teacher = Teacher(
            order[None].astype(np.int32),
            np.concatenate([named, np.full((ROWS, 1), -np.inf)], 1)[None],
        )

        def mean(x, table, bias):
            sums = fused_loss_sums(
                x[None], Head(table, bias), jnp.asarray(labels[None], jnp.int32),
                jnp.ones((1, ROWS)), 0.1, "uniform", 0.0, teacher, (weight, temperature),
            )  # fmt: skip
            return sums.loss / sums.weight

        arrays = [jnp.asarray(a) for a in (x, table, bias)]
        ours, slopes = jax.value_and_grad(mean, (0, 1, 2))(*arrays)
    np.testing.assert_allclose(ours, theirs.item(), rtol=1e-12)
    for slope, tensor in zip(slopes, given, strict=True):
        np.testing.assert_allclose(slope, tensor.grad.numpy(), rtol=1e-10, atol=1e-13)
