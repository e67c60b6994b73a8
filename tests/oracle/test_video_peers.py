"""ViViT and TimeSformer of `transformers` against ours (`make oracle`). ViViT's model 2 is made of
two of its model 1, and alternating layers of its layers.
"""

import dataclasses

import numpy as np
import pytest
from oracle.compare import Results, assert_close, assert_same, ours, shapes
from oracle.stems import ALTERNATING, FACTORISED, TIMESFORMER, VIVIT
from oracle.weights import flatten_dict

from transformer_jax.data.batches.batch import Batch, Side, Target
from transformer_jax.nn.stems import sinusoidal

pytestmark = pytest.mark.oracle
CHANNELS, CLASSES, PATCH, SIDE, ROWS = 2, 5, 4, 8, 3
# The peer's names of a layer, and those of the norms and maps around.
VIVIT_LAYER = {
    "self_attention_residual/norm": "layernorm_before", "self_attention/query": "attention.q_proj",
    "self_attention/key": "attention.k_proj", "self_attention/value": "attention.v_proj",
    "self_attention/output": "attention.o_proj", "feed_forward_residual/norm": "layernorm_after",
    "feed_forward/up": "mlp.fc1", "feed_forward/down": "mlp.fc2",
}  # fmt: skip
TIMESFORMER_LAYER = {
    "time_attention_residual/norm": "temporal_layernorm",
    "time_attention/output": "temporal_attention.output.dense",
    "time_attention/map": "temporal_dense",
    "self_attention_residual/norm": "layernorm_before",
    "self_attention/output": "attention.output.dense",
    "feed_forward_residual/norm": "layernorm_after",
    "feed_forward/up": "intermediate.dense", "feed_forward/down": "output.dense",
}  # fmt: skip
FUSED = {"time_attention": "temporal_attention.attention.qkv", "self_attention":
         "attention.attention.qkv"}  # fmt: skip


def tubelet_of(config):
    return 1 if config.grid[:1] == (3,) else 2


def clips_of(config):
    times = 3 if config.grid[:1] == (3,) else 2
    return np.random.default_rng(1).normal(
        size=(ROWS, times * tubelet_of(config), SIDE, SIDE, CHANNELS)
    )


def randomised(module):
    import torch

    torch.manual_seed(0)
    with torch.no_grad():
        for name, tensor in module.named_parameters():
            tensor.copy_(0.3 * torch.randn_like(tensor) + ("norm" in name and "weight" in name))
    return module.double().eval()


def vivit(config, layers, frames, tubelet, side=SIDE):
    import transformers

    return transformers.VivitModel(transformers.VivitConfig(
        image_size=side, num_frames=frames, tubelet_size=[tubelet, PATCH, PATCH],
        num_channels=CHANNELS, hidden_size=config.d_model, num_hidden_layers=layers,
        num_attention_heads=config.num_heads, intermediate_size=config.d_ff, hidden_act="gelu",
        layer_norm_eps=config.norm_epsilon,
    ), add_pooling_layer=False)  # fmt: skip


