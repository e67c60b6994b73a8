"""Tokenizers in the files of published models without a tokenizer.json, against AutoTokenizer."""

import io
import json

import pytest
import sentencepiece
import torch
import transformers as T
from oracle.families import peer
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

import transformer_jax.export.huggingface.directory as hf
from transformer_jax.api import load
from transformer_jax.base.errors import UserError
from transformer_jax.data.codecs.pair import TokenizerPair
from transformer_jax.export.huggingface import tokenizer_json
from transformer_jax.export.huggingface.workdir import import_into

pytestmark = [
    pytest.mark.oracle,
    pytest.mark.filterwarnings("ignore:Recommended. pip install sacremoses"),
]
LINES = [
    "ein Hund sitzt da, zwei Hunde laufen über das Feld",
    "a dog sits; two dogs run, don't they?",
    "ab cd 1234 (5%)",
] * 20
TEXTS = [
    "ein Hund, don't!", "  two   dogs ", "unseen: ж жж 漢字 x", "", "12345 over das", "Über É é",
    "sits;two\tdogs\nrun",
]  # fmt: skip
ROWS = 700


def spm(kind="unigram", lines=LINES, **options) -> bytes:
    """Train a SentencePiece model."""
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines), model_writer=model, model_type=kind, minloglevel=2,
        hard_vocab_limit=False, **({"vocab_size": 90} | options),
    )  # fmt: skip
    return model.getvalue()


def pieces(model: bytes) -> list[str]:
    processor = sentencepiece.SentencePieceProcessor(model_proto=model)
    return [processor.id_to_piece(i) for i in range(processor.get_piece_size())]


def marian(directory, codes=()):
    """As OPUS-MT: two models, and one vocabulary in another order, which lacks some pieces."""
    source, target = spm(lines=[LINES[1], LINES[2]] * 20), spm(lines=[LINES[0], LINES[2]] * 20)
    found = [*dict.fromkeys(pieces(source)[3:] + pieces(target)[3:])]
    names = ["</s>", "<unk>", *reversed(found[:-3]), "ж", *codes, "<pad>"]
    (directory / "source.spm").write_bytes(source)
    (directory / "target.spm").write_bytes(target)
    (directory / "vocab.json").write_text(json.dumps({p: i for i, p in enumerate(names)}))
    return {"eos_token_id": 0, "pad_token_id": len(names) - 1, "bos_token_id": None,
            "decoder_start_token_id": len(names) - 1}  # fmt: skip


def multilingual(directory):
    return marian(directory, (">>fra<<", ">>deu<<"))


