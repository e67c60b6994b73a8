"""PatchTST of `transformers` with layer norm, point and probabilistic, against ours."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax.traverse_util import flatten_dict
from oracle.compare import as_tree, assert_close
from oracle.stems import DLINEAR, NLINEAR, SERIES, VARIATES

from transformer_jax.config import ObjectiveConfig, TrainingConfig
from transformer_jax.data.batches.batch import Ragged, one_per_row
from transformer_jax.data.objectives.forecasting import Forecast
from transformer_jax.data.store.token_store import TokenStore
from transformer_jax.models.build import build
from transformer_jax.nn.distributions import DISTRIBUTIONS, LEVELS
from transformer_jax.training.step import batch_sums

pytestmark = pytest.mark.oracle
CHANNELS, WINDOW, HORIZON, WINDOWS = 3, 24, 5, 4
WORDS = {
    "stem/patch/kernel": "embedder.input_embedding.weight",
    "stem/patch/bias": "embedder.input_embedding.bias",
    "positions/table": "positional_encoder.position_enc",
}
LAYER = {
    "self_attention/query": "self_attn.q_proj", "self_attention/key": "self_attn.k_proj",
    "self_attention/value": "self_attn.v_proj", "self_attention/output": "self_attn.out_proj",
    "self_attention_residual/norm": "norm_sublayer1",
    "feed_forward_residual/norm": "norm_sublayer3",
    "feed_forward/up": "ff.0", "feed_forward/down": "ff.3",
}  # fmt: skip
# The peer's order of the parameters of a distribution, if it has the distribution.
ORDER = {"normal": (0, 1), "student_t": (1, 2, 0)}


def peer_of(config):
    import torch
    import transformers

    said = {"normal": "normal", "student_t": "student_t"}.get(config.distribution)
    count = len(LEVELS) if config.distribution == "quantiles" else 1
    model = transformers.PatchTSTForPrediction(transformers.PatchTSTConfig(
        num_input_channels=CHANNELS, context_length=WINDOW, prediction_length=HORIZON * count,
        patch_length=config.patch_length, patch_stride=config.patch_stride, d_model=config.d_model,
        ffn_dim=config.d_ff, num_hidden_layers=config.num_encoder_layers, pre_norm=False,
        num_attention_heads=config.num_heads, norm_type="layernorm", norm_eps=config.norm_epsilon,
        activation_function="gelu", positional_encoding_type="random", scaling="std",
        loss="nll" if said else "mse", distribution_output=said or "student_t", pooling_type=None,
    )).eval().double()  # fmt: skip
    torch.manual_seed(0)
    with torch.no_grad():
        for name, tensor in model.named_parameters():
            tensor.copy_(0.3 * torch.randn_like(tensor) + ("norm" in name and "weight" in name))
    return model


def as_ours(tensors, config):
    """Return the peer's arrays under our names."""
    width, heads = config.d_model, config.num_heads
    body = {name.removeprefix("model.encoder."): x for name, x in tensors.items()}
    found = {name: body[other] for name, other in WORDS.items()}
    found["stem/patch/kernel"] = found["stem/patch/kernel"].T
    for i in range(config.num_encoder_layers):
        for name, other in LAYER.items():
            weight, bias = (body[f"layers.{i}.{other}.{leaf}"] for leaf in ("weight", "bias"))
            at = f"encoder/layer_{i}/{name}"
            if "norm" in name:
                found |= {f"{at}/scale": weight, f"{at}/bias": bias}
                continue
            weight = weight.T
            if name.endswith(("query", "key", "value")):
                weight, bias = weight.reshape(width, heads, -1), bias.reshape(heads, -1)
            if name.endswith("attention/output"):
                weight = weight.reshape(heads, -1, width)
            found |= {f"{at}/kernel": weight, f"{at}/bias": bias}
    order = ORDER.get(config.distribution)
    maps = [f"head.projection.proj.{i}" for i in order] if order else ["head.projection"]
    shape = config.patches(WINDOW), width, HORIZON, -1
    kernels = [tensors[f"{one}.weight"].T.reshape(shape) for one in maps]
    found["forecast_head/output/kernel"] = np.concatenate(kernels, -1)
    biases = [tensors[f"{one}.bias"].reshape(HORIZON, -1) for one in maps]
    found["forecast_head/output/bias"] = np.concatenate(biases, -1)
    return found


def loss_of(model, config, past, future):
    """Return the peer's loss per number; it sums the densities of channels. For deciles, compute
    the loss by hand from one forecast per decile.
    """
    import torch

    if config.distribution != "quantiles":
        summed = CHANNELS if config.distribution in ORDER else 1
        return model(past_values=past, future_values=future).loss / summed
    said = model(past_values=past).prediction_outputs  # [B H*9 C]
    said = said.reshape(WINDOWS, HORIZON, len(LEVELS), CHANNELS)
    off, levels = (
        future[:, :, None] - said,
        torch.tensor(LEVELS, dtype=torch.float64).reshape(1, 1, -1, 1),
    )
    return 2 * torch.where(off > 0, levels * off, (levels - 1) * off).mean()


