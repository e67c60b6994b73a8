"""HTML as text to translate: what stands between tags, each by itself."""

import html
import re
from collections.abc import Iterator

_MARKUP = re.compile(
    r"<!--.*?-->|<(?P<raw>script|style)\b.*?</(?P=raw)\s*>|<[^<>]*>", re.DOTALL | re.IGNORECASE
)
_SPACE = re.compile(r"(\s*)(.*?)(\s*)", re.DOTALL)


def lines_of(text: str) -> list[str]:
    """Return the lines to translate at even places, and between them what stays as it is: tags,
    comments, scripts, styles, and the space around texts. In a line, entities are characters, and
    runs of space one space.
    """
    lines = [""]  # a line, while their number is odd
    for core, around in _parts(text):
        if core:  # behind what is around it, or first of all
            lines[len(lines) - len(lines) % 2 :] = [html.unescape(" ".join(core.split()))]
        elif around and len(lines) % 2:
            lines.append(around)
        else:
            lines[-1] += around
    return lines if len(lines) % 2 else [*lines, ""]


def _parts(text: str) -> Iterator[tuple[str, str]]:
    """Yield (text, "") and ("", what is around it)."""
    begin = 0
    for tag in (*_MARKUP.finditer(text), None):
        space = _SPACE.fullmatch(text[begin : None if tag is None else tag.start()])
        assert space is not None
        yield "", space[1]
        yield space[2], ""
        yield "", space[3]
        if tag is not None:
            yield "", tag[0]
            begin = tag.end()


def written(text: str) -> str:
    """Return a translation as HTML."""
    return html.escape(text, quote=False)
