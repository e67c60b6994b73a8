"""Codecs to and from tokenizer.json, with the same ids: tests/oracle/test_huggingface_peers.py.

Unlike ours, a tokenizer of Hugging Face recognises special pieces that are spelled out in a text,
such as "</s>".
"""

import copy
import json
import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from transformer_jax.config import Experiment
from transformer_jax.data.codecs.characters import Characters
from transformer_jax.data.codecs.codec import SPELLED, Codec, symbols_of
from transformer_jax.data.codecs.imported import LEAD, NONE, Imported
from transformer_jax.data.codecs.subwords import Subwords
from transformer_jax.data.codecs.utf8 import Bytes
from transformer_jax.data.codecs.wordpiece import WordPiece
from transformer_jax.errors import UserError

log = logging.getLogger("transformer_jax")
_PAD, _BOS, _EOS, _UNK = SPELLED
_NAMED = ("pad", "bos", "eos", "unk", "mask")  # special pieces with names in Hugging Face
# Their names in tokenizers of encoders, and their spellings in BERT and RoBERTa.
_OF_ENCODERS = {"bos_token": "cls_token", "eos_token": "sep_token"}
_USUAL = {"bos": ("[CLS]", "<s>"), "eos": ("[SEP]", "</s>"), "mask": ("[MASK]", "<mask>")}


def files(codec: Codec, experiment: Experiment) -> dict[str, str]:
    """Return {name: text} of the files that AutoTokenizer loads without this package.

    Raises:
      UserError: if `tokenizers` is not installed.
    """
    words: dict[str, Any] = {"tokenizer_class": "PreTrainedTokenizerFast"}
    special = {name: piece for name, piece in codec.special.items() if piece != NONE}
    special.pop(LEAD, None)
    spelled = dict(zip(special, codec.pieces(special.values()), strict=True))
    words |= {f"{name}_token": spelled.pop(name) for name in _NAMED if name in spelled}
    words |= {"extra_special_tokens": list(spelled.values())} if spelled else {}
    if experiment.model.architecture == "encoder":
        named = {theirs: words.get(ours) for ours, theirs in _OF_ENCODERS.items()}
        words |= {name: piece for name, piece in named.items() if piece is not None}
        words["model_input_names"] = ["input_ids", "token_type_ids", "attention_mask"]
    if isinstance(codec, Imported):
        content = json.dumps(codec.tokenizer, ensure_ascii=False)
    else:
        content = _built(codec, experiment)
    words |= {"clean_up_tokenization_spaces": False}
    limit = experiment.model.position_limit
    if limit is not None:  # longer texts are cut if truncation is on
        encoder = experiment.model.architecture == "encoder"
        words["model_max_length"] = min(limit, experiment.objective.window) if encoder else limit
    return {"tokenizer.json": content, "tokenizer_config.json": json.dumps(words, indent=2) + "\n"}


def _built(codec: Codec, experiment: Experiment) -> str:
    try:
        from tokenizers import AddedToken, processors
    except ImportError:
        raise UserError("exporting a tokenizer needs tokenizers: pip install tokenizers") from None
    if type(codec) not in _BUILDERS:
        side = "tgt" if experiment.objective.one_sided else "src"
        raise UserError(
            f"config.{side}.codec={experiment.codecs[0]!r}: the export to Hugging Face does not "
            "support such a tokenizer"
        )
    tokenizer = _BUILDERS[type(codec)](codec)
    pieces = [*SPELLED, *symbols_of(codec.special)]
    tokenizer.add_special_tokens([AddedToken(p, special=True, normalized=False) for p in pieces])
    special = [(piece, number) for number, piece in enumerate(SPELLED)]
    one, two = _frames(experiment)
    tokenizer.post_processor = processors.TemplateProcessing(
        single=one, pair=two, special_tokens=special
    )
    return tokenizer.to_str()


def _frames(experiment: Experiment) -> tuple[str, str | None]:
    """Return the templates of special pieces around one text and around a pair."""
    in_file = experiment.objective.document == "file"
    if experiment.model.architecture == "encoder_decoder":
        return f"$A {_EOS}", None
    if experiment.model.architecture == "decoder":  # a prompt; with whole files, it has no BOS
        return f"{_BOS} $A" if experiment.objective.document == "line" else "$A", None
    return f"{_BOS} $A" + f" {_EOS}" * (not in_file), f"{_BOS} $A {_EOS} $B:1 {_EOS}:1"


