"""Trees of small arrays as words, and back, on the host and on each device."""

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from transformer_jax.decoding.batching.packing import Layout, joined, pack

DEVICES, RNG = 2, np.random.default_rng(0)
TREE: dict[str, np.ndarray] = {
    "ids": RNG.integers(-9, 9, (6, 3)).astype(np.int32),
    "scores": RNG.normal(size=(4, 2, 2)).astype(np.float32),
    "seeds": RNG.integers(0, 2**32, 2).astype(np.uint32),
    "nothing": np.zeros((2, 0), np.int32),
    "exact": RNG.normal(size=(2, 3)),
}


def test_what_is_packed_is_read_again_on_each_device_and_by_the_host():
    """Types of 4 and 8 bytes, and in what devices return truth values as well."""
    mesh = Mesh(jax.devices()[:DEVICES], "rows")
    rows = PartitionSpec("rows")
    words, layout = pack(TREE, DEVICES)

    def turned(words):
        tree = layout.split(words)
        return joined(jax.tree.leaves(tree | {"flags": tree["ids"] > 0}))

    with jax.enable_x64(True):
        words = jax.device_put(words, NamedSharding(mesh, rows))
        found = jax.jit(jax.shard_map(turned, mesh=mesh, in_specs=rows, out_specs=rows))(words)
    expected = TREE | {"flags": TREE["ids"] > 0}
    found = Layout.of(expected, DEVICES).split(np.asarray(found))
    jax.tree.map(np.testing.assert_array_equal, found, expected)
    assert [x.dtype for x in jax.tree.leaves(found)] == [x.dtype for x in jax.tree.leaves(expected)]