def of_ours(config, params, series, channels="apart"):
    """Return our loss over all windows and its gradients by name, in float64."""
    objective = ObjectiveConfig("forecast", window=WINDOW, horizon=HORIZON, channels=channels)
    nothing = Ragged.from_lists([[]])
    items = Forecast().items(TokenStore(nothing, Ragged.from_lists([series])), objective)
    assert len(items) == WINDOWS * (CHANNELS if channels == "apart" else 1)
    placement = one_per_row(np.arange(len(items)))
    batch = Forecast().examples(items, placement, len(items), WINDOW, HORIZON)
    with jax.enable_x64(True):
        ours = build(config, 1, 1, "float64", predicts=("forecast",), lengths=objective.lengths)

        def mean(params, batch):
            sums = batch_sums(ours, TrainingConfig(), params, batch, None)
            return sums.loss / sums.weight

        wide = batch._replace(src=batch.src._replace(inputs=batch.src.inputs.astype(float)))
        batch = jax.tree.map(jnp.asarray, wide)
        tree = as_tree(params, "float64")
        value, gradient = jax.jit(jax.value_and_grad(mean))(tree, batch)
    return value, flatten_dict(gradient, sep="/")


def of_series():
    """Return a series, and all windows of it with the rows that follow each."""
    rows = WINDOW + HORIZON + WINDOWS - 1
    series = (3 * np.random.default_rng(1).normal(size=(rows, CHANNELS)) + [5, -2, 0]).astype("f4")
    windows = [series[i : i + WINDOW + HORIZON] for i in range(WINDOWS)]
    return series, *np.split(np.stack(windows).astype(float), [WINDOW], axis=1)


def compare(found, tensors):
    """Compare our gradients with those of torch's tensors of the same names."""
    assert found.keys() == tensors.keys()
    for name, tensor in tensors.items():
        if not name.endswith("key/bias"):  # on which a softmax does not depend
            assert_close(f"gradient of {name}", np.asarray(found[name]), tensor.grad.numpy())


@pytest.mark.parametrize("config", [DLINEAR, NLINEAR], ids=["RevIN", "from the last row"])
def test_dlinear(config):
    """As in the authors' code, with a norm around it: a moving average by torch, and two maps."""
    import torch
    from torch.nn import functional as F

    series, past, future = of_series()
    chance, sizes = np.random.default_rng(2), (WINDOW, HORIZON, 1)
    shapes = {f"{name}/{leaf}": shape for name in ("trend", "rest")
              for leaf, shape in (("kernel", sizes), ("bias", sizes[1:]))}  # fmt: skip
    shapes |= {"norm/gain": (), "norm/shift": ()} if config is DLINEAR else {}
    params = {
        name: np.asarray(0.3 * chance.normal(size=shape) + name.endswith("gain"))
        for name, shape in shapes.items()
    }
    p = {name: torch.tensor(x, requires_grad=True) for name, x in params.items()}
    x = torch.tensor(past).swapaxes(1, 2)  # [B C L]
    gain, shift = p.get("norm/gain", 1), p.get("norm/shift", 0)
    mean, deviation = x[..., -1:], 1
    if config is DLINEAR:
        mean = x.mean(-1, keepdim=True)
        deviation = (x.var(-1, unbiased=False, keepdim=True) + 1e-5).sqrt()
    scaled = (x - mean) / deviation * gain + shift
    half = DLINEAR.trend_rows // 2
    trend = F.avg_pool1d(F.pad(scaled, (half, half), "replicate"), DLINEAR.trend_rows, 1)
    maps = zip((trend, scaled - trend), ("trend", "rest"), strict=True)
    raw = sum(y @ p[f"{name}/kernel"][..., 0] + p[f"{name}/bias"][:, 0] for y, name in maps)
    said = (raw - shift) / gain * deviation + mean
    loss = F.mse_loss(said, torch.tensor(future).swapaxes(1, 2))
    loss.backward()
    value, found = of_ours(config, params, series)
    assert_close("loss", np.asarray(value), loss.item())
    compare(found, p)


