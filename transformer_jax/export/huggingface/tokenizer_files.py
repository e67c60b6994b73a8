"""Tokenizers in the files of older models, which have no tokenizer.json: its content from theirs.

Texts and ids are those of AutoTokenizer: tests/oracle/test_huggingface_tokenizers.py.
"""

import json
import re
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

from transformer_jax.base.errors import UserError
from transformer_jax.data.codecs.spm_pair import described

Words = Mapping[str, Any]
_NAMES = ("bos", "eos", "unk", "sep", "pad", "cls", "mask")
# Qwen's cut of a text into words, and that of families with Unicode's composed form before GPT-2's.
QWEN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}|"
    r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_QWEN = "qwen2", "qwen3", "qwen3_moe", "qwen3_next"
_COMPOSED = (*_QWEN, "gpt_neox", "mamba", "mamba2")
_USUAL = {  # special pieces of families whose configs do not name them
    "bert": {"unk": "[UNK]", "sep": "[SEP]", "pad": "[PAD]", "cls": "[CLS]", "mask": "[MASK]"},
    "esm": {"unk": "<unk>", "pad": "<pad>", "cls": "<cls>", "eos": "<eos>", "mask": "<mask>"},
    "bart": {"bos": "<s>", "eos": "</s>", "unk": "<unk>", "sep": "</s>", "pad": "<pad>",
             "cls": "<s>", "mask": "<mask>"},
    "gpt2": {"bos": "<|endoftext|>", "eos": "<|endoftext|>", "unk": "<|endoftext|>"},
    "qwen2": {"eos": "<|endoftext|>", "unk": "<|endoftext|>", "pad": "<|endoftext|>"},
    "gpt_neox": {"bos": "<|endoftext|>", "eos": "<|endoftext|>", "unk": "<|endoftext|>",
                 "pad": "<|padding|>"},
    "t5": {"eos": "</s>", "unk": "<unk>", "pad": "<pad>"},
    "pegasus": {"eos": "</s>", "unk": "<unk>", "pad": "<pad>", "mask": "<mask_2>"},
    "llama": {"bos": "<s>", "eos": "</s>", "unk": "<unk>"},
    "gemma": {"bos": "<bos>", "eos": "<eos>", "unk": "<unk>", "pad": "<pad>"},
}  # fmt: skip
_USUAL |= {"mamba": _USUAL["gpt_neox"], "mamba2": _USUAL["gpt_neox"]}
_USUAL |= {"marian": _USUAL["t5"], "mbart": _USUAL["bart"]}
_USUAL |= dict.fromkeys(_QWEN, _USUAL["qwen2"])
_USUAL |= dict.fromkeys(
    ("opt", "starcoder2", "bloom", "olmo2", "olmoe", "stablelm", "phi"), _USUAL["gpt2"]
)
_USUAL |= dict.fromkeys(("mistral", "mixtral", "phi3"), _USUAL["llama"])
_USUAL |= dict.fromkeys(("gemma2", "gemma3_text"), _USUAL["gemma"])
# mBART's languages, by the order of their ids.
_LANGUAGES = (
    "ar_AR", "cs_CZ", "de_DE", "en_XX", "es_XX", "et_EE", "fi_FI", "fr_XX", "gu_IN", "hi_IN",
    "it_IT", "ja_XX", "kk_KZ", "ko_KR", "lt_LT", "lv_LV", "my_MM", "ne_NP", "nl_XX", "ro_RO",
    "ru_RU", "si_LK", "tr_TR", "vi_VN", "zh_CN",
)  # fmt: skip
_SENTINELS = 100  # of T5
_OFFSET = 103  # of Pegasus's pieces, whose first are special
_CONTROL, _USER_DEFINED = 3, 4  # types of SentencePiece's pieces


def content(directory: Path, words: Words) -> str:
    """Return the content of a tokenizer.json; `words` is that of the directory's configs.

    Raises:
      UserError: if there are no such files, or one of them is not what its name says.
    """
    for names, build in _FORMS.items():
        if all((directory / name).exists() for name in names):
            try:
                return build(directory, words)
            except UserError:
                raise
            except Exception as error:  # those of tokenizers and protobuf have no common type
                raise UserError(
                    f"{directory / names[0]}: cannot be read as a tokenizer ({error})"
                ) from None
    forms = ", ".join(" with ".join(names) for names in _FORMS)
    raise UserError(
        f"{directory / 'tokenizer.json'}: cannot be read, nor is there one of {forms}; write one "
        "with transformers.AutoTokenizer.from_pretrained(...).save_pretrained(...)"
    )


