"""Windowed attention in blocks equals masked attention over all pairs, whatever else is set."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tiny import SMALL_TABLES

from transformer_jax.config import ModelConfig
from transformer_jax.nn.mixers.attention import Attention
from transformer_jax.nn.mixers.kinds import MIXERS
from transformer_jax.nn.view import self_view

# Three sentences and padding in one row, two in another.
SEG = np.repeat([[1, 2, 3, 0], [1, 1, 2, 2]], [5, 9, 2, 3], axis=1)
POS = np.array([[*range(5), *range(9), 0, 1, 0, 0, 0], [*range(14), *range(5)]])
LENGTH = SEG.shape[1]
FORMS = {
    "none": {"num_kv_heads": 1}, "rope": {}, "alibi": {}, "xlnet": {},
    "shaw_values": SMALL_TABLES["shaw_values"] | {"share_relative_positions": True},
    "toeplitz": SMALL_TABLES["toeplitz"],
}  # fmt: skip
CASES = [
    ("local", "causal", 3, "none"), ("dilated", "causal", 3, "rope"), ("local", "all", 1, "alibi"),
    ("dilated", "all", 2, "xlnet"), ("local", "all", 4, "shaw_values"),
    pytest.param("dilated", "causal", 2, "toeplitz", marks=pytest.mark.e2e),
]  # fmt: skip


@pytest.mark.one_in(2)
@pytest.mark.parametrize(("kind", "order", "window", "scheme"), CASES)
def test_blocks_equal_a_mask(kind, order, window, scheme, monkeypatch):
    """Outputs, gradients and weights; sentences begin anywhere in a block."""
    config = ModelConfig(
        d_model=6, num_heads=2, head_dim=4, v_head_dim=3, relative_positions=scheme, window=window,
        encoder_pattern=(kind,), num_encoder_layers=1, **FORMS[scheme],
    )  # fmt: skip
    with jax.enable_x64(True):
        mixer = MIXERS[kind](config, jnp.dtype("float64"))
        chance = np.random.default_rng(0)
        x = jnp.asarray(chance.normal(size=(2, LENGTH, 6)))
        view = self_view(jnp.asarray(POS), jnp.asarray(SEG), order)
        init = functools.partial(mixer.init, jax.random.key(0), method="mix", train=False)
        shapes = jax.eval_shape(lambda x: init(x, view), x)
        params = jax.tree.map(lambda leaf: jnp.asarray(chance.normal(size=leaf.shape)), shapes)
        real, pairs = view.q_seg[..., None] > 0, (view.q_seg > 0)[:, None, :, None]

        @jax.jit
        def both(params, x):
            def total(params, x):
                y, weights = mixer.apply(params, x, view, False, method="mix")
                y = jnp.where(real, y, 0)
                return jnp.sum(jnp.sin(y)), (y, jnp.where(pairs, weights, 0))

            return jax.value_and_grad(total, (0, 1), has_aux=True)(params, x)

        ours = both(params, x)
        both.clear_cache()
        monkeypatch.setattr(MIXERS[kind], "_gather", Attention._gather)
        expected = both(params, x)
        close = functools.partial(np.testing.assert_allclose, rtol=1e-9, atol=1e-12)
        jax.tree.map(close, ours, expected)
        assert (np.asarray(ours[0][1][1]).sum((1, 3)) > 0).sum() == (SEG > 0).sum()
