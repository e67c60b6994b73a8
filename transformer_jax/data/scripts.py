"""Writing systems, by code points: which need no spaces, and where words may be divided."""

import re
from collections.abc import Iterable

# Chinese and Japanese: no spaces between words, nor between sentences. Han with its radicals and
# extensions, bopomofo, both kana; signs, and letters of full width.
_HAN = "\u2e80-\u2fdf\u3005-\u3007\u3100-\u312f\u31a0-\u31bf\u3400-\u9fff\uf900-\ufaff"
_KANA = "\u3040-\u30ff\u31f0-\u31ff\uff66-\uff9f"
_LETTERS = f"{_HAN}{_KANA}\U00020000-\U0003ffff"
_SIGNS = "\u3001-\u303f\uff01-\uff65"
# Thai, Lao, Tibetan, Burmese, Khmer: spaces only between phrases or sentences.
_PHRASES = "\u0e00-\u0fff\u1000-\u109f\u1780-\u17ff"
_UNSPACED = re.compile(f"[{_LETTERS}{_SIGNS}]")
_NO_SPACES_IN_WORDS = re.compile(f"[{_LETTERS}{_SIGNS}{_PHRASES}]")
_JAPANESE = re.compile(f"[{_KANA}]")
# Letters, and how many characters of such a script a word has on average, at most.
_WORDS = ((re.compile(f"[{_LETTERS}]"), 3.5), (re.compile(f"[{_PHRASES}]"), 9))

# What str.split takes for a space but the text forbids to divide at: in 10 000 km, or before a
# French question mark.
NO_BREAK = "\u00a0\u2007\u202f"
_BREAKS = re.compile(rf"[^\S{NO_BREAK}]+")


def words_in(line: str) -> list[str]:
    """Return the words of a line: what spaces separate, other than no-break spaces."""
    return [word for word in _BREAKS.split(line) if word.strip()]


def separator(before: str, after: str) -> str:
    """Return what joins two sentences: a space, or nothing in Chinese and Japanese."""
    return "" if _UNSPACED.match(before[-1:]) or _UNSPACED.match(after[:1]) else " "


def without_spaces(lines: Iterable[str]) -> float:
    """Return the share of the characters, spaces aside, of scripts without spaces between words."""
    spaceless = total = 0
    for line in lines:
        total += len("".join(line.split()))
        spaceless += len(_NO_SPACES_IN_WORDS.findall(line))
    return spaceless / max(total, 1)


def is_japanese(lines: Iterable[str]) -> bool:
    """Return whether there are kana in most lines."""
    marks = [_JAPANESE.search(line) is not None for line in lines if line.strip()]
    return sum(marks) > len(marks) / 2


def are_words(tokens: Iterable[str]) -> bool:
    """Return whether tokens of scripts without spaces between words are words, by their length."""
    tokens = [*tokens]
    for letters, most in _WORDS:
        lengths = [len(token) for token in tokens if letters.search(token)]
        if sum(lengths) > most * len(lengths):
            return False
    return True
