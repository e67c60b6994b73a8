"""Mamba, Mamba-2 and the gated DeltaNet of `transformers`, layer by layer, against ours."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn
from flax.traverse_util import flatten_dict
from oracle.compare import as_tree, assert_close

from transformer_jax.config import ModelConfig
from transformer_jax.nn.mixers import linear_attention
from transformer_jax.nn.mixers.kinds import MIXERS
from transformer_jax.nn.view import self_view

pytestmark = pytest.mark.oracle
CONFIG = ModelConfig(
    d_model=24, num_heads=2, state_heads=6, state_groups=2, state_size=5, norm_epsilon=1e-5
)  # fmt: skip


def mamba(c, p):
    """Return the peer's layer and what its tensors are, of ours."""
    import torch
    from transformers.models.mamba import modeling_mamba as theirs

    layer = theirs.MambaMixer(
        theirs.MambaConfig(
            hidden_size=c.d_model, state_size=c.state_size, conv_kernel=c.state_conv,
            time_step_rank=2, num_hidden_layers=1,
        ), layer_idx=0,
    )  # fmt: skip
    return theirs, layer, {
        "in_proj.weight": torch.cat([p["value/kernel"], p["gate/kernel"]], 1).T,
        "conv1d.weight": p["value_convolution/depthwise"].T[:, None],
        "conv1d.bias": p["value_convolution/bias"],
        "x_proj.weight": torch.cat(
            [p[f"{name}/kernel"] for name in ("rate_latent", "key", "query")], 1
        ).T,
        "dt_proj.weight": p["rate/kernel"].T, "dt_proj.bias": p["rate_bias"],
        "A_log": p["log_decay"], "D": p["skip"], "out_proj.weight": p["output/kernel"].T,
    }  # fmt: skip


def mamba2(c, p):
    """Return the same; their maps and convolutions are one."""
    import torch
    from transformers.models.mamba2 import modeling_mamba2 as theirs

    layer = theirs.Mamba2Mixer(
        theirs.Mamba2Config(
            hidden_size=c.d_model, num_heads=c.inner_heads, state_size=c.state_size,
            head_dim=c.inner_width // c.inner_heads, conv_kernel=c.state_conv, chunk_size=4,
            n_groups=c.state_groups, num_hidden_layers=1, layer_norm_epsilon=c.norm_epsilon,
        ), layer_idx=0,
    )  # fmt: skip
    maps = [p[f"{name}/kernel"].flatten(1) for name in ("gate", "value", "key", "query", "rate")]
    convolutions = [f"{name}_convolution" for name in ("value", "key", "query")]
    kernels = [p[f"{name}/depthwise"].flatten(1) for name in convolutions]
    return theirs, layer, {
        "in_proj.weight": torch.cat(maps, 1).T,
        "conv1d.weight": torch.cat(kernels, 1).T[:, None],
        "conv1d.bias": torch.cat([p[f"{name}/bias"].flatten() for name in convolutions]),
        "dt_bias": p["rate_bias"], "A_log": p["log_decay"], "D": p["skip"],
        "norm.weight": p["scale"].flatten(), "out_proj.weight": p["output/kernel"].flatten(0, 1).T,
    }  # fmt: skip


def gated_delta(c, p):
    """Return the same; their maps are interleaved, group by group."""
    import torch
    from transformers.models.qwen3_next import modeling_qwen3_next as theirs

    groups, size = c.state_groups, c.inner_width // c.inner_heads
    layer = theirs.Qwen3NextGatedDeltaNet(
        theirs.Qwen3NextConfig(
            hidden_size=c.d_model, linear_num_value_heads=c.inner_heads,
            linear_num_key_heads=groups, linear_key_head_dim=c.state_size, num_hidden_layers=1,
            linear_value_head_dim=size, linear_conv_kernel_dim=c.state_conv,
            rms_norm_eps=c.norm_epsilon, layer_types=["linear_attention"],
        ), layer_idx=0,
    )  # fmt: skip

    def by_group(*names):
        maps = [p[f"{name}/kernel"].reshape(c.d_model, groups, -1) for name in names]
        return torch.cat(maps, 2).flatten(1).T

    kernels = [p[f"{x}_convolution/depthwise"].flatten(1) for x in ("query", "key", "value")]
    return theirs, layer, {
        "in_proj_qkvz.weight": by_group("query", "key", "value", "gate"),
        "in_proj_ba.weight": by_group("strength", "rate"),
        "conv1d.weight": torch.cat(kernels, 1).T[:, None],
        "dt_bias": p["rate_bias"], "A_log": p["log_decay"], "norm.weight": p["norm/scale"],
        "out_proj.weight": p["output/kernel"].flatten(0, 1).T,
    }  # fmt: skip


PEERS = {"mamba": mamba, "mamba2": mamba2, "gated_delta": gated_delta}


@pytest.mark.parametrize("kind", PEERS)
def test_a_layer_equals_the_peer(kind, monkeypatch):
    """The output and every gradient, in float64, over several chunks."""
    import torch
    from oracle import decoders
    from torch.func import functional_call

    monkeypatch.setattr(linear_attention, "CHUNK", 3)
    chance = np.random.default_rng(0)
    x, slope = chance.normal(size=(2, 2, 10, CONFIG.d_model))
    mixer = MIXERS[kind](CONFIG, jnp.dtype("float64"))
    pos = jnp.broadcast_to(jnp.arange(10), (2, 10))
    view = self_view(pos, jnp.ones_like(pos), "causal")
    with jax.enable_x64(True):
        init = functools.partial(mixer.init, train=False, method="mix")
        shapes = nn.unbox(jax.eval_shape(init, jax.random.key(0), jnp.asarray(x), view)["params"])
    params = {
        name: (name.endswith("scale")) + 0.3 * chance.normal(size=leaf.shape)
        for name, leaf in flatten_dict(shapes, sep="/").items()
    }

    decoders.widen(monkeypatch)
    tensors = {k: torch.tensor(v, requires_grad=True) for k, v in {**params, "x": x}.items()}
    module, layer, theirs = PEERS[kind](CONFIG, tensors)
    monkeypatch.setattr(module, "torch", decoders.Wide("torch"))
    assert theirs.keys() == dict(layer.named_parameters()).keys()
    y = functional_call(layer.eval().double(), theirs, (tensors["x"],))
    (y * torch.tensor(slope)).sum().backward()

    with jax.enable_x64(True):

        def total(params, x):
            y, _ = mixer.apply({"params": params}, x, view, False, method="mix")
            return jnp.sum(y * slope), y

        gradients, mine = jax.jit(jax.grad(total, (0, 1), has_aux=True))(
            as_tree(params, "float64"), jnp.asarray(x)
        )
    assert_close("output", np.asarray(mine), y.detach().numpy())
    found = {**flatten_dict(gradients[0], sep="/"), "x": gradients[1]}
    for name, tensor in tensors.items():
        assert_close(name, np.asarray(found[name]), tensor.grad.numpy())
