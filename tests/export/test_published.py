"""What is refused of published directories, and by which words.

The forms that are read are in tests/oracle/test_huggingface_published.py.
"""

import io
import json

import numpy as np
import pytest
import sentencepiece
from export.test_huggingface import of
from safetensors.numpy import save_file
from tiny import VOCAB, random_params

from transformer_jax.base.errors import UserError
from transformer_jax.data.codecs.pair import TokenizerPair
from transformer_jax.export.huggingface import settings, tensors, tokenizer_json
from transformer_jax.export.huggingface.directory import read
from transformer_jax.export.huggingface.families import FAMILIES, GPT2, LLAMA
from transformer_jax.export.huggingface.family import to_words
from transformer_jax.models.build import build


def words_of(name: str) -> dict:
    """Return the content of a config.json."""
    family = FAMILIES[name]
    more = {"model_type": family.model_type, "architectures": [family.architecture]}
    return to_words(family, of(family)) | more


def untied():
    """Return random parameters with an output table."""
    return random_params(build(of(LLAMA, tied_embeddings="none"), VOCAB, VOCAB))


@pytest.fixture(scope="module")
def llama():
    """The tensors of a file."""
    return tensors.to_tensors(LLAMA, untied())


@pytest.mark.parametrize(
    ("quantized", "method"),
    [
        ({"quant_method": "fp8", "weight_block_size": [128, 128]}, "fp8"),
        ({"quant_method": "gptq", "bits": 4}, "gptq"),
        ({"quant_method": "awq", "bits": 4}, "awq"),
        ({"quant_method": "bitsandbytes", "load_in_4bit": True}, "bitsandbytes"),
        ({"load_in_8bit": True, "llm_int8_threshold": 6.0}, "bitsandbytes"),
    ],
)
def test_quantised_models_are_refused_by_their_method(quantized, method, tmp_path):
    """Before a file of tensors is opened, whose types would be another matter."""
    words = words_of("llama") | {"quantization_config": quantized}
    (tmp_path / "config.json").write_text(json.dumps(words))
    with pytest.raises(UserError, match=rf"json: quantization_config: .* by '{method}', and only"):
        read(tmp_path)


def test_whole_numbers_are_not_taken_for_weights(llama):
    name = "model.layers.0.mlp.up_proj.weight"
    params = untied()
    with pytest.raises(UserError, match=rf"^{name}: holds int8 numbers; only float32, float16"):
        tensors.from_tensors(LLAMA, llama | {name: llama[name].astype(np.int8)}, params)


@pytest.mark.parametrize(
    "name",
    ["pytorch_model.bin", "pytorch_model.bin.index.json", "tf_model.h5", "flax_model.msgpack",
     "model.Q4_K_M.gguf", "consolidated.00.pth"],
)  # fmt: skip
def test_weights_in_another_format_are_refused_with_the_remedy(name, tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(words_of("gpt2")))
    (tmp_path / name).write_bytes(b"")
    with pytest.raises(UserError, match=rf"/{name}: only weights in model\.safetensors can be im"):
        read(tmp_path)
    save_file({"x": np.ones(1, np.float32)}, tmp_path / "model.safetensors")
    with pytest.raises(UserError, match=r"transformer\.wte\.weight: missing"):  # and is not read
        read(tmp_path)


def test_tensors_are_named_as_in_the_file(llama):
    """With or without the prefix, and by older names."""
    params = untied()
    bare = {name.removeprefix("model."): array for name, array in llama.items()}
    for given, prefix in ((llama, "model."), (bare, "")):
        name = f"{prefix}layers.0.mlp.up_proj.weight"
        with pytest.raises(UserError, match=rf"^{name}: has the shape \(2, 2\), not \("):
            tensors.from_tensors(LLAMA, given | {name: np.ones((2, 2), np.float32)}, params)
        with pytest.raises(UserError, match=rf"^{prefix}else: this tensor has no counterpart"):
            tensors.from_tensors(LLAMA, given | {f"{prefix}else": np.ones(2)}, params)
    bert = FAMILIES["bert"]
    shapes = random_params(build(of(bert), VOCAB, VOCAB))
    found = tensors.to_tensors(bert, shapes)
    gamma = "embeddings.LayerNorm.gamma"
    found[gamma] = found.pop("bert.embeddings.LayerNorm.weight")[:-1]
    with pytest.raises(UserError, match=rf"^{gamma}: has the shape"):
        tensors.from_tensors(bert, found, shapes)
    headless = {name: array for name, array in llama.items() if name != "lm_head.weight"}
    with pytest.raises(UserError, match=r"^lm_head\.weight: missing"):
        tensors.from_tensors(LLAMA, headless, params)


