"""Trees of constituents, linearised as in Vinyals et al. 2015 (arXiv:1412.7449): brackets that
carry their labels at both ends, and XX for each word, "(S (NP XX )NP (VP XX )VP )S".

To a model words are numbered: the pieces of that tree are (S (NP XX1 )NP (VP XX2 )VP )S. So it need
not count what it has written to know which word of the sentence comes next.
"""

import itertools
import json
import re
from collections.abc import Callable, Iterable, Sequence

from transformer_jax.config import TokenizerConfig
from transformer_jax.data.codecs.codec import before_eos, with_symbols
from transformer_jax.data.codecs.words import Words
from transformer_jax.errors import UserError
from transformer_jax.vocabulary import RESERVED, UNK

WORD = "XX"


class Trees(Words):
    """Each bracket is a piece, and so are words by their numbers; both brackets of a label, or
    neither. The last number stands for all words from there on; where there is one alone, for all.
    """

    file = "trees{}.json"
    HINT = ": pieces are the brackets of the training trees, and XX1, XX2 and so on"

    def __init__(self, model: bytes) -> None:
        super().__init__(model)
        self._leaves = [piece for piece in self._words if leaf(piece)]

    def _cut(self, text: str) -> list[int]:
        pieces, last = text.split(), len(self._leaves) - 1
        numbers = itertools.count()
        named = (self._leaves[min(next(numbers), last)] if x == WORD else x for x in pieces)
        return [self._words.get(piece, UNK) for piece in named]

    def decode(self, ids: Iterable[int]) -> str:
        """See Codec. What is no piece of a tree is left out."""
        kept = (self._all[i] for i in before_eos(ids) if i != UNK)
        return " ".join(WORD if leaf(piece) else piece for piece in kept)


def leaf(piece: str) -> bool:
    """Say whether a piece stands for a word."""
    return re.fullmatch(rf"{WORD}\d*", piece) is not None


def train(config: TokenizerConfig, texts: Sequence[str], symbols: Sequence[str] = ()) -> Trees:
    """Return the codec of all brackets that the trees have, and of as many words as the largest;
    `config` has no say in it.

    Raises:
      UserError: if they have none, or one is not well-formed.
    """
    check(texts, lambda number: f"config.data.train: tree {number}")
    labels = sorted({piece[1:] for text in texts for piece in text.split() if piece[0] in "()"})
    if not labels:
        raise UserError("config.data.train: the trees have no brackets; tgt.codec='trees' reads "
                        "\"(S (NP XX )NP (VP XX )VP )S\"")  # fmt: skip
    most = max(text.split().count(WORD) for text in texts)
    leaves = [f"{WORD}{number}" for number in range(1, most + 1)]
    pieces = [*leaves, *(sign + label for label in labels for sign in "()")]
    content = {"special": with_symbols(symbols, RESERVED), "lowercase": False, "words": pieces}
    return Trees(json.dumps(content, ensure_ascii=False).encode())


def fault(tree: Sequence[str]) -> str | None:
    """Return what keeps pieces from being a tree: one root, each bracket with something in it and
    closed by its label. None if nothing does.
    """
    stack: list[str] = []
    for place, piece in enumerate(tree, 1):
        where = f"piece {place}, {piece!r},"
        if place > 1 and not stack:
            return f"{where} stands behind the end of the tree"
        if piece[0] == "(":
            stack.append(piece[1:])
        elif piece[0] == ")":
            if not stack:
                return f"{where} closes no bracket"
            if tree[place - 2][0] == "(":
                return f"{where} closes a bracket that holds nothing"
            if stack[-1] != piece[1:]:
                return f"{where} stands where {')' + stack[-1]!r} must"
            stack.pop()
        elif piece != WORD:
            return f"{where} is neither a bracket nor {WORD}"
        elif not stack:
            return f"{where} stands outside of all brackets"
    return f"{' '.join(f'({label}' for label in stack)} is never closed" if stack else None


def check(trees: Sequence[str], place: Callable[[int], str]) -> None:
    """Check that trees are well-formed, those of empty lines apart; `place` says where one is.

    Raises:
      UserError: if one is not.
    """
    for number, line in enumerate(trees, 1):
        if found := fault(line.split()):
            raise UserError(
                f"{place(number)}: {found}; each bracket is opened and closed with its label and "
                f'holds something, as in "(S (NP XX )NP (VP XX )VP )S", with {WORD} for a word'
            )


def check_pairs(src: Sequence[str], trees: Sequence[str], place: Callable[[int], str]) -> None:
    """Check that trees are well-formed and each has as many words as its sentence.

    Raises:
      UserError: if one is not, or has not.
    """
    check(trees, place)
    for number, (sentence, tree) in enumerate(zip(src, trees, strict=True), 1):
        words, leaves = len(sentence.split()), tree.split().count(WORD)
        if words != leaves:
            raise UserError(
                f"{place(number)}: the tree has {leaves} {WORD}, and its sentence {words} words; "
                f"write one {WORD} for each"
            )