def test_itransformer():
    """torch's own encoder layers over channels, with the densities of torch's normal."""
    import torch

    series, past, future = of_series()
    c, chance = VARIATES, np.random.default_rng(3)
    width, heads = c.d_model, (c.num_heads, c.key_size)
    shapes = {"stem/variate/kernel": (WINDOW, width), "stem/variate/bias": (width,),
              "forecast_head/output/kernel": (width, HORIZON, 2),
              "forecast_head/output/bias": (HORIZON, 2)}  # fmt: skip
    for i in range(c.num_encoder_layers):
        at = f"encoder/layer_{i}"
        for name in ("query", "key", "value"):
            shapes |= {f"{at}/self_attention/{name}/kernel": (width, *heads),
                       f"{at}/self_attention/{name}/bias": heads}  # fmt: skip
        shapes |= {
            f"{at}/self_attention/output/kernel": (*heads, width),
            f"{at}/self_attention/output/bias": (width,),
            f"{at}/feed_forward/up/kernel": (width, c.d_ff),
            f"{at}/feed_forward/up/bias": (c.d_ff,),
            f"{at}/feed_forward/down/kernel": (c.d_ff, width),
            f"{at}/feed_forward/down/bias": (width,),
        }
    norms = [f"encoder/layer_{i}/{part}_residual/norm" for i in range(c.num_encoder_layers)
             for part in ("self_attention", "feed_forward")]  # fmt: skip
    shapes |= {f"{norm}/{leaf}": (width,) for norm in (*norms, "encoder/final_norm")
               for leaf in ("scale", "bias")}  # fmt: skip
    params = {name: 0.3 * chance.normal(size=shape) + name.endswith("scale")
              for name, shape in shapes.items()}  # fmt: skip
    p = {name: torch.tensor(x, requires_grad=True) for name, x in params.items()}

    x = torch.tensor(past).swapaxes(1, 2) @ p["stem/variate/kernel"] + p["stem/variate/bias"]
    for i in range(c.num_encoder_layers):
        layer = torch.nn.TransformerEncoderLayer(
            width, c.num_heads, c.d_ff, 0.0, "gelu", batch_first=True, norm_first=True,
            layer_norm_eps=c.norm_epsilon,
        ).double()  # fmt: skip
        at = f"encoder/layer_{i}"
        qkv = [f"{at}/self_attention/{name}" for name in ("query", "key", "value")]
        theirs = {
            "self_attn.in_proj_weight": torch.cat([p[f"{n}/kernel"].flatten(1).T for n in qkv]),
            "self_attn.in_proj_bias": torch.cat([p[f"{n}/bias"].flatten() for n in qkv]),
            "self_attn.out_proj.weight": p[f"{at}/self_attention/output/kernel"].flatten(0, 1).T,
            "self_attn.out_proj.bias": p[f"{at}/self_attention/output/bias"],
        }
        for name, own in (("linear1", "up"), ("linear2", "down")):
            theirs |= {f"{name}.weight": p[f"{at}/feed_forward/{own}/kernel"].T,
                       f"{name}.bias": p[f"{at}/feed_forward/{own}/bias"]}  # fmt: skip
        for name, own in (("norm1", "self_attention"), ("norm2", "feed_forward")):
            theirs |= {f"{name}.weight": p[f"{at}/{own}_residual/norm/scale"],
                       f"{name}.bias": p[f"{at}/{own}_residual/norm/bias"]}  # fmt: skip
        x = torch.func.functional_call(layer, theirs, (x,))
    x = torch.nn.functional.layer_norm(
        x, (width,), p["encoder/final_norm/scale"], p["encoder/final_norm/bias"], c.norm_epsilon
    )
    raw = torch.einsum("bcd,dhk->bchk", x, p["forecast_head/output/kernel"])
    raw = raw + p["forecast_head/output/bias"]
    wide = (raw[..., 1] + (raw[..., 1] ** 2 + 4).sqrt()) / 2
    true = torch.tensor(future).swapaxes(1, 2)
    loss = -torch.distributions.Normal(raw[..., 0], wide).log_prob(true).mean()
    loss.backward()
    value, found = of_ours(c, params, series, "together")
    assert_close("loss", np.asarray(value), loss.item())
    compare(found, p)


@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_patchtst(name):
    """The loss over every window of each channel and every gradient agree in float64."""
    import torch

    config, (series, *windows) = SERIES[name], of_series()
    model = peer_of(config)
    past, future = map(torch.tensor, windows)
    loss = loss_of(model, config, past, future)
    loss.backward()
    slopes = as_ours({n: x.grad.numpy() for n, x in model.named_parameters()}, config)
    params = as_ours({n: x.detach().numpy() for n, x in model.named_parameters()}, config)

    value, found = of_ours(config, params, series)
    assert_close("loss", np.asarray(value), loss.item())
    assert found.keys() == slopes.keys()
    for path, expected in slopes.items():
        if not path.endswith("key/bias"):  # on which a softmax does not depend
            assert_close(f"gradient of {path}", np.asarray(found[path]), expected)
