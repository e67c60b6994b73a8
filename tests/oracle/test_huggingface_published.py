"""Directories in the forms in which models are published, which `transformers` reads: older names
of tensors and keys, buffers, tables saved twice, shards, and keys left to their defaults.

What the models compute is compared in test_huggingface_peers.py, so here it is enough that every
form is read as the model it was made from, and by `transformers` as well.
"""

import json

import numpy as np
import pytest
import torch
from oracle.families import PEERS, auto, peer, written
from oracle.test_huggingface_peers import identical
from safetensors.numpy import load_file, save_file
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

import transformer_jax.export.huggingface.directory as hf
from transformer_jax.export.huggingface.families import FAMILIES

pytestmark = pytest.mark.oracle
FILE, INDEX = "model.safetensors", "model.safetensors.index.json"
MASK = np.tril(np.ones((1, 1, 32, 32), np.uint8))
# What older versions of `transformers` saved besides parameters.
BUFFERS = {
    "gpt2": {"transformer.h.0.attn.bias": MASK,
             "transformer.h.0.attn.masked_bias": np.array(-1e4, np.float32)},
    "gpt_neox": {"gpt_neox.layers.0.attention.bias": MASK,
                 "gpt_neox.layers.0.attention.masked_bias": np.array(-1e9, np.float32),
                 "gpt_neox.layers.0.attention.rotary_emb.inv_freq": np.ones(2, np.float32)},
    "opt": {"model.decoder.version": np.ones(1, np.float32)},
    "bart": {"model.encoder.version": np.ones(1, np.float32),
             "model.decoder.version": np.ones(1, np.float32)},
    "t5": {"decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight":
           np.ones((8, 4), np.float32)},
    "bert": {"bert.embeddings.position_ids": np.arange(32)[None]},
}  # fmt: skip
BUFFERS |= {"mbart": BUFFERS["bart"]}
ROTARY = {"model.layers.0.self_attn.rotary_emb.inv_freq": np.ones(2, np.float32)}
for kind in ("llama", "mistral", "mixtral", "qwen2", "qwen3", "olmo2", "stablelm", "starcoder2",
             "gemma", "phi3", "cohere"):  # fmt: skip
    BUFFERS[kind] = ROTARY
TABLES = {  # and other names under which they saved the table
    "gpt2": ("lm_head.weight",),
    "bert": ("cls.predictions.decoder.weight",),
    "t5": ("encoder.embed_tokens.weight", "decoder.embed_tokens.weight"),
    "opt": ("lm_head.weight",), "bloom": ("lm_head.weight",), "starcoder2": ("lm_head.weight",),
    **dict.fromkeys(("gemma", "gemma2", "gemma3_text", "cohere", "mamba"), ("lm_head.weight",)),
    "marian": ("model.encoder.embed_tokens.weight", "model.decoder.embed_tokens.weight",
               "lm_head.weight"),
}  # fmt: skip
TABLES |= dict.fromkeys(("pegasus", "bart", "mbart"), TABLES["marian"])


def with_buffers(family, words, tensors):
    """Masks, frequencies, positions and tables that are never read."""
    return words, tensors | BUFFERS.get(family.model_type, {})


def without_prefix(family, words, tensors):
    """As saved from the model without its head."""
    return words, {name.removeprefix(family.prefix): x for name, x in tensors.items()}


def with_gamma_and_beta(family, words, tensors):
    """As in the first version of BERT."""
    older = {"LayerNorm.weight": "LayerNorm.gamma", "LayerNorm.bias": "LayerNorm.beta"}
    return words, {
        next((name.replace(new, old) for new, old in older.items() if new in name), name): x
        for name, x in tensors.items()
    }


def with_tables_twice(family, words, tensors):
    """A tied table under every name it has had."""
    table = f"{family.modules['embedding']}.weight"
    again = () if words.get("tie_word_embeddings") is False else TABLES.get(family.model_type, ())
    if family.architecture.startswith("BertFor") and "Mask" not in family.architecture:
        again = ()
    return words, {**dict.fromkeys(again, tensors[table]), **tensors}


def by_other_names(family, words, tensors):
    """Keys by their aliases."""
    known = {v: k for k, v in CONFIG_MAPPING[family.model_type].attribute_map.items()}
    return {known.get(key, key): value for key, value in words.items()}, tensors


def by_the_oldest_names(family, words, tensors):
    """BLOOM's width, and a base of rotary frequencies beside them."""
    words = dict(words)
    if family.model_type == "bloom":
        words["n_embed"] = words.pop("hidden_size")
    rope, of_kind = words.pop("rope_parameters", None), "type"
    if rope is not None and "full_attention" in rope:  # Gemma 3's
        words["rope_local_base_freq"] = rope["sliding_attention"]["rope_theta"]
        rope, of_kind = rope["full_attention"], "rope_type"
    if rope is not None:
        kind = rope.pop("rope_type")
        names = {"gpt_neox": ("rotary_emb_base", "rotary_pct")}
        theta, share = names.get(family.model_type, ("rope_theta", "partial_rotary_factor"))
        words[theta] = rope.pop("rope_theta")
        if "partial_rotary_factor" in rope:
            words[share] = rope.pop("partial_rotary_factor")
        words["rope_scaling"] = None if kind == "default" else {of_kind: kind, **rope}
    return words, tensors


def without_defaults(family, words, tensors):
    """Only what differs from the class."""
    usual = CONFIG_MAPPING[family.model_type]().to_dict()
    kept = ("model_type", "architectures", "tie_word_embeddings")
    return {k: v for k, v in words.items() if k in kept or usual.get(k, ()) != v}, tensors


FORMS = {
    "tensors": (with_tables_twice, with_buffers, with_gamma_and_beta, without_prefix),
    "keys": (by_other_names, by_the_oldest_names, without_defaults),
}


@pytest.fixture(scope="module", params=PEERS)
def plain(request, tmp_path_factory):
    """A model, its family, and its directory."""
    model = peer(request.param)
    directory = written(model, tmp_path_factory.mktemp("plain"))
    kinds = {k: f for k, f in FAMILIES.items() if f.architecture == type(model).__name__}
    return model, kinds.get(request.param) or next(iter(kinds.values())), directory


@pytest.mark.parametrize("forms", FORMS)
def test_published_forms_are_read_as_the_model_they_were_made_from(forms, plain, tmp_path):
    """Parameters bit for bit, from shards."""
    model, family, directory = plain
    words = json.loads((directory / "config.json").read_text())
    tensors = load_file(directory / FILE)
    for form in FORMS[forms]:
        words, tensors = form(family, words, tensors)
    (tmp_path / "config.json").write_text(json.dumps(words))
    (tmp_path / "tokenizer.json").write_bytes((directory / "tokenizer.json").read_bytes())
    names = sorted(tensors)
    shards = {"a.safetensors": names[::2], "b.safetensors": names[1::2]}
    for file, among in shards.items():
        save_file({n: tensors[n] for n in among}, tmp_path / file, metadata={"format": "pt"})
    index = {"metadata": {}, "weight_map": {n: f for f, among in shards.items() for n in among}}
    (tmp_path / INDEX).write_text(json.dumps(index))
    theirs = auto(model.config).from_pretrained(tmp_path)
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, theirs.state_dict()[name]), name
    expected, found = hf.read(directory), hf.read(tmp_path)
    assert found[0].model == expected[0].model
    assert identical(expected[1], found[1])
