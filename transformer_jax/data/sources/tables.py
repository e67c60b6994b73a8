"""Texts in the columns of files: many files, of any format that has a reader, are one sequence.

A format is told by the ending of a file's name. Texts of large files are copied, once, into the
cache, where each can be read on demand; every value is checked on the way.
"""

import glob
import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import NamedTuple

from transformer_jax.base.disk import cache_dir, locked, writing
from transformer_jax.base.errors import UserError
from transformer_jax.data.sources import arrow_files, lines, rows
from transformer_jax.data.sources.copies import Copy
from transformer_jax.data.sources.fasta import fasta
from transformer_jax.data.sources.lines import Stamp, changed
from transformer_jax.data.sources.rows import Block, Column, Reader, kind_of
from transformer_jax.data.texts import joined

_COMPRESSED = (".gz", ".zst")
_FORMAT = 1  # part of the names in the cache: increment when what is written there changes


class Format(NamedTuple):
    """How files of a format are read, and whether their rows are lines of text."""

    read: Reader
    lines: bool = True


_JSON, _TEXT = Format(rows.json_lines), Format(rows.plain_lines)
_ARROW = Format(arrow_files.arrow, lines=False)
_RECORDS = Format(rows.records, lines=False)
# By the ending of a name, without .gz and .zst; any other is plain text.
FORMATS = {
    ".jsonl": _JSON, ".ndjson": _JSON, ".json": _JSON,
    ".csv": Format(partial(rows.separated, separator=",")),
    ".tsv": Format(partial(rows.separated, separator="\t")),
    ".parquet": Format(arrow_files.parquet, lines=False),
    ".arrow": _ARROW, ".feather": _ARROW,
    ".array_record": _RECORDS, ".arrayrecord": _RECORDS,
    **dict.fromkeys((".fasta", ".fa", ".fas", ".faa", ".fna", ".ffn"), Format(fasta)),
}  # fmt: skip


def files_of(directory: Path, part: str) -> list[Path] | None:
    """Return the files of a part, or None if it is no name of files but the beginning of some.

    It may be a file; a folder where Hugging Face `datasets` saved a data set; with "/" at the end,
    all files in a folder and below; or a pattern, as in "web/**/*.jsonl.gz". They come in the order
    of their names, without hidden ones.

    Raises:
      UserError: if a saved data set has several splits, or cannot be read.
    """
    place = directory / part
    if place.is_dir():
        saved = arrow_files.saved(place)
        if saved is not None or not part.endswith("/"):
            return saved
        part = f"{glob.escape(part)}**"
    elif place.is_file():
        return [place]
    elif has_columns(part) and (packed := _packed(place)):
        return packed
    elif not glob.has_magic(part):
        return [] if has_columns(part) else None
    names = sorted(set(glob.iglob(part, root_dir=directory, recursive=True)))
    return [path for name in names if (path := directory / name).is_file()]


def _packed(path: Path) -> list[Path]:
    """Return the compressed form of a file that is only there in that form."""
    packed = (path.with_name(path.name + ending) for ending in _COMPRESSED)
    return [path for path in packed if path.is_file()][:1]


def has_columns(name: str) -> bool:
    """Return whether files of this name have columns."""
    return _ending(Path(name)) in FORMATS


class Span(NamedTuple):
    """Where consecutive texts are: the numbers of their lines or rows, and what to call one."""

    numbers: Sequence[int]
    named: Callable[[int], str]


