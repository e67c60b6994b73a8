"""Maps applied together are the same maps."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from transformer_jax.nn.linear import Project, project_together


@pytest.mark.parametrize("sizes", [(3, 3, 3), (3, 3, 5)])
def test_together_is_one_by_one(sizes):
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
