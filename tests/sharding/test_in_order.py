"""Loops along sequences that devices share equal those of one device, and send states only."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax.core.meta import unbox

from transformer_jax.base import counting
from transformer_jax.config import MeshConfig, ModelConfig
from transformer_jax.config.choices.mixers import HANDED_ON
from transformer_jax.config.choices.mixers import MIXERS as RECORDS
from transformer_jax.experiments.collectives import collectives
from transformer_jax.nn.mixers import in_order
from transformer_jax.nn.mixers.kinds import MIXERS
from transformer_jax.nn.view import self_view
from transformer_jax.sharding.mesh import make_mesh

RNG = np.random.default_rng(0)
WEIGHTS, START = 0.3 * RNG.normal(size=(5, 5)), RNG.normal(size=(8, 5))
EIGHT = MeshConfig(2, context=2, ulysses=2)


def mesh_of(config: MeshConfig):
    return make_mesh(config, jax.devices()[: config.data * config.context * config.ulysses])


def total(scan, reverse=False):
    """Return a number that depends on all that a loop returns: an Elman network with segments."""

    def result(weights, start, x, seg):
        def body(carry, token):
            (state, before), (x, seg) = carry, token
            state = jnp.where((seg == before)[:, None], state, 0)
            state = jnp.tanh(state @ weights + x)
            return (state, seg), {"state": 2 * state, "segment": seg}

        (state, seg), out = scan(body, (start, seg[0]), (x, seg), reverse=reverse)
        return (
            jnp.sin(out["state"]).sum()
            + jnp.square(state).sum()
            + (out["segment"] * seg[None]).sum()
        )

    return result


def test_groups_of_rows():
    """As many as devices or a few more; half as many; in rounds, with fewer."""
    assert [in_order.groups_of(rows, 4) for rows in (1, 2, 3, 4, 6, 8, 10, 32)] == [
        1, 2, 3, 4, 6, 4, 5, 4,
    ]  # fmt: skip
    assert [in_order.groups_of(rows, 8) for rows in (3, 4, 7)] == [1, 4, 7]


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("rows", [2, 4, 8])
@pytest.mark.parametrize("mesh", [EIGHT, MeshConfig(1, context=3)], ids=str)
def test_values_and_gradients_are_those_of_one_device(mesh, rows, reverse):
    """Of weights that the body holds, of the first state, of inputs; integers pass, too. In rounds
    and by groups of rows.
    """
    with jax.enable_x64(True):
        x, seg = RNG.normal(size=(12, rows, 5)), np.sort(RNG.integers(1, 4, (12, rows)), axis=0)
        given = WEIGHTS, START[:rows], x, seg
        plain = jax.value_and_grad(total(jax.lax.scan, reverse), (0, 1, 2))(*given)
        with jax.set_mesh(mesh_of(mesh)):
            divided = jax.jit(jax.value_and_grad(total(in_order.scan, reverse), (0, 1, 2)))(*given)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, 1e-12, 1e-12), divided, plain)


def test_work_by_count():
    """Products of all devices, beside those of one: each turn is of one group of rows."""

    def products(rows: int, scan) -> int:
        x, seg = jnp.ones((16, rows, 5)), jnp.ones((16, rows), jnp.int32)
        program = counting.program(total(scan), WEIGHTS, START[:rows], x, seg)
        return counting.operations(program).products

    with jax.set_mesh(mesh_of(MeshConfig(1, context=4))):
        for rows, turns, groups in [(1, 4, 1), (2, 5, 2), (4, 7, 4), (8, 7, 4)]:
            alone = products(rows, jax.lax.scan)
            assert products(rows, in_order.scan) * groups == alone * turns


@pytest.mark.parametrize("length", [13, 24, 40])
def test_chunks_are_whole_on_each_device(length):
    """Sums so far, of rows whose parts are shorter than a chunk, equal to it, and no multiple of
    it; of rows that cannot be divided, too.
    """

    def sums(x):
        def body(state, chunk):
            (x,) = chunk
            found = state[:, None] + jnp.cumsum(x, axis=1)
            return found[:, -1], found

        return in_order.in_chunks(body, jnp.zeros(2), (x,), 6)

    x = RNG.integers(0, 9, (2, length)).astype(np.float32)
    with jax.set_mesh(mesh_of(MeshConfig(1, context=4))):
        state, out = jax.jit(sums)(x)
    np.testing.assert_array_equal(out, np.cumsum(x, axis=1))
    np.testing.assert_array_equal(state, x.sum(1))


@pytest.mark.parametrize("rows", [1, 4])
def test_only_states_are_sent(rows):
    """As many bytes for rows that are four times as long, forward and backward."""

    def sent(length: int) -> float:
        x, seg = jnp.ones((length, rows, 5)), jnp.ones((length, rows), jnp.int32)
        mesh = mesh_of(MeshConfig(1, context=4))
        own = jax.NamedSharding(mesh, jax.P("context"))
        with jax.set_mesh(mesh):
            given = WEIGHTS.astype(np.float32), START[:rows].astype(np.float32)
            given = *given, jax.device_put(x, own), jax.device_put(seg, own)
            gradients = jax.jit(jax.grad(total(in_order.scan), (0, 1, 2)))
            found = collectives(gradients.lower(*given).compile().as_text())
        assert "all-gather" not in {one.kind for one in found}
        return sum(one.sent for one in found)

    assert 0 < sent(32) == sent(128)


# The first is tried in `make test`.
KINDS = sorted(HANDED_ON, key=lambda kind: kind != "gated_delta")


@pytest.mark.parametrize(
    "kind", [pytest.param(x, marks=[] if x == KINDS[0] else pytest.mark.thorough) for x in KINDS]
)
def test_what_hands_on_its_state_gathers_no_positions(kind):
    """As the records of mixers say: no all-gather, of bytes that grow with a row."""
    config = ModelConfig(d_model=16, num_heads=4, num_kv_heads=4, state_heads=4, state_size=4)
    mixer = MIXERS[kind](config, jnp.dtype("float32"))
    order = "causal" if "decoder" in RECORDS[kind].stacks else "all"
    mesh = mesh_of(MeshConfig(1, context=4))

    def gathered(length: int) -> float:
        x, pos = jnp.ones((4, length, 16)), jnp.tile(jnp.arange(length), (4, 1))

        def out(params, x):
            view = self_view(pos, jnp.ones_like(pos), order)
            return mixer.apply(params, x, view, False, method="mix")[0]

        shapes = jax.eval_shape(
            lambda x: mixer.init(jax.random.key(0), x, self_view(pos, pos + 1, order), False,
                                 method="mix"), x,
        )  # fmt: skip
        params = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), unbox(shapes))
        x = jax.device_put(x, jax.NamedSharding(mesh, jax.P(None, "context")))
        with jax.set_mesh(mesh):
            found = collectives(jax.jit(out).lower(params, x).compile().as_text())
        return sum(one.sent for one in found if one.kind == "all-gather")

    assert gathered(256) == gathered(64)
