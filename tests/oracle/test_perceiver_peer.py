"""The Perceiver of `transformers`, for texts and for vectors, against ours (`make oracle`).

Its decoder is given the heads and widths of the other layers, and residual queries.
"""

import numpy as np
import pytest
from oracle.compare import Results, assert_same, ours
from oracle.stems import PERCEIVER, PERCEIVER_LINEAR

from transformer_jax.data.batches.batch import Batch, Side, Target

pytestmark = pytest.mark.oracle
VOCAB, CLASSES, LENGTH, CHANNELS = 30, 5, 5, 6
LAYER = {
    "cross_attention_residual/norm": "attention.self.layernorm1",
    "cross_attention/query": "attention.self.query", "cross_attention/key": "attention.self.key",
    "cross_attention/value": "attention.self.value",
    "cross_attention/output": "attention.output.dense",
    "feed_forward_residual/norm": "layernorm", "feed_forward/up": "mlp.dense1",
    "feed_forward/down": "mlp.dense2",
}  # fmt: skip


def peer_of(config, kind):
    """Return (the parts of a peer, a function from a batch's source side to its logits)."""
    import torch
    import transformers
    from transformers.models.perceiver import modeling_perceiver as perceiver

    words = transformers.PerceiverConfig(
        num_latents=config.num_latents, d_latents=config.d_model, d_model=config.d_model,
        num_blocks=2, num_self_attends_per_block=config.num_encoder_layers // 2,
        num_self_attention_heads=config.num_heads, num_cross_attention_heads=config.num_heads,
        self_attention_widening_factor=2, cross_attention_widening_factor=2, vocab_size=VOCAB,
        max_position_embeddings=LENGTH, attention_probs_dropout_prob=0.0, num_labels=CLASSES,
        hidden_act="gelu",
    )  # fmt: skip
    width = config.d_model
    given = {
        "num_channels": width, "qk_channels": width, "v_channels": width,
        "num_heads": config.num_heads, "widening_factor": 2, "use_query_residual": True,
        "trainable_position_encoding_kwargs": {
            "num_channels": width, "index_dims": 1 if kind == "class" else LENGTH},
    }  # fmt: skip

    class Vectors(torch.nn.Module):
        """ViT's stem, with a trained vector in the first position."""

        num_channels = width

        def __init__(self):
            super().__init__()
            self.patch = torch.nn.Linear(CHANNELS, width)
            self.class_token = torch.nn.Parameter(torch.zeros(width))
            self.position_embeddings = torch.nn.Embedding(LENGTH, width)

        def forward(self, inputs, pos=None, network_input_is_1d=True, **_):
            first = self.class_token.expand(len(inputs), 1, -1)
            x = torch.cat([first, self.patch(inputs[:, 1:])], 1) + self.position_embeddings.weight
            return x, None, x

    reader = Vectors() if config.stem == "linear" else perceiver.PerceiverTextPreprocessor(words)
    if kind == "class":
        decoder = perceiver.PerceiverClassificationDecoder(words, **given)
    else:
        decoder = perceiver.PerceiverBasicDecoder(
            words, output_num_channels=width, output_index_dims=LENGTH, final_project=False, **given
        )
    parts = torch.nn.ModuleDict({
        "perceiver": perceiver.PerceiverModel(words, input_preprocessor=reader, decoder=decoder),
    })  # fmt: skip
    if kind == "tokens":
        parts["head"] = perceiver.PerceiverEmbeddingDecoder(words)
    parts = parts.eval().double()
    torch.manual_seed(0)
    with torch.no_grad():
        for name, tensor in parts.named_parameters():
            tensor.copy_(0.3 * torch.randn_like(tensor) + ("norm" in name and "weight" in name))

    def logits(inputs, seg):
        found = parts["perceiver"](inputs=inputs, attention_mask=torch.tensor(seg > 0)).logits
        if kind == "tokens":
            return parts["head"](found, embedding_layer=reader.embeddings)
        return found[:, None]

    return parts, logits


