"""Tokenizers as metadata of a GGUF file, which llama.cpp rebuilds them from.

It knows algorithms by name: "llama" merges characters by the scores of pieces, as SentencePiece's
BPE; "t5" is SentencePiece's unigram model; "gpt2" merges bytes by rank, in texts cut by one of the
expressions that it has a name for.
"""

import json
import logging
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from transformer_jax.base.errors import UserError
from transformer_jax.config import Experiment
from transformer_jax.data.codecs.characters import Characters
from transformer_jax.data.codecs.codec import Codec
from transformer_jax.data.codecs.imported import Imported
from transformer_jax.data.codecs.subwords import Subwords
from transformer_jax.export.huggingface.tokenizer_files import QWEN

log = logging.getLogger("transformer_jax")
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = range(1, 7)  # SentencePiece's types
_SPACE = "▁"
# Llama 3's cut of a text into words.
LLAMA3 = QWEN.replace(r"|\p{N}|", r"|\p{N}{1,3}|")


class Vocabulary(NamedTuple):
    """Pieces by id, with scores or merges, and keys of metadata below "tokenizer.ggml."."""

    words: Mapping[str, Any]
    pieces: list[str]
    types: list[int]
    scores: list[float] | None = None
    merges: list[str] | None = None


def of(codec: Codec, experiment: Experiment) -> Vocabulary:
    """Return the vocabulary of a codec, with what is read before a prompt.

    Raises:
      UserError: if llama.cpp has no such tokenizer.
    """
    if type(codec) not in _BUILDERS:
        raise UserError(
            f"config.tgt.codec={experiment.codecs[1]!r}: the export to llama.cpp does not support "
            "such a tokenizer; it supports 'subwords', 'characters' and imported ones"
        )
    found: Vocabulary = _BUILDERS[type(codec)](codec)
    special = {"bos": "bos", "eos": "eos", "unk": "unknown", "pad": "padding"}
    ids = {f"{theirs}_token_id": codec.special[ours]
           for ours, theirs in special.items() if ours in codec.special}  # fmt: skip
    before: list[int] = []
    if experiment.objective.prompts_begin:
        before = codec.begins if isinstance(codec, Imported) else [codec.special["bos"]]
    if before not in ([], [codec.special.get("bos")]):
        raise UserError(
            f"tokenizer: prompts begin with {codec.pieces(before)}; llama.cpp reads one piece "
            "there, BOS, or none"
        )
    words = {**found.words, **ids, "add_bos_token": bool(before), "add_eos_token": False}
    return found._replace(words=words)


def _subwords(codec: Subwords) -> Vocabulary:
    """Return a SentencePiece model."""
    from sentencepiece import sentencepiece_model_pb2

    proto = sentencepiece_model_pb2.ModelProto.FromString(codec.model)  # type: ignore[attr-defined]
    if proto.trainer_spec.treat_whitespace_as_suffix:
        raise UserError(
            "tokenizer.model: writes spaces behind words (treat_whitespace_as_suffix), which "
            "llama.cpp does not do; train with a tokenizer that writes them before words"
        )
    unigram = proto.trainer_spec.model_type == proto.trainer_spec.UNIGRAM
    charsmap = proto.normalizer_spec.precompiled_charsmap
    words = {
        "model": "t5" if unigram else "llama",
        "pre": "default",
        "add_space_prefix": proto.normalizer_spec.add_dummy_prefix,
        "remove_extra_whitespaces": proto.normalizer_spec.remove_extra_whitespaces,
    }
    if unigram and charsmap:
        words["precompiled_charsmap"] = charsmap
    if not unigram:
        _warn_of_reading(proto, charsmap)
    return Vocabulary(
        words,
        [piece.piece for piece in proto.pieces],
        [piece.type for piece in proto.pieces],
        [piece.score for piece in proto.pieces],
    )


def _warn_of_reading(proto: Any, charsmap: bytes) -> None:
    """Warn of what llama.cpp does not do to a text before it merges characters."""
    if not proto.trainer_spec.byte_fallback:
        log.warning(
            "config.tokenizer.byte_fallback=False: llama.cpp stops with an error at a character "
            "that the tokenizer lacks; train with True to have bytes for it"
        )
    if charsmap:
        log.warning(
            "config.tokenizer.normalization=%r: llama.cpp reads a text as it is, with its double "
            "spaces and characters of other forms, so its pieces may differ",
            proto.normalizer_spec.name,
        )


