"""Layers with states that decay: chunks, steps and rows of several texts."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from transformer_jax.config import ModelConfig
from transformer_jax.nn.cache import Lanes
from transformer_jax.nn.mixers import diagonal, linear_attention, mamba, rwkv7
from transformer_jax.nn.mixers.kinds import MIXERS
from transformer_jax.nn.view import self_view

CONFIG = ModelConfig(
    d_model=8, num_heads=2, state_heads=4, state_groups=2, state_size=4, state_conv=3,
    block_size=3,
)  # fmt: skip
ONE_WAY = ["mamba2", "gated_delta", "s4d", "mamba", "retention", "rwkv7", "mega", "mega_chunk"]
# Three texts and padding in one row, one text in another.
SEG = np.repeat([[1, 2, 3, 0], [1, 1, 1, 0]], [5, 2, 4, 2], axis=1)
POS = np.array([[*range(5), *range(2), *range(4), 0, 0], [*range(11), 0, 0]])


@pytest.fixture(autouse=True)
def exact(monkeypatch):
    """Compute in float64, in chunks of 4 tokens, in which texts begin and end anywhere."""
    for module in (diagonal, linear_attention, mamba, rwkv7):
        monkeypatch.setattr(module, "CHUNK", 4)
    with jax.enable_x64(True):
        yield


@functools.cache
def made(kind: str):
    """Return a mixer, its parameters, all random, and inputs for SEG."""
    mixer = MIXERS[kind](CONFIG, jnp.dtype("float64"))
    chance = np.random.default_rng(0)
    x = jnp.asarray(chance.normal(size=(*SEG.shape, 8)))
    init = functools.partial(mixer.init, jax.random.key(0), method="mix", train=False)
    shapes = jax.eval_shape(lambda x: init(x, view_of(kind)), x)
    return mixer, jax.tree.map(lambda y: jnp.asarray(0.5 * chance.normal(size=y.shape)), shapes), x


def view_of(kind: str, seg=SEG, pos=POS, single: bool = False):
    order = "all" if kind.startswith("bi") else "causal"
    return self_view(jnp.asarray(pos), jnp.asarray(seg), order, single=single)


def mixed(kind: str, seg=SEG, pos=POS, single: bool = False, x=None):
    """Return the output for texts in rows, 0 for padding."""
    mixer, params, inputs = made(kind)
    view = view_of(kind, seg, pos, single)

    @jax.jit
    def run(params, x):
        y, _ = mixer.apply(params, x, view, False, method="mix")
        return jnp.where(view.q_seg[..., None] > 0, y, 0)

    return run(params, inputs if x is None else x)


def stepped(kind: str):
    """Return the same, text by text from an empty cache: a prompt of one token, with padding after
    it, then one token, another, and the rest at once.
    """
    mixer, params, x = made(kind)
    everyone = jnp.ones(1, bool)
    extend = functools.partial(mixer.apply, method="extend")

    @jax.jit
    def one_text(params, x):
        lanes, slots = Lanes.empty(1, 1, 16).prompt(jnp.array([[1, 0]]), "causal")
        cache = mixer.apply(params, lanes, method="empty")
        y, _, cache = extend(params, x[None, :2], cache, slots, everyone)
        out = [y[0, :1]]
        for first, last in ((1, 2), (2, 3), (3, len(x))):
            positions = jnp.arange(first - 1, last - 1, dtype=jnp.int32)[None]
            lanes, slots = lanes.fill(positions, everyone, "causal")
            y, _, cache = extend(params, x[None, first:last], cache, slots, everyone)
            out.append(y[0])
        return jnp.concatenate(out)

    rows = jnp.zeros_like(x)
    for row, begin, end in [(0, 0, 5), (0, 5, 7), (0, 7, 11), (1, 0, 11)]:
        text = jnp.pad(x[row, begin:end], ((0, 11 - end + begin), (0, 0)))  # compiled once
        rows = rows.at[row, begin:end].set(one_text(params, text)[: end - begin])
    return rows


@pytest.mark.one_in(4)
@pytest.mark.parametrize("kind", ONE_WAY)
def test_chunks_of_packed_texts_equal_steps_of_each(kind):
    """No state and no convolution crosses the beginning of a text, and padding enters neither."""
    np.testing.assert_allclose(mixed(kind), stepped(kind), rtol=1e-12, atol=1e-12)


@pytest.mark.one_in(14, 9)
@pytest.mark.parametrize("kind", [*ONE_WAY, *(f"bi{kind}" for kind in ONE_WAY)])
def test_rows_of_one_text_equal_the_general_case(kind):
    """S4D's are one convolution."""
    seg = np.repeat([[1, 0], [1, 1]], [8, 5], axis=1)
    pos = np.broadcast_to(np.arange(13), seg.shape)
    one, other = (mixed(kind, seg, pos, single) for single in (True, False))
    np.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-12)


@pytest.mark.one_in(9, 2)
@pytest.mark.parametrize("kind", [*ONE_WAY, "bis4d", "bimega", "bimega_chunk"])
def test_gradients_do_not_depend_on_chunks(kind, monkeypatch):
    mixer, params, x = made(kind)

    def total(params, x):
        y, _ = mixer.apply(params, x, view_of(kind), False, method="mix")
        return jnp.sum(jnp.sin(y) * (SEG > 0)[..., None])

    found = jax.jit(jax.grad(total, (0, 1)))(params, x)
    for module in (diagonal, linear_attention, mamba, rwkv7):
        monkeypatch.setattr(module, "CHUNK", 64)
    expected = jax.jit(jax.grad(lambda params, x: total(params, x), (0, 1)))(params, x)
    for one, other in zip(*map(jax.tree.leaves, (found, expected)), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-11, atol=1e-12 * (1 + np.abs(other).max()))
