"""Mixers that cut positions into blocks, on devices that share these: as on one device, and with no
more sent than the blocks beside.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax.core.meta import unbox

from transformer_jax.config import MeshConfig, ModelConfig
from transformer_jax.config.choices.mixers import MIXERS as RECORDS
from transformer_jax.config.choices.record import with_
from transformer_jax.experiments.collectives import collectives
from transformer_jax.nn.mixers.kinds import MIXERS
from transformer_jax.nn.view import self_view
from transformer_jax.sharding.mesh import make_mesh

RNG = np.random.default_rng(0)
# The kind of layer: the stack that it is in, and what it needs. One is in `make test`.
KINDS: dict = {
    "local": ("decoder", {"window": 4, "num_kv_heads": 2}),
    "longformer": ("encoder", {"window": 4, "global_tokens": 2}),
    "dilated": ("decoder", {"window": 4, "dilation": 2}),
    "mega_chunk": ("decoder", {"block_size": 4}),
    "bimega_chunk": ("encoder", {"block_size": 4}),
    "aft_local": ("decoder", {"window": 4}),
    "aft_conv": ("encoder", {"window": 4}),
}
QUICK = "local"


def mixer_of(kind, stack, dtype, **fields):
    """Return a layer's mixer, and the order in which it sees positions."""
    config = ModelConfig(
        architecture=stack, d_model=16, num_heads=4,
        attention_dropout_rate=0.0 if kind.startswith("aft") else 0.3,
        **{f"{stack}_pattern": (kind,)}, **fields,
    )  # fmt: skip
    return MIXERS[kind](config, jnp.dtype(dtype)), "causal" if stack == "decoder" else "all"


def total(kind, x, seg, dtype):
    """Return a function of parameters and inputs that depends on all outputs, and parameters."""
    stack, fields = KINDS[kind]
    mixer, order = mixer_of(kind, stack, dtype, **fields)
    pos = jnp.tile(jnp.arange(x.shape[1]), (len(x), 1))
    view, key = self_view(pos, seg, order), jax.random.key(1)
    params = unbox(mixer.init(jax.random.key(0), x[:1], self_view(pos[:1], seg[:1], order), False,
                              method="mix"))  # fmt: skip
    params = jax.tree.map(lambda leaf: jnp.asarray(RNG.normal(size=leaf.shape), dtype), params)

    def function(params, x):
        out, _ = mixer.apply(params, x, view, True, method="mix", rngs={"dropout": key})
        return jnp.sin(out).sum()

    return function, params


@pytest.mark.parametrize("length", [32, 36])
@pytest.mark.parametrize("mesh", [MeshConfig(2, context=2), MeshConfig(1, context=4)], ids=str)
@pytest.mark.parametrize(
    "kind", [pytest.param(x, marks=[] if x == QUICK else pytest.mark.thorough) for x in KINDS]
)
def test_values_and_gradients_are_those_of_one_device(kind, mesh, length):
    """With dropout and packed rows; whole blocks on each device, and not."""
    with jax.enable_x64(True):
        x = jnp.asarray(RNG.normal(size=(4, length, 16)))
        seg = jnp.sort(RNG.integers(1, 4, (4, length)), axis=1)
        if kind == "longformer":  # of which a row is one text
            seg = jnp.ones_like(seg)
        function, params = total(kind, x, seg, "float64")
        plain = jax.jit(jax.value_and_grad(function, (0, 1)))(params, x)
        here = make_mesh(mesh, jax.devices()[: mesh.data * mesh.context])
        with jax.set_mesh(here):
            divided = jax.device_put(x, jax.NamedSharding(here, jax.P("data", "context")))
            found = jax.jit(jax.value_and_grad(function, (0, 1)))(params, divided)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, 1e-10, 1e-10), found, plain)


NEAR = with_(RECORDS, sends="near")


@pytest.mark.parametrize(("stack", "sides"), [("decoder", 1), ("encoder", 2)])
@pytest.mark.parametrize(
    "kind", [pytest.param(x, marks=[] if x == QUICK else pytest.mark.thorough) for x in NEAR]
)
def test_a_window_sends_the_blocks_beside_alone(kind, stack, sides):
    """As the records of mixers say: keys and values of a window's positions to the device after,
    and gradients back; if queries look ahead, to the device before as well. Rows that are four
    times as long send the same.
    """
    mesh = make_mesh(MeshConfig(1, context=4), jax.devices()[:4])
    dilation = 2 if kind == "dilated" else 1
    mixer, order = mixer_of(kind, stack, "float32", window=8, num_kv_heads=2, dilation=dilation)
    rows, sent = 2, []
    for length in (128, 512):
        x, pos = jnp.ones((rows, length, 16)), jnp.tile(jnp.arange(length), (rows, 1))

        def out(params, x):
            view = self_view(pos, jnp.ones_like(pos), order, single=True)  # noqa: B023
            return jnp.sin(mixer.apply(params, x, view, False, method="mix")[0]).sum()

        params = unbox(mixer.init(jax.random.key(0), x, self_view(pos, pos + 1, order), False,
                                  method="mix"))  # fmt: skip
        x = jax.device_put(x, jax.NamedSharding(mesh, jax.P(None, "context")))
        with jax.set_mesh(mesh):
            program = jax.jit(jax.grad(out, 1)).lower(params, x).compile().as_text()
        found = collectives(program)
        assert {one.kind for one in found} == {"collective-permute"}
        sent.append(sum(one.sent for one in found))
    beside = rows * 8 * dilation
    block = beside * 2 * 4 * 4  # bytes of keys, as of values: 2 heads of 4 numbers
    numbers = beside * 2 * 4  # of positions and of segments
    assert sent[0] == sent[1] == sides * (2 * 2 * block + numbers)  # forward and backward
