"""WordPiece gives the pieces of BERT's Python tokenizer in `transformers`, on real text."""

import unicodedata

import pytest

from transformer_jax.config import TokenizerConfig
from transformer_jax.data.codecs import wordpiece
from transformer_jax.data.sources.files import read_lines

pytestmark = pytest.mark.oracle
ODD = [
    "Ｆｕｌｌ width, naïve Łódź; «quoted» — dashes… 3.5%", "你好 world-wide",
    "tab\tand\x00nul\u200d x",
    "#hash @tag ##odd", "e\u0301 combined", "a" * 101 + " b", "", "🦊 fox",
]  # fmt: skip


@pytest.mark.parametrize("lowercase", [False, True])
def test_pieces_are_those_of_bert(multi30k, lowercase):
    legacy = pytest.importorskip("transformers.models.bert.tokenization_bert_legacy")
    lines = [line for side in ("en", "de") for line in read_lines(multi30k / f"val.{side}")]
    codec = wordpiece.train(TokenizerConfig(vocab_size=1500, lowercase=lowercase), lines)
    vocabulary = {piece: i for i, piece in enumerate(codec.pieces(range(codec.size)))}
    basic = legacy.BasicTokenizer(do_lower_case=lowercase)
    pieces = legacy.WordpieceTokenizer(vocabulary, "<unk>")
    tests = [
        line for side in ("en", "de") for line in read_lines(multi30k / f"train.{side}")[:1500]
    ]
    # The Python tokenizer composes characters before anything else; neither ours nor Google's does.
    texts = [unicodedata.normalize("NFC", text) for text in (*tests, *ODD)]
    for text, ids in zip(texts, codec.encode(texts, eos=False), strict=True):
        expected = [piece for word in basic.tokenize(text) for piece in pieces.tokenize(word)]
        assert codec.pieces(ids) == expected, text
