"""Files of annotated texts: a label per word, a number, or a class of a pair."""

import math
from collections.abc import Callable, Sequence

from transformer_jax.base.errors import UserError
from transformer_jax.config import DataConfig
from transformer_jax.data.scripts import words_in


def words_of(line: str) -> list[str]:
    """Return the words of a line as they are encoded one by one, all but the first with the
    preceding space.
    """
    return [f" {word}" if place else word for place, word in enumerate(words_in(line))]


def check_words(src: Sequence[str], tgt: Sequence[str], place: Callable[[int], str]) -> None:
    """Check that there are as many labels as words; `place` gives the location of a pair.

    Raises:
      UserError: if not.
    """
    for number, pair in enumerate(zip(src, tgt, strict=True), 1):
        words, labels = (len(words_in(line)) for line in pair)
        if words != labels:
            raise UserError(
                f"{place(number)}: {words} words and {labels} labels; give each word one label, "
                "with spaces between them"
            )


def two_texts(line: str) -> list[str]:
    """Return the two TAB-separated texts of a line."""
    first, _, second = line.partition("\t")
    return [first, second]


def check_pairs(src: Sequence[str], place: Callable[[int], str]) -> None:
    """Check that each line is two TAB-separated texts; `place` gives the location of a line.

    Raises:
      UserError: if not.
    """
    for line_number, line in enumerate(src, 1):
        texts = line.split("\t")
        if len(texts) != 2 or not all(map(str.strip, texts)):
            raise UserError(f"{place(line_number)}: must be two texts separated by a TAB")


def number(line: str) -> float | None:
    """Return a line as a number, or None if it is not a finite number."""
    try:
        parsed = float(line)
    except ValueError:
        return None
    return parsed if math.isfinite(parsed) else None


def check_numbers(lines: Sequence[str], place: Callable[[int], str]) -> None:
    """Check that each line is a number; `place` gives the location of a line.

    Raises:
      UserError: if not.
    """
    for line_number, line in enumerate(lines, 1):
        if number(line) is None:
            raise UserError(f"{place(line_number)}: {line!r} is not a number, such as 3.5")


def text_of(config: DataConfig, label: str, place: str) -> str:
    """Return the text that `label_texts` gives to a label; the label itself if it is empty.

    Raises:
      UserError: if it has none for this one; `place` says where it is.
    """
    texts = config.named("label_texts")
    if not texts:
        return label
    if label not in texts:
        raise UserError(
            f"{place}: config.data.label_texts has nothing for the label {label!r}; add "
            f"{label}=TEXT"
        )
    return texts[label]
