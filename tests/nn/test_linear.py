"""Linear maps applied together equal the same maps applied one by one."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax.errors import ScopeParamShapeError

from transformer_jax.nn.linear import Project, project_together


@pytest.mark.parametrize("sizes", [(3, 3, 3), (3, 3, 5)])
def test_together_equals_one_by_one(sizes):
    """Whether or not their shapes allow one product, the results come in the order of the maps."""
    names = ("embed", "heads", "head_dim")
    maps = [Project((8,), (2, size), names, jnp.dtype(jnp.float32)) for size in sizes]
    x = jnp.asarray(np.random.default_rng(0).normal(size=(4, 5, 8)), jnp.float32)
    shapes = [{"kernel": (8, 2, size), "bias": (2, size)} for size in sizes]
    keys = iter(jax.random.split(jax.random.key(0), 6))
    params = [{n: jax.random.normal(next(keys), s) for n, s in shape.items()} for shape in shapes]
    bound = [m.bind({"params": p}) for m, p in zip(maps, params, strict=True)]
    together = project_together(x, bound)
    for found, p in zip(together, params, strict=True):
        expected = jnp.einsum("BTD,DNH->BTNH", x, p["kernel"]) + p["bias"][None, None]
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("biases", [(True, True, True), (True, False, True), (False,) * 3])
def test_maps_with_and_without_bias_share_one_product(biases):
    """A map without a bias is stacked with the others, and has no such parameter."""
    names = ("embed", "heads", "head_dim")
    maps = [Project((8,), (2, 3), names, jnp.dtype(jnp.float32), bias) for bias in biases]
    x = jnp.ones((4, 5, 8))
    params = [m.init(jax.random.key(i), x)["params"] for i, m in enumerate(maps)]
    params = jax.tree.map(lambda leaf: leaf + 0.5, nn.unbox(params))
    assert [set(p) for p in params] == [{"kernel", *["bias"] * bias} for bias in biases]

    def apply(x):
        return project_together(
            x, [m.bind({"params": p}) for m, p in zip(maps, params, strict=True)]
        )

    assert str(jax.make_jaxpr(apply)(x)).count("dot_general") == 1
    for found, m, p in zip(apply(x), maps, params, strict=True):
        np.testing.assert_allclose(found, m.apply({"params": p}, x), rtol=1e-6)


@pytest.mark.parametrize("ins", [(9,), (3,), (3, 4)], ids=["high", "wide", "of two axes"])
@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16])
def test_gradients_equal_those_of_the_plain_product(ins, dtype):
    """Whichever form is fast: kernels taller than wide, wider than tall, of several axes."""
    module = Project(ins, (5,), ("embed",) * len(ins) + ("mlp",), jnp.dtype(dtype))
    chance = np.random.default_rng(0)
    x = jnp.asarray(chance.normal(size=(2, 4, *ins)), jnp.float32)
    kernel = jnp.asarray(chance.normal(size=(*ins, 5)), jnp.float32)
    away = jnp.asarray(chance.normal(size=(2, 4, 5)), jnp.float32)

    def ours(x, kernel):
        params = {"kernel": kernel, "bias": jnp.zeros(5)}
        return (module.apply({"params": params}, x).astype(jnp.float32) * away).sum()

    def plain(x, kernel):
        return (jnp.tensordot(x, kernel, len(ins)) * away).sum()

    near = {"rtol": 1e-5, "atol": 1e-5} if dtype == jnp.float32 else {"rtol": 0.1, "atol": 0.1}
    for found, expected in zip(
        jax.jit(jax.grad(ours, (0, 1)))(x, kernel), jax.grad(plain, (0, 1))(x, kernel), strict=True
    ):
        np.testing.assert_allclose(found, expected, **near)


def test_parameters_of_the_wrong_shape_are_rejected():
    """Even where they could be broadcast."""
    module = Project((8,), (2, 3), ("embed", "heads", "head_dim"), jnp.dtype(jnp.float32))
    kernel, bias = np.ones((8, 2, 3), np.float32), np.ones((2, 3), np.float32)
    x = jnp.ones((4, 5, 8))
    assert module.apply({"params": {"kernel": kernel, "bias": bias}}, x).shape == (4, 5, 2, 3)
    for wrong in ({"kernel": kernel[:, :1], "bias": bias}, {"kernel": kernel, "bias": bias[:1]}):
        with pytest.raises(ScopeParamShapeError, match=r"\(1, 3\)|\(8, 1, 3\)"):
            module.apply({"params": wrong}, x)


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16])
def test_one_vector_per_row_has_gradients_through_several_output_axes(dtype):
    """As a condition has, in any precision: a CPU flattens only float32, and XLA compiles products
    of bfloat16 that it cannot run. Arguments, not constants, which it would fold.
    """
    one = Project((8,), (2, 3), ("embed", None, "features"), jnp.dtype(dtype))
    x, kernel, gradient = (
        jax.random.normal(jax.random.key(i), shape)
        for i, shape in enumerate([(4, 8), (8, 2, 3), (4, 2, 3)])
    )

    @jax.jit
    @jax.grad
    def found(kernel, x, gradient):
        params = {"kernel": kernel, "bias": jnp.zeros((2, 3))}
        return (one.apply({"params": params}, x).astype(jnp.float32) * gradient).sum()

    expected = jnp.einsum("BD,BEF->DEF", x, gradient)
    np.testing.assert_allclose(found(kernel, x, gradient), expected, rtol=0.05, atol=0.05)
