"""Counts in a program: every product as often as it runs, and peak memory."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh, PartitionSpec

from transformer_jax.base.counting import memory, operations, parameters, program

X = jax.ShapeDtypeStruct((4, 4), jnp.float32)
ONE = 2 * 4**3  # operations of a product of two such matrices


def loop(x):
    return jax.lax.scan(lambda x, _: (x @ x, None), x, None, length=5)[0]


def gradient(function):
    return jax.value_and_grad(lambda x: function(x).sum())


def on_a_mesh(x):
    mesh = Mesh(np.array(jax.devices()[:2]), ("rows",))
    rows, whole = PartitionSpec("rows"), PartitionSpec()
    both = jax.shard_map(lambda x, w: x @ w, mesh=mesh, in_specs=(rows, whole), out_specs=rows)
    return both(x, x)


def branches(x):
    return jax.lax.cond(x[0, 0] > 0, lambda x: x @ x @ x, lambda x: x @ x, x)


def convolution(x):
    return jax.lax.conv_general_dilated(x[None], x[:3, :, None], (1,), "VALID",
                                        dimension_numbers=("NWC", "WIO", "NWC"))  # fmt: skip


@pytest.mark.parametrize(
    ("function", "count"),
    [
        (lambda x: x + x, 0),
        (lambda x: x @ x, ONE),
        (lambda x: jnp.einsum("ab,cd->abcd", x, x), 2 * 4**4),
        (jax.jit(lambda x: jax.vmap(lambda row: x @ row)(x)), ONE),
        (loop, 5 * ONE),
        (gradient(loop), 15 * ONE),
        (gradient(lambda x: jnp.sin(x @ x)), 3 * ONE),
        # Recomputed for the backward pass, but for the last product, whose value no gradient needs.
        (gradient(jax.checkpoint(lambda x: jnp.sin(x @ x) @ x)), 7 * ONE),
        (on_a_mesh, ONE),
        (branches, 2 * ONE),
        (lambda x: jax.lax.fori_loop(0, 3, lambda _, x: x @ x, x), 3 * ONE),
        (convolution, 2 * (3 * 4) * 2),  # two positions, a window of 3, 4 features into one
        (lambda x: (x @ x, x + 1)[1], 0),  # nothing depends on it
        (lambda x: jax.jit(lambda x: (x @ x, x + 1))(x)[1], 0),
    ],
)
def test_matrix_products_are_counted(function, count):
    assert operations(program(function, X)) == (count, ())


@pytest.mark.parametrize(
    ("function", "count", "words"),
    [
        (lambda x: jax.lax.while_loop(lambda x: x.sum() > 0, lambda x: x @ x, x), ONE, "iteration"),
        (lambda x: jnp.linalg.cholesky(x), 0, "'cholesky' are not known"),
        (lambda x: jax.ffi.ffi_call("elsewhere", X)(x), 0, "'ffi_call' are not known"),
    ],
)
def test_unknown_operations_are_reported(function, count, words):
    products, (shown,) = operations(program(function, X))
    assert products == count
    assert words in shown


def test_peak_memory():
    """Arguments are freed after their last use; a loop holds one iteration and all its results."""
    size = 4 * 16
    assert memory(program(lambda x: x + 1, X)) == 2 * size
    assert memory(program(lambda x: jnp.sin(x) @ jnp.cos(x), X)) == 3 * size
    assert memory(program(lambda x: jnp.sin(jnp.cos(jnp.tan(x))), X)) == 2 * size
    kept = program(lambda x: jax.lax.scan(lambda x, _: (x + 1, x), x, None, length=5), X)
    assert 7 * size <= memory(kept) <= 8 * size


def test_rematerialisation_reduces_peak_memory():
    """Four layers keep four arrays each for the backward pass, or only their input."""

    def layers(layer, x):
        for _ in range(4):
            x = layer(x)
        return x

    def layer(x):
        return jnp.sin(jnp.sin(jnp.sin(jnp.sin(x))))

    kept = memory(program(gradient(lambda x: layers(layer, x)), X))
    again = memory(program(gradient(lambda x: layers(jax.checkpoint(layer), x)), X))
    assert kept > 16 * 64
    assert again < (4 + 8) * 64


def test_parameters():
    assert parameters({"a": jnp.ones((2, 3)), "b": [X, jnp.ones(())]}) == 6 + 16 + 1
