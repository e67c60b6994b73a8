"""Words, of which a repeated sequence is written once: "a b a b a b c" as the pieces 3( a b ) c.

A lossless code of any text, which needs no knowledge of its language. What grows with the number of
repetitions is a count, not the length, so that a model can learn from short texts what it needs for
long ones.
"""

import json
from collections.abc import Iterable, Sequence
from functools import lru_cache

from transformer_jax.base.errors import UserError
from transformer_jax.base.vocabulary import RESERVED, UNK
from transformer_jax.config import TokenizerConfig
from transformer_jax.data.codecs.codec import SPELLED, Kind, before_eos, with_symbols
from transformer_jax.data.codecs.listed import UNKNOWN
from transformer_jax.data.codecs.words import Words
from transformer_jax.data.scripts import words_in

COUNTS = (3, 2, 4)  # other counts are these, nested in this order: 3( 4( a ) ) is a 12 times
CLOSE = ")"
OPEN = {count: f"{count}(" for count in COUNTS}
MOST = 2**16  # words that a text is decoded to at most, whatever a model writes

Unit = tuple[int, ...]


class Repeats(Words):
    """The pieces are words and brackets; a text has as few words as it can have, and then as few
    brackets.
    """

    file = "repeats{}.json"
    HINT = ": pieces are words of the training text, 2(, 3(, 4( and )"

    def __init__(self, model: bytes) -> None:
        super().__init__(model)
        self._open = {
            count: self._ids[piece] for count, piece in OPEN.items() if piece in self._ids
        }  # earlier vocabularies have no 4(
        self._opened = {i: count for count, i in self._open.items()}
        self._close = self._ids[CLOSE]
        for i in (*self._open.values(), self._close):  # in a text they would be brackets
            del self._words[self._all[i]]

    def _cut(self, text: str) -> list[int]:
        return [
            self._close if x == 0 else self._open[-x] if x < 0 else x
            for x in shortest(tuple(super()._cut(text)), tuple(self._open))
        ]

    def decode(self, ids: Iterable[int]) -> str:
        """See Codec. What a run says is repeated when it is closed, so a text grows with its
        pieces; brackets that match none are dropped.
        """
        left_out = set(self.special.values()) - {UNK}
        runs: list[tuple[int, list[int]]] = [(1, [])]
        for i in before_eos(ids):
            if i in self._opened:
                runs.append((self._opened[i], []))
            elif i == self._close:
                _end(runs, closed=True)
            elif i not in left_out:
                runs[-1][1].append(i)
        while len(runs) > 1:
            _end(runs, closed=False)
        return " ".join(UNKNOWN if i == UNK else self._all[i] for i in runs[0][1][:MOST])


def _end(runs: list[tuple[int, list[int]]], closed: bool) -> None:
    """Append the last of nested runs to the one around it, if it is inside of any."""
    if len(runs) > 1:
        count, unit = runs.pop()
        runs[-1][1].extend((unit * count)[:MOST] if closed else unit)
        del runs[-1][1][MOST:]


@lru_cache(maxsize=2**16)
def shortest(words: Unit, counts: tuple[int, ...] = COUNTS) -> Unit:
    """Return the code of ids above 0 with the fewest words, and then brackets: -count opens a run
    of one of `counts`, 0 closes it. Of equally good codes it is one with a shorter unit at the end.
    """
    codes: list[Unit] = [()]
    same = [0] * (len(words) + 1)  # for each period: how many words at the end equal those before
    for end in range(1, len(words) + 1):
        best: Unit | None = None
        for period in range(1, end):
            equal = words[end - 1] == words[end - 1 - period]
            same[period] = same[period] + 1 if equal else 0
            for count in range(same[period] // period + 1, 1, -1):
                run = _run(words[end - period : end], count, counts)
                code = codes[end - period * count] + run
                if run and (best is None or _cost(code) < _cost(best)):
                    best = code
        plain = (*codes[end - 1], words[end - 1])
        codes.append(plain if best is None or _cost(plain) < _cost(best) else best)
    return codes[-1]


def _cost(code: Unit) -> tuple[int, int]:
    words = sum(piece > 0 for piece in code)
    return words, len(code) - words


def _run(unit: Unit, count: int, counts: tuple[int, ...]) -> Unit:
    """Return the code of a repeated unit, or nothing if no product of `counts` is the count: as few
    brackets as it can have, the outermost first in their order.
    """
    factors: list[int] = []
    for factor in sorted(counts, reverse=True):
        while count % factor == 0:
            factors.append(factor)
            count //= factor
    if count > 1:
        return ()
    opened = sorted(factors, key=counts.index)
    return (*(-x for x in opened), *shortest(unit, counts), *(0,) * len(opened))


def train(config: TokenizerConfig, texts: Sequence[str], symbols: Sequence[str] = ()) -> Repeats:
    """Return the codec of all words in the texts; `config` is ignored.

    Raises:
      UserError: if a word is spelled like a bracket.
    """
    brackets = [*OPEN.values(), CLOSE]
    words: set[str] = set()
    for number, text in enumerate(texts, 1):
        words.update(found := words_in(text))
        for word in (x for x in found if x in brackets):
            raise UserError(
                f"config.data.train: text {number} has the word {word!r}, with which codec="
                "'repeats' writes repetitions; spell it in another way, or choose codec='words'"
            )
    words -= {*SPELLED, *symbols}
    content = {
        "special": with_symbols(symbols, RESERVED), "lowercase": False,
        "words": [*brackets, *sorted(words)],
    }  # fmt: skip
    return Repeats(json.dumps(content, ensure_ascii=False).encode())


WORDS = {"repeats": Kind(Repeats, train, "a list of words and brackets")}
