"""Imported models read, write and score texts as `AutoTokenizer` and `generate` do, end to end, in
the forms in which the families are published.
"""

import dataclasses
import json
from typing import NamedTuple

import numpy as np
import pytest
import torch
import transformers as T
from oracle.families import peer
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers

from transformer_jax.api import load
from transformer_jax.config import ObjectiveConfig
from transformer_jax.data.codecs.codec import special_of
from transformer_jax.decoding.text.score import validation_items
from transformer_jax.export.huggingface.families import FAMILIES
from transformer_jax.export.huggingface.special_ids import DEFAULTS
from transformer_jax.export.huggingface.workdir import import_into

pytestmark = pytest.mark.oracle

LINES = [
    "ein Hund sitzt da",
    "zwei Hunde laufen über das Feld",
    "a dog",
]
END, START, MORE = "<|endoftext|>", "<s>", "</s>"


class Form(NamedTuple):
    """How a family is published: what is around a text, which ids its config.json names."""

    around: str  # of one text, or "" for a byte-level processor, None for no processor at all
    ids: dict  # by the name of a piece; None: the config says that there is none
    tokenizer: str = "PreTrainedTokenizerFast"  # the class in tokenizer_config.json
    also: str = ""  # another family whose form it is, of which there are others


BOTH = {"bos_token_id": END, "eos_token_id": END}
BEGUN = {"bos_token_id": START, "eos_token_id": MORE, "pad_token_id": None}
FORMS = {
    "gpt2": Form("", BOTH, "GPT2Tokenizer"),
    "starcoder2": Form("", BOTH, "GPT2Tokenizer"),
    "qwen2": Form("", BOTH | {"pad_token_id": None}, "Qwen2Tokenizer"),
    "qwen2, instruct": Form("", {"bos_token_id": END, "eos_token_id": MORE, "pad_token_id": END},
                            "Qwen2Tokenizer"),
    "qwen3": Form("", {"bos_token_id": None, "eos_token_id": MORE, "pad_token_id": END},
                  "Qwen2Tokenizer"),
    "olmo2": Form("", {"bos_token_id": None, "eos_token_id": END, "pad_token_id": START},
                  "GPT2Tokenizer"),
    "bloom": Form("", BEGUN | {"pad_token_id": END}),
    "gpt_neox": Form("$A", BOTH | {"pad_token_id": None}, "GPTNeoXTokenizer"),
    "stablelm": Form("$A", BOTH | {"pad_token_id": None}, "GPTNeoXTokenizer"),
    "llama": Form(f"{START} $A", BEGUN),
    "llama, as saved by the library": Form(None, BEGUN),
    "llama, whose bos is padding": Form(None, BEGUN | {"bos_token_id": "!", "pad_token_id": "!"}),
    "mistral": Form(f"{START} $A", BEGUN),
    "mixtral": Form(f"{START} $A", BEGUN),
    "opt": Form(f"{MORE} $A", {"bos_token_id": MORE, "eos_token_id": MORE, "pad_token_id": START}),
    "t5": Form(f"$A {MORE}", {"pad_token_id": END, "decoder_start_token_id": END,
                              "eos_token_id": MORE}),
    "pegasus": Form(f"$A {MORE}", {"pad_token_id": END, "decoder_start_token_id": END,
                                   "eos_token_id": MORE, "bos_token_id": None}),
    "bart": Form(f"{START} $A {MORE}", {"bos_token_id": START, "eos_token_id": MORE,
                 "decoder_start_token_id": MORE, "pad_token_id": END}),
}  # fmt: skip