@dataclass(frozen=True)
class Table:
    """The wanted columns of some files.

    whole: whether a file of plain text is one text, not one for each line.
    breaks: whether texts keep their line breaks; otherwise each becomes a space, as lines of the
      two sides belong together.
    numbers: whether the target side may be a number or a truth value, such as a class.
    objects: whether each row becomes one text, of JSON: that of its column, or of an object with
      "prompt" and "completion", if there are two.
    """

    files: Sequence[Path]
    columns: Sequence[Column]  # those of a side are joined by TABs
    whole: bool = False
    breaks: bool = False
    numbers: bool = False
    objects: bool = False

    def texts(self) -> list[Sequence[str]]:
        """Return the texts of each column; those of large files stay on disk.

        Raises:
          UserError: if a file is missing, unreadable or lacks a column, or a row has no text
            there; names the line or row.
          DiskError: if the cache cannot be written.
        """
        held = self._held() if sum(map(_weight, self.files)) <= lines.HELD else None
        if held is not None:
            return [*held]
        parts = [self._kept(group) for group in self._groups()]
        return [joined(side) for side in zip(*parts, strict=True)]

    def _held(self) -> list[list[str]] | None:
        """Return the texts in memory, or None if they turn out to be too large."""
        columns: list[list[str]] = [[] for _ in self._sides]
        size = 0
        for block in self._read(self.files):
            size += sum(len(text) for texts in block for text in texts)
            if size > lines.HELD:
                return None
            for held, texts in zip(columns, block, strict=True):
                held += texts
        return columns

    @property
    def _sides(self) -> list[str]:
        """The sides of the texts that come of a row."""
        sides = dict.fromkeys(column.side for column in self.columns)
        return ["target"] if self.objects else [*sides]

    def spans(self) -> Iterator[Span]:
        """Yield where the texts are, some at a time."""
        for path in self.files:
            for block in self._format(path).read(path, self.columns):
                yield Span(block.numbers, partial(self._named, path))

    def _format(self, path: Path) -> Format:
        form = FORMATS.get(_ending(path), _TEXT)
        if not self.whole:
            return form
        if form is not _TEXT:
            raise UserError(
                f"config.objective.document='file': {path} has a text in each row; choose 'line'"
            )
        return Format(rows.plain_text)

    def _named(self, path: Path, number: int) -> str:
        if self.whole:
            return str(path)
        return f"{path}:{number}" if self._format(path).lines else f"{path}: row {number}"

    def _groups(self) -> Iterator[list[Path]]:
        """Yield the files in groups that are copied together, so that there are neither many small
        copies nor, if a run is killed, much to do again.
        """
        group: list[Path] = []
        size = 0
        for path in self.files:
            group.append(path)
            size += _weight(path)
            if size > lines.HELD:
                yield group
                group, size = [], 0
        if group or not self.files:
            yield group

    def _read(self, files: Sequence[Path]) -> Iterator[list[list[str]]]:
        """Yield the texts of each column, a block at a time."""
        for path in files:
            for block in self._format(path).read(path, self.columns):
                if self.objects:
                    yield [self._objects(path, block)]
                    continue
                sides = zip(self.columns, block.columns, strict=True)
                yield self._by_side([self._checked(path, block, *side) for side in sides])

    def _by_side(self, columns: list[list[str]]) -> list[list[str]]:
        """Return the texts of each side, from those of each column."""
        together = []
        for side in self._sides:
            pairs = zip(self.columns, columns, strict=True)
            own = [texts for column, texts in pairs if column.side == side]
            joint = list(map("\t".join, zip(*own, strict=True))) if len(own) > 1 else own[0]
            together.append(joint)
        return together

    def _objects(self, path: Path, block: Block) -> list[str]:
        """Return the values of a row as JSON; text is taken to be JSON already."""
        values = block.columns[0]
        if len(block.columns) > 1:
            pairs = zip(*block.columns, strict=True)
            values = [{"prompt": prompt, "completion": said} for prompt, said in pairs]
        texts = [x if isinstance(x, str) else json.dumps(x, ensure_ascii=False, default=str)
                 for x in values]  # fmt: skip
        return self._encodable(path, block, self.columns[0], texts)

    def _checked(self, path: Path, block: Block, column: Column, values: list) -> list[str]:
        """Return the values of a column as texts."""
        for place, value in enumerate(values):
            if isinstance(value, str):
                continue
            if self.numbers and column.side == "target" and isinstance(value, bool | int | float):
                values[place] = str(value).lower() if isinstance(value, bool) else str(value)
                continue
            raise UserError(
                f"{self._named(path, block.numbers[place])}: {column.name!r}, the {column.side} "
                f"side, is {kind_of(value)}, not text; correct the row or remove it, or choose "
                f"another column with {column.remedy}"
            )
        together = "".join(values)
        if not self.breaks and ("\n" in together or "\r" in together):
            values = [rows.one_line(value) for value in values]
        return self._encodable(path, block, column, values)

    def _encodable(self, path: Path, block: Block, column: Column, values: list) -> list[str]:
        """Return texts that have been checked to be Unicode."""
        try:
            "".join(values).encode()
        except UnicodeEncodeError:
            place = next(i for i, value in enumerate(values) if not _encodable(value))
            raise UserError(
                f"{self._named(path, block.numbers[place])}: {column.name!r}, the {column.side} "
                "side, has half of a surrogate pair, which is no character; correct the row, or "
                "remove it"
            ) from None
        return values

    def _kept(self, files: Sequence[Path]) -> list[Sequence[str]]:
        """Return the texts of a group of files, from the cache if they are there."""
        stamps = [_stamp(path) for path in files]
        described = [
            (str(path.resolve()), *stamp) for path, stamp in zip(files, stamps, strict=True)
        ]
        key = repr((_FORMAT, described, self.columns, self.whole, self.breaks, self.numbers,
                    *(("objects",) if self.objects else ())))  # fmt: skip
        name = hashlib.blake2b(key.encode(), digest_size=16).hexdigest()
        folder = cache_dir() / "rows"
        copies = [Copy(folder / f"{name}.{side}.txt") for side in self._sides]
        if not all(copy.intact() for copy in copies):
            with writing(f"the texts of {files[0]}", folder):
                folder.mkdir(parents=True, exist_ok=True)
                with locked(folder / name):  # another run may be at it
                    if not all(copy.intact() for copy in copies):
                        self._copy(files, copies)
            for path, stamp in zip(files, stamps, strict=True):
                if _stamp(path) != stamp:
                    raise changed(path)
        return [copy.texts() for copy in copies]

    def _copy(self, files: Sequence[Path], copies: Sequence[Copy]) -> None:
        with ExitStack() as stack:
            growing = [stack.enter_context(copy.written()) for copy in copies]
            for texts in self._read(files):
                for copy, some in zip(growing, texts, strict=True):
                    copy.append(some)


def _ending(path: Path) -> str:
    """Return the ending that tells a format, in small letters."""
    packed = path.suffix in _COMPRESSED
    return Path(path.stem if packed else path.name).suffix.lower()


def _weight(path: Path) -> int:
    """Return about how many bytes the texts of a file take: those of a compressed one, four times
    its own.
    """
    packed = path.suffix in _COMPRESSED or not FORMATS.get(_ending(path), _TEXT).lines
    return _stamp(path).size * (4 if packed else 1)


def _stamp(path: Path) -> Stamp:
    try:
        return Stamp.of(path)
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error})") from None


def _encodable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