def completed(content: str, words: Words, rows: int) -> str:
    """Return the content of a tokenizer.json with the special and added pieces that configs name
    and it lacks, as AutoTokenizer adds them; without those beyond the rows of an embedding, which
    no model reads.

    Raises:
      ValueError: if it is not that of a tokenizer.
    """
    from tokenizers import AddedToken, Tokenizer

    known = {piece["content"] for piece in json.loads(content).get("added_tokens") or ()}
    more = words.get("extra_special_tokens") or words.get("additional_special_tokens") or ()
    more = more.values() if isinstance(more, Mapping) else more
    decoder = words.get("added_tokens_decoder") or {}
    named = [words.get(f"{name}_token") for name in _NAMES] + [*more]
    pieces = [decoder[number] for number in sorted(decoder, key=int)] + [
        {**(piece if isinstance(piece, Mapping) else {"content": piece}), "special": True}
        for piece in named if piece
    ]  # fmt: skip
    lacking = [piece for piece in pieces if piece["content"] not in known]
    if not lacking:
        return content
    try:
        tokenizer = Tokenizer.from_str(content)
    except Exception as error:  # tokenizers has no exception type of its own
        raise ValueError(str(error)) from None
    for piece in lacking:
        flags = {k: bool(piece.get(k)) for k in ("lstrip", "rstrip", "single_word", "special")}
        normalized = bool(piece.get("normalized", not flags["special"]))
        added = AddedToken(piece["content"], normalized=normalized, **flags)
        vocabulary = tokenizer.get_vocab()
        if added.content in vocabulary or max(vocabulary.values(), default=-1) + 1 < rows:
            add = tokenizer.add_special_tokens if added.special else tokenizer.add_tokens
            add([added])
    return tokenizer.to_str()


def merges(pieces: list[tuple[str, float]], skipped: Collection[str]) -> list[tuple[str, str]]:
    """Return pairs in the order in which SentencePiece merges them: the best score of the merged
    piece first.

    Like `transformers.convert_slow_tokenizer.generate_merges`.
    """
    number = {piece: i for i, (piece, _) in enumerate(pieces)}
    skipped = {*skipped, *(f"<0x{byte:02X}>" for byte in range(256))}
    found = []
    for piece, score in pieces:
        if piece in skipped:
            continue
        cuts = ((piece[:i], piece[i:]) for i in range(1, len(piece)))
        known = [cut for cut in cuts if all(p in number and p not in skipped for p in cut)]
        known.sort(key=lambda cut: (number[cut[0]], number[cut[1]]))
        found += [(score, len(left), len(right), left, right) for left, right in known]
    found.sort(key=lambda item: item[:3], reverse=True)
    return [(left, right) for *_, left, right in found]


def _special(directory: Path, words: Words) -> dict[str, str]:
    """Return the special pieces that have names: of the family, or as configs name them."""
    path = directory / "special_tokens_map.json"
    given = (json.loads(path.read_bytes()) if path.exists() else {}) | dict(words)
    found = dict(_USUAL.get(words.get("model_type") or "", {}))
    for name in _NAMES:
        piece = given.get(f"{name}_token")
        piece = piece.get("content") if isinstance(piece, dict) else piece
        found |= {name: piece} if piece else {}
    return found


def _added(directory: Path, words: Words) -> list[tuple[int, str, bool]]:
    """Return (id, piece, whether it is special) of pieces added to a vocabulary, by id."""
    decoder = words.get("added_tokens_decoder") or {}
    found = {int(i): (piece["content"], bool(piece.get("special"))) for i, piece in decoder.items()}
    path = directory / "added_tokens.json"
    listed = json.loads(path.read_bytes()) if path.exists() else {}
    found = {number: (piece, True) for piece, number in listed.items()} | found
    return [(number, *found[number]) for number in sorted(found)]


