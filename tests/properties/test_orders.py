"""What a model may know of order: positions, ranks and windows. And the state of idle sentences."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tiny import (
    BASE,
    MODEL,
    SMALL_TABLES,
    VARIANTS,
    VOCAB,
    Stepping,
    alone,
    logits_of,
    make,
    random_store,
)

from transformer_jax.base.vocabulary import UNK
from transformer_jax.data.batches.batch import Batch, Side
from transformer_jax.nn.positions import POSITIONS
from transformer_jax.nn.relative_positions import RELATIVE_POSITIONS

# As many rows as in the other property tests: programs of one shape are compiled only once.
BATCH = alone(random_store([(5, 6), (3, 2), (6, 4)] * 2), 6, 6, 6)
REAL = BATCH.tgt.seg > 0
CLOSE = {"rtol": 1e-5, "atol": 1e-5}
ALIBI = next(name for name, c in VARIANTS.items() if c.relative_positions == "alibi")


def variant(name: str, **fields):
    """Return a config of another variant, with other fields."""
    return dataclasses.replace(VARIANTS[name], **fields)


def logits(config, batch: Batch, order: str = "causal") -> np.ndarray:
    """Return the logits at all positions, [B T V]."""
    return np.asarray(logits_of(*make(config, order), batch))


def later(side, by: int):
    """Return a side whose positions are increased by `by`."""
    return side._replace(pos=side.pos + by)


# The variants with each scheme.
RELATIVE = [
    next(name for name, c in VARIANTS.items() if c.relative_positions == scheme)
    for scheme in RELATIVE_POSITIONS
    if scheme != "none"
]


@pytest.mark.one_in(2)
@pytest.mark.parametrize("name", RELATIVE)
def test_relative_schemes_depend_only_on_distances(name):
    """Shifting all positions of a sentence does not change the logits of relative schemes."""
    config = variant(name, positions="none")
    moved = BATCH._replace(src=later(BATCH.src, 3), tgt=later(BATCH.tgt, 7))
    expected = logits(config, BATCH)
    np.testing.assert_allclose(logits(config, moved)[REAL], expected[REAL], **CLOSE)
    # But distances matter.
    apart = BATCH._replace(tgt=BATCH.tgt._replace(pos=2 * BATCH.tgt.pos))
    assert np.abs(logits(config, apart) - expected)[REAL].max() > 1e-3


def ranked(seed: int = 0) -> Batch:
    """Return the batch with random ranks, some of them equal."""
    rank = np.random.default_rng(seed).integers(0, 4, BATCH.tgt.seg.shape).astype(np.int32)
    return BATCH._replace(tgt=BATCH.tgt._replace(rank=rank))


@pytest.mark.one_in(2)
@pytest.mark.parametrize("name", ["llama", BASE, *RELATIVE])
def test_ranks_and_positions_alone_determine_the_order(name):
    """The columns of tokens do not matter once they have positions and ranks."""
    batch = ranked()
    columns = np.random.default_rng(1).permutation(6)
    mixed = batch._replace(tgt=jax.tree.map(lambda x: x[:, columns], batch.tgt))
    config = variant(name)
    expected = logits(config, batch, "ranked")[:, columns]
    ours = logits(config, mixed, "ranked")
    np.testing.assert_allclose(ours[REAL[:, columns]], expected[REAL[:, columns]], **CLOSE)


def test_ranks_equal_to_positions_are_causal():
    config = variant("llama")
    batch = BATCH._replace(tgt=BATCH.tgt._replace(rank=BATCH.tgt.pos))
    np.testing.assert_array_equal(logits(config, batch, "ranked"), logits(config, batch))
    assert np.abs(logits(config, ranked(), "ranked") - logits(config, batch)).max() > 1e-3


@pytest.mark.parametrize("name", [BASE, "llama"])
def test_a_window_as_long_as_the_text_equals_full_attention(name):
    """Six positions are at most five apart; a window of five leaves one pair out."""
    full = variant(name)
    local = {"decoder_pattern": ("local",)}
    if full.architecture == "encoder_decoder":
        local["encoder_pattern"] = ("local",)

    def within(window):
        return logits(dataclasses.replace(full, window=window, **local), BATCH)

    np.testing.assert_array_equal(within(6), logits(full, BATCH))
    differs = np.abs(within(5) - logits(full, BATCH)).max(-1) > 1e-4
    assert differs[0, 5]  # the last token of the only target of six


@pytest.mark.parametrize("name", ["pattern", "llama"])
def test_idle_sentences_keep_their_state(name):
    """Tokens fed to them leave no trace, nor do tokens taken back, in any sentence."""
    model, params = make(VARIANTS[name])
    stepper = Stepping(model, params)
    ids = jnp.asarray(np.random.default_rng(3).integers(UNK, VOCAB, (3, 6, 2, 3)), jnp.int32)
    sources = jax.device_put(BATCH.src)
    awake = [True, False, True, True, False, True]

    def step(state, number: int, first: int, active=(True,) * 6):
        pos = jnp.broadcast_to(first + jnp.arange(3, dtype=jnp.int32)[None], (6, 3))
        logits, _, state = stepper.step(state, ids[number], pos, jnp.asarray(active))
        return logits, state

    context = model.context(sources)
    room = 6 if context.tgt is None else 7
    _, begun = step(stepper.start(context, width=2, length=room), 0, 0)
    _, others = step(begun, 1, 3, active=awake)
    changed = [
        (np.asarray(before) != after).reshape(6, -1).any(1)
        for before, after in zip(jax.tree.leaves(begun), jax.tree.leaves(others), strict=True)
    ]
    np.testing.assert_array_equal(np.any(changed, axis=0), awake)
    expected, _ = step(begun, 2, 3)
    back = stepper.rewind(others, jnp.full(6, 3, jnp.int32))
    np.testing.assert_array_equal(step(back, 2, 3)[0], expected)


@pytest.mark.one_in(3)
@pytest.mark.parametrize(
    "scheme",
    [name for name in (*RELATIVE_POSITIONS, *POSITIONS) if name not in ("learned", "none")]
    + ["none"],
)
def test_texts_may_be_longer_than_any_in_training(scheme):
    """No parameter but a learned table of positions depends on the longest text in training: 12
    positions where there may have been 6, in one pass and decoded with a cache.
    """
    field = "positions" if scheme in POSITIONS else "relative_positions"
    base = {"architecture": "decoder", "num_encoder_layers": 6, "positions": "none"}
    small = SMALL_TABLES.get(scheme, {})  # distances are clipped long before
    config = dataclasses.replace(MODEL, **base | {field: scheme} | small, max_positions=6)
    model, params = make(config)
    ids = np.random.default_rng(4).integers(UNK, VOCAB, (6, 12)).astype(np.int32)
    pos = np.broadcast_to(np.arange(12, dtype=np.int32), (6, 12))
    whole = Batch(None, Side(ids, pos, np.ones_like(ids)), {})
    stepper = Stepping(model, params)
    before = jax.tree.map(lambda x: jnp.asarray(x[:, :6]), whole)
    state = stepper.start(before, width=1, length=6)
    new = jnp.asarray(ids[:, None, 6:]), jnp.asarray(pos[:, :6])
    last = np.asarray(stepper.step(state, *new, jnp.ones(6, bool))[0])
    expected = np.asarray(logits_of(model, params, whole))
    assert np.isfinite(expected).all()
    np.testing.assert_allclose(last[:, 0], expected[:, 6:], **CLOSE)
