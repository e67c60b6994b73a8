"""Hand-written gradients of attention products equal JAX's own."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from transformer_jax.nn.mixers import dense

RNG = np.random.default_rng(0)
Q, K, V, WEIGHTS, GROUPED, GROUPED_WEIGHTS = (
    RNG.normal(size=shape)
    for shape in ((2, 3, 5, 8), (2, 3, 8, 7), (2, 3, 7, 4), (2, 3, 5, 7), (2, 3, 2, 5, 8),
                  (2, 3, 2, 5, 7))
)  # fmt: skip
PRODUCTS = {
    "scores": (dense._scores, "BNTH,BNHS->BNTS", Q, K),
    "gathered": (dense._gathered, "BNTS,BNSH->BNTH", WEIGHTS, V),
    "scores of groups": (dense._scores, "BKGTH,BKHS->BKGTS", GROUPED, K),
    "gathered by groups": (dense._gathered, "BKGTS,BKSH->BKGTH", GROUPED_WEIGHTS, V),
}


@pytest.mark.parametrize("on_cpu", [True, False])
@pytest.mark.parametrize("dtype", ["float64", "bfloat16"])
@pytest.mark.parametrize("name", PRODUCTS)
def test_gradients_equal_those_of_einsum(name, dtype, on_cpu, monkeypatch):
    """In both forms, to the precision of the type in which the products are computed."""
    monkeypatch.setattr(dense, "on_cpu", lambda: on_cpu)
    product, einsum, *operands = PRODUCTS[name]
    with jax.enable_x64():
        a, b = (jnp.asarray(x, dtype) for x in operands)

        def total(product, a, b):
            return jnp.sin(product(a, b).astype(jnp.float64)).sum()

        found = jax.jit(jax.grad(total, (1, 2)), static_argnums=0)(product, a, b)
        wide = (x.astype(jnp.float64) for x in (a, b))
        expected = jax.grad(total, (1, 2))(lambda a, b: jnp.einsum(einsum, a, b), *wide)
        for one, two in zip(found, expected, strict=True):
            assert one.dtype == dtype
            tolerance = 1e-12 if dtype == "float64" else 0.03
            np.testing.assert_allclose(
                np.asarray(one, np.float64), two, rtol=tolerance, atol=tolerance * 5
            )