def _finished(
    tokenizer: Any,
    directory: Path,
    words: Words,
    frames: tuple[str, str | None] = ("$A", None),
    more: Collection[str] = (),
) -> str:
    """Return a tokenizer's content, with special and added pieces and what is read around a text;
    `more` are special pieces without a name.
    """
    from tokenizers import AddedToken, processors

    special = _special(directory, words)
    for _, piece, is_special in _added(directory, words):
        added = AddedToken(piece, special=is_special, normalized=not is_special)
        (tokenizer.add_special_tokens if is_special else tokenizer.add_tokens)([added])
    named = [AddedToken(p, special=True, normalized=False) for p in (*special.values(), *more)]
    tokenizer.add_special_tokens(named)
    one, two = frames
    if one == "$A":
        one = f"{special['bos']} $A" if words.get("add_bos_token") and "bos" in special else one
        one += f" {special['eos']}" if words.get("add_eos_token") and "eos" in special else ""
    around = {piece: tokenizer.token_to_id(piece) for piece in one.split() if piece != "$A"}
    if two is None or around:
        tokenizer.post_processor = processors.TemplateProcessing(
            single=one, pair=two, special_tokens=[*around.items()]
        )
    return tokenizer.to_str()


def _vocabulary(path: Path) -> dict[str, int]:
    """Return the ids of the pieces that a file lists, one in each line."""
    pieces = path.read_text("utf-8").split("\n")
    vocabulary = {piece.rstrip("\r"): number for number, piece in enumerate(pieces)}
    if pieces[-1] == "":
        del vocabulary[""]
    return vocabulary


def _letters(directory: Path, words: Words) -> str:
    """ESM's list of residues, each a piece; between them, what spaces do not part is unknown."""
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers

    special, vocabulary = _special(directory, words), _vocabulary(directory / "vocab.txt")
    longest = sorted(vocabulary, key=len, reverse=True)
    any_piece = Regex("|".join(re.escape(piece) for piece in longest))
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token=special["unk"]))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Split(any_piece, "isolated"),
    ])  # fmt: skip
    tokenizer.decoder = decoders.Fuse()
    first, last = special["cls"], special["eos"]
    frames = f"{first} $A {last}", f"{first} $A {last} $B {last}"
    return _finished(tokenizer, directory, words, frames)


def _wordpiece(directory: Path, words: Words) -> str:
    """BERT's list of pieces."""
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers

    special, vocabulary = _special(directory, words), _vocabulary(directory / "vocab.txt")
    tokenizer = Tokenizer(models.WordPiece(vocabulary, unk_token=special["unk"]))
    tokenizer.normalizer = normalizers.BertNormalizer(
        clean_text=True,
        handle_chinese_chars=words.get("tokenize_chinese_chars", True),
        strip_accents=words.get("strip_accents"),
        lowercase=words.get("do_lower_case", True),
    )
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece(prefix="##")
    first, last = special["cls"], special["sep"]
    frames = f"{first} $A {last}", f"{first} $A {last} $B:1 {last}:1"
    return _finished(tokenizer, directory, words, frames)


def _listed(directory: Path, words: Words) -> str:
    return (_letters if words.get("model_type") == "esm" else _wordpiece)(directory, words)


def _byte_level(directory: Path, words: Words) -> str:
    """GPT-2's pieces of bytes and their merges."""
    from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

    kind, special = words.get("model_type"), _special(directory, words)
    paths = directory / "vocab.json", directory / "merges.txt"
    vocabulary, pairs = models.BPE.read_file(*map(str, paths))
    tokenizer = Tokenizer(models.BPE(vocabulary, pairs))
    before = bool(words.get("add_prefix_space"))
    tokenizer.normalizer = normalizers.NFC() if kind in _COMPOSED else None
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=before)
    if kind in _QWEN:
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
            pre_tokenizers.Split(Regex(QWEN), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=before, use_regex=False),
        ])  # fmt: skip
    tokenizer.decoder = decoders.ByteLevel()
    frames: tuple[str, str | None] = ("$A", None)
    if kind == "bart":
        frames = f"{special['cls']} $A {special['sep']}", None
    return _finished(tokenizer, directory, words, frames)


def _sentencepiece(name: str) -> Callable[[Path, Words], str]:
    """Return a function that reads a SentencePiece model of this name."""

    def build(directory: Path, words: Words) -> str:
        from sentencepiece import sentencepiece_model_pb2

        proto = sentencepiece_model_pb2.ModelProto()  # type: ignore[attr-defined]
        proto.ParseFromString((directory / name).read_bytes())
        if proto.trainer_spec.model_type == proto.trainer_spec.UNIGRAM:
            return _unigram(proto, directory, words)
        return _bpe(proto, directory, words)

    return build


