"""Our diffusion transformers equal DiT and Stable Diffusion 3's of `diffusers`, and our Euler steps
those of its scheduler (`make oracle`).
"""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax.traverse_util import flatten_dict
from oracle.compare import as_tree, assert_close
from oracle.decoders import Wide
from oracle.stems import DIT, MM_DIT

from transformer_jax.config import ObjectiveConfig, TrainingConfig
from transformer_jax.data.batches.batch import Batch, Side, Target
from transformer_jax.decoding.search import values
from transformer_jax.models.build import build
from transformer_jax.nn.stems import sinusoidal
from transformer_jax.training.step import batch_sums

pytestmark = pytest.mark.oracle
diffusers = pytest.importorskip("diffusers")

CHANNELS, PATCH, SIDE, CLASSES, ROWS = 2, 2, 8, 5, 3
VECTOR = PATCH**2 * CHANNELS
GRID = (SIDE // PATCH, SIDE // PATCH)
WIDTH, HEADS = DIT.d_model, DIT.num_heads
SIZES = {"DiT": CLASSES, "SD3": 7}  # of the target side


def waves(time):
    """Return the sines of SD3's and the paper's frequencies, 10000^(-i / 128), in float64."""
    import torch

    angles = time.double()[:, None] * 10000 ** (-torch.arange(128).double() / 128)
    return torch.cat([angles.cos(), angles.sin()], -1)


class Waves:
    """`diffusers` rounds them to float32, and in DiT divides by 127."""

    def __new__(cls):
        import torch

        module = torch.nn.Module()
        module.forward = waves
        return module


@pytest.fixture
def peers(monkeypatch):
    """Return {name: the peer} with random weights, gates included, in float64."""
    import torch
    from diffusers.models import normalization

    monkeypatch.setattr(normalization, "torch", Wide("torch"))
    size = {"num_attention_heads": HEADS, "attention_head_dim": WIDTH // HEADS,
            "in_channels": CHANNELS, "out_channels": CHANNELS, "sample_size": SIDE,
            "patch_size": PATCH}  # fmt: skip
    dit = diffusers.DiTTransformer2DModel(
        **size, num_layers=2, num_embeds_ada_norm=CLASSES, norm_eps=1e-6
    )
    sd3 = diffusers.SD3Transformer2DModel(
        **size, num_layers=3, joint_attention_dim=WIDTH, caption_projection_dim=WIDTH,
        pooled_projection_dim=WIDTH, pos_embed_max_size=GRID[0], qk_norm="rms_norm",
    )  # fmt: skip
    torch.manual_seed(0)
    found = {"DiT": dit.double().eval(), "SD3": sd3.double().eval()}
    sd3.table = torch.nn.Parameter(torch.zeros(SIZES["SD3"], WIDTH).double())
    sd3.context_embedder = torch.nn.Identity()
    sd3.time_text_embed.time_proj = Waves()
    shared = dit.transformer_blocks[0].norm1.emb
    shared.time_proj = Waves()
    for block in dit.transformer_blocks:  # one embedder for all, as in the paper
        block.norm1.emb = shared
    for model in found.values():
        model.pos_embed.pos_embed = torch.tensor(sinusoidal(GRID, WIDTH))[None]
        with torch.no_grad():
            for _, tensor in model.named_parameters():
                tensor.copy_(0.2 * torch.randn_like(tensor))
    return found


def linear(name):
    return {"kernel": (f"{name}.weight", lambda x: x.T), "bias": (f"{name}.bias", lambda x: x)}


def heads(name):
    found = linear(name)
    return {
        "kernel": (found["kernel"][0], lambda x: x.T.reshape(WIDTH, HEADS, -1)),
        "bias": (found["bias"][0], lambda x: x.reshape(HEADS, -1)),
    }


def outward(name):
    return {
        "kernel": (f"{name}.weight", lambda x: x.T.reshape(HEADS, -1, WIDTH)),
        "bias": (f"{name}.bias", lambda x: x),
    }


def modulation(name, order):
    """Some of the maps of a condition, which the peer has in one."""
    parts = [*order]

    def kernel(x):
        return np.stack([x.T.reshape(WIDTH, -1, WIDTH)[:, i] for i in parts], 1)

    def bias(x):
        return x.reshape(-1, WIDTH)[parts]

    return {"kernel": (f"{name}.weight", kernel), "bias": (f"{name}.bias", bias)}


def patch(x):
    """Their patches order pixels by (channel, row, column)."""
    return x.transpose(2, 3, 1, 0).reshape(VECTOR, WIDTH)


COMMON = {
    "stem/patch": {
        "kernel": ("pos_embed.proj.weight", patch), "bias": ("pos_embed.proj.bias", lambda x: x)
    },
}  # fmt: skip


def dit_names():
    block = "transformer_blocks.{}"
    embed = "transformer_blocks.0.norm1.emb"
    found = COMMON | {
        "times/first": linear(f"{embed}.timestep_embedder.linear_1"),
        "times/second": linear(f"{embed}.timestep_embedder.linear_2"),
        "classes": {"table": (f"{embed}.class_embedder.embedding_table.weight", lambda x: x)},
        "last_norm/modulation/map": modulation("proj_out_1", (0, 1)),
        "vectors": linear("proj_out_2"),
    }
    for i in range(2):
        at, ours = block.format(i), f"encoder/layer_{i}"
        found |= {
            f"{ours}/self_attention_residual/modulation/map":
                modulation(f"{at}.norm1.linear", (0, 1, 2)),
            f"{ours}/feed_forward_residual/modulation/map":
                modulation(f"{at}.norm1.linear", (3, 4, 5)),
            **{f"{ours}/self_attention/{name}": heads(f"{at}.attn1.to_{name[0]}")
               for name in ("query", "key", "value")},
            f"{ours}/self_attention/output": outward(f"{at}.attn1.to_out.0"),
            f"{ours}/feed_forward/up": linear(f"{at}.ff.net.0.proj"),
            f"{ours}/feed_forward/down": linear(f"{at}.ff.net.2"),
        }  # fmt: skip
    return found


def sd3_names():
    embed = "time_text_embed"
    found = COMMON | {
        "times/first": linear(f"{embed}.timestep_embedder.linear_1"),
        "times/second": linear(f"{embed}.timestep_embedder.linear_2"),
        "pooled/first": linear(f"{embed}.text_embedder.linear_1"),
        "pooled/second": linear(f"{embed}.text_embedder.linear_2"),
        "text_embedding": {"table": ("table", lambda x: x)},
        "last_norm/modulation/map": modulation("norm_out.linear", (1, 0)),
        "vectors": linear("proj_out"),
    }
    for i in range(3):
        at, ours = f"transformer_blocks.{i}", f"encoder/layer_{i}"
        attention = f"{ours}/self_attention"
        found |= {
            f"{ours}/self_attention_residual/modulation/map":
                modulation(f"{at}.norm1.linear", (0, 1, 2)),
            f"{ours}/feed_forward_residual/modulation/map":
                modulation(f"{at}.norm1.linear", (3, 4, 5)),
            **{f"{attention}/{name}": heads(f"{at}.attn.to_{name[0]}")
               for name in ("query", "key", "value")},
            f"{attention}/output": outward(f"{at}.attn.to_out.0"),
            f"{attention}/query_norm": {"scale": (f"{at}.attn.norm_q.weight", lambda x: x)},
            f"{attention}/key_norm": {"scale": (f"{at}.attn.norm_k.weight", lambda x: x)},
            f"{attention}/text/key_norm":
                {"scale": (f"{at}.attn.norm_added_k.weight", lambda x: x)},
            f"{attention}/text/key": heads(f"{at}.attn.add_k_proj"),
            f"{attention}/text/value": heads(f"{at}.attn.add_v_proj"),
            f"{ours}/feed_forward/up": linear(f"{at}.ff.net.0.proj"),
            f"{ours}/feed_forward/down": linear(f"{at}.ff.net.2"),
        }  # fmt: skip
        if i == 2:  # the last one: chunks are in the other order
            found[f"{ours}/text_norm/modulation/map"] = modulation(
                f"{at}.norm1_context.linear", (1, 0)
            )
            continue
        found |= {
            f"{ours}/text_attention_residual/modulation/map":
                modulation(f"{at}.norm1_context.linear", (0, 1, 2)),
            f"{ours}/text_feed_forward_residual/modulation/map":
                modulation(f"{at}.norm1_context.linear", (3, 4, 5)),
            f"{attention}/text/query": heads(f"{at}.attn.add_q_proj"),
            f"{attention}/text/query_norm":
                {"scale": (f"{at}.attn.norm_added_q.weight", lambda x: x)},
            f"{attention}/text/output": outward(f"{at}.attn.to_add_out"),
            f"{ours}/text_feed_forward/up": linear(f"{at}.ff_context.net.0.proj"),
            f"{ours}/text_feed_forward/down": linear(f"{at}.ff_context.net.2"),
        }  # fmt: skip
    return found


def as_ours(tensors, names):
    return {
        f"{path}/{leaf}": form(np.asarray(tensors[name]))
        for path, leaves in names.items()
        for leaf, (name, form) in leaves.items()
    }


def cut(pictures):
    """Return patches [n L C] of pictures [n C H W], pixels row by row."""
    grid = pictures.transpose(0, 2, 3, 1).reshape(ROWS, GRID[0], PATCH, GRID[1], PATCH, CHANNELS)
    return grid.swapaxes(2, 3).reshape(ROWS, -1, VECTOR)


@pytest.mark.parametrize("name", ["DiT", "SD3"])
def test_transformers(name, peers):
    """Predictions and the gradient of every parameter agree in float64."""
    import torch

    model = peers[name]
    config, names = (DIT, dit_names()) if name == "DiT" else (MM_DIT, sd3_names())
    rng = np.random.default_rng(1)
    pictures, labels = rng.normal(size=(2, ROWS, CHANNELS, SIDE, SIDE))
    time = np.array([0.031, 0.5, 0.97])
    ids = rng.integers(0, SIZES[name], (ROWS, 1 if name == "DiT" else 4)).astype(np.int32)
    given = torch.tensor(pictures), torch.tensor(1000 * time)
    if name == "DiT":
        made = model(given[0], given[1], torch.tensor(ids[:, 0])).sample
    else:
        text = model.table[torch.tensor(ids)]
        made = model(given[0], text, text.mean(1), given[1]).sample
    error = ((made - torch.tensor(labels)) ** 2).mean()
    error.backward()

    tensors = dict(model.named_parameters())
    params = as_ours({n: x.detach().numpy() for n, x in tensors.items()}, names)
    slopes = {n: np.zeros(x.shape) if x.grad is None else x.grad.numpy()
              for n, x in tensors.items()}  # fmt: skip
    expected = as_ours(slopes, names)
    tgt, src = (
        Side(x, np.tile(np.arange(x.shape[1], dtype=np.int32), (ROWS, 1)),
             np.ones(x.shape[:2], np.int32))
        for x in (ids, cut(pictures))
    )  # fmt: skip
    target = Target(cut(labels), np.ones(src.seg.shape, np.float32))
    batch = Batch(src, tgt, {"diffusion": target}, time)
    with jax.enable_x64(True):
        ours = build(config, VECTOR, SIZES[name], "float64", predicts=("diffusion",))
        tree, batch = as_tree(params, "float64"), jax.tree.map(jnp.asarray, batch)

        def loss(params):
            sums = batch_sums(ours, TrainingConfig(), params, batch, None)
            return sums.loss / sums.weight

        value, gradients = jax.jit(jax.value_and_grad(loss))(tree)
        found = np.asarray(ours.outputs(tree, batch, None)["diffusion"].logits())
    assert_close("predictions", found, cut(made.detach().numpy()))
    assert_close("loss", float(value), error.item())
    leaves = flatten_dict(gradients, sep="/")
    assert leaves.keys() == expected.keys()
    for path, slope in expected.items():
        if path.endswith("key/bias") and config.query_key_norm == "none":
            # zero up to rounding: see assert_same
            assert max(np.abs(slope).max(), np.abs(leaves[path]).max()) < 1e-14
        else:
            assert_close(path, np.asarray(leaves[path]), slope)


def test_positions_are_those_of_dit_in_another_order():
    """Its first half is the column, sines before cosines; ours the row, sines between cosines."""
    from diffusers.models.embeddings import get_2d_sincos_pos_embed

    theirs = get_2d_sincos_pos_embed(WIDTH, GRID, base_size=GRID[0], output_type="np")
    quarter = WIDTH // 4
    column, row = theirs[:, : 2 * quarter], theirs[:, 2 * quarter :]
    mixed = [x.reshape(-1, 2, quarter).swapaxes(1, 2).reshape(-1, 2 * quarter)
             for x in (row, column)]  # fmt: skip
    np.testing.assert_allclose(sinusoidal(GRID, WIDTH), np.concatenate(mixed, 1), atol=1e-12)


def test_euler_steps():
    """Those of the flow-match scheduler, whose own times would end in a step of nothing."""
    import torch

    scheduler = diffusers.FlowMatchEulerDiscreteScheduler(shift=1.0)
    steps = 7
    scheduler.set_timesteps(sigmas=np.linspace(1, 1 / steps, steps))
    start = np.random.default_rng(0).normal(size=(2, 6))
    x = torch.tensor(start)
    for time in scheduler.timesteps:
        x = scheduler.step(_field(x, time.item() / 1000), time, x, return_dict=False)[0].double()
    with jax.enable_x64(True):
        points = values.points_of(ObjectiveConfig("diffusion"), steps)
        found = values.solve(values.euler, _field, jnp.asarray(start), points, lambda step: 0)
    np.testing.assert_allclose(np.asarray(found), x.numpy(), rtol=2e-6)  # it steps in float32


def _field(x, time):
    return 0.3 * x - time + 0.1 * x**2


@pytest.mark.parametrize("prediction", ["epsilon", "velocity", "sample"])
@pytest.mark.parametrize("search", ["euler", "ancestral"])
def test_ddpm_steps(search, prediction):
    """Ancestral steps are DDPM's, and Euler's are DDIM's, from one of 1,000 steps to the next."""
    import torch

    kind = diffusers.DDPMScheduler if search == "ancestral" else diffusers.DDIMScheduler
    scheduler = kind(
        beta_start=1e-4, beta_end=0.02, beta_schedule="linear", clip_sample=False,
        prediction_type={"velocity": "v_prediction"}.get(prediction, prediction),
    )  # fmt: skip
    scheduler.set_timesteps(1000)
    config = dataclasses.replace(
        ObjectiveConfig("diffusion"), noise_schedule="linear", prediction=prediction
    )
    points, start = values.points_of(config, 1000), np.random.default_rng(0).normal(size=(2, 6))
    torch.manual_seed(1)
    noise = torch.randn(2, 6, dtype=torch.float64)
    torch.manual_seed(1)
    x = torch.tensor(start)
    expected = scheduler.step(_field(x, 0.749), 749, x).prev_sample.numpy()
    with jax.enable_x64(True):
        at, to = (jax.tree.map(lambda x, i=i: jnp.asarray(x[i]), points) for i in (250, 251))
        assert (1000 * at.time, 1000 * to.time) == (749, 748)
        found = values.WORDS[search](
            _field, jnp.asarray(start), at, to, lambda step: jnp.asarray(noise.numpy())
        )
    np.testing.assert_allclose(np.asarray(found), expected, rtol=2e-4, atol=2e-6)  # float32 there
