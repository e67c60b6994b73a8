"""What a token may depend on: its own sentence, and only the past of its target."""

import functools
from dataclasses import replace

import jax
import numpy as np
import pytest
from tiny import (
    BASE,
    MODEL,
    MORE_VARIANTS,
    SMALL_TABLES,
    TRANSLATE,
    VARIANTS,
    VOCAB,
    WIDE,
    alone,
    for_model,
    logits_of,
    make,
    random_store,
)

from transformer_jax.base.vocabulary import UNK
from transformer_jax.config import DataConfig, TrainingConfig
from transformer_jax.data.batches.batch import Batch, Target
from transformer_jax.data.batches.batching import PackPlan
from transformer_jax.training.loss import loss_sums
from transformer_jax.training.step import batch_sums

LENGTHS = [(2, 5), (6, 6), (4, 2), (3, 6), (6, 3), (1, 1)]
STORE = random_store(LENGTHS)
TIGHT = alone(STORE, 6, 6, 6)
LOOSE = alone(STORE, 9, 12, 12)  # the same pairs with more padding, in rows and columns
LAST_SEEN = np.array([[2], [3], [0], [4], [1], [5]])  # a position in each row of TIGHT
# Different programs sum in different orders: 10 times the float32 epsilon of logits of about 10.
CLOSE = {"rtol": 1e-5, "atol": 1e-5}


@pytest.fixture(autouse=True)
def precision(request):
    """Compute a variant of WIDE in float64."""
    with jax.enable_x64(request.getfixturevalue("name") in WIDE):
        yield


def all_variants(test):
    """Test every model; in `make e2e`, also those that differ only in the backward pass."""
    # Those of states are compared with plain torch, packed and padded: tests/oracle/cases.py.
    names = [n for n, c in VARIANTS.items() if n == BASE or replace(c, remat="none") != MODEL]
    names = [name for name in names if name not in ("features", "states", "state_spaces")]
    rest = [name for name in (VARIANTS | MORE_VARIANTS) if name not in names]
    more = [pytest.param(name, marks=pytest.mark.e2e) for name in rest]
    return pytest.mark.parametrize("name", [*names, *more])(test)


def noise(like):
    return np.random.default_rng(1).integers(UNK, VOCAB, like.shape).astype(np.int32)


def with_another_future(batch):
    """Return the batch with other target tokens after LAST_SEEN."""
    future = np.arange(batch.tgt.inputs.shape[1]) > LAST_SEEN
    inputs = np.where(future, noise(batch.tgt.inputs), batch.tgt.inputs)
    return batch._replace(tgt=batch.tgt._replace(inputs=inputs))


def with_noise(batch):
    """Return the batch with noise in place of its padding."""

    def disturbed(side):
        padding = side.seg == 0
        inputs = np.where(padding, noise(side.inputs), side.inputs)
        return side._replace(inputs=inputs, pos=np.where(padding, 1, side.pos))

    labels, weight = batch.targets["tokens"]
    target = Target(np.where(weight == 0, noise(labels), labels), weight)
    return Batch(disturbed(batch.src), disturbed(batch.tgt), {"tokens": target})


def packed():
    """Return all pairs packed into rows of 12 positions, and their placement."""
    config = DataConfig(max_length=12, tokens_per_batch=36, rows_divisible_by=1)
    plan = PackPlan(STORE, np.arange(len(STORE)), config, seed=0)
    assert len(plan) == 1
    shape, placement = plan.batch(0)
    return TRANSLATE.examples(STORE, placement, *shape), placement


def joined(*batches):
    return jax.tree.map(lambda *arrays: np.concatenate(arrays), *batches)


@functools.cache
def computed(name: str):
    """Return the logits of TIGHT, of TIGHT with another future, of LOOSE and of packed pairs."""
    model, params = make((VARIANTS | MORE_VARIANTS)[name])
    long = joined(with_noise(LOOSE), packed()[0])  # 12 rows: all passes of this file have six
    halves = (jax.tree.map(lambda x, i=i: x[i::2], long) for i in range(2))
    batches = TIGHT, with_another_future(TIGHT), *halves
    before, after, *parts = (np.asarray(logits_of(model, params, batch)) for batch in batches)
    logits = np.stack(parts, axis=1).reshape(12, *parts[0].shape[1:])
    return before, after, logits[:9], logits[9:]


def sums_of(logits, batch):
    return np.array(_sums(logits, *batch.targets["tokens"], 0.1, "tensor2tensor"))


_sums = jax.jit(loss_sums, static_argnums=(3, 4))


@pytest.mark.one_in(4)
@all_variants
def test_logits_do_not_depend_on_future_target_tokens(name):
    """Target tokens after position t change no logit up to t; each row's t is in LAST_SEEN."""
    before, after, _, _ = computed(name)
    past = np.arange(6) <= LAST_SEEN
    np.testing.assert_array_equal(before[past], after[past])
    next_one = np.arange(6) == LAST_SEEN + 1
    assert (np.abs(before - after).max(-1)[next_one & (TIGHT.tgt.seg > 0)] > 1e-3).all()


@pytest.mark.one_in(2)
@all_variants
def test_packed_pairs_equal_separate_pairs(name):
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
def test_padding_does_not_change_logits_or_loss(name):
    """More rows and columns of it, whatever they hold, change no real logit and no loss sum."""
    expected, _, logits, _ = computed(name)
    real = TIGHT.tgt.seg > 0
    np.testing.assert_allclose(logits[:6, :6][real], expected[real], **CLOSE)
    ours = sums_of(logits, with_noise(LOOSE))
    np.testing.assert_allclose(ours, sums_of(expected, TIGHT), rtol=1e-5)


# Masks of each kind, in models that differ in nothing else: dense and fused, with a bias, of one
# side, with a window.
MASKS = {
    "dense": {},
    "fused": {"attention": "fused"},
    **{f"{name} bias": SMALL_TABLES.get(name, {}) | {"relative_positions": name}
       for name in ("xlnet", "shaw_values", "t5")},
    "one side": {"architecture": "decoder", "num_encoder_layers": 6},
    "window": {"window": 2, "encoder_pattern": ("local",), "decoder_pattern": ("local",)},
}  # fmt: skip
MASKED = {name: replace(MODEL, **fields) for name, fields in MASKS.items()}


@pytest.mark.one_in(6)
@pytest.mark.parametrize(
    "name", [*MASKED, *(pytest.param(name, marks=pytest.mark.e2e) for name in VARIANTS)]
)
def test_padding_does_not_change_gradients(name):
    """Whatever padding holds, the gradient of the loss sum is the same to the last bit."""
    model, params = make((VARIANTS | MASKED)[name])

    @jax.jit
    @jax.grad
    def gradient(params, batch):
        return batch_sums(model, TrainingConfig(), params, batch, None).loss

    plain, noisy = (
        gradient(params, for_model(model.config, batch)) for batch in (TIGHT, with_noise(TIGHT))
    )
    assert all(np.abs(leaf).max() > 0 for leaf in jax.tree.leaves(plain))
    jax.tree.map(np.testing.assert_array_equal, plain, noisy)