def as_ours(tensors, config, kind):
    """Return the peer's arrays under our names, including the norms of attention's sources."""
    width, heads = config.d_model, config.num_heads
    body = {name.removeprefix("perceiver."): np.asarray(x) for name, x in tensors.items()}
    found = {
        "positions/table": body["input_preprocessor.position_embeddings.weight"],
        "latents": body["embeddings.latents"],
    }
    if config.stem == "linear":
        found["stem/patch/kernel"] = body["input_preprocessor.patch.weight"].T
        found["stem/patch/bias"] = body["input_preprocessor.patch.bias"]
        found["stem/class_token"] = body["input_preprocessor.class_token"]
    else:
        found["embedding/table"] = body["input_preprocessor.embeddings.weight"]
    decoder = "decoder.decoder" if kind == "class" else "decoder"
    query = body[f"{decoder}.output_position_encodings.position_embeddings"]
    if kind == "class":
        found["class_query"] = query[0]
        for mine, other in (("table", "weight"), ("bias", "bias")):
            found[f"class_head/{mine}"] = body[f"{decoder}.final_layer.{other}"]
    else:
        found["query_positions/table"], found["piece_bias"] = (
            query,
            np.asarray(tensors["head.bias"]),
        )
    layers = {
        "input_layer": "encoder.cross_attention",
        "output_layer": f"{decoder}.decoding_cross_attention",
        **{f"encoder/layer_{i}": f"encoder.self_attends.{i}" for i in range(2)},
    }
    for mine, theirs in layers.items():
        for name, other in LAYER.items():
            own = name if "layer_" not in mine or "encoder" not in mine else name.replace(
                "cross_attention", "self_attention")  # fmt: skip
            weight, bias = (body[f"{theirs}.{other}.{leaf}"] for leaf in ("weight", "bias"))
            if "norm" in name:
                found |= {f"{mine}/{own}/scale": weight, f"{mine}/{own}/bias": bias}
                continue
            weight = weight.T
            if name.endswith(("query", "key", "value")):
                weight, bias = weight.reshape(width, heads, -1), bias.reshape(heads, -1)
            if name.endswith("attention/output"):
                weight = weight.reshape(heads, -1, width)
            found |= {f"{mine}/{own}/kernel": weight, f"{mine}/{own}/bias": bias}
    seen = {"input_norm": "input_layer", "encoder/final_norm": "output_layer"}
    for mine, layer in seen.items():
        for leaf, other in (("scale", "weight"), ("bias", "bias")):
            found[f"{mine}/{leaf}"] = body[f"{layers[layer]}.attention.self.layernorm2.{other}"]
    return found


def batch_of(config, kind) -> Batch:
    """Return texts, one of them padded, or vectors, with classes or pieces to predict."""
    rng = np.random.default_rng(1)
    pos = np.tile(np.arange(LENGTH, dtype=np.int32), (3, 1))
    seg, ones = np.ones_like(pos), np.ones((3, 1), np.int32)
    inputs = rng.integers(0, VOCAB, (3, LENGTH)).astype(np.int32)
    if config.stem == "linear":
        inputs = rng.normal(size=(3, LENGTH, CHANNELS))
        inputs[:, 0] = 0
    else:
        seg[1, 3:] = 0
    side = Side(inputs, pos, seg)
    if kind == "tokens":
        hidden = ((rng.random(pos.shape) < 0.5) & (seg > 0)).astype(np.float32)
        labels = rng.integers(0, VOCAB, pos.shape).astype(np.int32)
        return Batch(side, None, {"tokens": Target(labels, hidden)})
    labels = np.array([[4], [0], [2]], np.int32)
    tgt = Side(0 * ones, 0 * ones, ones)
    return Batch(side, tgt, {"class": Target(labels, ones.astype(np.float32))})


@pytest.mark.parametrize(
    ("config", "kind"),
    [(PERCEIVER, "class"), (PERCEIVER, "tokens"), (PERCEIVER_LINEAR, "class")],
    ids=["classes", "masked", "vectors"],
)
def test_perceiver(config, kind):
    """Logits, losses and the gradient of every parameter agree in float64."""
    import torch

    parts, logits = peer_of(config, kind)
    batch = batch_of(config, kind)
    ((labels, weight),) = batch.targets.values()
    found = logits(torch.tensor(batch.src.inputs), batch.src.seg)[torch.tensor(weight > 0)]
    count = found.shape[-1]
    logs = torch.log_softmax(found, -1)
    true = logs[range(len(logs)), labels[weight > 0]]
    losses, gradients = {}, {}
    for convention, others in (("tensor2tensor", count - 1), ("uniform", count)):
        away = 0.1 / others
        kept = 0.9 if convention == "tensor2tensor" else 0.9 + away
        loss = -(kept * true + away * (logs.sum(-1) - true)).mean()
        parts.zero_grad()
        loss.backward(retain_graph=True)
        losses[convention] = loss.item()
        slopes = {name: x.grad.numpy().copy() for name, x in parts.named_parameters()}
        gradients[convention] = as_ours(slopes, config, kind)
    tensors = {name: x.detach().numpy() for name, x in parts.named_parameters()}
    params = as_ours(tensors, config, kind)
    sizes = (CHANNELS if config.stem == "linear" else VOCAB, CLASSES if kind == "class" else VOCAB)
    mine = ours(config, sizes, params, batch)
    assert_same(mine, Results(found.detach().numpy(), losses, gradients))
