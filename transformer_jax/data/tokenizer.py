"""SentencePiece, with the four reserved ids of `vocabulary.py`."""

import hashlib
import io
import random
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import sentencepiece as spm

from transformer_jax.config import TokenizerConfig
from transformer_jax.disk import write_bytes
from transformer_jax.errors import UserError
from transformer_jax.vocabulary import BOS, EOS, PAD, RESERVED, UNK

# Unigram training depends on the number of threads, so it is fixed; BPE does not.
_THREADS = 4


class Tokenizer:
    """One SentencePiece model."""

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

    @property
    def size(self) -> int:
        """Number of pieces."""
        return self._pieces.get_piece_size()

    @property
    def digest(self) -> str:
        """A hash of the model's bytes."""
        return hashlib.blake2b(self.model, digest_size=16).hexdigest()

    def encode(self, lines: Sequence[str]) -> list[list[int]]:
        """Return the ids of each line, EOS appended."""
        return self._pieces.encode(list(lines), add_eos=True, num_threads=-1)

    def decode(self, ids: Iterable[int]) -> str:
        """Return the text before the first EOS, on one line."""
        kept = []
        for piece in ids:
            if piece == EOS:
                break
            if piece >= RESERVED or piece == UNK:
                kept.append(int(piece))
        # Byte pieces can spell line ends, which would break line-by-line output.
        return re.sub(r"[\r\n]", " ", self._pieces.decode(kept))

    def piece_id(self, piece: str) -> int:
        """Return the id of a piece.

        Raises:
          UserError: if there is no such piece.
        """
        found = self._pieces.piece_to_id(piece)
        if found == UNK and piece != self._pieces.id_to_piece(UNK):
            raise UserError(f"{piece!r} is no piece of the tokenizer; pieces of words begin with ▁")
        return found

    def is_text(self, piece: int) -> bool:
        """Whether a piece stands for its own characters: is neither reserved nor a byte."""
        return piece >= RESERVED and not self._pieces.is_byte(piece)

    def pieces(self, ids: Iterable[int]) -> list[str]:
        """Return the piece of each id."""
        return [self._pieces.id_to_piece(int(i)) for i in ids]


class TokenizerPair(NamedTuple):
    """The source side's tokenizer and the target side's; the same object when joint."""

    src: Tokenizer
    tgt: Tokenizer

    @property
    def digest(self) -> str:
        return f"{self.src.digest}{self.tgt.digest}"

    def save(self, directory: Path) -> None:
        """Write tokenizer.model, or tokenizer.src.model and tokenizer.tgt.model."""
        for name, tokenizer in zip(_file_names(self.src is self.tgt), self, strict=True):
            write_bytes(directory / name, tokenizer.model)

    @classmethod
    def load(cls, directory: Path, joint: bool) -> "TokenizerPair":
        """Read what `save` wrote.

        Raises:
          UserError: if a file is missing or is no tokenizer of ours.
        """
        loaded: dict[str, Tokenizer] = {}
        for name in _file_names(joint):
            path = directory / name
            if not path.exists():
                raise UserError(f"{path}: no tokenizer here; train a model in this directory first")
            try:
                loaded.setdefault(name, Tokenizer(path.read_bytes()))
            except RuntimeError as error:
                raise UserError(f"{path}: not a SentencePiece model ({error})") from None
        src, tgt = _file_names(joint)
        return cls(loaded[src], loaded[tgt])


def _file_names(joint: bool) -> tuple[str, str]:
    if joint:
        return "tokenizer.model", "tokenizer.model"
    return "tokenizer.src.model", "tokenizer.tgt.model"


def train(config: TokenizerConfig, lines: Sequence[str]) -> Tokenizer:
    """Train one tokenizer, the same one whenever it gets the same lines.

    Raises:
      UserError: if the corpus allows no such vocabulary.
    """
    if len(lines) > config.max_lines:
        # SentencePiece can sample too, but otherwise in every process: no seed of its own rules it.
        chosen = random.Random(0).sample(range(len(lines)), config.max_lines)
        lines = [lines[i] for i in sorted(chosen)]
    model = io.BytesIO()
    try:
        spm.SentencePieceTrainer.train(
            sentence_iterator=iter(lines),
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
            num_threads=_THREADS,
            minloglevel=2,
        )
    except RuntimeError as error:
        raise UserError(_explain(config, str(error))) from None
    return Tokenizer(model.getvalue())


def _explain(config: TokenizerConfig, message: str) -> str:
    size = f"config.tokenizer.vocab_size={config.vocab_size}"
    too_high = re.search(r"set it to a value <= (\d+)", message)
    if too_high:
        return f"{size}: the corpus allows at most {too_high.group(1)} pieces; lower it"
    too_low = re.search(r"required_chars\D*\d+ vs (\d+)", message)
    if too_low:
        return (
            f"{size}: the corpus needs at least {too_low.group(1)} pieces, one for each character; "
            "raise it, or lower config.tokenizer.character_coverage"
        )
    if "sentences_.empty()" in message or "all_chars_count" in message:
        return "config.data.train: all lines are empty; a tokenizer cannot be trained on them"
    return f"config.tokenizer: SentencePiece could not train: {message}"


def train_pair(config: TokenizerConfig, src: Sequence[str], tgt: Sequence[str]) -> TokenizerPair:
    """Train a joint tokenizer on both sides, or one for each."""
    if config.joint:
        both = train(config, [*src, *tgt])
        return TokenizerPair(both, both)
    return TokenizerPair(train(config, src), train(config, tgt))