def _characters(codec: Characters) -> Vocabulary:
    """Return a model in which no piece is longer than a character, so that none are merged."""
    log.warning(
        "config.tgt.codec='characters': llama.cpp stops with an error at a character that the "
        "tokenizer lacks"
    )
    special = {*codec.special.values()}
    pieces = codec.pieces(range(codec.size))
    types = [CONTROL if number in special else NORMAL for number in range(codec.size)]
    types[codec.special["unk"]] = UNKNOWN
    words = {"model": "llama", "pre": "default", "add_space_prefix": False}
    spelled = [piece.replace(" ", _SPACE) if types[i] == NORMAL else piece
               for i, piece in enumerate(pieces)]  # fmt: skip
    return Vocabulary(words, spelled, types, [0.0] * codec.size)


def _imported(codec: Imported) -> Vocabulary:
    """Return a BPE of a tokenizer.json, of bytes or of characters."""
    content = codec.tokenizer
    model = content.get("model", {})
    if model.get("type") != "BPE":
        raise UserError(
            f"tokenizer.json: model={model.get('type')!r}; the export to llama.cpp supports 'BPE' "
            "of imported tokenizers"
        )
    cut: Mapping[str, Any] = content.get("pre_tokenizer") or {}
    merges = [pair if isinstance(pair, str) else " ".join(pair) for pair in model["merges"]]
    pieces = [f"[PAD{number}]" for number in range(codec.size)]
    types = [UNUSED] * codec.size
    for piece, number in model["vocab"].items():
        pieces[number], types[number] = piece, NORMAL
    for added in content.get("added_tokens", ()):
        kind = CONTROL if added["special"] else USER_DEFINED
        pieces[added["id"]], types[added["id"]] = added["content"], kind
    if "ByteLevel" in json.dumps(cut):
        words = {"model": "gpt2", "pre": _named(cut)}
        return Vocabulary(words, pieces, types, merges=merges)
    return _by_scores(codec, pieces, types, merges)


def _by_scores(
    codec: Imported, pieces: list[str], types: list[int], merges: list[str]
) -> Vocabulary:
    """Return a BPE of characters whose ranks of merges are scores."""
    content = codec.tokenizer
    steps = json.dumps(
        [content.get("normalizer"), content.get("pre_tokenizer")], ensure_ascii=False
    )
    if _SPACE not in steps or "Precompiled" in steps or "Split" in steps:
        raise UserError(
            "tokenizer.json: cuts or changes texts in a way that llama.cpp has no name for; it "
            "knows those of SentencePiece, GPT-2, Qwen and Llama 3"
        )
    scores = [0.0] * len(pieces)
    for rank, merge in reversed([*enumerate(merges)]):
        piece = merge.replace(" ", "")
        if piece in codec.tokenizer["model"]["vocab"]:
            scores[codec.tokenizer["model"]["vocab"][piece]] = -float(rank)
    for number, piece in enumerate(pieces):
        if types[number] == NORMAL and len(piece) == 6 and piece.startswith("<0x"):
            types[number] = BYTE
    if "unk" in codec.special:
        types[codec.special["unk"]] = UNKNOWN
    never = '"prepend_scheme": "never"' in steps
    spaced = not never and ('"Prepend"' in steps or '"Metaspace"' in steps)
    words = {"model": "llama", "pre": "default", "add_space_prefix": spaced}
    return Vocabulary(words, pieces, types, scores)


def _named(cut: Mapping[str, Any]) -> str:
    """Return llama.cpp's name of the way in which a text is cut into words.

    Raises:
      UserError: if it has none.
    """
    steps = cut.get("pretokenizers", [cut])
    patterns = [step["pattern"].get("Regex") for step in steps if step["type"] == "Split"]
    *others, last = steps
    plain = last["type"] == "ByteLevel" and not last.get("add_prefix_space")
    if plain and not others and last.get("use_regex", True):
        return "gpt-2"
    names = {QWEN: "qwen2", LLAMA3: "llama-bpe"}
    if plain and len(others) == len(patterns) == 1 and patterns[0] in names:
        return names[patterns[0]]
    raise UserError(
        "tokenizer.json: cuts texts into words in a way that llama.cpp has no name for; it knows "
        "those of GPT-2, Qwen and Llama 3"
    )


_BUILDERS: dict[type, Callable[[Any], Vocabulary]] = {
    Subwords: _subwords, Characters: _characters, Imported: _imported,
}  # fmt: skip
