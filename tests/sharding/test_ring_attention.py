"""Attention in blocks, on one device and on a ring of several, equals attention to every pair."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import NamedSharding, PartitionSpec

from transformer_jax.config import MeshConfig, ModelConfig
from transformer_jax.experiments.collectives import collectives
from transformer_jax.nn.mixers import dense, ring
from transformer_jax.nn.relative_positions import RELATIVE_POSITIONS
from transformer_jax.nn.view import cross_view, self_view
from transformer_jax.sharding.mesh import make_mesh


@pytest.fixture(autouse=True)
def float64():
    with jax.enable_x64(True):
        yield


BATCH, HEADS, LENGTH, SIZE = 2, 4, 32, 6
RNG = np.random.default_rng(0)
Q = RNG.normal(size=(BATCH, HEADS, LENGTH, SIZE))
K = RNG.normal(size=(BATCH, 2, SIZE, LENGTH))  # two query heads share a key head
V = RNG.normal(size=(BATCH, 2, LENGTH, 5))
# A row of two texts and padding, and a row of one.
SEG = np.array([[1] * 12 + [2] * 15 + [0] * 5, [1] * LENGTH])
POS = np.array([[*range(12), *range(15), *range(5)], [*range(LENGTH)]])
RANK = RNG.integers(0, 9, (BATCH, LENGTH))
TABLE = RNG.normal(size=(2 * LENGTH + 1, HEADS))


def by_distance(view, q, k, scale):
    (table,) = view.tables
    return jnp.moveaxis(table[jnp.clip(view.distance(), -LENGTH, LENGTH) + LENGTH], -1, 1)


def view_of(order: str, table, **changes):
    rank = jnp.asarray(RANK) if order == "ranked" else None
    view = self_view(jnp.asarray(POS), jnp.asarray(SEG), order, rank)
    return replace(view, bias=by_distance, tables=(table,), **changes)


def gradients(mix, mesh: MeshConfig, view, q=Q, k=K, v=V):
    """Return what is gathered where there is a text, and the gradients of a function of it."""

    def total(q, k, v, table):
        seen = view(table)
        mixed = mix(q, k, v, seen, lambda weights: weights)[0]
        mixed = jnp.where((seen.q_seg > 0)[:, None, :, None], mixed, 0)
        return jnp.sin(3 * mixed).sum(), mixed

    sizes = mesh.data * mesh.context * mesh.ulysses
    with jax.set_mesh(make_mesh(mesh, jax.devices()[:sizes])):
        function = jax.jit(jax.value_and_grad(total, (0, 1, 2, 3), has_aux=True))
        return jax.device_get(function(q, k, v, TABLE))


def agree(found, expected):
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-11, atol=1e-11), found, expected
    )


@pytest.mark.parametrize("order", ["causal", "all", "ranked"])
@pytest.mark.parametrize("block", [512, 5], ids=["one block", "padded blocks"])
def test_blocks_equal_every_pair(order, block, monkeypatch):
    """With a bias whose table learns, and a window."""
    monkeypatch.setattr(ring, "_BLOCK", block)

    def view(table):
        return view_of(order, table, window=9 if block == 5 else None)

    agree(gradients(ring.mix, MeshConfig(1), view), gradients(dense.mix, MeshConfig(1), view))


@pytest.mark.parametrize(
    ("order", "mesh", "block"),
    [
        ("causal", MeshConfig(1, context=4), 512),
        pytest.param("causal", MeshConfig(2, context=2), 3, marks=pytest.mark.thorough),
        pytest.param("all", MeshConfig(1, context=8), 512, marks=pytest.mark.thorough),
        pytest.param("ranked", MeshConfig(2, context=4), 3, marks=pytest.mark.thorough),
    ],
)
def test_a_ring_equals_one_device(order, mesh, block, monkeypatch):
    """Values, and the gradients of queries, keys, values and the table of a bias: to rounding."""
    monkeypatch.setattr(ring, "_BLOCK", block)

    def view(table):
        return view_of(order, table)

    agree(gradients(ring.mix, mesh, view), gradients(dense.mix, MeshConfig(1), view))


@pytest.mark.thorough
def test_queries_and_keys_of_different_lengths():
    """Cross-attention: each device has a part of either."""
    pos, seg = (jnp.asarray(x[:, :16]) for x in (POS, SEG))

    def view(table):
        return replace(
            cross_view(pos, seg, jnp.asarray(POS), jnp.asarray(SEG)),
            bias=by_distance, tables=(table,),
        )  # fmt: skip

    meshes = MeshConfig(1, context=4), MeshConfig(1)
    found, expected = (
        gradients(mix, mesh, view, Q[:, :, :16])
        for mix, mesh in zip((ring.mix, dense.mix), meshes, strict=True)
    )
    agree(found, expected)


def test_half_of_the_work_is_left_to_each_device():
    """Of a causal row each device has a part from either end, and skips blocks of later keys: as
    many as any other.
    """
    count, half = 4, 3

    def parts(x):
        return ring._exchange(x, 0), ring._exchange(ring._exchange(x, 0), 0, back=True)

    with jax.set_mesh(make_mesh(MeshConfig(1, context=count), jax.devices()[:count])):
        spec = PartitionSpec("context")
        mapped = jax.shard_map(
            parts, in_specs=spec, out_specs=spec, axis_names={"context"}, check_vma=False
        )
        there, back = jax.device_get(jax.jit(mapped)(jnp.arange(2 * count * half)))
    np.testing.assert_array_equal(back, np.arange(2 * count * half))
    own = (there.reshape(count, 2, half)[:, :, 0] // half).tolist()
    assert [sorted(pair) for pair in own] == [[i, 2 * count - 1 - i] for i in range(count)]
    left = [sum(key <= query for query in pair for key in range(2 * count)) for pair in own]
    assert left == [2 * count + 1] * count


@pytest.mark.parametrize("name", [x for x in RELATIVE_POSITIONS if x != "shaw_values"])
def test_a_bias_reads_only_the_tables_of_its_view(name):
    """Or the kernel's own gradient would miss them. Shaw's values have no such kernel."""
    config = ModelConfig(d_model=24, num_heads=4, relative_positions=name)
    scheme = RELATIVE_POSITIONS[name](config)
    view = self_view(jnp.asarray(POS), jnp.asarray(SEG), "causal")
    params = scheme.init(jax.random.key(0), view)
    looked = scheme.apply(params, view)
    if looked.bias is None:
        return
    assert len(looked.tables) == len(jax.tree.leaves(params))

    def total(tables):
        seen = replace(looked, tables=tables)
        return jnp.sin(looked.bias(seen, jnp.asarray(Q), jnp.asarray(K), 0.3)).sum()

    slopes = jax.grad(total)(looked.tables)
    assert all(float(jnp.abs(slope).max()) > 0 for slope in slopes)


def test_a_ring_sends_each_part_to_all_others_but_one():
    """Keys, values and the segments by which a mask knows them: n - 1 times a part of n."""

    def gathered(q, k, v):
        view = self_view(jnp.asarray(POS), jnp.asarray(SEG), "all")
        return ring.mix(q, k, v, view, lambda weights: weights)[0]

    mesh = make_mesh(MeshConfig(1, context=4), jax.devices()[:4])
    queries, keys = (
        NamedSharding(mesh, PartitionSpec(*[None] * axis, "context")) for axis in (2, 3)
    )
    with jax.set_mesh(mesh):
        function = jax.jit(gathered, in_shardings=(queries, keys, queries), out_shardings=queries)
        found = collectives(function.lower(Q, K, V).compile().as_text())
    segments = BATCH * LENGTH * 8  # bytes
    assert {each.kind for each in found} == {"collective-permute"}
    assert sum(each.sent for each in found) == 3 / 4 * (K.nbytes + V.nbytes + segments)
