"""Codecs to and from tokenizer.json, with the same ids: tests/oracle/test_huggingface_peers.py.

Unlike ours, a tokenizer of Hugging Face recognises special pieces that are spelled out in a text,
such as "</s>".
"""

import copy
import json
import logging
import string
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from transformer_jax.base.errors import UserError
from transformer_jax.config import Experiment
from transformer_jax.data.codecs import spm_pair
from transformer_jax.data.codecs.characters import Characters
from transformer_jax.data.codecs.codec import SPELLED, Codec, symbols_of
from transformer_jax.data.codecs.imported import LEAD, Imported
from transformer_jax.data.codecs.letters import Letters, Nucleotides, Residues
from transformer_jax.data.codecs.subwords import Subwords
from transformer_jax.data.codecs.utf8 import Bytes
from transformer_jax.data.codecs.wordpiece import WordPiece
from transformer_jax.export.huggingface import special_ids, tokenizer_files

log = logging.getLogger(__name__)

_PAD, _BOS, _EOS, _UNK = SPELLED
_NAMED = ("pad", "bos", "eos", "unk", "mask")  # special pieces with names in Hugging Face
# Their names in tokenizers of encoders, and their spellings in BERT and RoBERTa.
_OF_ENCODERS = {"bos_token": "cls_token", "eos_token": "sep_token"}
# Keys of tokenizer_config.json.
_CLEANS = "clean_up_tokenization_spaces"
_CLEANS_BPE = f"{_CLEANS}_for_bpe_even_though_it_will_corrupt_output"
_USUAL = {
    "bos": ("[CLS]", "<s>", "<cls>"),
    "eos": ("[SEP]", "</s>", "<eos>"),
    "mask": ("[MASK]", "<mask>"),
}


def files(codec: Codec, experiment: Experiment) -> dict[str, str]:
    """Return {name: text} of the files that AutoTokenizer loads without this package.

    Raises:
      UserError: if `tokenizers` is not installed.
    """
    words: dict[str, Any] = {"tokenizer_class": "PreTrainedTokenizerFast"}
    special = {name: piece for name, piece in codec.special.items() if name != LEAD}
    spelled = dict(zip(special, codec.pieces(special.values()), strict=True))
    words |= {f"{name}_token": spelled.pop(name) for name in _NAMED if name in spelled}
    words |= {"extra_special_tokens": list(spelled.values())} if spelled else {}
    if experiment.model.architecture == "encoder":
        named = {theirs: words.get(ours) for ours, theirs in _OF_ENCODERS.items()}
        words |= {name: piece for name, piece in named.items() if piece is not None}
        kinds = ["token_type_ids"] if experiment.model.token_types else []
        words["model_input_names"] = ["input_ids", *kinds, "attention_mask"]
    if experiment.model.architecture == "decoder":  # generate reads a batch from its right end
        words["padding_side"] = "left"
    if isinstance(codec, Imported):
        content = _imported(codec, experiment)
    else:
        content = _built(codec, experiment)
    words |= _cleaning(isinstance(codec, Imported) and codec.cleaned)
    limit = experiment.model.position_limit
    if limit is not None:  # longer texts are cut if truncation is on
        encoder = experiment.model.architecture == "encoder"
        words["model_max_length"] = min(limit, experiment.objective.window) if encoder else limit
    found = {"tokenizer.json": content}
    if isinstance(codec, Imported) and codec.tokenizer.get("type") == spm_pair.KIND:
        vocabulary = codec.tokenizer["vocabulary"]
        found = {"vocab.json": json.dumps(vocabulary, ensure_ascii=False, indent=0)}
        words["tokenizer_class"] = "MarianTokenizer"
    return found | {"tokenizer_config.json": json.dumps(words, indent=2) + "\n"}


def models(codec: Codec) -> dict[str, bytes]:
    """Return {name: content} of the SentencePiece models that go with those files, if any."""
    if not isinstance(codec, Imported) or codec.tokenizer.get("type") != spm_pair.KIND:
        return {}
    return dict(zip(("source.spm", "target.spm"), spm_pair.models_of(codec.tokenizer), strict=True))


def _imported(codec: Imported, experiment: Experiment) -> str:
    """Return an imported tokenizer.json, with what generate reads before a prompt."""
    content = codec.tokenizer
    if experiment.model.architecture == "decoder":
        read = codec.begins if experiment.objective.prompts_begin else []
        if codec.around != (read, []):
            content["post_processor"] = _before(read, codec)
    return json.dumps(content, ensure_ascii=False)


