"""Constituency trees, linearised as in Vinyals et al. 2015 (arXiv:1412.7449): brackets labelled at
both ends, and XX for each word, "(S (NP XX )NP (VP XX )VP )S".

For a model the words are numbered: the pieces of that tree are (S (NP XX1 )NP (VP XX2 )VP )S, so it
need not count its output to know which word of the sentence comes next.
"""

import itertools
import json
import re
from collections.abc import Callable, Iterable, Sequence

from transformer_jax.base.errors import UserError
from transformer_jax.base.vocabulary import RESERVED, UNK
from transformer_jax.config import TokenizerConfig
from transformer_jax.data.codecs.codec import Kind, before_eos, with_symbols
from transformer_jax.data.codecs.words import Words
from transformer_jax.data.scripts import words_in

WORD = "XX"


class Trees(Words):
    """The pieces are brackets, always both of a label, and word numbers. The last number stands for
    all words from there on; if there is only one, for all words.
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
        """See Codec. Pieces that do not belong to a tree are dropped."""
        kept = (self._all[i] for i in before_eos(ids) if i != UNK)
        return " ".join(WORD if leaf(piece) else piece for piece in kept)


def leaf(piece: str) -> bool:
    """Return whether a piece stands for a word."""
    return re.fullmatch(rf"{WORD}\d*", piece) is not None


def train(config: TokenizerConfig, texts: Sequence[str], symbols: Sequence[str] = ()) -> Trees:
    """Return the codec of all brackets in the trees, and of as many words as the longest tree has;
    `config` is ignored.

    Raises:
      UserError: if there are no brackets, or a tree is not well-formed.
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
    """Return why pieces are not a tree, or None if they are: a tree has one root, and each bracket
    is not empty and closed with its label.
    """
    stack: list[str] = []
    for place, piece in enumerate(tree, 1):
        where = f"piece {place}, {piece!r},"
        if place > 1 and not stack:
            return f"{where} is after the end of the tree"
        if piece[0] == "(":
            stack.append(piece[1:])
        elif piece[0] == ")":
            if not stack:
                return f"{where} closes no bracket"
            if tree[place - 2][0] == "(":
                return f"{where} closes an empty bracket"
            if stack[-1] != piece[1:]:
                return f"{where} is where {')' + stack[-1]!r} must be"
            stack.pop()
        elif piece != WORD:
            return f"{where} is neither a bracket nor {WORD}"
        elif not stack:
            return f"{where} is outside all brackets"
    return f"{' '.join(f'({label}' for label in stack)} is never closed" if stack else None


def check(trees: Sequence[str], place: Callable[[int], str]) -> None:
    """Check that trees are well-formed, except empty lines; `place` gives a tree's location.

    Raises:
      UserError: if one is not.
    """
    for number, line in enumerate(trees, 1):
        if problem := fault(line.split()):
            raise UserError(
                f"{place(number)}: {problem}; each bracket is opened and closed with its label and "
                f'is not empty, as in "(S (NP XX )NP (VP XX )VP )S", with {WORD} for a word'
            )


def check_pairs(src: Sequence[str], trees: Sequence[str], place: Callable[[int], str]) -> None:
    """Check that trees are well-formed and each has as many words as its sentence.

    Raises:
      UserError: if not.
    """
    check(trees, place)
    for number, (sentence, tree) in enumerate(zip(src, trees, strict=True), 1):
        words, leaves = len(words_in(sentence)), tree.split().count(WORD)
        if words != leaves:
            raise UserError(
                f"{place(number)}: the tree has {leaves} {WORD}, but its sentence {words} words; "
                f"write one {WORD} for each"
            )


WORDS = {"trees": Kind(Trees, train, "a list of brackets")}