def byte_level(directory, special=("<|endoftext|>",)):
    """GPT-2's files."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    tokenizer.train_from_iterator(LINES, trainers.BpeTrainer(
        vocab_size=330, special_tokens=[*special], initial_alphabet=alphabet, show_progress=False,
    ))  # fmt: skip
    tokenizer.model.save(str(directory))
    return {}


def roberta(directory):
    return byte_level(directory, ("<s>", "<pad>", "</s>", "<unk>", "<mask>"))


def opt(directory):
    names = {"bos": "</s>", "eos": "</s>", "unk": "</s>", "pad": "<pad>"}
    config = {f"{name}_token": piece for name, piece in names.items()}
    more = {"tokenizer_class": "GPT2Tokenizer", "add_bos_token": True}
    (directory / "tokenizer_config.json").write_text(json.dumps(config | more))
    return byte_level(directory, ("<s>", "<pad>", "</s>", "<unk>"))


def padded(directory):
    byte_level(directory, ("<|endoftext|>", "<|padding|>"))
    return {}


def bert(directory, **options):
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    letters = [*"abcdefghijklmnopqrstuvwxyzUEü,'!?;()%0123456789"]
    words = ["hund", "Hund", "dog", "two", "##s", "##un", "ein"]
    whole = special + letters + [f"##{letter}" for letter in letters] + words
    (directory / "vocab.txt").write_text("\n".join(whole) + "\n")
    if options:
        (directory / "tokenizer_config.json").write_text(json.dumps(options))
    return {"pad_token_id": 0}


def cased(directory):
    return bert(directory, do_lower_case=False)


def t5(directory):
    model = spm(pad_id=0, eos_id=1, unk_id=2, bos_id=-1)
    (directory / "spiece.model").write_bytes(model)
    return {"eos_token_id": 1, "pad_token_id": 0, "decoder_start_token_id": 0}


def pegasus(directory):
    model = spm(pad_id=-1, eos_id=1, unk_id=2, bos_id=0)
    (directory / "spiece.model").write_bytes(model)
    return {"eos_token_id": 1, "pad_token_id": 0, "decoder_start_token_id": 0}


def mbart(directory):
    (directory / "sentencepiece.bpe.model").write_bytes(spm())
    return {"eos_token_id": 2, "pad_token_id": 1, "bos_token_id": 0, "decoder_start_token_id": 0}


def llama(directory):
    model = spm("bpe", byte_fallback=True, vocab_size=340, normalization_rule_name="identity",
                remove_extra_whitespaces=False)  # fmt: skip
    (directory / "tokenizer.model").write_bytes(model)
    config = {"tokenizer_class": "LlamaTokenizer", "add_bos_token": True, "bos_token": "<s>",
              "eos_token": "</s>", "unk_token": "<unk>"}  # fmt: skip
    (directory / "tokenizer_config.json").write_text(json.dumps(config))
    return {"eos_token_id": 2, "bos_token_id": 1}


FORMS = {  # the family of config.json, and what writes its files
    "marian": ("marian", marian), "marian, multilingual": ("marian", multilingual),
    "gpt2": ("gpt2", byte_level), "opt": ("opt", opt), "bart": ("bart", roberta),
    "qwen2": ("qwen2", byte_level), "gpt_neox": ("gpt_neox", padded),
    "starcoder2": ("starcoder2", byte_level),
    "bert": ("bert", bert), "bert, cased": ("bert", cased), "t5": ("t5", t5),
    "mbart": ("mbart", mbart), "llama": ("llama", llama), "mistral": ("mistral", llama),
    "pegasus": ("pegasus", pegasus),
}  # fmt: skip


def opened(name, directory):
    """Write a directory, and return their tokenizer and our codec."""
    kind, write = FORMS[name]
    words = {"model_type": kind, **write(directory)}
    (directory / "config.json").write_text(json.dumps(words))
    # For Mistral, AutoTokenizer 5.23 omits the space that SentencePiece puts before a text.
    kinds = {"mistral": T.LlamaTokenizer}
    theirs = kinds.get(kind, T.AutoTokenizer).from_pretrained(directory)
    architecture = {"marian": "encoder_decoder", "bert": "encoder"}.get(kind, "decoder")
    ids = {
        f"{name}_token_id": getattr(theirs, f"{name}_token_id") for name in ("pad", "bos", "eos")
    }
    ids |= {
        "eos_token_id": ids["eos_token_id"] or ROWS - 1
    }  # as published; here it is not compared
    (directory / "config.json").write_text(json.dumps(ids | words))
    return theirs, tokenizer_json.read(directory, hf._all_words(directory), ROWS, architecture)


@pytest.mark.parametrize("name", FORMS)
def test_texts_and_ids_are_those_of_their_tokenizer(name, tmp_path):
    """In both directions, and what is read around a text; after a work directory, too."""
    theirs, codec = opened(name, tmp_path)
    TokenizerPair.shared(codec).save(tmp_path)
    again = TokenizerPair.load(tmp_path, True, ("huggingface", "huggingface"))
    for text in [*TEXTS, ">>fra<< two dogs", *LINES[:3]]:
        ids = theirs(text, add_special_tokens=False)["input_ids"]
        assert codec.encode([text], eos=False) == [ids], text
        assert again.src.encode([text], eos=False) == [ids]
        kept = [i for i in ids if i not in theirs.all_special_ids]
        assert codec.decode(kept) == theirs.decode(kept, skip_special_tokens=True), text
        read = theirs(text, text_target=text)
        if name.startswith("marian"):
            assert again.tgt.encode([text]) == [read["labels"]]
    before, after = codec.around
    assert [*before, *after] == theirs("")["input_ids"]
    special = {"pad", "eos", "unk"} if name.startswith("marian") else set()
    assert {n: codec.special[n] for n in special} == {
        n: getattr(theirs, f"{n}_token_id") for n in special
    }


def test_opus_mt_is_translated_with_and_exported_again(tmp_path):
    """Text in, text out: logits with a bias, and a tokenizer of two models."""
    words = marian(tmp_path)
    model = peer(
        "marian, biased",
        words | {"vocab_size": words["pad_token_id"] + 1, "max_position_embeddings": 64},
    )
    model.save_pretrained(tmp_path)
    import_into(tmp_path, tmp_path / "ours")
    ours = load(tmp_path / "ours")
    hf.export(ours.experiment, ours.params, ours.tokenizers, tmp_path / "again")
    for directory in (tmp_path, tmp_path / "again"):
        tokenizer = T.AutoTokenizer.from_pretrained(directory)
        theirs = T.AutoModelForSeq2SeqLM.from_pretrained(directory)
        assert torch.equal(theirs.final_logits_bias, model.final_logits_bias)
        for text in LINES[:3]:
            (found,) = theirs.generate(
                **tokenizer(text, return_tensors="pt"), num_beams=1, max_new_tokens=9,
                suppress_tokens=[words["pad_token_id"]],
            )  # fmt: skip
            expected = tokenizer.decode(found, skip_special_tokens=True)
            given = {"max_length_ratio": 0.0, "max_extra_length": 9, "beam_size": 1}
            assert ours.translate(text, **given) == expected


def test_a_directory_without_any_of_these_files_says_so(tmp_path):
    message = r"tokenizer.json: cannot be read, nor is there one of source.spm with target.spm"
    with pytest.raises(UserError, match=message):
        tokenizer_json.read(tmp_path, {}, ROWS)
    (tmp_path / "spiece.model").write_bytes(b"\xff\xff")
    with pytest.raises(UserError, match=r"spiece.model: cannot be read as a tokenizer"):
        tokenizer_json.read(tmp_path, {"model_type": "t5"}, ROWS)


def whole_byte_level(directory) -> Tokenizer:
    """Write a tokenizer.json alone, which adds no space, and return what it holds."""
    byte_level(directory)
    files = [directory / name for name in ("vocab.json", "merges.txt")]
    tokenizer = Tokenizer(models.BPE(*models.BPE.read_file(*map(str, files))))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    for file in files:
        file.unlink()
    tokenizer.save(str(directory / "tokenizer.json"))
    return tokenizer


@pytest.mark.parametrize(
    "words",
    [
        {"extra_special_tokens": ["<tool>"]},
        {"additional_special_tokens": ["<tool>"]},
        {"eos_token": "<tool>"},
        {"eos_token": {"content": "dogs", "lstrip": True, "__type": "AddedToken"}},
        {"added_tokens_decoder": {
            "331": {"content": "run", "special": False, "normalized": True, "single_word": True},
            "330": {"content": "<tool>", "special": True, "rstrip": True},
        }},
    ],
)  # fmt: skip
def test_pieces_that_only_configs_name_are_read_as_by_transformers(words, tmp_path):
    """Although tokenizer.json lacks them; but not those for which the model has no rows."""
    tokenizer = whole_byte_level(tmp_path)
    config = {"tokenizer_class": "PreTrainedTokenizerFast", **words}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    (tmp_path / "config.json").write_text("{}")
    theirs = T.AutoTokenizer.from_pretrained(tmp_path)
    named = config | {"bos_token_id": 0, "eos_token_id": 0}
    ours = tokenizer_json.read(tmp_path, named, ROWS)
    size = tokenizer.get_vocab_size()
    assert ours.rows_needed == len(theirs)
    for text in ("a <tool>  dogs run", "dogs  running<tool>"):
        (ids,) = ours.encode([text], eos=False)
        assert ids == theirs(text)["input_ids"] != tokenizer.encode(text).ids
        assert ours.decode(ids) == theirs.decode(ids, skip_special_tokens=True)
    assert tokenizer_json.read(tmp_path, named, size).rows_needed == size


@pytest.mark.parametrize(
    ("key", "value", "text"),
    [
        ("add_prefix_space", True, "dogs run"), ("add_prefix_space", False, "dogs run"),
        ("do_lower_case", True, "Hund"), ("do_lower_case", False, "Hund"),
        ("strip_accents", True, "\u00fc"), ("tokenize_chinese_chars", True, "d\u6f22"),
    ],
)  # fmt: skip
def test_a_setting_that_a_class_obeys_against_tokenizer_json_is_warned_of(
    key, value, text, tmp_path, caplog
):
    """Which is where both read differently: here tokenizer.json has none of them."""
    config = {"tokenizer_class": "GPT2Tokenizer", key: value}
    if key == "add_prefix_space":
        whole_byte_level(tmp_path)
    else:
        bert(tmp_path)
        tokenizer = Tokenizer(models.WordPiece.from_file(str(tmp_path / "vocab.txt")))
        tokenizer.normalizer = normalizers.BertNormalizer(
            lowercase=False, strip_accents=False, handle_chinese_chars=False
        )
        tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        tokenizer.save(str(tmp_path / "tokenizer.json"))
        usual = {"do_lower_case": False, "strip_accents": False, "tokenize_chinese_chars": False}
        config = usual | config | {"tokenizer_class": "BertTokenizer"}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    (tmp_path / "config.json").write_text("{}")
    theirs = T.AutoTokenizer.from_pretrained(tmp_path)(text, add_special_tokens=False)
    ours = tokenizer_json.read(tmp_path, config | {"bos_token_id": 0, "eos_token_id": 0}, ROWS)
    differ = ours.encode([text], eos=False)[0] != theirs["input_ids"]
    assert (differ, f"{key}=True of tokenizer_config.json" in caplog.text) == (value, value)