@pytest.mark.parametrize(
    ("name", "more", "message"),
    [
        (
            "t5",
            {"feed_forward_proj": "relu", "layer_norm_epsilon": 2.0},
            "layer_norm_epsilon: norm_epsilon=2.0: must be above 0",
        ),
        ("t5, gated", {"layer_norm_epsilon": "x"}, "layer_norm_epsilon='x': must be a number"),
        ("t5, gated", {"feed_forward_proj": "gated-tanh"}, "feed_forward_proj='gated-tanh'"),
        ("bert", {"is_decoder": True}, "is_decoder=True: only False"),
        ("bert, classes", {"hidden_act": "tanh"}, "hidden_act='tanh': only 'relu' or 'gelu'"),
        ("qwen3_next", {"hidden_act": "gelu"}, "hidden_act='gelu': only 'silu'"),
        ("gpt2", {"num_attention_heads": "x"}, "num_attention_heads='x': must be a whole number"),
    ],
)
def test_errors_are_those_of_the_nearest_family_and_name_keys_as_the_file(
    name, more, message, tmp_path
):
    (tmp_path / "config.json").write_text(json.dumps(words_of(name) | more))
    save_file({"x": np.ones(1, np.float32)}, tmp_path / "model.safetensors")
    with pytest.raises(UserError, match=f"config.json: {message}"):
        read(tmp_path)


def test_an_output_table_of_its_own_counts_more_than_the_config(tmp_path, caplog):
    """As in `transformers`; GPT-2's is tied unless config.json says otherwise."""
    model = of(GPT2, tied_embeddings="none")
    (tmp_path / "config.json").write_text(json.dumps(words_of("gpt2") | {"vocab_size": VOCAB}))
    params = random_params(build(model, VOCAB, VOCAB))
    tensors.save(tmp_path, tensors.to_tensors(GPT2, params))
    with pytest.raises(UserError, match=r"tokenizer\.json: cannot be read"):  # the next to be read
        read(tmp_path)
    assert "tie_word_embeddings=True: the file has an output table of its own" in caplog.text


def spm(text: str) -> bytes:
    """Train a SentencePiece model of characters."""
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter([text]), model_writer=model, model_type="char", minloglevel=2
    )
    return model.getvalue()


def test_a_pair_of_models_cuts_sources_and_targets_apart(tmp_path):
    """One vocabulary in one file, which knows what a model does not."""
    (tmp_path / "source.spm").write_bytes(spm("abc"))
    (tmp_path / "target.spm").write_bytes(spm("xyz"))
    pieces = ["</s>", "<unk>", *"▁abcxyz", ">>fra<<", "yz", "<pad>"]
    (tmp_path / "vocab.json").write_text(json.dumps({p: i for i, p in enumerate(pieces)}))
    words = {
        "model_type": "marian",
        "eos_token_id": 0,
        "pad_token_id": 11,
        "decoder_start_token_id": 11,
    }
    codec = tokenizer_json.read(tmp_path, words, 12, "encoder_decoder")
    TokenizerPair.shared(codec).save(tmp_path)
    assert sorted(path.name for path in tmp_path.glob("tokenizer*")) == ["tokenizer.json"]
    pair = TokenizerPair.load(tmp_path, True, ("huggingface", "huggingface"))
    assert pair.src.encode(["ab yz", ">>fra<<b", "bq"]) == [
        [2, 3, 4, 2, 10, 0], [9, 2, 4, 0], [2, 4, 1, 0]  # "yz" is unknown there, as one
    ]  # fmt: skip
    assert pair.tgt.encode(["yz x"]) == [[2, 7, 8, 2, 6, 0]]
    assert pair.src.digest != pair.tgt.digest
    assert pair.tgt.decode([11, 2, 10, 2, 6, 0, 6]) == "yz x"
    assert pair.src.special["unk"] == 1
    assert tokenizer_json.models(codec).keys() == {"source.spm", "target.spm"}
    (tmp_path / "tokenizer.json").unlink()
    with pytest.raises(UserError, match=r"^separate_vocabs=True: only a vocabulary of both"):
        tokenizer_json.read(tmp_path, words | {"separate_vocabs": True}, 12)


@pytest.mark.parametrize(
    ("words", "kind", "names"),
    [
        ({"num_labels": 3}, "single_label_classification", ["LABEL_0", "LABEL_1", "LABEL_2"]),
        ({"num_labels": 1}, "regression", None),
        ({}, "single_label_classification", ["LABEL_0", "LABEL_1"]),
        ({"num_labels": 3, "id2label": {"1": "b", "0": "a"}}, "single_label_classification",
         ["a", "b"]),
        ({"num_labels": "3"}, r"num_labels='3': must be a number of labels", None),
        ({"num_labels": 0}, r"num_labels=0: must be a number of labels", None),
    ],
)  # fmt: skip
def test_labels_without_names_have_those_of_transformers(words, kind, names):
    if kind.startswith("num"):
        with pytest.raises(UserError, match=kind):
            settings.problem(words)
        return
    assert settings.problem(words) == kind
    if names:
        labels = settings.labels(words, ("class",))
        assert labels.pieces(range(labels.size)) == names