def _before(read: Sequence[int], codec: Codec) -> dict[str, Any]:
    """Return the post-processor that puts these pieces before a text."""
    one, two = ({"Sequence": {"id": name, "type_id": 0}} for name in "AB")
    bos = [{"SpecialToken": {"id": "BOS", "type_id": 0}}] if read else []
    pieces = {"BOS": {"id": "BOS", "ids": [*read], "tokens": codec.pieces(read)}} if read else {}
    return {"type": "TemplateProcessing", "single": [*bos, one], "pair": [*bos, one, two],
            "special_tokens": pieces}  # fmt: skip


def _cleaning(cleaned: bool) -> dict[str, bool]:
    """Return the settings of decoded text, which is otherwise not cleaned for BPE."""
    return dict.fromkeys((_CLEANS, _CLEANS_BPE) if cleaned else (), True) or {_CLEANS: False}


def _cleans(words: Mapping[str, Any], model: Mapping[str, Any]) -> bool:
    """Return whether a tokenizer removes spaces before punctuation from decoded text."""
    return bool(words.get(_CLEANS) and ("merges" not in model or words.get(_CLEANS_BPE)))


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
    if experiment.model.architecture == "decoder":  # a prompt, as generate reads it
        return f"{_BOS} $A" if experiment.objective.prompts_begin else "$A", None
    return f"{_BOS} $A" + f" {_EOS}" * (not in_file), f"{_BOS} $A {_EOS} $B:1 {_EOS}:1"


def _subwords(codec: Subwords) -> Any:
    """Return a SentencePiece model, unigram or BPE, with its normalisation."""
    from sentencepiece import sentencepiece_model_pb2
    from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

    proto = sentencepiece_model_pb2.ModelProto()  # type: ignore[attr-defined]
    proto.ParseFromString(codec.model)
    if proto.trainer_spec.treat_whitespace_as_suffix:
        raise UserError(
            "tokenizer.model: writes spaces behind words (treat_whitespace_as_suffix), which the "
            "export to Hugging Face does not support; train with a tokenizer that writes them "
            "before words"
        )
    pieces = [(piece.piece, piece.score) for piece in proto.pieces]
    fallback = proto.trainer_spec.byte_fallback
    if proto.trainer_spec.model_type == proto.trainer_spec.UNIGRAM:
        model: Any = models.Unigram(pieces, SPELLED.index(_UNK), byte_fallback=fallback)
    else:
        vocabulary = {piece: number for number, (piece, _) in enumerate(pieces)}
        model = models.BPE(
            vocabulary,
            tokenizer_files.merges(pieces, {*SPELLED, *symbols_of(codec.special)}),
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


def _bytes(codec: Bytes) -> Any:
    """Return a model without merges, in which each character is unknown and falls back to bytes."""
    from tokenizers import Tokenizer, decoders, models

    vocabulary = {piece: number for number, piece in enumerate(codec.pieces(range(codec.size)))}
    tokenizer = Tokenizer(models.BPE(vocabulary, [], unk_token=_UNK, byte_fallback=True))
    tokenizer.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Fuse()])
    return tokenizer


def _characters(codec: Characters | Letters) -> Any:
    """Return a model in which each character is a word."""
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers

    vocabulary = {piece: number for number, piece in enumerate(codec.pieces(range(codec.size)))}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token=_UNK))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated")
    tokenizer.decoder = decoders.Fuse()
    return tokenizer


def _letters(codec: Letters) -> Any:
    """Return a model in which each letter is a word, in upper case."""
    from tokenizers import normalizers

    tokenizer = _characters(codec)
    letters = string.ascii_lowercase
    tokenizer.normalizer = normalizers.Sequence(
        [normalizers.Replace(letter, letter.upper()) for letter in letters]
    )
    return tokenizer


def _wordpiece(codec: WordPiece) -> Any:
    """Return a copy of its tokenizer."""
    return copy.deepcopy(codec.tokenizer)


_BUILDERS: dict[type, Callable[[Any], Any]] = {
    Subwords: _subwords, Bytes: _bytes, Characters: _characters, WordPiece: _wordpiece,
    Residues: _letters, Nucleotides: _letters,
}  # fmt: skip


