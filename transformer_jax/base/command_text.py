"""Values of fields as text on a command line: several are separated by commas."""

from collections.abc import Sequence

_OPEN, _CLOSE, _QUOTES = "([{", ")]}", "'\""


def listed(text: str) -> list[str]:
    """Return the values of a list, as `split` finds them; quotes around a value are dropped."""
    return [unquoted(part) for part in split(text)]


def unwrapped(text: str) -> str:
    """Return the inside of "(...)" or "[...]", if one pair of brackets encloses all of the text."""
    text = text.strip()
    depth = 0
    for place, character in enumerate(text):
        depth += (character in _OPEN) - (character in _CLOSE)
        if depth == 0 and place < len(text) - 1:
            return text
    return text[1:-1].strip() if text[:1] + text[-1:] in ("()", "[]") else text


def as_text(values: Sequence[object]) -> str:
    """Return values as text that `listed` reads back."""
    return ",".join(map(_quoted, map(str, values)))


def split(text: str) -> list[str]:
    """Split text at its commas, but not inside quotes or brackets: "a{1,2}b" is one pattern, and
    '","' a comma. Where brackets do not close, as in the symbols "<(,:(", they mean nothing.
    """
    parts, depth, quote = [""], 0, ""
    for place, character in enumerate(text):
        if quote:
            quote = "" if character == quote else quote
        elif character in _QUOTES and not parts[-1].strip() and character in text[place + 1 :]:
            quote = character
        else:
            depth += (character in _OPEN) - (character in _CLOSE)
            if character == "," and depth <= 0:
                parts.append("")
                continue
        parts[-1] += character
    return parts if depth == 0 else text.split(",")


def unquoted(text: str) -> str:
    """Return a value without the quotes around it, if there are any."""
    text = text.strip()
    return text[1:-1] if len(text) > 1 and text[0] == text[-1] and text[0] in _QUOTES else text


def _quoted(text: str) -> str:
    if text and text == text.strip() and not set(text) & {*_OPEN, *_CLOSE, *_QUOTES, ","}:
        return text
    quote = "'" if '"' in text else '"'
    return f"{quote}{text}{quote}"
