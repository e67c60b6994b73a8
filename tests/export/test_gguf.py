"""llama.cpp's architectures: complete tables, errors that name a field, vocabularies by algorithm.

What the files compute is compared in tests/oracle/test_gguf.py.
"""

import dataclasses

import jax
import numpy as np
import pytest
from declared import unworded
from export.test_huggingface import of, params_of

from transformer_jax.base.errors import UserError
from transformer_jax.config import Experiment, ModelConfig, TokenizerConfig
from transformer_jax.config.allowed import refused
from transformer_jax.data.codecs.pair import CODECS
from transformer_jax.export.gguf import vocabulary
from transformer_jax.export.gguf.architectures import ARCHITECTURES
from transformer_jax.export.gguf.directory import refuse, to_tensors
from transformer_jax.export.huggingface.directory import expressible
from transformer_jax.export.huggingface.families import FAMILIES
from transformer_jax.export.huggingface.family import to_words


def named(family) -> str:
    return family.model_type + ", experts" * ("feed_forward_pattern" in family.fixed)


@pytest.fixture(params=ARCHITECTURES, ids=named)
def family(request):
    return request.param


def test_every_word_is_declared(family):
    assert unworded(family.supported, ModelConfig) == []


def test_a_model_has_its_metadata_and_tensors(family):
    config = of(family, num_kv_heads=None)
    words = to_words(family, config)
    assert words["embedding_length"] == config.d_model
    assert words["attention"]["head_count"] == config.num_heads
    found = to_tensors(family, config, params_of(config, ("tokens",)))
    assert found["token_embd.weight"].shape[1] == config.d_model
    # A head of its own may be written for an embedding that is tied; expert biases are not.
    if config.tied_embeddings != "none":
        found.pop("output.weight", None)
    written = sum(array.size for array in found.values())
    leaves = jax.tree_util.tree_leaves_with_path(params_of(config, ("tokens",)))
    assert written == sum(np.size(x) for path, x in leaves if path[-1].key != "load_bias")
    if "rope" in words:
        assert words["rope"]["freq_base"] == config.rope_theta


def test_they_are_narrower_than_those_of_hugging_face(family):
    """What llama.cpp computes, transformers does too."""
    config = of(family, num_kv_heads=None)
    assert any(not refused(config, other.supported) for other in FAMILIES.values())


def test_an_activation_that_it_lacks_is_refused():
    config = dataclasses.replace(of(ARCHITECTURES[0]), activation="geglu")
    with pytest.raises(UserError, match=r"^config\.model\.activation='geglu': the export to llama"):
        expressible(config, ("tokens",), families=ARCHITECTURES)


def test_rows_of_queries_are_reordered():
    """Channels i and i + r/2 of a head stand side by side in llama.cpp's Llama."""
    family, qwen2 = ARCHITECTURES[0], ARCHITECTURES[2]
    config = dataclasses.replace(of(family, biases=()), num_heads=6, head_dim=4)
    params = params_of(config, ("tokens",))
    found = to_tensors(family, config, params)["blk.0.attn_q.weight"]
    plain = to_tensors(qwen2, config, params)["blk.0.attn_q.weight"]
    np.testing.assert_array_equal(found, plain.reshape(6, 2, 2, 24).swapaxes(1, 2).reshape(24, 24))


def test_other_objectives_are_refused():
    with pytest.raises(UserError, match=r"^config\.objective\.name='translate': the export to ll"):
        refuse(Experiment())


@pytest.mark.parametrize(("algorithm", "model"), [("bpe", "llama"), ("unigram", "t5")])
def test_vocabularies_of_sentencepiece(algorithm, model, caplog):
    config = TokenizerConfig(vocab_size=18, algorithm=algorithm)
    codec = CODECS["subwords"].train(config, ["a dog sits", "two dogs run"] * 8)
    found = vocabulary.of(codec, Experiment())
    assert found.words["model"] == model
    assert (found.words["bos_token_id"], found.words["eos_token_id"]) == (1, 2)
    assert len(found.pieces) == len(found.types) == len(found.scores) == codec.size
    assert found.types[:5] == [3, 3, 3, 2, 1]
    assert ("byte_fallback=False" in caplog.text) == (algorithm == "bpe")


def test_characters_and_what_has_no_vocabulary():
    codec = CODECS["characters"].train(TokenizerConfig(), ["a b"])
    found = vocabulary.of(codec, Experiment())
    assert found.pieces[4:] == ["▁", "a", "b"]
    assert found.words["add_space_prefix"] is False
    codec = CODECS["bytes"].train(TokenizerConfig(), ["a b"])
    with pytest.raises(UserError, match=r"^config\.tgt\.codec='subwords': the export to llama.cpp"):
        vocabulary.of(codec, Experiment())
