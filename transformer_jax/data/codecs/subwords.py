"""SentencePiece, with the four reserved ids of `base/vocabulary.py`."""

import io
import logging
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import sentencepiece as spm
from google.protobuf.message import DecodeError
from sentencepiece import sentencepiece_model_pb2

from transformer_jax.base.disk import user_path
from transformer_jax.base.errors import UserError
from transformer_jax.base.vocabulary import BOS, EOS, PAD, RESERVED, UNK
from transformer_jax.config import TokenizerConfig
from transformer_jax.data.codecs.codec import SPECIAL, SPELLED, Kind, before_eos, hashed, sampled

log = logging.getLogger("transformer_jax")

# Unigram training depends on the number of threads, so it is fixed; BPE does not.
_THREADS = 4
_FEW = 32  # texts; SentencePiece starts threads for a list, which takes as long as these
_LONGEST = 4192  # bytes of a line; SentencePiece trains on no longer one
_SEPARATOR = "▅"  # nor on one with this sign, which it puts between texts
_NAMED = re.compile(r"<mask>|<extra_id_\d+>")  # pieces that objectives insert into texts


class Subwords:
    """One SentencePiece model."""

    file = "tokenizer{}.model"
    threads = -1  # for encoding many texts; -1: one per core

    def __init__(self, model: bytes) -> None:
        self.model = model
        self._pieces = spm.SentencePieceProcessor(model_proto=model)
        ids = (
            self._pieces.pad_id(),
            self._pieces.bos_id(),
            self._pieces.eos_id(),
            self._pieces.unk_id(),
        )
        if ids != (PAD, BOS, EOS, UNK):
            raise UserError(
                f"tokenizer: PAD, BOS, EOS, UNK are {ids}, must be {(PAD, BOS, EOS, UNK)}: "
                "train it with this program"
            )
        proto = sentencepiece_model_pb2.ModelProto.FromString(model)  # type: ignore[attr-defined]
        self._suffix = proto.trainer_spec.treat_whitespace_as_suffix
        self._symbols = {i: x.piece for i, x in enumerate(proto.pieces) if x.type == x.USER_DEFINED}
        named = {x[1:-1]: i for i, x in self._symbols.items() if _NAMED.fullmatch(x)}
        self.special: Mapping[str, int] = {**SPECIAL, **named}

    @property
    def size(self) -> int:
        """Number of pieces."""
        return self._pieces.get_piece_size()

    @property
    def digest(self) -> str:
        """A hash of the model's bytes."""
        return hashed(self.model)

    def encode(self, texts: Sequence[str], bos: bool = False, eos: bool = True) -> list[list[int]]:
        """See Codec."""
        if len(texts) <= _FEW:
            return [self._pieces.encode(text, add_bos=bos, add_eos=eos) for text in texts]
        return self._pieces.encode(list(texts), add_bos=bos, add_eos=eos, num_threads=self.threads)

    @property
    def symbols(self) -> dict[str, int]:
        """The pieces that are never split or merged."""
        return {piece: number for number, piece in self._symbols.items()}

    def decode(self, ids: Iterable[int]) -> str:
        """Return the text before the first EOS, on one line like every text it encodes."""
        named = set(self.special.values()) - {UNK}
        text = self._pieces.decode([i for i in before_eos(ids) if i not in named])
        if self._suffix:
            text = text.removesuffix(" ")  # which ends the last word
        return re.sub(r"[\r\n]", " ", text)  # byte pieces can spell newlines

    def piece_id(self, piece: str) -> int:
        """See Codec."""
        number = self._pieces.piece_to_id(piece)
        if number == UNK and piece != self._pieces.id_to_piece(UNK):
            raise UserError(f"{piece!r} is not a piece of the tokenizer; words begin with ▁")
        return number

    def is_text(self, piece: int) -> bool:
        """See Codec."""
        special = piece < RESERVED or piece in self._symbols
        return not special and not self._pieces.is_byte(piece)

    def word_starts(self) -> np.ndarray | None:
        """See Codec: SentencePiece writes the space before a word as ▁ in its first piece. Models
        that write it in the last piece show where words end.
        """
        if self._suffix:
            return None
        return np.array([piece.startswith("▁") for piece in self.pieces(range(self.size))])

    def pieces(self, ids: Iterable[int]) -> list[str]:
        """See Codec."""
        return [self._pieces.id_to_piece(int(i)) for i in ids]


