"""PatchTST of `transformers` with layer norm, point and probabilistic, against ours."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax.traverse_util import flatten_dict
from oracle.compare import as_tree, assert_close
from oracle.stems import SERIES

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


@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_patchtst(name):
    """The loss over every window of each channel and every gradient agree in float64."""
    import torch

    config, rng = SERIES[name], np.random.default_rng(1)
    model = peer_of(config)
    rows = WINDOW + HORIZON + WINDOWS - 1
    series = (3 * rng.normal(size=(rows, CHANNELS)) + [5, -2, 0]).astype(np.float32)
    windows = np.stack([series[i : i + WINDOW + HORIZON] for i in range(WINDOWS)]).astype(float)
    past, future = (torch.tensor(x) for x in np.split(windows, [WINDOW], axis=1))
    loss = loss_of(model, config, past, future)
    loss.backward()
    slopes = as_ours({n: x.grad.numpy() for n, x in model.named_parameters()}, config)
    params = as_ours({n: x.detach().numpy() for n, x in model.named_parameters()}, config)

    objective = ObjectiveConfig("forecast", window=WINDOW, horizon=HORIZON)
    nothing = Ragged.from_lists([[]])
    items = Forecast().items(TokenStore(nothing, Ragged.from_lists([series])), objective)
    assert len(items) == WINDOWS * CHANNELS
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
    assert_close("loss", np.asarray(value), loss.item())
    found = flatten_dict(gradient, sep="/")
    assert found.keys() == slopes.keys()
    for path, expected in slopes.items():
        if not path.endswith("key/bias"):  # on which a softmax does not depend
            assert_close(f"gradient of {path}", np.asarray(found[path]), expected)
