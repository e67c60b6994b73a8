"""Texts are those that AutoTokenizer makes of what `generate` of transformers writes: prompts with
EOS inside, bytes for characters that a tokenizer lacks, spaces that it cleans.
"""

import json

import pytest
import torch
import transformers as T
from decoding.test_parts import llama
from oracle.families import peer
from tokenizers import Tokenizer, processors

from transformer_jax.api.load import load
from transformer_jax.export.huggingface.directory import export
from transformer_jax.export.huggingface.workdir import import_into

pytestmark = pytest.mark.oracle
CHAT = "<|im_end|>"
PROMPTS = ["a b", f"a{CHAT} b . {CHAT}", "é 你 a", f"{CHAT}你", "never , 's b ' t"]
SPECIAL = {"pad_token": "<pad>", "bos_token": "<s>", "eos_token": CHAT, "unk_token": "<unk>"}
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


@pytest.mark.parametrize("name", ["llama", "t5"])
@pytest.mark.parametrize("cleans", [False, True], ids=["as it is", "cleaned"])
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