def tokenizer_of(form: Form) -> Tokenizer:
    """Return a byte-level tokenizer, whose first piece is "!"."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=290, special_tokens=[], initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )  # fmt: skip
    tokenizer.train_from_iterator(LINES, trainer)
    tokenizer.add_special_tokens([END, START, MORE])
    if form.around is not None:
        pieces = [(piece, tokenizer.token_to_id(piece)) for piece in (START, MORE)]
        used = [piece for piece in pieces if piece[0] in form.around]
        template = processors.TemplateProcessing(single=form.around or "$A", special_tokens=used)
        level = processors.ByteLevel(trim_offsets=False)
        tokenizer.post_processor = processors.Sequence(
            [level, template] if form.around else [level]
        )
    return tokenizer


def published(name: str, directory):
    """Write a directory in a form, and return its model and its tokenizer, as loaded from there."""
    form, family = FORMS[name], name.partition(",")[0]
    tokenizer = tokenizer_of(form)
    ids = {key: None if piece is None else tokenizer.token_to_id(piece)
           for key, piece in form.ids.items()}  # fmt: skip
    more = {"vocab_size": tokenizer.get_vocab_size() + 3}  # more rows than pieces
    longer = "n_positions" if family == "gpt2" else "max_position_embeddings"
    peer(
        family, more | ids | ({longer: 64} if family not in ("t5", "bloom") else {})
    ).save_pretrained(directory)
    tokenizer.save(str(directory / "tokenizer.json"))
    words = {
        "tokenizer_class": form.tokenizer,
        "eos_token": form.ids["eos_token_id"],
        "bos_token": form.ids.get("bos_token_id"),
        "pad_token": END,
        "unk_token": None,
    }
    (directory / "tokenizer_config.json").write_text(json.dumps(words))
    kind = T.AutoModelForSeq2SeqLM if FAMILIES[family].encodes else T.AutoModelForCausalLM
    return kind.from_pretrained(directory), T.AutoTokenizer.from_pretrained(directory)


@pytest.mark.parametrize("name", FORMS)
def test_imported_models_read_and_write_as_their_directories(name, tmp_path):
    """One by one and in a batch, with the same log-probabilities; so do documents in training."""
    model, tokenizer = published(name, tmp_path / "theirs")
    said = import_into(tmp_path / "theirs", tmp_path / "ours")
    ours = load(tmp_path / "ours")
    codec = ours.tokenizers.tgt
    encodes = model.config.is_encoder_decoder
    special = special_of(codec)
    options = {"suppress_tokens": sorted(special.unwritten) or None, "max_new_tokens": 8}
    tokenizer.padding_side = "right" if encodes else "left"
    batch = tokenizer(LINES, padding=True, return_tensors="pt", return_token_type_ids=False)
    rows = [*model.generate(**batch, num_beams=1, pad_token_id=special.pad, **options)]
    for line, row in zip(LINES, rows, strict=True):
        alone = tokenizer(line, return_tensors="pt", return_token_type_ids=False)
        read = alone["input_ids"][0].tolist()
        (found,) = model.generate(**alone, num_beams=1, **options)
        text = tokenizer.decode(found, skip_special_tokens=True)
        assert tokenizer.decode(row, skip_special_tokens=True) == text
        if encodes:
            alike = {"max_length_ratio": 0.0, "max_extra_length": 8, "beam_size": 1}
            assert codec.encode([line]) == [read]
            assert ours.translate(line, **alike) == text
            continue
        assert ours.generator().reader.read(line) == read
        assert ours.generate(line, 8, beam_size=1) == text
        objective = ObjectiveConfig("language_model", window=32)
        items = validation_items(dataclasses.replace(ours.loaded, objective=objective), [line])
        assert items.tgt.ids.tolist() == [*read, special.end]
    pieces = codec.pieces(read[: -len(codec.encode([LINES[-1]], eos=False)[0])])
    assert f"is read as {' '.join([*pieces, 'TEXT'])}" in said or encodes
    if not encodes:
        ids = torch.tensor([[*read, special.end]])
        with torch.no_grad():
            logits = model(ids[:, :-1]).logits[0].log_softmax(-1)
        theirs = logits[torch.arange(len(read)), ids[0, 1:]].numpy()
        np.testing.assert_allclose(ours.score(LINES[-1]).log_probs, theirs, rtol=1e-4, atol=1e-4)


def test_missing_ids_have_the_defaults_of_the_classes():
    for kind, ours in DEFAULTS.items():
        config = T.AutoConfig.for_model(kind)
        for name in ("pad", "bos", "eos", "decoder_start"):
            theirs = getattr(config, f"{name}_token_id", None)
            assert ours.get(name) == theirs, (kind, name)