def peer_of(config):
    """Return a module from clips [n T H W C] to logits, and its kind."""
    import torch
    import transformers

    class Peer(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.classifier = torch.nn.Linear(config.d_model, CLASSES)
            tubelet = tubelet_of(config)
            frames = tubelet * (3 if config.grid[:1] == (3,) else 2)
            if config is TIMESFORMER:
                self.body = transformers.TimesformerModel(transformers.TimesformerConfig(
                    image_size=SIDE, patch_size=PATCH, num_channels=CHANNELS, num_frames=frames,
                    hidden_size=config.d_model, num_hidden_layers=config.num_encoder_layers,
                    num_attention_heads=config.num_heads, intermediate_size=config.d_ff,
                    hidden_act="gelu", layer_norm_eps=config.norm_epsilon, drop_path_rate=0,
                ))  # fmt: skip
            elif config is FACTORISED:  # a clip of one time, and one of a vector for each time
                self.body = vivit(config, config.num_encoder_layers, tubelet, tubelet)
                self.times = vivit(config, config.num_time_layers, 2 * tubelet, tubelet, PATCH)
                self.times.embeddings.patch_embeddings = torch.nn.Identity()
            else:
                self.body = vivit(config, config.num_encoder_layers, frames, tubelet)

        def forward(self, clips):
            x = torch.tensor(clips.transpose(0, 1, 4, 2, 3))
            if config is FACTORISED:
                n, frames, *rest = x.shape
                x = self.body(x.reshape(n * 2, frames // 2, *rest)).last_hidden_state[:, 0]
                x = x.reshape(n, 2, -1)
                own = self.times.embeddings
                x = torch.cat([own.cls_token.expand(n, -1, -1), x], 1) + own.position_embeddings
                for layer in self.times.layers:
                    x = layer(x)
                return self.classifier(self.times.layernorm(x)[:, 0])
            if config is ALTERNATING:
                return self.classifier(self.alternating(x)[:, 0])
            return self.classifier(self.body(x).last_hidden_state[:, 0])

        def alternating(self, x):
            """Layers of the peer: of frames, with copies of the class token, then of places."""
            x = self.body.embeddings(x)
            for number, layer in enumerate(self.body.layers):
                n, _, d = x.shape
                first, clip = x[:, :1], layer.layernorm_before(x)[:, 1:].reshape(n, 3, 4, d)
                if number % 2:
                    mixed = layer.attention(clip.transpose(1, 2).reshape(n * 4, 3, d))[0]
                    clip = mixed.reshape(n, 4, 3, d).transpose(1, 2).reshape(n, 12, d)
                    first = torch.zeros_like(first)
                else:
                    token = layer.layernorm_before(first)[:, None].expand(n, 3, 1, d)
                    mixed = layer.attention(torch.cat([token, clip], 2).reshape(n * 3, 5, d))[0]
                    mixed = mixed.reshape(n, 3, 5, d)
                    first, clip = mixed[:, :, 0].mean(1, True), mixed[:, :, 1:].reshape(n, 12, d)
                x = x + torch.cat([first, clip], 1)
                x = x + layer.mlp(layer.layernorm_after(x))
            return self.body.layernorm(x)

    return randomised(Peer())


def as_ours(tensors, config):
    """Return the peer's arrays under our names."""
    found = {"class_head/table": tensors["classifier.weight"],
             "class_head/bias": tensors["classifier.bias"]}  # fmt: skip
    width, heads = config.d_model, config.num_heads
    embeddings = "body.embeddings"
    tokens = tensors[f"{embeddings}.cls_token"].reshape(-1)
    table = tensors[f"{embeddings}.position_embeddings"][0]
    kernel = tensors[f"{embeddings}.patch_embeddings.projection.weight"]
    kernel = kernel if kernel.ndim == 5 else kernel[:, :, None]
    # Their tubelets order pixels by (channel, time, row, column).
    found["stem/patch/kernel"] = kernel.transpose(2, 3, 4, 1, 0).reshape(-1, width)
    found["stem/patch/bias"] = tensors[f"{embeddings}.patch_embeddings.projection.bias"]
    if config is TIMESFORMER:  # whose class token has a position of its own
        found["stem/grid_positions/places"] = table[1:]
        found["stem/grid_positions/times"] = tensors[f"{embeddings}.time_embeddings"][0]
    else:
        found["positions/table"] = table
    found["stem/class_token"] = tokens
    stacks = {"encoder": ("body", config.num_encoder_layers)}
    if config is FACTORISED:
        stacks["time_encoder"] = "times", config.num_time_layers
        found["time_token"] = tensors["times.embeddings.cls_token"].reshape(-1)
        found["time_positions/table"] = np.zeros((config.max_positions, width))
        found["time_positions/table"][:3] = tensors["times.embeddings.position_embeddings"][0]
    for stack, (part, layers) in stacks.items():
        for i in range(layers):
            divided = config is TIMESFORMER
            at = f"{part}.{'encoder.layer' if divided else 'layers'}.{i}"
            for name, other in (TIMESFORMER_LAYER if divided else VIVIT_LAYER).items():
                for leaf in ("weight", "bias"):
                    array, norm = tensors[f"{at}.{other}.{leaf}"], name.endswith("norm")
                    array = array.T if leaf == "weight" and not norm else array
                    if name.endswith(("query", "key", "value")):
                        array = array.reshape(*array.shape[:-1], heads, width // heads)
                    if name.endswith("attention/output") and leaf == "weight":
                        array = array.reshape(heads, width // heads, width)
                    mine = {"weight": "scale" if norm else "kernel", "bias": "bias"}[leaf]
                    found[f"{stack}/layer_{i}/{name}/{mine}"] = array
            for name, other in FUSED.items() if divided else ():
                for leaf, mine in (("weight", "kernel"), ("bias", "bias")):
                    three = np.split(tensors[f"{at}.{other}.{leaf}"], 3)
                    for part_of, array in zip(("query", "key", "value"), three, strict=True):
                        array = array.T.reshape(*array.T.shape[:-1], heads, width // heads)
                        found[f"{stack}/layer_{i}/{name}/{part_of}/{mine}"] = array
        for leaf, mine in (("weight", "scale"), ("bias", "bias")):
            found[f"{stack}/final_norm/{mine}"] = tensors[f"{part}.layernorm.{leaf}"]
    return found


def cut(clips, tubelet):
    """Return tubelets [n L C] of clips, by time, row and column, as are the pixels of each."""
    n, frames, *_ = clips.shape
    sides = frames // tubelet, tubelet, SIDE // PATCH, PATCH, SIDE // PATCH, PATCH, CHANNELS
    return (
        clips.reshape(n, *sides)
        .transpose(0, 1, 3, 5, 2, 4, 6, 7)
        .reshape(n, -1, tubelet * PATCH**2 * CHANNELS)
    )


CONFIGS = {
    "vivit": VIVIT, "factorised": FACTORISED, "timesformer": TIMESFORMER,
    "alternating": ALTERNATING,
}  # fmt: skip


@pytest.mark.parametrize("name", CONFIGS)
def test_video_transformers(name):
    """Logits, losses and the gradient of every parameter agree in float64."""
    import torch

    config = CONFIGS[name]
    model, clips = peer_of(config), clips_of(config)
    labels = np.array([4, 0, 2])
    parameters = {n: x for n, x in model.named_parameters() if "times.embeddings.patch" not in n}
    token = "body.embeddings.position_embeddings"
    logits = model(clips)
    log_probabilities = torch.log_softmax(logits, -1)
    true = log_probabilities[range(ROWS), labels]
    losses, gradients = {}, {}
    for convention, others in (("tensor2tensor", CLASSES - 1), ("uniform", CLASSES)):
        away = 0.1 / others
        kept = 0.9 if convention == "tensor2tensor" else 0.9 + away
        loss = -(kept * true + away * (log_probabilities.sum(-1) - true)).mean()
        model.zero_grad()
        loss.backward(retain_graph=True)
        losses[convention] = loss.item()
        slopes = {n: x.grad.numpy().copy() for n, x in parameters.items()}
        gradients[convention] = as_ours(slopes, config)
    vectors = cut(clips, tubelet_of(config))
    length = vectors.shape[1]
    vectors = np.concatenate([np.zeros((ROWS, 1, vectors.shape[2])), vectors], axis=1)
    pos = np.tile(np.arange(1 + length, dtype=np.int32), (ROWS, 1))
    ones = np.ones((ROWS, 1), np.int32)
    batch = Batch(
        Side(vectors, pos, np.ones_like(pos)), Side(0 * ones, 0 * ones, ones),
        {"class": Target(labels[:, None].astype(np.int32), np.ones((ROWS, 1), np.float32))},
    )  # fmt: skip
    tensors = {n: x.detach().numpy() for n, x in parameters.items()}
    params = as_ours(tensors, config)
    if config is TIMESFORMER:
        params["stem/class_token"] = params["stem/class_token"] + tensors[token][0, 0]
    expected = flatten_dict(shapes(config, vectors.shape[2], CLASSES, "class"), sep="/")
    assert {k: v.shape for k, v in params.items()} == {k: v.shape for k, v in expected.items()}
    mine = ours(config, (vectors.shape[2], CLASSES), params, batch)
    assert_same(mine, Results(logits.detach().numpy(), losses, gradients))
    # Positions behind a clip, which fill a batch, change nothing.
    wider = [np.pad(x, ((0, 0), (0, 3), (0, 0))[: x.ndim]) for x in batch.src[:3]]
    if config.positions == "learned" and config.architecture == "encoder":
        config = dataclasses.replace(config, max_positions=config.max_positions + 3)
        params["positions/table"] = np.pad(params["positions/table"], ((0, 3), (0, 0)))
    padded = ours(config, (vectors.shape[2], CLASSES), params, batch._replace(src=Side(*wider)))
    assert_close("padded", padded.logits, logits.detach().numpy())


def test_positions_are_those_of_cogvideox_in_another_order():
    """Time, then rows and columns, where theirs has columns first and sines before cosines."""
    from diffusers.models.embeddings import get_3d_sincos_pos_embed

    width, (times, rows, columns) = 32, (3, 4, 5)
    theirs = np.asarray(
        get_3d_sincos_pos_embed(width, (columns, rows), times, output_type="np"), np.float64
    ).reshape(-1, width)
    time, column, row = np.split(theirs, [width // 4, width // 4 + 3 * width // 8], axis=1)
    mixed = [x.reshape(len(x), 2, -1).swapaxes(1, 2).reshape(len(x), -1)
             for x in (time, row, column)]  # fmt: skip
    mine = sinusoidal((times, rows, columns), width)
    np.testing.assert_allclose(mine, np.concatenate(mixed, 1), atol=1e-6)  # float32 there
