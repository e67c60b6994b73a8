"""Lines too long for the model: translated in parts."""

import re
from collections.abc import Callable, Sequence

# Where a text may be cut, best first: at the end of a sentence, else at a space.
_CUTS = (re.compile(r"(?<=[.!?;。！？؟।…])[\"'”’»)\]]*\s+|(?<=[。！？])"), re.compile(r"\s+"))


def split(text: str, fits: Callable[[str], bool]) -> list[str]:
    """Return the parts of a text, in order, each of which fits if any part of it can.

    The cut is the one nearest to the middle: at the end of a sentence, else at a space, else
    anywhere. Parts that are still too long are cut in the same way.
    """
    text = text.strip()
    if len(text) < 2 or fits(text):
        return [text]
    middle = len(text) // 2
    cut = middle
    for pattern in _CUTS:
        ends = [found.end() for found in pattern.finditer(text) if found.end() < len(text)]
        if ends:
            cut = min(ends, key=lambda end: abs(end - middle))
            break
    return split(text[:cut], fits) + split(text[cut:], fits)


def alike(parts: Sequence[Sequence]) -> list[list]:
    """Return the first of each part together, the second of each, and so on.

    A part with fewer gives its last one again.
    """
    count = max(map(len, parts))
    return [[part[min(rank, len(part) - 1)] for part in parts] for rank in range(count)]