def _unigram(proto: Any, directory: Path, words: Words) -> str:
    """T5's pieces, Pegasus's or mBART's: theirs are after special ones, which a model lacks."""
    from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

    kind, special = words.get("model_type"), _special(directory, words)
    pieces, unknown = [(piece.piece, piece.score) for piece in proto.pieces], 0
    unknown = proto.trainer_spec.unk_id
    frames: tuple[str, str | None] = (f"$A {special['eos']}", None)
    more: list[str] = [p.piece for p in proto.pieces if p.type == _CONTROL]
    if kind == "t5":
        sentinels = words.get("extra_ids", _SENTINELS)
        more += [f"<extra_id_{number}>" for number in reversed(range(sentinels))]
    elif kind == "pegasus":
        more = ["<mask_1>", "<mask_2>", *(f"<unk_{number}>" for number in range(2, _OFFSET))]
        first = [(special["pad"], 0.0), (special["eos"], 0.0), *((piece, -100.0) for piece in more)]
        pieces, unknown = first + pieces[2:], unknown + _OFFSET
    elif kind == "mbart":
        first = [(special[n], 0.0) for n in ("bos", "pad", "eos", "unk")]
        last = [(piece, 0.0) for piece in (*_LANGUAGES, special["mask"])]
        pieces, unknown, more = first + pieces[3:] + last, 3, [*_LANGUAGES]
        frames = f"$A {special['eos']} {words.get('src_lang') or 'en_XX'}", None
    tokenizer = Tokenizer(models.Unigram(pieces, unknown, proto.trainer_spec.byte_fallback))
    charsmap = proto.normalizer_spec.precompiled_charsmap
    spaces = normalizers.Replace(Regex(" {2,}"), " ")
    tokenizer.normalizer = normalizers.Sequence(
        [normalizers.Precompiled(charsmap)] * bool(charsmap) + [spaces]
    )
    split = [pre_tokenizers.WhitespaceSplit()] if kind != "pegasus" else []
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [*split, pre_tokenizers.Metaspace("▁", "always")]
    )
    tokenizer.decoder = decoders.Metaspace("▁", "always")
    return _finished(tokenizer, directory, words, frames, more)


def _bpe(proto: Any, directory: Path, words: Words) -> str:
    """Llama's pieces, with bytes for unknown characters."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    special = _special(directory, words)
    pieces = [(piece.piece, piece.score) for piece in proto.pieces]
    marked = [p.piece for p in proto.pieces if p.type in (_CONTROL, _USER_DEFINED)]
    vocabulary = {piece: number for number, (piece, _) in enumerate(pieces)}
    pairs = merges(pieces, {*marked, special["unk"]})
    tokenizer = Tokenizer(models.BPE(
        vocabulary, pairs, unk_token=special["unk"], fuse_unk=True,
        byte_fallback=proto.trainer_spec.byte_fallback,
    ))  # fmt: skip
    spaced = proto.normalizer_spec.add_dummy_prefix and words.get("add_prefix_space") is not False
    scheme = "always" if words.get("legacy") else "first"
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(
        replacement="▁", prepend_scheme=scheme if spaced else "never", split=False
    )
    steps = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    tokenizer.decoder = decoders.Sequence(steps + [decoders.Strip(" ", 1, 0)] * spaced)
    return _finished(tokenizer, directory, words)


def _marian(directory: Path, words: Words) -> str:
    """Marian's two models and one vocabulary."""
    if words.get("separate_vocabs"):
        raise UserError("separate_vocabs=True: only a vocabulary of both sides can be imported")
    special = {name: _special(directory, words)[name] for name in ("unk", "eos", "pad")}
    source, target = ((directory / f"{side}.spm").read_bytes() for side in ("source", "target"))
    vocabulary = json.loads((directory / "vocab.json").read_bytes())
    for piece in special.values():
        if piece not in vocabulary:
            raise UserError(f"{directory / 'vocab.json'}: has no {piece!r}")
    return json.dumps(described(source, target, vocabulary, special), ensure_ascii=False)


_FORMS: dict[tuple[str, ...], Callable[[Path, Words], str]] = {
    ("source.spm", "target.spm", "vocab.json"): _marian,
    ("vocab.json", "merges.txt"): _byte_level,
    ("vocab.txt",): _listed,
    **{(name,): _sentencepiece(name)
       for name in ("spiece.model", "sentencepiece.bpe.model", "tokenizer.model")},
}  # fmt: skip
