"""LSH attention: what depends on what, and what it approximates."""

import functools

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from transformer_jax.config import ModelConfig
from transformer_jax.nn.mixers.lsh import Lsh
from transformer_jax.nn.view import self_view

LENGTHS = (17, 9, 1)


def build(length: int, order: str, **fields):
    """Return a mixer, its parameters, texts of LENGTHS in rows of a length, and their view."""
    config = ModelConfig(
        d_model=6, num_heads=2, head_dim=4, v_head_dim=3, decoder_pattern=("lsh",),
        hash_buckets=4, **fields,
    )  # fmt: skip
    mixer = Lsh(config, jnp.dtype("float32"))
    chance = np.random.default_rng(0)
    x = np.full((3, length, 6), 9, np.float32)  # arbitrary padding
    for row, count in enumerate(LENGTHS):
        x[row, :count] = chance.normal(size=(count, 6))
    pos = jnp.broadcast_to(jnp.arange(length), (3, length))
    seg = (pos < jnp.asarray(LENGTHS)[:, None]).astype(jnp.int32)
    view = self_view(pos, seg, order, single=True)
    init = functools.partial(mixer.init, jax.random.key(0), method="mix", train=False)
    shapes = jax.eval_shape(lambda x: init(x, view), jnp.asarray(x))
    draw = np.random.default_rng(1).normal
    params = jax.tree.map(lambda leaf: jnp.asarray(draw(size=leaf.shape), jnp.float32), shapes)
    return mixer, params, jnp.asarray(x), view


def parts(length: int, order: str, **fields):
    """Return the mixer as a function of x, texts of LENGTHS in rows of a length, and an x."""
    mixer, params, x, view = build(length, order, **fields)
    return lambda x: mixer.apply(params, x, view, False, method="mix")[0], x


def mixed(length: int, order: str, **fields) -> list[np.ndarray]:
    gather, x = parts(length, order, **fields)
    y = jax.jit(gather)(x)
    return [np.asarray(y[row, :count]) for row, count in enumerate(LENGTHS)]


def test_padding_changes_nothing():
    """Blocks are formed after sorting, which puts padding last."""
    fields = {"block_size": 4, "hash_rounds": 2}
    for ours, other in zip(mixed(29, "all", **fields), mixed(17, "all", **fields), strict=True):
        np.testing.assert_allclose(ours, other, rtol=1e-4, atol=1e-5)


def test_no_gradient_comes_from_the_future():
    """The block of a position may depend on the future; what it attends to there does not."""
    gather, x = parts(17, "causal", block_size=4)
    slopes = jax.jit(jax.jacrev(lambda row: gather(x.at[0].set(row))[0].sum(-1)))(x[0])
    found = np.abs(np.asarray(slopes)).max(-1)  # [T S]
    assert (found[np.triu_indices(17, 1)] == 0).all()
    assert (found > 0).sum() > 60


def by_hand(block_size: int) -> np.ndarray:
    """Return the output of attention to all positions: keys are queries scaled to length 1, and a
    position attends to itself only if there is nothing else (Kitaev et al. 2020, section 2).
    """
    _, params, x, _ = build(17, "all", block_size=block_size)
    params = jax.tree.map(np.float64, nn.unbox(params["params"]))
    found = []
    for row, count in enumerate(LENGTHS):
        text = np.float64(x[row, :count])
        q, v = (
            np.einsum("TD,DNH->NTH", text, params[name]["kernel"]) + params[name]["bias"][:, None]
            for name in ("query_key", "value")
        )
        k = q / np.linalg.norm(q, axis=-1, keepdims=True)
        scores = np.einsum("NTH,NSH->NTS", q, k)
        scores -= 1e5 * np.eye(count)
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        gathered = np.einsum("NTS,NSH->TNH", weights / weights.sum(-1, keepdims=True), v)
        out = params["output"]
        found.append(np.einsum("TNH,NHD->TD", gathered, out["kernel"]) + out["bias"])
    return np.concatenate(found)


def test_one_block_is_full_attention():
    """With any number of rounds; and larger blocks come closer to it."""
    whole = np.concatenate(mixed(17, "all", block_size=32, hash_rounds=1))
    np.testing.assert_allclose(whole, by_hand(32), rtol=1e-4, atol=1e-4)
    several = np.concatenate(mixed(17, "all", block_size=17, hash_rounds=3))
    np.testing.assert_allclose(several, whole, rtol=1e-4, atol=1e-5)
    away = [
        np.abs(np.concatenate(mixed(17, "all", block_size=size, hash_rounds=2)) - whole).mean()
        for size in (1, 4, 9)
    ]
    assert away[0] > away[1] > away[2]
