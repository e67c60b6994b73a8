"""Mixers that keep the past as a state: many chunks, rows of one text, and rewinding."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from transformer_jax.config import ModelConfig
from transformer_jax.nn.mixers import linear_attention
from transformer_jax.nn.mixers.kinds import MIXERS
from transformer_jax.nn.states import States
from transformer_jax.nn.view import self_view

CONFIG = ModelConfig(d_model=6, num_heads=2, num_kv_heads=1, head_dim=3, v_head_dim=2)
IN_CHUNKS = [
    ("linear", "all"), ("delta_rule", "causal"), ("gated_random_features", "causal"),
]  # fmt: skip
# Three sentences and padding in one row, one sentence in another.
SEG = np.repeat([[1, 2, 3, 0], [1, 1, 0, 0]], [5, 4, 2, 2], axis=1)
POS = np.array([[*range(5), *range(4), 0, 1, 0, 0], [*range(9), *[0] * 4]])


@pytest.fixture(autouse=True)
def exact():
    with jax.enable_x64(True):
        yield


def mixed(kind: str, order: str, seg=SEG, pos=POS, single: bool = False):
    """Return the output of a mixer with random parameters and input, and all gradients."""
    mixer = MIXERS[kind](CONFIG, jnp.dtype("float64"))
    chance = np.random.default_rng(0)
    x = jnp.asarray(chance.normal(size=(*seg.shape, 6)))
    view = self_view(jnp.asarray(pos), jnp.asarray(seg), order, single=single)
    apply = functools.partial(mixer.apply, method="mix")
    init = functools.partial(mixer.init, jax.random.key(0), method="mix", train=False)
    shapes = jax.eval_shape(lambda x: init(x, view), x)
    params = jax.tree.map(lambda leaf: jnp.asarray(chance.normal(size=leaf.shape)), shapes)

    def total(params, x):
        y, _ = apply(params, x, view, False)
        y = jnp.where(view.q_seg[..., None] > 0, y, 0)
        return jnp.sum(jnp.sin(y)), y

    (_, y), gradients = jax.jit(jax.value_and_grad(total, (0, 1), has_aux=True))(params, x)
    return y, gradients


def agree(one, other):
    jax.tree.map(functools.partial(np.testing.assert_allclose, rtol=1e-9, atol=1e-12), one, other)


@pytest.mark.one_in(3)
@pytest.mark.parametrize(("kind", "order"), IN_CHUNKS)
def test_chunking_does_not_change_the_output(kind, order, monkeypatch):
    """Nor the gradients; sentences begin and end anywhere in a chunk."""
    expected = mixed(kind, order)
    monkeypatch.setattr(linear_attention, "CHUNK", 3)
    agree(mixed(kind, order), expected)


def test_rows_of_one_text_equal_the_general_case():
    seg = np.repeat([[1, 0], [1, 1]], [8, 5], axis=1)
    pos = np.broadcast_to(np.arange(13), seg.shape)
    agree(mixed("linear", "all", seg, pos, single=True), mixed("linear", "all", seg, pos))


follow, rewind = jax.jit(States.follow), jax.jit(States.rewind)


def numbers(memory: States) -> list[list[int]]:
    return memory.current()[..., 0].astype(int).tolist()


def test_rewinding_restores_states_and_inactive_ones_stay():
    """Two sentences with two hypotheses each, whose states count what they have read."""
    memory = States.of(jnp.zeros((2, 1)), 2)
    both = jnp.array([True, True])

    def behind(start, steps):
        return start[..., None, None] + jnp.arange(1, steps + 1)[None, None, :, None] + 0.0

    memory = follow(memory, behind(jnp.zeros((2, 2)), 3), both)
    assert numbers(memory) == [[3, 3], [3, 3]]
    memory = rewind(memory, jnp.array([1, 0]))
    assert numbers(memory) == [[1, 1], [0, 0]]
    memory = rewind(memory, jnp.array([3, 2]))  # a rewind can be undone
    assert numbers(memory) == [[3, 3], [2, 2]]
    memory = follow(memory, behind(memory.current()[..., 0] + 10, 3), jnp.array([True, False]))
    assert numbers(memory) == [[16, 16], [2, 2]]
    assert numbers(rewind(memory, jnp.array([4, 1]))) == [[14, 14], [1, 1]]
    memory = follow(memory, behind(memory.current()[..., 0] + 10, 1), jnp.array([False, True]))
    assert numbers(memory) == [[16, 16], [13, 13]]
    assert numbers(rewind(memory, jnp.array([6, 2]))) == [[16, 16], [2, 2]]
    memory = States.of(jnp.zeros((1, 1)), 2).follow(jnp.array([[[[5.0]], [[7.0]]]]), both[:1])
    assert numbers(memory.reorder(jnp.array([[1, 1]]))) == [[7, 7]]


def test_rewinding_reaches_beyond_the_last_step():
    """By up to three tokens, however few of them a step had."""
    memory = States.of(jnp.zeros((2, 1)), 1).keep(3)
    for count in range(1, 6):
        new = jnp.full((2, 1, 1, 1), 1.0 * count)
        memory = follow(memory, new, jnp.array([True, count < 5]))
    assert numbers(memory) == [[5], [4]]
    assert numbers(rewind(memory, jnp.array([2, 1]))) == [[2], [1]]
    memory = rewind(memory, jnp.array([4, 2]))
    memory = follow(memory, jnp.full((2, 1, 2, 1), 9.0), jnp.array([True] * 2))
    assert numbers(memory) == [[9], [9]]
    assert numbers(rewind(memory, jnp.array([4, 2]))) == [[4], [2]]
    assert jax.tree.leaves(memory.trail)[0].shape == (2, 1, 4, 1)
