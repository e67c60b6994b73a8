"""GGUF files: read back by `gguf`, loaded by transformers, and run by llama.cpp where its Python
binding is installed (llama-cpp-python), with the same logits and the same texts.
"""

import dataclasses
import importlib.util

import jax
import numpy as np
import pytest
import torch
import transformers as T
from export.test_huggingface import unbiased
from gguf import GGUFReader
from tiny import random_params
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

from transformer_jax.api.trained import TrainedModel
from transformer_jax.base.vocabulary import BOS, PAD, UNK
from transformer_jax.config import (
    CheckpointConfig,
    DataConfig,
    EvaluationConfig,
    Experiment,
    ModelConfig,
    ObjectiveConfig,
    SourceConfig,
    TokenizerConfig,
)
from transformer_jax.data.batches.batch import Batch, Side
from transformer_jax.data.codecs import characters
from transformer_jax.data.codecs.codec import SPECIAL
from transformer_jax.data.codecs.imported import Imported
from transformer_jax.data.codecs.pair import CODECS, TokenizerPair
from transformer_jax.export.gguf.directory import export
from transformer_jax.export.gguf.vocabulary import LLAMA3
from transformer_jax.export.huggingface.tokenizer_files import QWEN
from transformer_jax.models.build import build_for

pytestmark = pytest.mark.oracle
CORPUS = ["a dog sits there", "two dogs run over the field", "ab cd", "the dog ran, ab!"] * 8
ROPE = ModelConfig(
    architecture="decoder", d_model=24, d_ff=40, num_heads=4, num_decoder_layers=2,
    residual="pre_norm", norm="rms_norm", positions="none", relative_positions="rope",
    activation="swiglu", biases=(), embedding_scale=False, max_positions=64, norm_epsilon=1e-5,
)  # fmt: skip
_QKV = ("query", "key", "value")
_ALL = (*_QKV, "output", "feed_forward")


def changed(**fields) -> ModelConfig:
    return dataclasses.replace(ROPE, **fields)


LAYER_NORM = {"norm": "layer_norm", "activation": "gelu_tanh", "biases": _ALL}
# Those that transformers loads too; it reads no head sizes of qwen3, and no length of gpt2.
BOTH = {
    "llama": ROPE,
    "llama, grouped": changed(num_kv_heads=2, tied_embeddings="none"),
    "llama, any heads": changed(head_dim=8),
    "qwen2": changed(biases=_QKV),
    "qwen3": changed(query_key_norm="per_head", head_dim=128),
    "starcoder2": changed(**LAYER_NORM, num_kv_heads=2),
    "gpt2": changed(
        **LAYER_NORM, positions="learned", relative_positions="none", max_positions=1024, d_ff=96
    ),
    "bloom": changed(**LAYER_NORM, relative_positions="alibi", input_norm=True, d_ff=96),
}
LLAMA_CPP = {
    "llama, biased": changed(biases=_ALL),
    "llama, linear": changed(rope_scaling="linear", rope_factor=4.0),
    "llama, llama3": changed(rope_scaling="llama3", rope_factor=4.0, rope_length=16),
    "llama, yarn": changed(rope_scaling="yarn", rope_factor=4.0, rope_length=16),
    "mixtral": changed(
        feed_forward_pattern=("experts",), num_experts=4, experts_per_token=2,
        expert_scores="softmax", balancing_rate=0.0,
    ),
    "qwen3, any heads": changed(query_key_norm="per_head", head_dim=8),
    "olmo2": changed(residual="reordered_norm", query_key_norm="all_heads"),
    "stablelm": changed(norm="layer_norm", rope_fraction=0.5, head_dim=8, d_model=32),
    "gpt_neox": changed(**LAYER_NORM, rope_fraction=0.5, head_dim=8, d_model=32),
    "gpt2, any length": changed(**LAYER_NORM, positions="learned", relative_positions="none"),
}  # fmt: skip
runtime = pytest.mark.skipif(
    importlib.util.find_spec("llama_cpp") is None, reason="llama-cpp-python is not installed"
)


def experiment_of(model: ModelConfig, **tokenizer) -> Experiment:
    return Experiment(
        model=dataclasses.replace(model, dropout_rate=0.0), src=SourceConfig(),
        tokenizer=TokenizerConfig(**{"vocab_size": 48, **tokenizer}),
        objective=ObjectiveConfig(name="language_model", window=32),
        data=DataConfig(max_length=32), checkpoint=CheckpointConfig(best_by="loss"),
        evaluation=EvaluationConfig(bleu_sentences=0),
    )  # fmt: skip


def written(model: ModelConfig, output, codec=None, **options):
    """Return a model with random parameters, and the file that it is exported to."""
    experiment = experiment_of(model)
    codec = codec or CODECS["subwords"].train(experiment.tokenizer, CORPUS)
    ours = build_for(experiment, codec.size, codec.size)
    params = jax.tree.map(lambda x: 2 * x, unbiased(random_params(ours)))
    pair = TokenizerPair(codec, codec)
    place = export(experiment, params, pair, output, **options)
    return TrainedModel(experiment, ours, jax.tree.map(jax.numpy.asarray, params), pair, [0]), place


