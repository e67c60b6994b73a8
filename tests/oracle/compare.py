"""Our side of a comparison, in float64, and the criteria for equality."""

import functools
from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn
from flax.traverse_util import flatten_dict, unflatten_dict

from transformer_jax.config import ModelConfig
from transformer_jax.data.batches.batch import Batch
from transformer_jax.models.build import abstract_params, build
from transformer_jax.models.model import Model
from transformer_jax.nn.view import Order
from transformer_jax.training.loss import loss_sums

CONVENTIONS = "tensor2tensor", "uniform"
EPSILON = 0.1  # of label smoothing
RELATIVE = 1e-10  # rounding in float64 causes about 1e-14, a wrong term at least 1e-7


class Results(NamedTuple):
    """A model's results for a batch. `losses` are means over the real target tokens."""

    logits: np.ndarray  # [tokens V]; no padding, where libraries differ
    losses: dict[str, float]  # by smoothing convention
    gradients: dict[str, dict[str, np.ndarray]]  # by smoothing convention and our path


def shapes(config: ModelConfig, src_vocab: int, tgt_vocab: int, predicts: str = "tokens") -> Any:
    """Return our parameters as a tree of shapes."""
    return nn.unbox(abstract_params(build(config, src_vocab, tgt_vocab, predicts=[predicts])))


def ours(
    config: ModelConfig,
    sizes: tuple[int, int],
    params: Mapping[str, np.ndarray],
    batch: Batch,
    order: Order = "causal",
) -> Results:
    """Run our model with float64 parameters {path: array}; `sizes` are the vocabulary sizes."""
    with jax.enable_x64(True):
        model = build(config, *sizes, dtype="float64", order=order, predicts=list(batch.targets))

        def both(params, batch):
            logits, (target,) = apply(model, params, batch), batch.targets.values()
            sums = [loss_sums(logits, *target, EPSILON, smoothing) for smoothing in CONVENTIONS]
            losses = jnp.stack([one.loss / one.tokens for one in sums])
            return losses, (losses, logits)

        # The gradients of both losses, leaves [2 ...], compiled together, as compiling is slow.
        gradients, (losses, logits) = jax.jit(jax.jacrev(both, has_aux=True))(
            as_tree(params, "float64"), jax.tree.map(jnp.asarray, batch)
        )
        assert logits.dtype == "float64"
        leaves = flatten_dict(gradients, sep="/")
        return Results(
            np.asarray(logits)[predicted(batch)],
            dict(zip(CONVENTIONS, np.asarray(losses), strict=True)),
            {
                smoothing: {path: np.asarray(leaf[i]) for path, leaf in leaves.items()}
                for i, smoothing in enumerate(CONVENTIONS)
            },
        )


def float32_logits(
    config: ModelConfig, sizes: tuple[int, int], params: Mapping[str, np.ndarray], batch: Batch
) -> np.ndarray:
    """Run our model in float32 and return logits [tokens V]."""
    tree, arrays = as_tree(params, "float32"), jax.tree.map(jnp.asarray, batch)
    logits = jax.jit(functools.partial(apply, build(config, *sizes)))(tree, arrays)
    assert logits.dtype == "float32"
    return np.asarray(logits)[predicted(batch)]


def predicted(batch: Batch) -> np.ndarray:
    """Return which logits to compare: libraries guarantee none for a prefix."""
    ((_, weight),) = batch.targets.values()
    return weight > 0


def apply(model: Model, params: Any, batch: Batch) -> jax.Array:
    """Return logits [B T V]."""
    (output,) = model.outputs(params, batch, None).values()
    return output.logits()


def as_tree(params: Mapping[str, np.ndarray], dtype: str) -> Any:
    """Convert {path: array} to a nested tree."""
    return unflatten_dict({path: jnp.asarray(x, dtype) for path, x in params.items()}, sep="/")


def assert_same(mine: Results, theirs: Results) -> None:
    """Compare logits, losses and every leaf of the gradients."""
    assert_close("logits", mine.logits, theirs.logits)
    for smoothing, loss in theirs.losses.items():
        assert_close(f"{smoothing} loss", mine.losses[smoothing], loss)
    for smoothing, leaves in theirs.gradients.items():
        assert leaves.keys() == mine.gradients[smoothing].keys()
        for path, expected in leaves.items():
            actual = mine.gradients[smoothing][path]
            if path.endswith("load_bias"):  # ours is the load: tests/nn/test_experts.py
                assert not expected.any()
                continue
            if path.endswith("key/bias") and np.abs(expected).max() < 1e-14:
                # It adds q b to all scores of a query, which softmax ignores: the gradient is zero
                # up to rounding (2e-17), and a relative difference is meaningless. Logits and other
                # gradients do not depend on it either: no comparison can detect the bias itself,
                # unless rotary positions rotate it.
                assert np.abs([actual, expected]).max() < 1e-14, f"gradient of {path} is not zero"
            else:
                assert_close(f"{smoothing} gradient of {path}", actual, expected)


def assert_close(what: str, actual: Any, expected: Any, relative: float = RELATIVE) -> None:
    """Compare the largest difference with the largest expected value."""
    assert np.shape(actual) == np.shape(expected), what
    difference, largest = np.abs(actual - expected).max(), np.abs(expected).max()
    assert difference <= relative * largest, f"{what}: differs by {difference} of {largest}"
