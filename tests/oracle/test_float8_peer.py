"""Products in 8 bits against torch's formats (`make oracle`)."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from transformer_jax.nn.float8 import multiply

pytestmark = pytest.mark.oracle


@pytest.mark.parametrize("size", [1e-6, 1.0, 3e4])
def test_products_and_gradients(size):
    """Operands rounded by torch, and multiplied in float64."""
    import torch

    rng = np.random.default_rng(0)
    x, kernel, slopes = (
        (scale * rng.normal(size=shape)).astype(np.float32)
        for scale, shape in [(size, (2, 9, 16)), (0.1, (16, 11)), (1e-4 / size, (2, 9, 11))]
    )

    def rounded(a: np.ndarray, dtype: torch.dtype) -> np.ndarray:
        fits = math.frexp(float(np.abs(a).max()) / torch.finfo(dtype).max)[1]
        scaled = torch.tensor(a.reshape(-1, a.shape[-1])) * 2.0**-fits
        return scaled.to(dtype).double().numpy() * 2.0**fits

    of_x, of_kernel = (rounded(a, torch.float8_e4m3fn) for a in (x, kernel))
    of_slopes = rounded(slopes, torch.float8_e5m2)
    y, back = jax.vjp(lambda x, w: multiply(x, w, 1), jnp.asarray(x), jnp.asarray(kernel))
    dx, dkernel = back(jnp.asarray(slopes))
    for found, expected in [
        (y, of_x @ of_kernel), (dx, of_slopes @ of_kernel.T), (dkernel, of_x.T @ of_slopes)
    ]:  # fmt: skip
        scale = np.abs(expected).max()
        np.testing.assert_allclose(
            found, expected.reshape(found.shape), rtol=1e-5, atol=1e-6 * scale
        )
