"""Splitting lines that are too long for the model."""

import bisect
import re
from collections.abc import Callable, Sequence

# Where a text may be cut, best first: at the end of a sentence, else at a space. Closing quotes
# stay with their sentence.
_QUOTES = r"[\"'”’»)\]]*"
_CUTS = (
    re.compile(rf"(?<=[.!?;。！？؟।…]){_QUOTES}\s+|(?<=[。！？])(?!{_QUOTES}(?:\s|$))"),
    re.compile(r"\s+"),
)
_HEAD = 12  # characters per allowed piece: a beginning that shows a text to be too long


def split(text: str, count: Callable[[Sequence[str]], Sequence[int]], most: int) -> list[str]:
    """Return the parts of a text, in order, each of at most `most` pieces if any part of it can be.

    The cut is the one nearest the middle: at the end of a sentence, else at a space, else
    anywhere. Parts that are still too long are cut in the same way. `count` returns the number of
    pieces of each of several texts.
    """
    ends = [[match.end() for match in pattern.finditer(text)] for pattern in _CUTS]
    short: list[tuple[int, int]] = []
    parts = [_stripped(text, 0, len(text))]
    while parts:
        # All parts at once: a call of a tokenizer costs more than the few words of a part.
        long = _too_long([text[start:end] for start, end in parts], count, most)
        short += [part for part, too_long in zip(parts, long, strict=True) if not too_long]
        cut = [part for part, too_long in zip(parts, long, strict=True) if too_long]
        parts = [
            _stripped(text, *half)
            for start, end in cut
            for middle in [_cut(ends, start, end)]
            for half in ((start, middle), (middle, end))
        ]
    return [text[start:end] for start, end in sorted(short)]


def words_before(text: str, parts: Sequence[str], read: Callable[[str], str]) -> list[int]:
    """Return how many words of a text are before the one that each of its parts begins with, or
    goes on with. `read` returns a text as a codec reads it, which may divide words.
    """
    counts, here, words = [], 0, 0
    for part in parts:
        begin = text.index(part, here)
        meet = bool(part) and 0 < begin == here
        goes_on = meet and len(read(text[here - 1 : here + 1]).split()) == 1
        counts.append(words - goes_on)
        words += len(read(part).split()) - goes_on
        here = begin + len(part)
    return counts


def _too_long(texts: list[str], count: Callable, most: int) -> list[bool]:
    """Return for each text whether it has more than `most` pieces and can be cut.

    For a very long one, only the beginning is encoded if that has twice as many: what follows
    changes only the pieces at its end. So the time does not grow with the number of cuts.
    """
    heads = count([text[: _HEAD * most] for text in texts])
    unsure = [
        place
        for place, (text, pieces) in enumerate(zip(texts, heads, strict=True))
        if len(text) > _HEAD * most and pieces <= 2 * most
    ]
    pieces = list(heads)
    for place, whole in zip(unsure, count([texts[i] for i in unsure]), strict=True):
        pieces[place] = whole
    return [n > most and len(text) > 1 for text, n in zip(texts, pieces, strict=True)]


def _cut(ends: list[list[int]], start: int, end: int) -> int:
    """Return where a part is cut: at one of the best kind of ends in it, else in its middle."""
    middle = start + (end - start) // 2
    for kind in ends:
        place = bisect.bisect_left(kind, middle)
        near = [n for n in kind[max(place - 1, 0) : place + 1] if start < n < end]
        if near:
            return min(near, key=lambda n: abs(n - middle))
    return middle


def _stripped(text: str, start: int, end: int) -> tuple[int, int]:
    """Return the part of a text without the spaces around it."""
    part = text[start:end]
    return end - len(part.lstrip()), start + len(part.rstrip())


def alike(parts: Sequence[Sequence]) -> list[list]:
    """Group the first items of all parts, their second items, and so on.

    A part with fewer repeats its last one.
    """
    count = max(map(len, parts))
    return [[part[min(rank, len(part) - 1)] for part in parts] for rank in range(count)]
