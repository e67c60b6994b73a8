"""Questions, their contexts, and the positions of the answers in them.

A line of the source side is a question, a TAB and a context. A line of the target side is the
number of characters of the context before an answer, a TAB and the answer; further correct answers
follow after TABs in the same form.
"""

import re
from collections.abc import Callable, Sequence
from typing import NamedTuple

from transformer_jax.base.errors import UserError

_UNIT = re.compile(r"\w+|[^\w\s]")


class Asked(NamedTuple):
    """A question, and the words and signs of its context."""

    question: str
    context: str
    units: list[tuple[int, int]]  # character span of each, end exclusive

    @classmethod
    def read(cls, line: str) -> "Asked":
        """Read a line of the source side."""
        question, _, context = line.partition("\t")
        return cls(question, context, [unit.span() for unit in _UNIT.finditer(context)])

    def parts(self) -> list[str]:
        """Return the question and the units as they are encoded, one by one."""
        behind = [self.context[begin - 1 : begin].isspace() for begin, _ in self.units]
        units = (self.context[begin:end] for begin, end in self.units)
        return [self.question, *(" " * space + x for space, x in zip(behind, units, strict=True))]

    def place(self, begin: int, end: int) -> tuple[int, int]:
        """Return the first and the last unit of a span of characters."""
        inside = [i for i, (a, b) in enumerate(self.units) if a < end and b > begin]
        return inside[0], inside[-1]


def answers_of(line: str) -> list[str]:
    """Return the correct answers of a line of the target side."""
    return line.split("\t")[1::2]


def located(src: Sequence[str], tgt: Sequence[str], place: Callable[[int], str]) -> list[str]:
    """Return lines of the target side, each preceded by the number of units of the context and the
    first and last unit of the first answer; `place` gives the location of a pair.

    Raises:
      UserError: if a line is malformed, or an answer is not where it should be.
    """
    rows = []
    for number, (source, target) in enumerate(zip(src, tgt, strict=True), 1):
        asked, fields = Asked.read(source), target.split("\t")
        if not asked.question.strip() or not asked.units:
            raise UserError(f"{place(number)}: must be a question, a TAB and a context")
        begins, answers = fields[::2], fields[1::2]
        if len(begins) != len(answers) or not all(x.isdecimal() for x in begins):
            raise UserError(
                f"{place(number)}: its answer {target!r} must be the number of characters before "
                "it, a TAB and the answer"
            )
        for begin, answer in zip(map(int, begins), answers, strict=True):
            there = asked.context[begin : begin + len(answer)]
            if there != answer or not _UNIT.search(answer):
                raise UserError(
                    f"{place(number)}: the answer {answer!r} is not in the context at character "
                    f"{begin}, which reads {there!r}"
                )
        first, last = asked.place(int(begins[0]), int(begins[0]) + len(answers[0]))
        rows.append(f"{len(asked.units)} {first} {last}\t{target}")
    return rows