def _subwords(codec: Subwords) -> Any:
    """Return a SentencePiece model, unigram or BPE, with its normalisation."""
    from sentencepiece import sentencepiece_model_pb2
    from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

    proto = sentencepiece_model_pb2.ModelProto()  # type: ignore[attr-defined]
    proto.ParseFromString(codec.model)
    pieces = [(piece.piece, piece.score) for piece in proto.pieces]
    fallback = proto.trainer_spec.byte_fallback
    if proto.trainer_spec.model_type == proto.trainer_spec.UNIGRAM:
        model: Any = models.Unigram(pieces, SPELLED.index(_UNK), byte_fallback=fallback)
    else:
        vocabulary = {piece: number for number, (piece, _) in enumerate(pieces)}
        model = models.BPE(
            vocabulary,
            _merges(pieces, codec),
            unk_token=_UNK,
            fuse_unk=True,
            byte_fallback=fallback,
        )
    tokenizer = Tokenizer(model)
    charsmap = proto.normalizer_spec.precompiled_charsmap
    tokenizer.normalizer = normalizers.Sequence(
        ([normalizers.Precompiled(charsmap)] if charsmap else [])
        # Spaces only: Strip would also remove tabs and others. Special pieces split a text; only a
        # space before one is removed: the text after one may begin a word or continue it.
        + [normalizers.Replace(Regex(p), by) for p, by in ((" {2,}", " "), (r" \z", ""))]
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
    tokenizer.decoder = decoders.Sequence([
        decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(),
        decoders.Strip(" ", left=1 << 16, right=0),
    ])  # fmt: skip
    return tokenizer


def _merges(pieces: list[tuple[str, float]], codec: Codec) -> list[tuple[str, str]]:
    """Return pairs in the order in which SentencePiece merges them: the best score of the merged
    piece first.

    Like `transformers.convert_slow_tokenizer.generate_merges`.
    """
    number = {piece: i for i, (piece, _) in enumerate(pieces)}
    skipped = {*SPELLED, *symbols_of(codec.special), *(f"<0x{byte:02X}>" for byte in range(256))}
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


def _bytes(codec: Bytes) -> Any:
    """Return a model without merges, in which each character is unknown and falls back to bytes."""
    from tokenizers import Tokenizer, decoders, models

    vocabulary = {piece: number for number, piece in enumerate(codec.pieces(range(codec.size)))}
    tokenizer = Tokenizer(models.BPE(vocabulary, [], unk_token=_UNK, byte_fallback=True))
    tokenizer.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Fuse()])
    return tokenizer


def _characters(codec: Characters) -> Any:
    """Return a model in which each character is a word."""
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers

    vocabulary = {piece: number for number, piece in enumerate(codec.pieces(range(codec.size)))}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token=_UNK))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated")
    tokenizer.decoder = decoders.Fuse()
    return tokenizer


def _wordpiece(codec: WordPiece) -> Any:
    """Return a copy of its tokenizer."""
    return copy.deepcopy(codec.tokenizer)


_BUILDERS: dict[type, Callable[[Any], Any]] = {
    Subwords: _subwords, Bytes: _bytes, Characters: _characters, WordPiece: _wordpiece,
}  # fmt: skip


def read(
    directory: Path, words: Mapping[str, Any], rows: int, architecture: str = "decoder"
) -> Imported:
    """Return the codec of a directory; `words` is the content of its configs.

    Raises:
      UserError: if there is no tokenizer.json, or it does not hold a tokenizer.
    """
    path = directory / "tokenizer.json"
    try:
        content = path.read_bytes()
    except OSError:
        raise UserError(
            f"{path}: cannot be read; write one with transformers.AutoTokenizer.from_pretrained"
            "(...).save_pretrained(...)"
        ) from None
    special = {name: _id(words, f"{name}_token_id", rows) for name in ("pad", "bos", "eos")}
    if words.get("decoder_start_token_id") is not None:  # the first piece of an output
        special["bos"] = _id(words, "decoder_start_token_id", rows)
    try:
        text = content.decode()
        model = json.loads(text)["model"]
        codec = Imported.of(text, special | {"unk": NONE}, rows)
        unknown = [piece for piece in [model.get("unk_token")] if piece and codec.has(piece)]
        special["unk"] = codec.piece_id(unknown[0]) if unknown else model.get("unk_id", NONE)
        if architecture == "encoder":
            special |= _of_encoder(words, codec)
        if architecture == "encoder_decoder":
            special |= _lead(path, codec)
        codec = Imported.of(text, special, rows)
    except (ValueError, KeyError, AttributeError, TypeError) as error:
        raise UserError(f"{path}: not a tokenizer ({error})") from None
    if codec.rows_needed > rows:
        raise UserError(
            f"{path}: has {codec.rows_needed} pieces, but the model's embedding {rows} rows; call "
            "model.resize_token_embeddings(len(tokenizer)) and save both again"
        )
    return codec


def _lead(path: Path, codec: Imported) -> dict[str, int]:
    """Return the piece before every text, if there is one."""
    lead, around = codec.leads(), codec.around
    read = [*lead.values(), codec.special["eos"]]
    if around and around != read:
        theirs, ours = (" ".join(codec.pieces(ids)) for ids in (around, read))
        log.warning("%s: Hugging Face reads %r around a text, but here only %r is read: outputs "
                    "will differ", path, theirs, ours)  # fmt: skip
    return lead


def _of_encoder(words: Mapping[str, Any], codec: Imported) -> dict[str, int]:
    """Return those of BERT's CLS, SEP and MASK that exist, by our names."""
    found: dict[str, int] = {}
    for ours, usual in _USUAL.items():
        name = words.get(_OF_ENCODERS.get(f"{ours}_token", f"{ours}_token"))
        name = name["content"] if isinstance(name, dict) else name
        known = [piece for piece in (name, *usual) if piece and codec.has(piece)]
        found |= {ours: codec.piece_id(known[0])} if known else {}
    return found


def _id(words: Mapping[str, Any], name: str, rows: int) -> int:
    """Return the first of the ids that a config may name, or NONE."""
    ids = words.get(name)
    first = [*ids, NONE][0] if isinstance(ids, list) else ids
    if first is None:
        return NONE
    if type(first) is not int or first >= rows:
        raise UserError(f"{name}={ids!r}: must be the number of a piece, less than {rows}")
    return max(first, NONE)
