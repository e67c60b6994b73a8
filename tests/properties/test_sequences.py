"""What a token may depend on: its own sentence, and of its target only the past."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tiny import (
    BASE,
    MORE_VARIANTS,
    TRANSLATE,
    VARIANTS,
    VOCAB,
    alone,
    for_model,
    logits_of,
    make,
    random_store,
)

from transformer_jax.config import DataConfig, TrainingConfig
from transformer_jax.data.batch import Batch, Target
from transformer_jax.data.batching import PackPlan
from transformer_jax.training.loss import loss_sums
from transformer_jax.training.step import batch_sums
from transformer_jax.vocabulary import UNK

LENGTHS = [(2, 5), (6, 6), (4, 2), (3, 6), (6, 3), (1, 1)]
STORE = random_store(LENGTHS)
TIGHT = alone(STORE, 6, 6, 6)
LOOSE = alone(STORE, 8, 12, 12)  # the same pairs among more padding, in rows and in columns
LAST_SEEN = np.array([[2], [3], [0], [4], [1], [5]])  # a position in each row of TIGHT
# Different programs sum in different orders: 10 times the float32 epsilon of logits of about 10.
CLOSE = {"rtol": 1e-5, "atol": 1e-5}


def all_variants(test):
    more = [pytest.param(name, marks=pytest.mark.e2e) for name in MORE_VARIANTS]
    return pytest.mark.parametrize("name", [*VARIANTS, *more])(test)


def noise(like):
    return np.random.default_rng(1).integers(UNK, VOCAB, like.shape).astype(np.int32)


def with_another_future(batch):
    """Return the batch with other target tokens behind LAST_SEEN."""
    future = np.arange(batch.tgt.inputs.shape[1]) > LAST_SEEN
    inputs = np.where(future, noise(batch.tgt.inputs), batch.tgt.inputs)
    return batch._replace(tgt=batch.tgt._replace(inputs=inputs))


def with_noise(batch):
    """Return the batch with anything where its padding was."""

    def disturbed(side):
        padding = side.seg == 0
        inputs = np.where(padding, noise(side.inputs), side.inputs)
        return side._replace(inputs=inputs, pos=np.where(padding, 1, side.pos))

    labels, weight = batch.targets["tokens"]
    target = Target(np.where(weight == 0, noise(labels), labels), weight)
    return Batch(disturbed(batch.src), disturbed(batch.tgt), {"tokens": target})


def packed():
    """Return all pairs packed into rows of 12 positions, and where they are."""
    config = DataConfig(max_length=12, tokens_per_batch=36, rows_divisible_by=1)
    plan = PackPlan(STORE, np.arange(len(STORE)), config, seed=0)
    assert len(plan) == 1
    shape, placement = plan.batch(0)
    return TRANSLATE.examples(STORE, placement, *shape), placement


def joined(*batches):
    return jax.tree.map(lambda *arrays: np.concatenate(arrays), *batches)


@functools.cache
def computed(name: str):
    """Return logits: of TIGHT and the same with another future, of LOOSE and of packed pairs."""
    model, params = make((VARIANTS | MORE_VARIANTS)[name])
    batches = TIGHT, with_another_future(TIGHT), joined(with_noise(LOOSE), packed()[0])
    before, after, long = (np.asarray(logits_of(model, params, batch)) for batch in batches)
    return before, after, long[:8], long[8:]


def sums_of(logits, batch):
    target = map(jnp.asarray, batch.targets["tokens"])
    return jnp.stack(loss_sums(jnp.asarray(logits), *target, 0.1, "tensor2tensor"))


@all_variants
def test_causal(name):
    """The target after position t changes no logit up to t; row by row, t is LAST_SEEN."""
    before, after, _, _ = computed(name)
    past = np.arange(6) <= LAST_SEEN
    np.testing.assert_array_equal(before[past], after[past])
    next_one = np.arange(6) == LAST_SEEN + 1
    assert (np.abs(before - after).max(-1)[next_one & (TIGHT.tgt.seg > 0)] > 1e-3).all()


@all_variants
def test_packed_is_alone(name):
    """A pair's logits and the loss sums are the same whether it shares its row or not."""
    expected, _, _, logits = computed(name)
    batch, placement = packed()
    assert placement.segment.max() >= 3
    for pair, row, _, start, _ in zip(*placement, strict=True):
        length = LENGTHS[pair][1]
        ours = logits[row, start : start + length]
        np.testing.assert_allclose(ours, expected[pair, :length], **CLOSE)
    np.testing.assert_allclose(sums_of(logits, batch), sums_of(expected, TIGHT), rtol=1e-5)


@all_variants
def test_padding_changes_nothing(name):
    """More rows and columns of it, and whatever they hold, change no real logit and no sum."""
    expected, _, logits, _ = computed(name)
    real = TIGHT.tgt.seg > 0
    np.testing.assert_allclose(logits[:6, :6][real], expected[real], **CLOSE)
    ours = sums_of(logits, with_noise(LOOSE))
    np.testing.assert_allclose(ours, sums_of(expected, TIGHT), rtol=1e-5)


# With masks of each kind: dense and fused, with a bias, of prompts, within a window.
MASKS = [
    name for name, c in VARIANTS.items()
    if name in (BASE, "llama", "pattern") or c.attention == "fused"
    or c.relative_positions in ("xlnet", "shaw_values", "t5")
]  # fmt: skip


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=() if name in MASKS else pytest.mark.e2e) for name in VARIANTS],
)
def test_padding_changes_no_gradient(name):
    """Whatever padding holds, the gradient of the loss sum is the same to the last bit."""
    model, params = make(VARIANTS[name])

    def gradient(batch):
        batch = jax.tree.map(jnp.asarray, for_model(model.config, batch))
        sums = functools.partial(batch_sums, model, TrainingConfig(), batch=batch, key=None)
        return jax.grad(lambda params: sums(params).loss)(params)

    plain, noisy = gradient(TIGHT), gradient(with_noise(TIGHT))
    assert all(np.abs(leaf).max() > 0 for leaf in jax.tree.leaves(plain))
    jax.tree.map(np.testing.assert_array_equal, plain, noisy)
