"""FASTA: sequences of proteins, DNA or RNA, each after a line with its name.

>sp|P01308|INS_HUMAN Insulin
MALWMRLLPLLALLALWGPDPAAAFVNQHLCGSHLVEALYLVCGERGFFYTPKTRREAED
LQVGQVELGGGPGAGSLQPLALEGSLQKRGIVEQCCTSICSLYQLENYCN
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from transformer_jax.base.errors import UserError
from transformer_jax.data.sources.rows import BYTES, ROWS, Block, Column, file_lines, listed

COLUMNS = ("sequence", "id", "description")


class Record(NamedTuple):
    """A sequence, and the line after `>`; `number` is that of this line."""

    number: int
    description: str
    sequence: str

    @property
    def id(self) -> str:
        """The first word of the description."""
        return self.description.split(maxsplit=1)[0] if self.description else ""


def fasta(path: Path, columns: Sequence[Column]) -> Iterator[Block]:
    """Yield the sequences of a file, a row each with the columns "sequence", "id" and
    "description", which is the whole line after `>`. Lines of a sequence are joined, without spaces
    and without the `*` that may end one; its case is kept, blank lines and those after `;` skipped.
    """
    for column in columns:
        if column.name not in COLUMNS:
            raise UserError(
                f"{path}: has no column {column.name!r}, the {column.side} side; a FASTA file has "
                f"{listed(COLUMNS)}; choose one of them with {column.remedy}"
            )
    numbers: list[int] = []
    values: list[list[str]] = [[] for _ in columns]
    size = 0
    for record in records(path):
        numbers.append(record.number)
        for texts, column in zip(values, columns, strict=True):
            texts.append(getattr(record, column.name))
            size += len(texts[-1])
        if len(numbers) == ROWS or size > BYTES:
            yield Block(numbers, values)
            numbers, values, size = [], [[] for _ in columns], 0
    yield Block(numbers, values)


def records(path: Path) -> Iterator[Record]:
    """Yield the sequences of a file, plain, .gz or .zst.

    Raises:
      UserError: if the file cannot be read or is not FASTA; names the line.
    """
    number, name, parts = 0, "", list[str]()
    for first, lines in file_lines(path):
        for here, line in enumerate(lines, first):
            if line.startswith(">"):
                if number:
                    yield _whole(path, number, name, parts)
                number, name, parts = here, line[1:].strip(), []
            elif line.strip() and not line.startswith(";"):
                if not number:
                    raise UserError(
                        f"{path}:{here}: is before the first line that begins with '>', so the "
                        "sequence has no name; write '>NAME' on a line of its own above it"
                    )
                parts.append("".join(line.split()))
    if number:
        yield _whole(path, number, name, parts)


def _whole(path: Path, number: int, name: str, parts: Sequence[str]) -> Record:
    sequence = "".join(parts).removesuffix("*")
    if not sequence:
        raise UserError(
            f"{path}:{number}: no sequence follows '>{name}'; write it on the next line, or remove "
            "this one"
        )
    return Record(number, name, sequence)