def train(config: TokenizerConfig, lines: Sequence[str], symbols: Sequence[str] = ()) -> Subwords:
    """Train one tokenizer, deterministically from its lines, or adopt `model`.

    Raises:
      UserError: if the corpus allows no such vocabulary, or the model cannot be read.
    """
    if config.model is not None:
        return adopted(user_path(config.model), [*symbols, *config.symbols], _surface(config))
    # SentencePiece can sample too, but differently in every process: no seed controls it.
    read = _Lines(sampled(lines, config.max_lines))
    model = io.BytesIO()
    try:
        spm.SentencePieceTrainer.train(
            sentence_iterator=iter(read),
            model_writer=model,
            model_type=config.algorithm,
            vocab_size=config.vocab_size,
            character_coverage=config.character_coverage,
            normalization_rule_name=config.normalization,
            byte_fallback=config.byte_fallback,
            input_sentence_size=config.max_lines,
            shuffle_input_sentence=True,
            pad_id=PAD,
            bos_id=BOS,
            eos_id=EOS,
            unk_id=UNK,
            user_defined_symbols=[*symbols, *config.symbols],
            **_surface(config),
            num_threads=_THREADS,
            minloglevel=2,
        )
    except RuntimeError as error:
        raise UserError(_explain(config, str(error))) from None
    read.report()
    return Subwords(model.getvalue())


class _Lines:
    """Counts the lines that SentencePiece passes over in training, without saying so."""

    def __init__(self, lines: Sequence[str]) -> None:
        self._lines, self._long, self._reserved = lines, 0, 0

    def __iter__(self) -> Iterator[str]:
        for line in self._lines:
            if len(line) > _LONGEST // 4 and len(line.encode()) > _LONGEST:
                self._long += 1
            elif _SEPARATOR in line:
                self._reserved += 1
            yield line

    def report(self) -> None:
        """Warn of these lines."""
        for count, what, remedy in (
            (self._long, f"longer than {_LONGEST:,} bytes", "cut them into shorter ones"),
            (self._reserved, f"with the sign {_SEPARATOR}, which it reserves", "replace it there"),
        ):
            if count:
                log.warning(
                    "config.data.train: the tokenizer is trained without %d of %d lines %s, which "
                    "SentencePiece skips; their characters and words may have no pieces; %s",
                    count, len(self._lines), what, remedy,
                )  # fmt: skip


def _surface(config: TokenizerConfig) -> dict[str, Any]:
    """Return the spelling of UNK unless it is SentencePiece's default, which models do not name."""
    plain = config.unk_surface == TokenizerConfig.unk_surface
    return {} if plain else {"unk_surface": config.unk_surface}


def adopted(path: Path, symbols: Sequence[str], surface: Mapping[str, Any]) -> Subwords:
    """Return a SentencePiece model of any origin with our reserved ids first: it segments all texts
    as before, with the same pieces in the same order, followed by the symbols that it lacks.

    Raises:
      UserError: if the file is not such a model.
    """
    proto = sentencepiece_model_pb2.ModelProto()  # type: ignore[attr-defined]
    try:
        proto.ParseFromString(path.read_bytes())
    except (OSError, DecodeError) as error:
        raise UserError(f"config.tokenizer.model={str(path)!r}: cannot be read ({error})") from None
    spec, kinds = proto.trainer_spec, proto.SentencePiece
    theirs = {spec.pad_piece: 0, spec.bos_piece: 1, spec.eos_piece: 2, spec.unk_piece: 3}
    reserved = [kinds(piece=name, score=0.0, type=kinds.CONTROL) for name in SPELLED]
    reserved[UNK].type = kinds.UNKNOWN
    ordinary = (kinds.NORMAL, kinds.BYTE, kinds.USER_DEFINED, kinds.UNUSED)
    kept = [x for x in proto.pieces if x.type in ordinary or x.piece not in theirs]
    if not kept:
        raise UserError(f"config.tokenizer.model={str(path)!r}: not a SentencePiece model")
    known = {piece.piece for piece in kept}
    added = [x for x in symbols if x not in known]
    kept += [kinds(piece=name, score=0.0, type=kinds.USER_DEFINED) for name in added]
    del proto.pieces[:]
    proto.pieces.extend([*reserved, *kept])
    spec.pad_id, spec.bos_id, spec.eos_id, spec.unk_id = PAD, BOS, EOS, UNK
    spec.pad_piece, spec.bos_piece, spec.eos_piece, spec.unk_piece = SPELLED
    spec.vocab_size = len(proto.pieces)
    spec.MergeFrom(sentencepiece_model_pb2.TrainerSpec(**surface))  # type: ignore[attr-defined]
    return Subwords(proto.SerializeToString())


def _explain(config: TokenizerConfig, message: str) -> str:
    size = f"config.tokenizer.vocab_size={config.vocab_size}"
    too_high = re.search(r"set it to a value <= (\d+)", message)
    if too_high:
        return f"{size}: the corpus allows at most {too_high.group(1)} pieces; lower it"
    too_low = re.search(r"required_chars\D*\d+ vs (\d+)", message)
    if too_low:
        return (
            f"{size}: the corpus needs at least {too_low.group(1)} pieces, one per character; "
            "raise it, or lower config.tokenizer.character_coverage"
        )
    if "sentences_.empty()" in message or "all_chars_count" in message:
        return (
            "config.data.train: all lines are empty, or longer than 4,192 bytes, which "
            "SentencePiece skips; a tokenizer cannot be trained on them; cut them into shorter "
            "ones, or choose another codec"
        )
    return f"config.tokenizer: SentencePiece could not train: {message}"


WORDS = {"subwords": Kind(Subwords, train, "a SentencePiece model")}
