"""ViT of `transformers`, with its own stem or convolutions, against ours (`make oracle`)."""

import dataclasses

import numpy as np
import pytest
from oracle.compare import Results, assert_same, ours
from oracle.stems import CONVOLUTION, DECODER, LINEAR, PLACED, PREFIX

from transformer_jax.data.batches.batch import Batch, Side, Target

pytestmark = pytest.mark.oracle
CHANNELS, CLASSES, PATCH, SIDE = 3, 5, 4, 8
WORDS = {
    "stem/class_token": "vit.embeddings.cls_token",
    "positions/table": "vit.embeddings.position_embeddings",
    "stem/patch/bias": "vit.embeddings.patch_embeddings.projection.bias",
    "encoder/final_norm/scale": "vit.layernorm.weight",
    "encoder/final_norm/bias": "vit.layernorm.bias",
    "class_head/table": "classifier.weight",
    "class_head/bias": "classifier.bias",
}
LAYER = {
    "self_attention_residual/norm": "layernorm_before", "self_attention/query": "attention.q_proj",
    "self_attention/key": "attention.k_proj", "self_attention/value": "attention.v_proj",
    "self_attention/output": "attention.o_proj", "feed_forward_residual/norm": "layernorm_after",
    "feed_forward/up": "mlp.fc1", "feed_forward/down": "mlp.fc2",
}  # fmt: skip
LEAF = {"weight": "kernel", "bias": "bias"}


def peer_of(config):
    import torch
    import transformers
    from oracle.stems import Convolutions

    model = transformers.ViTForImageClassification(transformers.ViTConfig(
        image_size=SIDE, patch_size=PATCH, num_channels=CHANNELS, hidden_size=config.d_model,
        num_hidden_layers=config.num_encoder_layers, num_attention_heads=config.num_heads,
        intermediate_size=config.d_ff, num_labels=CLASSES, hidden_act="gelu",
        layer_norm_eps=config.norm_epsilon,
    )).eval().double()  # fmt: skip
    if config.stem == "convolution":
        model.vit.embeddings.patch_embeddings = Convolutions(config, CHANNELS).double()
    torch.manual_seed(0)
    with torch.no_grad():
        for name, tensor in model.named_parameters():
            tensor.copy_(0.3 * torch.randn_like(tensor) + ("norm" in name and "weight" in name))
    return model


