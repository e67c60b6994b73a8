"""BigBird's blocks: what each attends to, and that padding changes nothing."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from transformer_jax.config import ModelConfig
from transformer_jax.nn.mixers.attention import Attention
from transformer_jax.nn.mixers.block_sparse import BlockSparse, attended_blocks
from transformer_jax.nn.view import self_view

LENGTHS = (17, 9, 4, 1)


def mixed(kind, length: int, drawn: int):
    """Return the output for each text, in rows of a length."""
    config = ModelConfig(
        d_model=6, num_heads=2, num_kv_heads=1, head_dim=4, v_head_dim=3, block_size=2,
        random_blocks=drawn, encoder_pattern=("bigbird",),
    )  # fmt: skip
    mixer = kind(config, jnp.dtype("float32"))
    chance = np.random.default_rng(0)
    x = np.zeros((4, length, 6), np.float32)
    for row, count in enumerate(LENGTHS):
        x[row, :count] = chance.normal(size=(count, 6))
    x[x == 0] = 9.0  # arbitrary padding
    pos = jnp.broadcast_to(jnp.arange(length), (4, length))
    seg = (pos < jnp.asarray(LENGTHS)[:, None]).astype(jnp.int32)
    view = self_view(pos, seg, "all", single=True)
    init = functools.partial(mixer.init, jax.random.key(0), method="mix", train=False)
    shapes = jax.eval_shape(lambda x: init(x, view), jnp.asarray(x))
    draw = np.random.default_rng(1).normal
    params = jax.tree.map(lambda leaf: jnp.asarray(draw(size=leaf.shape), jnp.float32), shapes)
    y = jax.jit(lambda p, x: mixer.apply(p, x, view, False, method="mix")[0])(
        params, jnp.asarray(x)
    )
    return [np.asarray(y[row, :count]) for row, count in enumerate(LENGTHS)]


def test_attention_to_all_blocks_is_full_attention():
    for ours, expected in zip(mixed(BlockSparse, 18, 9), mixed(Attention, 18, 9), strict=True):
        np.testing.assert_allclose(ours, expected, rtol=1e-4, atol=1e-5)


def test_padding_changes_nothing():
    """The blocks of a text are counted by its own length and drawn independently of padding."""
    for ours, expected in zip(mixed(BlockSparse, 29, 1), mixed(BlockSparse, 17, 1), strict=True):
        np.testing.assert_allclose(ours, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("drawn", [0, 2, 30])
def test_blocks_attend_to_fixed_and_random_blocks(drawn):
    """Each once, and as many as requested if the text has enough; draws mostly differ by row."""
    own = [1, 2, 3, 6, 20]
    blocks, there = map(np.asarray, attended_blocks(jnp.asarray(own), 20, drawn, seed=4))
    for row, count in enumerate(own):
        for i in range(count):
            found = blocks[row, i][there[row, i]].tolist()
            fixed = {0, i - 1, i, i + 1, count - 1} & {*range(count)}
            assert len(found) == len({*found})
            assert fixed <= {*found} <= {*range(count)}
            assert len(found) == min(count, len(fixed) + drawn)
    if drawn == 2:
        others = [frozenset(blocks[4, i, 5:].tolist()) for i in range(20)]
        assert len({*others}) > 15
