"""Some of the rows of a part: `train[::20]` and `train[!::20]`, such as validation and training."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

from transformer_jax.base.errors import UserError
from transformer_jax.data.texts import joined

T = TypeVar("T")
_PART = re.compile(r"(.+)\[(!?)(-?\d+|):(-?\d+|)(?::(\d+))?\]")
_WRONG = re.compile(r".+\[[^][]*:[^][]*\]?")  # no pattern of names has a colon there


@dataclass(frozen=True)
class Chosen:
    """A part without its brackets, and which of its rows are meant: all if `rows` is None.

    others: whether it is all rows but these.
    word: the part as it was written.
    """

    name: str
    rows: slice | None
    others: bool
    word: str

    @classmethod
    def read(cls, word: str, field: str) -> "Chosen":
        """Return what a part says; "PART[FIRST:LAST:STEP]" are rows from 0, or if negative from the
        end, as in Python.

        Raises:
          UserError: if the step is 0, or the brackets say something else; names the field.
        """
        match = _PART.fullmatch(word)
        if match is None:
            if _WRONG.fullmatch(word):
                raise UserError(
                    f"{field}={word!r}: rows are chosen by whole numbers, forwards, as in "
                    "train[:1000], train[-1000:] or train[::20], and all others by train[!::20]"
                )
            return cls(word, None, False, word)
        name, others, *bounds = match.groups()
        first, last, step = (int(bound) if bound else None for bound in bounds)
        if step == 0:
            raise UserError(f"{field}={word!r}: takes each 0th row; the step must be 1 or more")
        return cls(name, slice(first, last, step), bool(others), word)

    def numbers(self, total: int) -> Sequence[int]:
        """Return which of so many rows are meant, in order, from 0."""
        if self.rows is None:
            return range(total)
        rows = range(total)[self.rows]
        return [row for row in range(total) if row not in rows] if self.others else rows

    def of(self, texts: Sequence[T], field: str) -> Sequence[T]:
        """Return those of all rows of the part. Consecutive ones of a large file stay on disk.

        Raises:
          UserError: if there are none; names the field.
        """
        if self.rows is None:
            return texts
        rows = range(len(texts))[self.rows]
        if rows.step == 1:
            some = [texts[: rows.start], texts[max(rows.stop, rows.start) :]]
            kept = joined(some) if self.others else texts[rows.start : rows.stop]
        else:
            kept = [text for row, text in enumerate(texts) if (row in rows) != self.others]
        if not kept:
            raise UserError(
                f"{field}={self.word!r}: there are no such rows, as {self.name} has {len(texts)}; "
                "rows count from 0, and the last bound is excluded"
            )
        return kept
