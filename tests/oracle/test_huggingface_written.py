"""Texts are those that AutoTokenizer makes of what `generate` of transformers writes: prompts with
EOS inside, bytes for characters that a tokenizer lacks, spaces that it cleans.
"""

import dataclasses
import json

import ctranslate2
import numpy as np
import pytest
import sentencepiece
import torch
import transformers as T
from decoding.test_streamed_text import llama
from oracle.families import peer
from oracle.test_huggingface_peers import LINES, OURS, TRANSLATION, WRITER, exported, trained
from tokenizers import Tokenizer, processors

import transformer_jax.export.huggingface.directory as hf
from transformer_jax.api.load import load
from transformer_jax.base.vocabulary import BOS, EOS, PAD
from transformer_jax.config import (
    DataConfig,
    DecodingConfig,
    ModelConfig,
    ObjectiveConfig,
    SideConfig,
    TokenizerConfig,
)
from transformer_jax.data.codecs.pair import CODECS
from transformer_jax.export.huggingface.directory import export
from transformer_jax.export.huggingface.workdir import import_into

pytestmark = pytest.mark.oracle
CHAT = "<|im_end|>"
PROMPTS = ["a b", f"a{CHAT} b . {CHAT}", "é 你 a", f"{CHAT}你", "never , 's b ' t"]
SPECIAL = {"pad_token": "<pad>", "bos_token": "<s>", "eos_token": CHAT, "unk_token": "<unk>"}
LLAMA_SHAPE = ModelConfig(
    architecture="decoder", d_model=24, d_ff=40, num_heads=4, num_decoder_layers=2,
    residual="pre_norm", norm="rms_norm", positions="none", relative_positions="rope",
    activation="swiglu", biases=(), embedding_scale=False, max_positions=64,
)  # fmt: skip
IDS = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 4}


def published(name: str, place, cleans: bool, class_name: str = "PreTrainedTokenizerFast"):
    """Write a model with a tokenizer; return what transformers loads."""
    codec = llama()
    tokenizer = Tokenizer.from_str(json.dumps(codec.tokenizer))
    encodes = name == "t5"
    template = f"$A {CHAT}" if encodes else "<s> $A"
    tokenizer.post_processor = processors.TemplateProcessing(
        single=template, special_tokens=[("<s>", 1), (CHAT, 4)]
    )
    starts = {"decoder_start_token_id": 1} if encodes else {}
    model = peer(name, {"vocab_size": codec.size, **IDS, **starts})
    for key, parameter in model.named_parameters():
        if parameter.ndim > 1 and "layers" in key:
            parameter.data *= 3  # or all texts repeat one piece
    model.save_pretrained(place)
    tokenizer.save(str(place / "tokenizer.json"))
    words = {"tokenizer_class": class_name, "clean_up_tokenization_spaces": cleans, **SPECIAL}
    (place / "tokenizer_config.json").write_text(json.dumps(words))
    return model, T.AutoTokenizer.from_pretrained(place)


def expected(model, tokenizer, prompt: str) -> str:
    """Return their text: the prompt with its continuation, or the answer."""
    with torch.no_grad():
        (found,) = model.generate(
            **tokenizer(prompt, return_tensors="pt", return_token_type_ids=False),
            max_new_tokens=24,
            do_sample=False,
            suppress_tokens=[0, 1],
        )
    return tokenizer.decode(found, skip_special_tokens=True)


@pytest.mark.parametrize(
    ("name", "cleans"),
    [
        *((name, cleans) for name in ("llama", "t5") for cleans in (False, True)),
        *((name, False) for name in ("gemma2", "gemma3", "cohere", "phi3, window", "mamba2")),
    ],
)
def test_texts_are_those_of_transformers(name, cleans, tmp_path):
    """Whole and streamed; an import that is exported again writes the same."""
    model, tokenizer = published(name, tmp_path / "theirs", cleans)
    import_into(tmp_path / "theirs", tmp_path / "ours")
    ours = load(tmp_path / "ours")
    export(ours.experiment, ours.params, ours.tokenizers, tmp_path / "again")
    again = T.AutoTokenizer.from_pretrained(tmp_path / "again")
    changed = 0
    for prompt in PROMPTS:
        text = expected(model, tokenizer, prompt)
        if name == "t5":
            limits = {"max_length_ratio": 0.0, "max_extra_length": 24}
            assert ours.translate(prompt, beam_size=1, **limits) == text
        else:
            assert ours.generate(prompt, 24, beam_size=1) == text
            assert "".join(ours.stream(prompt, 24)) == text
        ids = tokenizer(prompt)["input_ids"]
        plain = tokenizer.decode(ids, True, clean_up_tokenization_spaces=False)
        changed += tokenizer.decode(ids, True) != plain
        assert again.decode(ids, True) == tokenizer.decode(ids, True)
    assert (changed > 0) == cleans


