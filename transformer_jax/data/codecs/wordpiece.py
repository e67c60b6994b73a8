"""WordPiece, as in BERT: greedy longest-match segmentation of words, from the left."""

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from transformer_jax.base.errors import UserError
from transformer_jax.base.vocabulary import RESERVED, UNK
from transformer_jax.config import TokenizerConfig
from transformer_jax.data.codecs.codec import (
    SPELLED,
    Kind,
    before_eos,
    framed,
    sampled,
    symbols_of,
    with_symbols,
)
from transformer_jax.data.codecs.listed import UNKNOWN, Listed

_INSIDE = "##"  # before a piece that does not begin a word
_ALPHABET = 1000  # number of characters with pieces, the most frequent; as in BERT's vocabularies


class WordPiece(Listed):
    """Text is split at spaces and around punctuation and Chinese characters, as in BERT (Devlin et
    al. 2019, arXiv:1810.04805), and each word then into the longest known pieces, from the left (Wu
    et al. 2016, arXiv:1609.08144). A word that cannot be segmented is `unk`, written [UNK].

    Decoded text has spaces wherever it was split, so it may differ from the original.
    """

    file = "wordpiece{}.json"
    HINT = "; those that do not begin a word start with ##"

    def __init__(self, model: bytes) -> None:
        pieces, special, symbols, lowercase = _read(model)
        super().__init__(model, pieces, special)
        self.tokenizer = _tokenizer(pieces, symbols, lowercase)

    def encode(self, texts: Sequence[str], bos: bool = False, eos: bool = True) -> list[list[int]]:
        """See Codec."""
        encodings = self.tokenizer.encode_batch(list(texts), add_special_tokens=False)
        return [framed(item.ids, bos, eos) for item in encodings]

    def decode(self, ids: Iterable[int]) -> str:
        """See Codec."""
        left_out = set(self.special.values()) - {UNK}
        pieces = [self._all[i] for i in before_eos(ids) if i not in left_out]
        return self.tokenizer.decoder.decode([UNKNOWN if x == SPELLED[UNK] else x for x in pieces])

    def word_starts(self) -> np.ndarray:
        """See Codec."""
        return np.array([not piece.startswith(_INSIDE) for piece in self._all])


def _read(model: bytes) -> tuple[list[str], dict[str, int], list[str], bool]:
    try:
        content = json.loads(model)
        pieces, special = content["pieces"], content["special"]
        symbols, lowercase = content["symbols"], content["lowercase"]
        named = [*SPELLED, *symbols_of(special), *symbols]
        right = special == with_symbols(symbols_of(special), RESERVED)
        unique = len(set(pieces)) == len(pieces) and all(isinstance(x, str) for x in pieces)
        if right and unique and pieces[: len(named)] == named and isinstance(lowercase, bool):
            return pieces, special, symbols, lowercase
    except (ValueError, TypeError, KeyError, RecursionError):
        pass
    raise ValueError("not a list of pieces")


def _tokenizer(pieces: Sequence[str], symbols: Sequence[str], lowercase: bool) -> Any:
    """Return a tokenizer of the pieces; symbols are found in a text before anything else."""
    try:
        from tokenizers import (
            AddedToken,
            Regex,
            Tokenizer,
            decoders,
            models,
            normalizers,
            pre_tokenizers,
        )
    except ImportError:
        raise UserError("codec='wordpiece' needs tokenizers: pip install tokenizers") from None
    vocabulary = {piece: i for i, piece in enumerate(pieces)}
    tokenizer = Tokenizer(models.WordPiece(vocabulary, unk_token=SPELLED[UNK]))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=lowercase)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    joined = decoders.WordPiece(_INSIDE, cleanup=True)
    # A text may begin inside a word, like a span that follows a sentinel.
    start = decoders.Replace(Regex(rf"\A{_INSIDE}(?=.)"), "")
    tokenizer.decoder = decoders.Sequence([joined, decoders.Fuse(), start])
    tokenizer.add_tokens([AddedToken(x, normalized=False) for x in symbols])
    return tokenizer


def train(config: TokenizerConfig, texts: Sequence[str], symbols: Sequence[str] = ()) -> WordPiece:
    """Train the codec on a text, with the trainer of `tokenizers`: pairs of pieces are merged by
    frequency, as in BPE.

    Raises:
      UserError: if the text allows no such vocabulary.
    """
    named = [*SPELLED, *symbols, *config.symbols]
    tokenizer = _tokenizer(named, config.symbols, config.lowercase)
    words: Counter[str] = Counter()
    texts = sampled(texts, config.max_lines)
    for text in texts:
        cut = tokenizer.pre_tokenizer.pre_tokenize_str(tokenizer.normalizer.normalize_str(text))
        words.update(word for word, _ in cut)
    pieces = _learned(tokenizer, texts, words, named, config.vocab_size)
    if len(pieces) != config.vocab_size:
        fewer = len(pieces) < config.vocab_size
        raise UserError(
            f"config.tokenizer.vocab_size={config.vocab_size}: the corpus "
            + (f"allows at most {len(pieces)} pieces; lower it" if fewer else
               f"needs at least {len(pieces)} pieces, for its characters; raise it")
        )  # fmt: skip
    special = with_symbols(symbols, RESERVED)
    content = {
        "special": special, "symbols": list(config.symbols), "lowercase": config.lowercase,
        "pieces": pieces,
    }  # fmt: skip
    return WordPiece(json.dumps(content, ensure_ascii=False).encode())


def _learned(
    tokenizer: Any, texts: Sequence[str], words: Counter[str], named: list[str], size: int
) -> list[str]:
    """Return the pieces, named ones first.

    Word-internal characters are passed to the trainer, which otherwise numbers them in an order
    that differs from run to run, and breaks ties between equally frequent pairs by these numbers.
    """
    from tokenizers import trainers

    inside: Counter[str] = Counter()
    for word, count in words.items():
        for character in word[1:]:
            inside[character] += count
    most = sorted(inside, key=lambda x: (-inside[x], x))[:_ALPHABET]
    first = [*named, *sorted(_INSIDE + x for x in most)]
    trainer = trainers.WordPieceTrainer(
        vocab_size=size, special_tokens=first, show_progress=False, limit_alphabet=_ALPHABET,
        continuing_subword_prefix=_INSIDE,
    )  # fmt: skip
    tokenizer.train_from_iterator(texts, trainer)
    vocabulary = tokenizer.get_vocab()
    return sorted(vocabulary, key=lambda piece: vocabulary[piece])


WORDS = {"wordpiece": Kind(WordPiece, train, "a list of pieces of words")}
