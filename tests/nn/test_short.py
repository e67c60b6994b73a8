"""Kernels for attention between short sequences equal dense attention."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from transformer_jax.base.counting import operations, program
from transformer_jax.nn.mixers import dense, fused, short
from transformer_jax.nn.view import View, cross_view, self_view

RNG = np.random.default_rng(0)
SIZE, BATCH = 16, 4


def view_of(queries: int, keys: int, order: str) -> View:
    """Return a view with padding, and a query that sees nothing."""
    q_pos, k_pos = (np.tile(np.arange(n), (BATCH, 1)) for n in (queries, keys))
    q_seg, k_seg = (np.arange(n) < RNG.integers(1, n + 1, (BATCH, 1)) for n in (queries, keys))
    q_seg, k_seg = q_seg.astype(np.int32), k_seg.astype(np.int32)
    q_seg[0, -1] = 2
    if order == "across":
        return cross_view(*map(jnp.asarray, (q_pos, q_seg, k_pos, k_seg)))
    return self_view(jnp.asarray(q_pos), jnp.asarray(q_seg), order)


def heads_of(queries: int, keys: int, heads: int, kv_heads: int):
    """Return queries, keys and values, positions first."""
    shapes = (queries, heads), (keys, kv_heads), (keys, kv_heads)
    return [jnp.asarray(RNG.normal(size=(BATCH, *s, SIZE)), jnp.float32) for s in shapes]


def value_and_gradients(attend, *given):
    def total(*given):
        mixed = attend(*given)
        return jnp.sin(mixed).sum(), mixed

    return jax.jit(jax.value_and_grad(total, (0, 1, 2), has_aux=True))(*given)


def by_dense(view: View, scale: float):
    def attend(q, k, v):
        q, k, v = q.swapaxes(1, 2), k.transpose(0, 2, 3, 1), v.swapaxes(1, 2)
        return dense.mix(q, k, v, view, lambda w: w, scale)[0].swapaxes(1, 2)

    return attend


def agree(one, two) -> None:
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=2e-5, atol=2e-5), one, two)


@pytest.mark.one_in(3)
@pytest.mark.parametrize("order", ["all", "causal", "across"])
@pytest.mark.parametrize(("queries", "keys", "heads"), [(5, 5, (2, 2)), (33, 33, (4, 2))])
def test_kernels_equal_dense_attention(order, queries, keys, heads):
    """Values and gradients, for numbers of positions that fill no block."""
    keys += 4 * (order == "across")
    view, given = view_of(queries, keys, order), heads_of(queries, keys, *heads)
    mask = view.mask()[:, 0]
    attend = functools.partial(short.attend, mask=mask, scale=0.3, interpret=True)
    agree(
        value_and_gradients(attend, *given),
        value_and_gradients(by_dense(view, 0.3), *given),
    )


def test_fused_attention_takes_them_where_they_fit(monkeypatch):
    """On a GPU, for sequences of up to 128 positions and heads of a power of 2."""
    monkeypatch.setattr(fused, "why_not_here", lambda *_: None)
    interpreted = functools.partial(short.attend_on_mesh, interpret=True)
    monkeypatch.setattr(short, "attend_on_mesh", interpreted)
    view = view_of(7, 7, "causal")
    q, k, v = heads_of(7, 7, 2, 2)
    q, k, v = q.swapaxes(1, 2), k.transpose(0, 2, 3, 1), v.swapaxes(1, 2)
    mixed = [kernel.mix(q, k, v, view, lambda w: w)[0] for kernel in (fused, dense)]
    np.testing.assert_allclose(*mixed, rtol=2e-5, atol=2e-5)
    for length, size, whether in ((128, 64, True), (129, 64, False), (64, 48, False)):
        x = jnp.zeros((2, length, 2, size), jnp.bfloat16)
        assert short.fits(x, x, x) == whether


def test_their_operations_count_once_per_row_and_head():
    """As many as of dense attention, at sizes that fill the blocks."""
    given, scale = heads_of(32, 32, 4, 2), 0.3
    mask = jnp.ones((BATCH, 32, 32), bool)
    counted = operations(program(lambda *x: short.attend(*x, mask, scale, True), *given))
    assert counted.products == 2 * 2 * BATCH * 4 * 32 * 32 * SIZE
    assert not counted.missing