def logits(trained: TrainedModel, ids: list[int]) -> np.ndarray:
    """Return ours, [T V]."""
    array = jax.numpy.array([ids])
    places = jax.numpy.arange(len(ids))[None]
    batch = Batch(None, Side(array, places, jax.numpy.ones_like(array)), {})
    output = trained.model.outputs(trained.params, batch, None)["tokens"]
    return np.float64(output.logits()[0])


def near(one, other, by=1e-4):
    assert np.abs(one - other).max() < by * max(np.abs(other).max(), 1), np.abs(one - other).max()


IDS = [1, 27, 28, 29, 30, 5, 31, 24]


@pytest.mark.parametrize("name", BOTH)
def test_transformers_loads_a_file(name, tmp_path):
    trained, place = written(BOTH[name], tmp_path / "out")
    theirs = T.AutoModelForCausalLM.from_pretrained(place.parent, gguf_file=place.name)
    with torch.no_grad():
        found = theirs(torch.tensor([IDS])).logits[0].double().numpy()
    near(found, logits(trained, IDS))


@pytest.mark.parametrize("name", BOTH | LLAMA_CPP)
@runtime
def test_llama_cpp_runs_a_file(name, tmp_path):
    """Logits of a text, and what is written after a prompt."""
    trained, place = written((BOTH | LLAMA_CPP)[name], tmp_path / "out")
    theirs = llama(place)
    theirs.eval(IDS)
    # llama.cpp looks its GELU up in a table of float16.
    by = 3e-3 if trained.experiment.model.activation == "gelu_tanh" else 1e-4
    near(theirs.scores[: len(IDS)], logits(trained, IDS), by)
    assert theirs.tokenize(b"the dog") == trained.tokenizers.tgt.encode(["the dog"], True, False)[0]
    never = dict.fromkeys((PAD, BOS, UNK), -100.0)
    found = theirs.create_completion("the dog", max_tokens=12, temperature=0.0, logit_bias=never)
    ours = trained.generate("the dog", 12, beam_size=1, forbidden=("<unk>",))
    assert "the dog" + found["choices"][0]["text"] == ours


BYTES = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
CUTS = {
    "gpt2": pre_tokenizers.ByteLevel(add_prefix_space=False),
    **{name: pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(cut), "isolated"), BYTES])
       for name, cut in (("qwen2", QWEN), ("llama3", LLAMA3))},
}  # fmt: skip
MIXED = [
    "def f(x):\n    return  x1234 + 5 # ünï 日本", "It's 12345 dogs'll run!  ok\n\n\n x",
    "🙂 hello\tworld", "", "  ",
]  # fmt: skip


def byte_level(cut) -> Imported:
    """Return a byte-level BPE that cuts texts into words in this way."""
    made = Tokenizer(models.BPE())
    made.pre_tokenizer, made.decoder = cut, decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=400, initial_alphabet=alphabet, special_tokens=["<pad>", "<s>", "</s>", "<unk>"]
    )
    made.train_from_iterator(CORPUS + MIXED, trainer)
    return Imported.of(made.to_str(), SPECIAL, made.get_vocab_size())


@pytest.mark.parametrize("name", [*CUTS, "characters", "unigram"])
@runtime
def test_llama_cpp_reads_texts_as_our_tokenizers_do(name, tmp_path):
    """With those that lack characters, only texts that have none of these: it would stop."""
    if name in CUTS:
        codec, texts = byte_level(CUTS[name]), CORPUS[:4] + MIXED
    else:
        config = TokenizerConfig(vocab_size=30, algorithm="unigram")
        codec, texts = CODECS["subwords"].train(config, CORPUS), CORPUS[:4]
        codec = characters.train(config, CORPUS) if name == "characters" else codec
    theirs = llama(written(ROPE, tmp_path / "out", codec)[1])
    ours = codec.encode(texts, eos=False)
    read = [theirs.tokenize(x.encode(), add_bos=False, special=False) for x in texts]
    assert read == ours


def llama(place):
    import llama_cpp

    return llama_cpp.Llama(
        str(place), n_ctx=64, logits_all=True, verbose=False, n_threads=1, type_k=0, type_v=0
    )


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_matrices_of_other_types(dtype, tmp_path):
    trained, place = written(ROPE, tmp_path / "out", dtype=dtype)
    tensors = {one.name: one for one in GGUFReader(place).tensors}
    assert tensors["blk.0.attn_q.weight"].tensor_type.name == {"float16": "F16"}.get(dtype, "BF16")
    assert tensors["blk.0.attn_norm.weight"].tensor_type.name == "F32"
    theirs = T.AutoModelForCausalLM.from_pretrained(
        place.parent, gguf_file=place.name, dtype=torch.float32
    )
    with torch.no_grad():
        found = theirs(torch.tensor([IDS])).logits[0].double().numpy()
    near(found, logits(trained, IDS), 0.05)