def written_by(tokenizer, model, prompts, **options) -> list[str]:
    """Return their texts of a batch of prompts."""
    texts = []
    for prompt in prompts:
        given = tokenizer(prompt, return_tensors="pt", return_token_type_ids=False)
        with torch.no_grad():
            (found,) = model.generate(**given, **options)
        texts.append(tokenizer.decode(found, skip_special_tokens=True))
    return texts


def test_a_language_model_of_files_never_ends(tmp_path):
    """As configs/shakespeare.py, whose embedding is scaled: the scale becomes part of the table."""
    experiment = dataclasses.replace(
        WRITER,
        model=dataclasses.replace(WRITER.model, embedding_scale=True),
        objective=ObjectiveConfig("language_model", window=32, document="file"),
        decoding=DecodingConfig(beam_size=1, forbidden=("<unk>",)),  # which theirs omits
    )
    codec = CODECS["characters"].train(experiment.tokenizer, LINES, ())
    mine = trained(experiment, None, codec)
    theirs, info = exported(experiment, mine.params, mine.tokenizers, tmp_path / "out")
    assert not any(info.values()), info
    tokenizer = T.AutoTokenizer.from_pretrained(tmp_path / "out")
    prompts = LINES[:3]
    assert written_by(tokenizer, theirs, prompts, max_new_tokens=12) == mine.generate(prompts, 12)
    torch.manual_seed(0)
    drawn = theirs.generate(torch.tensor([[5, 6]] * 30), do_sample=True)
    assert drawn.shape == (30, 64)
    assert not (drawn == EOS).any()
    free = theirs.generate(torch.tensor([[5, 6]] * 30), do_sample=True, suppress_tokens=[PAD, BOS])
    assert (free == EOS).any()
    _, params, _ = hf.read(tmp_path / "out")
    assert np.array_equal(params["output"]["table"], mine.params["embedding"]["table"])


def test_a_llama_is_written_with_its_sentencepiece_model(tmp_path):
    """Which llama.cpp converts; it segments texts as tokenizer.json does."""
    experiment = dataclasses.replace(
        WRITER, model=LLAMA_SHAPE, tgt=SideConfig("subwords"),
        tokenizer=TokenizerConfig(vocab_size=290, byte_fallback=True),
    )  # fmt: skip
    codec = CODECS["subwords"].train(experiment.tokenizer, LINES, ())
    mine = trained(experiment, None, codec)
    theirs, _ = exported(experiment, mine.params, mine.tokenizers, tmp_path / "out")
    assert theirs.config.model_type == "llama"
    processor = sentencepiece.SentencePieceProcessor(str(tmp_path / "out" / "tokenizer.model"))
    tokenizer = T.AutoTokenizer.from_pretrained(tmp_path / "out")
    assert [processor.pad_id(), processor.bos_id(), processor.eos_id()] == [PAD, BOS, EOS]
    for line in (*LINES[:5], "你 x", "  a  b "):
        ids = tokenizer(line)["input_ids"]
        assert ids == processor.encode(line, add_bos=True) == mine.generator().reader.read(line)
        given = torch.tensor([ids])
        found = theirs.generate(given, max_new_tokens=9, do_sample=False, num_beams=1)
        (ours,) = mine.generate(line, 9, n_best=1, beam_size=1)
        assert found[0, len(ids) :].tolist() == ours.ids


@pytest.mark.parametrize("name", ["pegasus", "bart", "mbart"])
def test_ctranslate2_converts_exported_directories(name, tmp_path):
    """Its converter reads keys that transformers no longer writes. (That of Marian takes the last
    piece for padding.)
    """
    model = dict(OURS, mbart=dataclasses.replace(OURS["bart"], model=dataclasses.replace(
        OURS["bart"].model, residual="pre_norm")))[name].model  # fmt: skip
    experiment = dataclasses.replace(TRANSLATION, model=model, data=DataConfig(max_length=32))
    codec = CODECS["subwords"].train(experiment.tokenizer, LINES, ())
    mine = trained(experiment, None, codec)
    exported(experiment, mine.params, mine.tokenizers, tmp_path / "out", name)
    converter = ctranslate2.converters.TransformersConverter(str(tmp_path / "out"))
    place = converter.convert(str(tmp_path / "ct2"))
    config = tmp_path / "ct2" / "config.json"
    words = json.loads(config.read_text())
    config.write_text(json.dumps(words | {"decoder_start_token": "<s>"}))
    engine = ctranslate2.Translator(place)
    pieces = [codec.pieces(ids) for ids in codec.encode(LINES[:5])]
    found = engine.translate_batch(
        pieces,
        beam_size=1,
        max_decoding_length=12,
        min_decoding_length=0,
        suppress_sequences=[["<pad>"], ["<s>"], ["<unk>"]],
    )
    texts = [codec.decode(map(codec.piece_id, item.hypotheses[0])) for item in found]
    limits = {"max_length_ratio": 0.0, "max_extra_length": 12}
    assert texts == mine.translate(LINES[:5], beam_size=1, forbidden=("<unk>",), **limits)
