"""The codec that writes repeated sequences once: lossless, and as short as any of its codes."""

import itertools
import json
import random

import pytest

from transformer_jax.base.errors import UserError
from transformer_jax.base.vocabulary import EOS, UNK
from transformer_jax.config import TokenizerConfig
from transformer_jax.data.codecs.repeats import Repeats, shortest, train

CONFIG = TokenizerConfig()


@pytest.mark.parametrize(
    ("text", "pieces"),
    [
        ("a b a b a b c", "3( a b ) c"),
        ("a a", "2( a )"),
        ("a " * 12, "3( 4( a ) )"),
        ("a b " * 8, "2( 4( a b ) )"),
        ("a " * 6, "3( 2( a ) )"),
        ("b a a b a a", "2( b 2( a ) )"),
        ("a b c", "a b c"),
        ("", ""),
    ],
)
def test_repeated_sequences_are_written_once(text, pieces):
    codec = train(CONFIG, ["a b c"])
    (ids,) = codec.encode([text])
    assert codec.pieces(ids) == [*pieces.split(), "</s>"]
    assert codec.decode(ids) == text.strip()
    again = Repeats(codec.model)
    assert (again.digest, again.encode([text])) == (codec.digest, [ids])


def test_a_vocabulary_without_fours_stays_as_it_was():
    content = json.loads(train(CONFIG, ["a b"]).model)
    content["words"].remove("4(")
    codec = Repeats(json.dumps(content).encode())
    (ids,) = codec.encode(["a " * 12])
    assert codec.pieces(ids) == ["3(", "2(", "2(", "a", ")", ")", ")", "</s>"]
    assert codec.decode(ids) == " ".join(["a"] * 12)


def test_any_text_round_trips():
    chance, codec = random.Random(0), train(CONFIG, ["a b"])
    for _ in range(200):
        unit = chance.choices("ab", k=chance.randint(1, 4))
        words = [x for _ in range(chance.randint(1, 5)) for x in unit * chance.randint(1, 7)]
        assert codec.decode(codec.encode([" ".join(words)])[0]) == " ".join(words)


def cost(code):
    words = sum(piece > 0 for piece in code)
    return words, len(code) - words


def every_code(words):
    """Yield all codes, by brute force."""
    yield words
    for start, end in itertools.combinations(range(len(words) + 1), 2):
        part = words[start:end]
        for count in (2, 3, 4):
            size, rest = divmod(len(part), count)
            if rest == 0 and part == part[:size] * count and 0 not in part:
                for unit in every_code(part[:size]):
                    for tail in every_code(words[end:]):
                        yield (*words[:start], -count, *unit, 0, *tail)


@pytest.mark.parametrize("length", [1, 5, 7])
def test_no_code_has_fewer_words_or_as_many_and_fewer_brackets(length):
    for words in itertools.product((4, 5), repeat=length):
        assert cost(shortest(words)) == min(map(cost, every_code(words))), words


def test_whatever_a_model_writes_is_a_text():
    codec = train(CONFIG, ["a b"])
    two, three, close, a, b = map(codec.piece_id, ("2(", "3(", ")", "a", "b"))
    assert codec.decode([close, two, a, close, close, b, EOS, a]) == "a a b"
    assert codec.decode([two, three, a]) == "a"  # never closed
    assert codec.decode([two, UNK, close]) == "[UNK] [UNK]"
    assert len(codec.decode([three] * 40 + [a] + [close] * 40).split()) == 2**16


def test_unknown_words_and_brackets_of_a_text_are_unknown():
    codec = train(CONFIG, ["a b"])
    assert codec.decode(codec.encode(["a ) 3( z"])[0]) == "a [UNK] [UNK] [UNK]"


def test_words_that_are_brackets_are_rejected():
    with pytest.raises(UserError, match=r"text 2 has the word '3\('.*choose codec='words'"):
        train(CONFIG, ["a", "b 3( c )"])