# Keys of tokenizer_config.json that classes of tokenizers obey, whatever tokenizer.json says -> its
# part, the type of the step there that has the setting, and the setting's name.
_OBEYED = {
    "add_prefix_space": ("pre_tokenizer", "ByteLevel", "add_prefix_space"),
    "do_lower_case": ("normalizer", "BertNormalizer", "lowercase"),
    "tokenize_chinese_chars": ("normalizer", "BertNormalizer", "handle_chinese_chars"),
    "strip_accents": ("normalizer", "BertNormalizer", "strip_accents"),
}


def read(
    directory: Path, words: Mapping[str, Any], rows: int, architecture: str = "decoder"
) -> Imported:
    """Return the codec of a directory; `words` is the content of its configs.

    Raises:
      UserError: if there is no tokenizer.json, or it does not hold a tokenizer.
    """
    path = directory / "tokenizer.json"
    given = path.is_file()
    content = path.read_bytes() if given else tokenizer_files.content(directory, words).encode()
    special = special_ids.special_ids(words, rows, architecture)
    begins = None
    try:
        text = content.decode()
        text = tokenizer_files.completed(text, words, rows) if given else text
        codec = Imported.of(text, special, rows)
        special |= _unknown(json.loads(text)["model"], codec)
        if architecture == "encoder":
            special |= _of_encoder(words, codec)
        if architecture == "encoder_decoder":
            special |= codec.leads()
        if architecture == "decoder":
            begins, special = special_ids.begins(codec, special)
        cleaned = _cleans(words, json.loads(text)["model"])
        codec = Imported.of(text, special, rows, begins, cleaned)
    except (ValueError, KeyError, AttributeError, TypeError) as error:
        raise UserError(f"{path}: not a tokenizer ({error})") from None
    if codec.rows_needed > rows:
        raise UserError(
            f"{path}: has {codec.rows_needed} pieces, but the model's embedding {rows} rows; call "
            "model.resize_token_embeddings(len(tokenizer)) and save both again"
        )
    if architecture == "encoder":
        _check_encoder(path, codec)
    special_ids.warn_of_others(path, codec, architecture)
    if given:
        _warn_of_settings(path, words, json.loads(text))
    return codec


def _warn_of_settings(path: Path, words: Mapping[str, Any], content: Mapping[str, Any]) -> None:
    for key, (part, kind, setting) in _OBEYED.items():
        said = words.get(key)
        for step in _steps(content.get(part)):
            if step["type"] == kind and isinstance(said, bool) and said != step.get(setting):
                log.warning(
                    "%s: %s of its %s is %s, and is obeyed here; Hugging Face's own class may obey "
                    "%s=%s of tokenizer_config.json, and read texts differently: correct one",
                    path, setting, kind, step.get(setting), key, said,
                )  # fmt: skip


def _steps(part: Mapping[str, Any] | None) -> list[Mapping[str, Any]]:
    """Return the steps of a normalizer or pre-tokenizer, of which there may be a sequence."""
    if part is None:
        return []
    nested = part.get("normalizers", part.get("pretokenizers"))
    return [part] if nested is None else [step for one in nested for step in _steps(one)]


def _unknown(model: Mapping[str, Any], codec: Imported) -> dict[str, int]:
    """Return the piece for unknown characters, if there is one."""
    piece, number = model.get("unk_token"), model.get("unk_id")
    if piece and codec.has(piece):
        return {"unk": codec.piece_id(piece)}
    return {} if number is None else {"unk": number}


def _of_encoder(words: Mapping[str, Any], codec: Imported) -> dict[str, int]:
    """Return those of BERT's CLS, SEP and MASK that exist, by our names."""
    found: dict[str, int] = {}
    for ours, usual in _USUAL.items():
        name = words.get(_OF_ENCODERS.get(f"{ours}_token", f"{ours}_token"))
        name = name["content"] if isinstance(name, dict) else name
        known = [piece for piece in (name, *usual) if piece and codec.has(piece)]
        found |= {ours: codec.piece_id(known[0])} if known else {}
    return found


def _check_encoder(path: Path, codec: Imported) -> None:
    for ours, theirs in _OF_ENCODERS.items():
        usual = _USUAL[ours.removesuffix("_token")]
        if ours.removesuffix("_token") not in codec.special:
            raise UserError(
                f"{path}: has no piece {' or '.join(usual)}, which is read with every text; name "
                f"the one in its place as {theirs} in tokenizer_config.json"
            )
