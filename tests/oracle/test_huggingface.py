"""Directories of `transformers`: theirs as ours, ours as theirs, there and back bit for bit."""

import copy

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
import transformers
from flax.traverse_util import flatten_dict
from oracle.decoders import Wide, widen
from oracle.peers import paper_positions
from tokenizers import Tokenizer, models
from transformers.models.mistral import modeling_mistral

import transformer_jax.export.huggingface.directory as hf
from transformer_jax.config import Experiment
from transformer_jax.data.batch import Batch, Side
from transformer_jax.models.build import build

pytestmark = pytest.mark.oracle
VOCAB, IDS = 41, {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
SIZES = {
    "vocab_size": VOCAB, "hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 4,
    "intermediate_size": 40, "num_key_value_heads": 2, "max_position_embeddings": 32,
    "rms_norm_eps": 1e-5, **IDS,
}  # fmt: skip
SEQ2SEQ = {
    "vocab_size": VOCAB, "d_model": 24, "encoder_layers": 2, "decoder_layers": 1,
    "encoder_ffn_dim": 40, "decoder_ffn_dim": 40, "encoder_attention_heads": 4,
    "decoder_attention_heads": 4, "max_position_embeddings": 32, "activation_function": "relu",
    "decoder_start_token_id": 1, "forced_eos_token_id": None, **IDS,
}  # fmt: skip
T5 = {
    "vocab_size": VOCAB, "d_model": 24, "d_kv": 8, "d_ff": 40, "num_layers": 2,
    "num_decoder_layers": 1, "num_heads": 4, "relative_attention_num_buckets": 8,
    "relative_attention_max_distance": 12, "decoder_start_token_id": 0, "pad_token_id": 0,
    "eos_token_id": 1,
}  # fmt: skip
T = transformers
PEERS = {
    "gpt2": (T.GPT2Config, {"vocab_size": VOCAB, "n_embd": 24, "n_layer": 2, "n_head": 4,
                            "n_positions": 32, "bos_token_id": 1, "eos_token_id": 1}),
    "gpt2, untied": (T.GPT2Config, {"vocab_size": VOCAB, "n_embd": 24, "n_layer": 1, "n_head": 4,
                                    "n_positions": 32, "n_inner": 40, "bos_token_id": 1,
                                    "eos_token_id": 2, "tie_word_embeddings": False,
                                    "activation_function": "relu"}),
    "llama": (T.LlamaConfig, SIZES),
    "llama, tied, biases": (T.LlamaConfig, SIZES | {
        "tie_word_embeddings": True, "attention_bias": True, "mlp_bias": True,
        "rope_parameters": {"rope_type": "default", "rope_theta": 50.0}, "head_dim": 8}),
    "mistral": (T.MistralConfig, SIZES | {
        "head_dim": 10, "sliding_window": None, "num_attention_heads": 5,
        "num_key_value_heads": 1}),
    "qwen2": (T.Qwen2Config, SIZES),
    "qwen3": (T.Qwen3Config, SIZES | {"head_dim": 8, "tie_word_embeddings": True}),
    "marian": (T.MarianConfig, SEQ2SEQ | {"scale_embedding": True}),
    "pegasus": (T.PegasusConfig, SEQ2SEQ),
    "t5": (T.T5Config, T5),
    "t5, 1.1": (T.T5Config, T5 | {"feed_forward_proj": "gated-gelu", "tie_word_embeddings": False}),
}  # fmt: skip


def peer(name: str) -> transformers.PreTrainedModel:
    """Return a model with random weights, biases and scales too."""
    kind, settings = PEERS[name]
    config = kind(**settings)
    auto = T.AutoModelForSeq2SeqLM if config.is_encoder_decoder else T.AutoModelForCausalLM
    torch.manual_seed(0)
    model = auto.from_config(config).eval()
    if name == "t5, 1.1":
        model.lm_head.weight = torch.nn.Parameter(torch.randn(VOCAB, 24))
    for key, parameter in model.named_parameters():
        if "embed_positions" not in key:
            torch.nn.init.normal_(parameter, 1.0 if "norm" in key or "ln_" in key else 0.0, 0.3)
    return model


def written(model, directory, **options):
    """Save a model with a tokenizer of as many pieces."""
    model.save_pretrained(directory, **options)
    pieces = {piece: i for i, piece in enumerate(["<pad>", "<s>", "</s>", "<unk>"])}
    pieces |= {f"w{i}": i for i in range(4, VOCAB)}
    Tokenizer(models.WordLevel(pieces, unk_token="<unk>")).save(str(directory / "tokenizer.json"))
    return directory


def example(encodes: bool) -> Batch:
    rng = np.random.default_rng(0)

    def side(length: int) -> Side:
        ids = rng.integers(4, VOCAB, (2, length)).astype(np.int32)
        places = np.broadcast_to(np.arange(length, dtype=np.int32), ids.shape)
        return Side(ids, places, np.ones_like(ids), places)

    return Batch(side(9) if encodes else None, side(7), {})


def our_logits(experiment: Experiment, params, batch: Batch) -> np.ndarray:
    """Return logits in float64."""
    with jax.enable_x64(True):
        model = build(experiment.model, VOCAB, VOCAB, dtype="float64")
        wide = jax.tree.map(lambda x: jnp.asarray(x, jnp.float64), params)
        batch = jax.tree.map(jnp.asarray, batch)
        return np.asarray(model.outputs(wide, batch, None)["tokens"].logits())


def their_logits(model, batch: Batch) -> np.ndarray:
    """Return logits in float64."""
    tgt = torch.from_numpy(batch.tgt.inputs.astype(np.int64))
    wide = copy.deepcopy(model).double()
    for name, module in wide.named_modules():
        if name.endswith("embed_positions"):  # whose sinusoids are rounded to float32
            table = paper_positions(*module.weight.shape)
            module.weight.data = torch.cat([table[:, 0::2], table[:, 1::2]], 1)
    with torch.no_grad():
        if batch.src is None:
            return wide(tgt).logits.numpy()
        src = torch.from_numpy(batch.src.inputs.astype(np.int64))
        return wide(input_ids=src, decoder_input_ids=tgt).logits.numpy()


def distance(ours, theirs) -> float:
    return float(np.abs(np.asarray(ours) - theirs).max() / np.abs(theirs).max())


@pytest.mark.parametrize("name", PEERS)
def test_theirs_is_ours_and_theirs_again(name, tmp_path, monkeypatch):
    widen(monkeypatch)
    monkeypatch.setattr(modeling_mistral, "torch", Wide("torch"))
    model = peer(name)
    experiment, params, codecs = hf.read(written(model, tmp_path / "theirs"))
    batch = example(experiment.model.architecture == "encoder_decoder")
    assert distance(our_logits(experiment, params, batch), their_logits(model, batch)) < 1e-12
    again, info = exported(experiment, params, codecs, tmp_path / "again")
    assert not any(info.values()), info
    for key, tensor in model.state_dict().items():
        assert torch.equal(tensor, again.state_dict()[key]), key
    before, after = (
        {k: v for k, v in m.config.to_dict().items() if k in PEERS[name][1]} for m in (model, again)
    )
    assert before == after
    assert np.array_equal(their_logits(model, batch), their_logits(again, batch))
    ours, back, _ = hf.read(tmp_path / "again")
    assert ours.model == experiment.model
    assert identical(params, back)


def exported(experiment, params, codecs, directory):
    """Return their model of what we export, and what is missing, left over or wrong."""
    hf.export(experiment, params, codecs, directory)
    encodes = experiment.model.architecture == "encoder_decoder"
    auto = T.AutoModelForSeq2SeqLM if encodes else T.AutoModelForCausalLM
    return auto.from_pretrained(directory, output_loading_info=True)


def identical(one, other) -> bool:
    one, other = flatten_dict(one), flatten_dict(other)
    return one.keys() == other.keys() and all(
        np.array_equal(np.asarray(one[key]), np.asarray(other[key])) for key in one
    )
