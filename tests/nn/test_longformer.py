"""Longformer's windows and global positions in blocks equal the paper's formula in NumPy."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from transformer_jax.base import counting
from transformer_jax.config import ModelConfig
from transformer_jax.nn.mixers.longformer import Longformer
from transformer_jax.nn.view import self_view

LENGTHS, LENGTH = (17, 6, 1), 19
CONFIG = ModelConfig(
    d_model=6, num_heads=2, num_kv_heads=1, head_dim=4, v_head_dim=3, window=3, global_tokens=2,
    encoder_pattern=("longformer",),
)  # fmt: skip
MIXER = Longformer(CONFIG, jnp.dtype("float32"))
VIEWS = [(jnp.arange(n)[None], jnp.ones((1, n), jnp.int32)) for n in (2, 256, 1024)]


def shapes_of():
    """Return the parameters as shapes."""
    x, view = jnp.zeros((1, 2, 6)), self_view(*VIEWS[0], "all", single=True)
    init = jax.eval_shape(lambda: MIXER.init(jax.random.key(0), x, view, False, method="mix"))
    return nn.unbox(init)


def by_hand(p, x):
    """Return the output for one text [T D], and the weights [N T T]."""
    length = len(x)
    maps = {name: np.einsum("td,dnh->nth", x, part["kernel"]) + part["bias"][:, None]
            for name, part in p.items() if name != "output"}  # fmt: skip
    near = np.abs(np.subtract.outer(np.arange(length), np.arange(length))) < 3
    near[:, :2] = True
    weights, mixed = np.zeros((2, 2, length, length)), np.zeros((2, 2, length, 3))
    for kind, (prefix, seen) in enumerate((("", near), ("global_", np.ones_like(near)))):
        q, (k,), (v,) = (maps[f"{prefix}{name}"] for name in ("query", "key", "value"))
        scores = np.where(seen, np.exp(q @ k.T / 2), 0)
        weights[kind] = scores / scores.sum(-1, keepdims=True)
        mixed[kind] = weights[kind] @ v
    first = (np.arange(length) < 2)[None, :, None]
    mixed, weights = (np.where(first, y[1], y[0]) for y in (mixed, weights))
    return np.einsum("nth,nhd->td", mixed, p["output"]["kernel"]) + p["output"]["bias"], weights


def test_blocks_equal_the_formula():
    """For texts longer and shorter than a block, whatever the padding holds."""
    chance = np.random.default_rng(0)
    params = jax.tree.map(lambda leaf: chance.normal(size=leaf.shape) / 2, shapes_of())
    x = chance.normal(size=(3, LENGTH, 6))
    pos = jnp.broadcast_to(jnp.arange(LENGTH), (3, LENGTH))
    seg = (pos < jnp.asarray(LENGTHS)[:, None]).astype(jnp.int32)
    view = self_view(pos, seg, "all", single=True)
    given = jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.float32), (params, x))
    y, weights = jax.jit(lambda p, x: MIXER.apply(p, x, view, False, method="mix"))(*given)
    for row, length in enumerate(LENGTHS):
        expected, theirs = by_hand(params["params"], x[row, :length])
        np.testing.assert_allclose(y[row, :length], expected, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(weights[row, :, :length, :length], theirs, atol=1e-6)
        assert not np.asarray(weights[row, :, :length, length:]).any()


def test_operations_are_linear_in_the_length():
    def operations(pos, seg):
        view = self_view(pos, seg, "all", single=True)
        program = counting.program(
            lambda p, x: MIXER.apply(p, x, view, False, method="mix")[0],
            shapes_of(), jax.ShapeDtypeStruct((*pos.shape, 6), jnp.float32),
        )  # fmt: skip
        return counting.operations(program).products

    few, many = (operations(*rows) for rows in VIEWS[1:])
    assert 3.9 * few < many < 4.1 * few
