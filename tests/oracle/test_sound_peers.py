"""Whisper's spectrogram and encoder, a Conformer of `transformers` and torch's CTC loss against
ours (`make oracle`).
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax.traverse_util import flatten_dict
from oracle.compare import as_tree, assert_close
from oracle.stems import CONFORMER, WHISPER

from transformer_jax.config import SourceConfig
from transformer_jax.data.batches.batch import Batch, Side, Target
from transformer_jax.data.codecs import log_mel
from transformer_jax.models.build import build
from transformer_jax.nn.embedding import Head
from transformer_jax.training.other_losses import ctc_sums

pytestmark = pytest.mark.oracle
CHANNELS, PIECES, WIDTH, HEADS = 5, 7, 24, 4
LENGTHS, TEXTS = (12, 8), ([3, 3, 4], [5])  # a repeated piece needs a blank in between


@pytest.mark.parametrize("length", [100, 201, 4000, 16_123])
def test_log_mel(length):
    """The features of a whole sound equal Whisper's without padding; so do the filters."""
    from transformers import WhisperFeatureExtractor
    from transformers.audio_utils import mel_filter_bank

    samples = np.random.default_rng(length).normal(0, 2000, length).astype(np.int16)
    samples[: length // 3] //= 200
    codec = log_mel.train(SourceConfig("log_mel"), [])
    (mine,) = codec.encode([samples])
    peer = WhisperFeatureExtractor()
    if length > 200:  # which NumPy mirrors once
        theirs = peer._np_extract_fbank_features((samples / 2.0**15)[None], "cpu")[0].T
        assert mine.shape == theirs.shape == (length // 160, 80)
        if len(mine):
            assert np.abs(mine - theirs).max() < 1e-6
    else:
        assert mine.shape == (0, 80)
    given = {"norm": "slaney", "mel_scale": "slaney", "min_frequency": 0.0}
    theirs = mel_filter_bank(129, 40, max_frequency=4000.0, sampling_rate=8000, **given)
    assert np.abs(log_mel.filters(8000, 256, 40) - theirs).max() < 1e-15
    assert np.abs(log_mel.filters(16_000, 400, 80) - peer.mel_filters).max() < 1e-15


def test_padding_to_30_seconds_changes_only_the_last_frame():
    """The added silence raises no maximum."""
    from transformers import WhisperFeatureExtractor

    samples = np.random.default_rng(0).normal(0, 2000, 8000).astype(np.int16)
    (mine,) = log_mel.train(SourceConfig("log_mel"), []).encode([samples])
    padded = np.pad(samples / 2.0**15, (0, 480_000 - len(samples)))
    theirs = WhisperFeatureExtractor()._np_extract_fbank_features(padded[None], "cpu")[0].T[:50]
    differs = np.flatnonzero(np.abs(mine - theirs).max(1) > 1e-6)
    assert set(differs) <= {49}  # whose window of 200 samples on either side extends beyond the end


@pytest.mark.parametrize("shape", [(6, 3), (9, 4), (5, 1)])
def test_ctc(shape):
    """The loss and the gradient of logits agree; a line too long for its row counts 0."""
    import torch

    (places, most), rng = shape, np.random.default_rng(0)
    logits = 2 * rng.normal(size=(4, places, PIECES))
    labels = rng.integers(1, PIECES, (4, most))
    labels[0] = labels[0, :1]  # one piece, repeated
    counts = np.array([most, most, max(most - 1, 1), 1])
    weight = (np.arange(most) < counts[:, None]).astype(np.float32)
    given = torch.tensor(logits, requires_grad=True)
    whole = torch.tensor([places] * 4)
    losses = torch.nn.CTCLoss(blank=0, reduction="none", zero_infinity=True)(
        given.log_softmax(-1).transpose(0, 1), torch.tensor(labels), whole, torch.tensor(counts)
    )
    losses.sum().backward()
    with jax.enable_x64(True):
        head = Head(jnp.zeros((PIECES, 1)), None)  # unused
        call = lambda x: ctc_sums(x, head, jnp.asarray(labels), jnp.asarray(weight))  # noqa: E731
        sums, slope = jax.vjp(lambda x: call(x).loss, jnp.asarray(logits))
        assert_close("loss", np.asarray(sums), losses.sum().item())
        (slope,) = slope(jnp.ones_like(sums))
        assert_close("gradient", np.asarray(slope), given.grad.numpy())
        longer = np.repeat(labels[:, :1], places, 1), np.ones((4, places), np.float32)
        sums = ctc_sums(jnp.asarray(logits), head, *map(jnp.asarray, longer))
        assert float(sums.loss) == 0.0
        assert float(sums.weight) == 4 * places


class Named(dict):
    """A peer's arrays under our names, from tensors under theirs."""

    def maps(self, mine: str, theirs: str, tensors: dict, heads: str = "") -> None:
        """Add a linear map; `heads` is the side that has heads, if any."""
        kernel = tensors[f"{theirs}.weight"].T
        bias = tensors.get(f"{theirs}.bias")
        if heads == "out":
            kernel = kernel.reshape(WIDTH, HEADS, -1)
            bias = None if bias is None else bias.reshape(HEADS, -1)
        if heads == "in":
            kernel = kernel.reshape(HEADS, -1, WIDTH)
        self[f"{mine}/kernel"] = kernel
        if bias is not None:
            self[f"{mine}/bias"] = bias

    def norm(self, mine: str, theirs: str, tensors: dict) -> None:
        """Add a layer norm."""
        self[f"{mine}/scale"] = tensors[f"{theirs}.weight"]
        self[f"{mine}/bias"] = tensors[f"{theirs}.bias"]


def whisper():
    """Return the peer, a function that runs it on a row [L C], and one that renames its arrays."""
    import torch
    import transformers
    from transformers.models.whisper.modeling_whisper import WhisperEncoder

    config = transformers.WhisperConfig(
        num_mel_bins=CHANNELS, d_model=WIDTH, encoder_layers=2, encoder_attention_heads=HEADS,
        encoder_ffn_dim=40, max_source_positions=6, dropout=0.0, activation_function="gelu",
    )  # fmt: skip
    model = WhisperEncoder(config).eval().double()
    half = np.exp(-np.log(10_000) / (WIDTH // 2 - 1) * np.arange(WIDTH // 2))
    angles = np.arange(6)[:, None] * half
    table = torch.tensor(np.concatenate([np.sin(angles), np.cos(angles)], axis=1))

    def run(vectors):
        model.config.max_source_positions = len(vectors) // 2
        model.embed_positions = torch.nn.Embedding.from_pretrained(table[: len(vectors) // 2])
        return model(vectors.T[None]).last_hidden_state[0]

    def named(t) -> Named:
        found = Named()
        for i in (0, 1):
            kernel = t[f"conv{i + 1}.weight"]
            found[f"stem/convolution_{i}/kernel"] = kernel.transpose(2, 1, 0)
            found[f"stem/convolution_{i}/bias"] = t[f"conv{i + 1}.bias"]
            here, there = f"encoder/layer_{i}", f"layers.{i}"
            for mine, theirs in (("query", "q"), ("key", "k"), ("value", "v")):
                there_ = f"{there}.self_attn.{theirs}_proj"
                found.maps(f"{here}/self_attention/{mine}", there_, t, "out")
            found.maps(f"{here}/self_attention/output", f"{there}.self_attn.out_proj", t, "in")
            found.norm(f"{here}/self_attention_residual/norm", f"{there}.self_attn_layer_norm", t)
            found.norm(f"{here}/feed_forward_residual/norm", f"{there}.final_layer_norm", t)
            found.maps(f"{here}/feed_forward/up", f"{there}.fc1", t)
            found.maps(f"{here}/feed_forward/down", f"{there}.fc2", t)
        found.norm("encoder/final_norm", "layer_norm", t)
        return found

    return model, run, named


def conformer():
    """Return the same for a Conformer with layer norm in place of batch norm."""
    import torch
    import transformers
    from transformers.models.wav2vec2_conformer.modeling_wav2vec2_conformer import (
        Wav2Vec2ConformerEncoder,
    )

    class OfChannels(torch.nn.LayerNorm):
        def forward(self, x):
            return super().forward(x.transpose(1, 2)).transpose(1, 2)

    config = transformers.Wav2Vec2ConformerConfig(
        hidden_size=WIDTH, num_hidden_layers=2, num_attention_heads=HEADS, intermediate_size=40,
        hidden_act="swish", position_embeddings_type="relative", conv_depthwise_kernel_size=5,
        max_source_positions=12, hidden_dropout=0.0, attention_dropout=0.0, activation_dropout=0.0,
        conformer_conv_dropout=0.0, layerdrop=0.0, layer_norm_eps=1e-5,
        num_conv_pos_embedding_groups=8,
    )  # fmt: skip
    config._attn_implementation = "eager"
    model = Wav2Vec2ConformerEncoder(config).eval().double()
    model.entering = torch.nn.Linear(CHANNELS, WIDTH).double()
    for layer in model.layers:
        layer.conv_module.batch_norm = OfChannels(WIDTH).double()
    angles = np.arange(11, -12, -1)[:, None] * 10_000.0 ** (-np.arange(0, WIDTH, 2) / WIDTH)
    waves = np.stack([np.sin(angles), np.cos(angles)], -1).reshape(1, 23, WIDTH)
    model.embed_positions.pe = torch.tensor(waves)  # which are float32 in theirs

    def run(vectors):
        return model(model.entering(vectors)[None]).last_hidden_state[0]

    def named(t) -> Named:
        found = Named()
        found.maps("stem/patch", "entering", t)
        order = [*range(0, WIDTH, 2), *range(1, WIDTH, 2)]  # all sines, then all cosines
        for i in (0, 1):
            here, there = f"encoder/layer_{i}", f"layers.{i}"
            attention = f"{here}/self_attention"
            for mine, theirs in (("query", "q"), ("key", "k"), ("value", "v")):
                found.maps(f"{attention}/{mine}", f"{there}.self_attn.linear_{theirs}", t, "out")
            found.maps(f"{attention}/output", f"{there}.self_attn.linear_out", t, "in")
            place = t[f"{there}.self_attn.linear_pos.weight"].T[order]
            relative = f"{attention}/relative_positions"
            found[f"{relative}/kernel"] = place.reshape(WIDTH, HEADS, -1)
            found[f"{relative}/content_bias"] = t[f"{there}.self_attn.pos_bias_u"]
            found[f"{relative}/position_bias"] = t[f"{there}.self_attn.pos_bias_v"]
            for mine, theirs in (("first_feed_forward", "ffn1"), ("feed_forward", "ffn2")):
                found.maps(f"{here}/{mine}/up", f"{there}.{theirs}.intermediate_dense", t)
                found.maps(f"{here}/{mine}/down", f"{there}.{theirs}.output_dense", t)
                found.norm(f"{here}/{mine}_residual/norm", f"{there}.{theirs}_layer_norm", t)
            found.norm(f"{here}/self_attention_residual/norm", f"{there}.self_attn_layer_norm", t)
            conv = f"{there}.conv_module"
            found.norm(f"{here}/convolution_residual/norm", f"{conv}.layer_norm", t)
            pair = t[f"{conv}.pointwise_conv1.weight"][:, :, 0].T
            found[f"{here}/convolution/up/kernel"] = pair[:, :WIDTH]
            found[f"{here}/convolution/gate/kernel"] = pair[:, WIDTH:]
            found[f"{here}/convolution/depthwise"] = t[f"{conv}.depthwise_conv.weight"][:, 0].T
            found.norm(f"{here}/convolution/norm", f"{conv}.batch_norm", t)
            last = t[f"{conv}.pointwise_conv2.weight"][:, :, 0].T
            found[f"{here}/convolution/down/kernel"] = last
            found.norm(f"{here}/final_norm", f"{there}.final_layer_norm", t)
        found.norm("encoder/final_norm", "layer_norm", t)
        return found

    return model, run, named


@pytest.mark.parametrize(("config", "peer"), [(WHISPER, whisper), (CONFORMER, conformer)])
def test_encoders(config, peer):
    """Logits, the CTC loss and the gradient of every parameter agree in float64: the peer reads
    rows one by one, ours reads them together, padded.
    """
    import torch

    model, run, named = peer()
    model.head = torch.nn.Linear(WIDTH, PIECES).double()
    torch.manual_seed(0)
    with torch.no_grad():
        for name, tensor in model.named_parameters():
            tensor.copy_(0.3 * torch.randn_like(tensor) + ("norm" in name and "weight" in name))
    rows = [np.random.default_rng(n).normal(size=(n, CHANNELS)) for n in LENGTHS]
    logits = [model.head(run(torch.tensor(row))) for row in rows]
    loss = torch.zeros((), dtype=torch.float64)
    for one, text in zip(logits, TEXTS, strict=True):
        logs, label = one.log_softmax(-1)[:, None], torch.tensor([text])
        loss = loss + torch.nn.functional.ctc_loss(
            logs, label, [len(logs)], [len(text)], reduction="sum"
        )
    loss.backward()

    def ours_of(tensors):
        tensors = {name: x.numpy() for name, x in tensors.items()}
        found = named(tensors)
        found["ctc_head/table"], found["ctc_head/bias"] = (
            tensors["head.weight"], tensors["head.bias"]
        )  # fmt: skip
        return found

    params = ours_of({name: x.detach() for name, x in model.named_parameters()})
    expected = ours_of({n: x.grad for n, x in model.named_parameters() if x.grad is not None})
    batch = _padded(rows, TEXTS)
    with jax.enable_x64(True):
        mine = build(config, CHANNELS, PIECES, dtype="float64", predicts=["ctc"])

        def both(params):
            found = mine.outputs(params, jax.tree.map(jnp.asarray, batch), None)["ctc"]
            target = map(jnp.asarray, batch.targets["ctc"])
            return ctc_sums(found.hidden, found.head, *target).loss, found.logits()

        (value, found), gradient = jax.jit(jax.value_and_grad(both, has_aux=True))(
            as_tree(params, "float64")
        )
        for row, (one, theirs) in enumerate(zip(found, logits, strict=True)):
            theirs = theirs.detach().numpy()
            assert_close(f"logits {row}", np.asarray(one)[: len(theirs)], theirs)
            assert (np.asarray(one)[len(theirs) :].argmax(-1) == 0).all()
        assert_close("loss", np.asarray(value), loss.item())
        leaves = flatten_dict(gradient, sep="/")
        assert leaves.keys() == expected.keys()
        for path, leaf in leaves.items():
            if path.endswith("key/bias") and np.abs(expected[path]).max() < 1e-13:
                assert np.abs(np.asarray(leaf)).max() < 1e-13  # see `compare.assert_same`
            else:
                assert_close(path, np.asarray(leaf), expected[path])


def _padded(rows, texts) -> Batch:
    length, most = max(map(len, rows)) + 3, max(map(len, texts))
    inputs = np.zeros((len(rows), length, CHANNELS))
    pos, seg = (np.zeros((len(rows), length), np.int32) for _ in range(2))
    labels = np.zeros((len(rows), most), np.int32)
    for i, (row, text) in enumerate(zip(rows, texts, strict=True)):
        inputs[i, : len(row)], pos[i, : len(row)] = row, np.arange(len(row))
        seg[i, : len(row)], labels[i, : len(text)] = 1, text
    inputs[seg == 0] = 9.0  # arbitrary values in the padding
    weight = (labels > 0).astype(np.float32)
    return Batch(Side(inputs, pos, seg), None, {"ctc": Target(labels, weight)})