def as_ours(tensors, config):
    """Return the peer's arrays under our names."""
    found = {name: np.asarray(tensors[other]) for name, other in WORDS.items() if other in tensors}
    found["stem/class_token"] = found["stem/class_token"].reshape(-1)
    found["positions/table"] = found["positions/table"][0]
    width, heads = config.d_model, config.num_heads
    for i in range(config.num_encoder_layers):
        for name, other in LAYER.items():
            for leaf, mine in LEAF.items():
                array = np.asarray(tensors[f"vit.layers.{i}.{other}.{leaf}"])
                norm = "norm" in name
                if leaf == "weight" and not norm:
                    array = array.T
                if name.endswith(("query", "key", "value")):
                    array = array.reshape(*array.shape[:-1], heads, width // heads)
                if name.endswith("attention/output") and leaf == "weight":
                    array = array.reshape(heads, width // heads, width)
                found[
                    f"encoder/layer_{i}/{name}/{'scale' if norm and leaf == 'weight' else mine}"
                ] = array
    patch = "vit.embeddings.patch_embeddings"
    if config.stem == "linear":  # their patches order pixels by (channel, row, column)
        kernel = np.asarray(tensors[f"{patch}.projection.weight"])
        found["stem/patch/kernel"] = kernel.transpose(2, 3, 1, 0).reshape(-1, width)
    for i in range(config.stem_layers if config.stem == "convolution" else 0):
        kernel = np.asarray(tensors[f"{patch}.convolutions.{i}.weight"])
        found[f"stem/convolution_{i}/kernel"] = kernel.transpose(2, 3, 1, 0)
        found[f"stem/convolution_{i}/bias"] = np.asarray(tensors[f"{patch}.convolutions.{i}.bias"])
        found[f"stem/norm_{i}/scale"] = np.asarray(tensors[f"{patch}.norms.{i}.weight"])
        found[f"stem/norm_{i}/bias"] = np.asarray(tensors[f"{patch}.norms.{i}.bias"])
    if config.stem == "convolution":
        found["stem/patch/kernel"] = np.asarray(tensors[f"{patch}.projection.weight"]).T
    return found


@pytest.mark.parametrize(
    "config", [LINEAR, CONVOLUTION, PLACED], ids=["linear", "convolution", "placed"]
)
def test_vit(config):
    """Logits, losses and the gradient of every parameter agree in float64."""
    import torch

    model = peer_of(config)
    rng = np.random.default_rng(1)
    pictures, labels = rng.normal(size=(3, SIDE, SIDE, CHANNELS)), np.array([4, 0, 2])
    if config.grid_positions != "none":  # added after the patch projection, by loops
        width, table = config.d_model // 2, np.zeros((4, config.d_model))
        for place, row, column in ((i, i // 2, i % 2) for i in range(4)):
            for first, where in ((0, row), (width, column)):
                for i in range(width // 2):
                    angle = where / 10000 ** (2 * i / width)
                    table[place, first + 2 * i : first + 2 * i + 2] = np.sin(angle), np.cos(angle)
        patches = model.vit.embeddings.patch_embeddings
        patches.register_forward_hook(lambda *call: call[-1] + torch.tensor(table))
    logits = model(torch.tensor(pictures.transpose(0, 3, 1, 2))).logits
    log_probabilities = torch.log_softmax(logits, -1)
    true = log_probabilities[range(3), labels]
    losses, gradients = {}, {}
    for convention, others in (("tensor2tensor", CLASSES - 1), ("uniform", CLASSES)):
        away = 0.1 / others
        kept = 0.9 if convention == "tensor2tensor" else 0.9 + away
        rest = log_probabilities.sum(-1) - true
        loss = -(kept * true + away * rest).mean()
        model.zero_grad()
        loss.backward(retain_graph=True)
        losses[convention] = loss.item()
        slopes = {name: x.grad.numpy().copy() for name, x in model.named_parameters()}
        gradients[convention] = as_ours(slopes, config)
    grid = pictures.reshape(3, 2, PATCH, 2, PATCH, CHANNELS).swapaxes(2, 3)
    vectors = np.concatenate([np.zeros((3, 1, 48)), grid.reshape(3, 4, 48)], axis=1)
    pos = np.tile(np.arange(5, dtype=np.int32), (3, 1))
    ones = np.ones((3, 1), np.int32)
    batch = Batch(
        Side(vectors, pos, np.ones_like(pos)), Side(0 * ones, 0 * ones, ones),
        {"class": Target(labels[:, None].astype(np.int32), np.ones((3, 1), np.float32))},
    )  # fmt: skip
    tensors = {name: x.detach().numpy() for name, x in model.named_parameters()}
    params = as_ours(tensors, config)
    mine = ours(config, (48, CLASSES), params, batch)
    assert_same(mine, Results(logits.detach().numpy(), losses, gradients))


def test_every_parameter_has_a_counterpart():
    """`as_ours` returns all of our parameters and nothing else."""
    from oracle.compare import shapes
    from oracle.weights import flatten_dict

    for config in (LINEAR, CONVOLUTION, dataclasses.replace(LINEAR, num_encoder_layers=1)):
        model = peer_of(config)
        found = as_ours({n: x.detach().numpy() for n, x in model.named_parameters()}, config)
        expected = flatten_dict(shapes(config, 48, CLASSES, "class"), sep="/")
        assert {k: v.shape for k, v in found.items()} == {k: v.shape for k, v in expected.items()}


def test_text_after_a_picture():
    """LLaVA's arrangement of ViT, a linear map and GPT-2 (arXiv:2304.08485, figure 1): logits,
    losses and the gradient of every parameter agree in float64.
    """
    import torch
    from oracle.compare import shapes
    from oracle.decoders import PEERS
    from oracle.weights import from_torch

    vision, plain = peer_of(LINEAR), DECODER
    peer = PEERS["gpt2"](plain, CLASSES).double()
    connector = torch.nn.Linear(24, 24).double()
    torch.manual_seed(1)
    with torch.no_grad():
        for tensor in (*peer.parameters(), *connector.parameters()):
            tensor.copy_(0.3 * torch.randn_like(tensor))
    rng = np.random.default_rng(2)
    pictures = rng.normal(size=(3, SIDE, SIDE, CHANNELS))
    words, labels = (rng.integers(0, CLASSES, (3, 4)).astype(np.int32) for _ in range(2))
    read = vision.vit(torch.tensor(pictures.transpose(0, 3, 1, 2))).last_hidden_state[:, 1:]
    table = peer.model.get_input_embeddings()
    x = torch.cat([connector(read), table(torch.tensor(words).long())], dim=1)
    logits = peer.model(inputs_embeds=x).logits[:, 4:]
    log_probabilities = torch.log_softmax(logits, -1)
    true = log_probabilities.gather(-1, torch.tensor(labels)[..., None].long())[..., 0]
    tree = shapes(plain, CLASSES, CLASSES)

    def ours_of(of_vision, of_text, of_map):
        mine = as_ours(of_vision, LINEAR)
        mine = {k: v for k, v in mine.items() if not k.startswith("class_head")}
        table = np.zeros((plain.max_positions, 24))
        table[:5] = mine.pop("positions/table")
        text = from_torch(peer.apart(of_text), tree, peer.words)
        text["tgt_positions/table"] = text.pop("positions/table")
        maps = {"connector/kernel": of_map["weight"].T, "connector/bias": of_map["bias"]}
        return {"src_positions/table": table} | mine | text | maps

    parts = vision.named_parameters, peer.tensors().items, connector.named_parameters
    losses, gradients = {}, {}
    for convention, others in (("tensor2tensor", CLASSES - 1), ("uniform", CLASSES)):
        away = 0.1 / others
        kept = 0.9 if convention == "tensor2tensor" else 0.9 + away
        loss = -(kept * true + away * (log_probabilities.sum(-1) - true)).mean()
        for module in (vision, peer, connector):
            module.zero_grad()
        loss.backward(retain_graph=True)
        losses[convention] = loss.item()
        slopes = [
            {n: np.zeros(x.shape) if x.grad is None else x.grad.numpy().copy() for n, x in part()}
            for part in parts
        ]
        gradients[convention] = ours_of(*slopes)
    grid = pictures.reshape(3, 2, PATCH, 2, PATCH, CHANNELS).swapaxes(2, 3).reshape(3, 4, 48)
    pos = np.tile(np.arange(4, dtype=np.int32), (3, 1))
    batch = Batch(
        Side(grid, pos, np.ones_like(pos)), Side(words, pos, np.ones_like(pos)),
        {"tokens": Target(labels, np.ones((3, 4), np.float32))},
    )  # fmt: skip
    params = ours_of(*({n: x.detach().numpy() for n, x in part()} for part in parts))
    mine = ours(PREFIX, (48, CLASSES), params, batch)
    assert_same(mine, Results(logits.detach().numpy().reshape(-1, CLASSES), losses, gradients))
