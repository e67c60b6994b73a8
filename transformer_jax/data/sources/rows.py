"""Rows of text files, read some at a time: plain text, JSON lines, and values between separators.

A reader takes a file and the columns that are wanted, and yields blocks of rows. What the values
must be is for `tables.py` to check, whatever the format.
"""

import csv
import gzip
import importlib
import json
import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from transformer_jax.base.errors import UserError
from transformer_jax.data.sources.files import check_unpacked, not_utf8

ROWS = 10_000  # most rows of a block
BYTES = 2**22  # size at which a block ends
_PACKED = 2**16  # bytes unpacked at a time
_FIELD = 2**26  # most characters of a field of comma-separated values
_WINDOW = 2**31  # bytes that zstd may refer back to, as with `zstd --long=31`
_MARK = b"\xef\xbb\xbf"
_NAMED = 20  # columns listed in a message


WHOLE = "."  # the name of a whole row, as an object


class Column(NamedTuple):
    """A column that is wanted: its side, "source" or "target", and its name. In a name, dots lead
    to a value inside others, unless a column is called just that; "." is the whole row.
    """

    side: str
    name: str

    @property
    def remedy(self) -> str:
        """How to name another column."""
        return f"--config.data.columns={self.side}=COLUMN"


class Block(NamedTuple):
    """Some rows of a file: the numbers of their lines or rows, from 1, and the values that each
    wanted column has there.
    """

    numbers: Sequence[int]
    columns: Sequence[list[Any]]


Reader = Callable[[Path, Sequence[Column]], Iterator[Block]]


def plain_lines(path: Path, columns: Sequence[Column]) -> Iterator[Block]:
    """Yield the lines of a text file, as by `read_lines`: a single column without a name."""
    _check_single(path, columns)
    for first, lines in file_lines(path):
        yield Block(range(first, first + len(lines)), [lines])


def plain_text(path: Path, columns: Sequence[Column]) -> Iterator[Block]:
    """Yield a text file as one row, as by `read_text`."""
    _check_single(path, columns)
    raw = b"".join(_content(path))
    check_unpacked(raw, path)
    yield Block([1], [[_decoded(path, raw.removeprefix(_MARK), 1)]])


def _check_single(path: Path, columns: Sequence[Column]) -> None:
    if len(columns) > 1:
        raise UserError(
            f"{path}: is plain text, which has no columns for a source and a target side; name a "
            "file with columns (.jsonl, .csv, .tsv, .parquet, .arrow), or name a part by the "
            "beginning that its two files share, as in train for train.en and train.de"
        )


def json_lines(path: Path, columns: Sequence[Column]) -> Iterator[Block]:
    """Yield the objects of a file of JSON lines; blank lines are skipped."""
    for first, lines in file_lines(path):
        numbers: list[int] = []
        values: list[list[Any]] = [[] for _ in columns]
        for number, line in enumerate(lines, first):
            if not line or line.isspace():
                continue
            place = f"{path}:{number}"
            row = _object(place, line, path.name, whole=number == 1)
            numbers.append(number)
            for texts, value in zip(values, _wanted(place, row, columns), strict=True):
                texts.append(value)
        yield Block(numbers, values)


def records(path: Path, columns: Sequence[Column]) -> Iterator[Block]:
    """Yield the records of an ArrayRecord file, each an object as in JSON lines; or each a text, if
    a single column is wanted and the first record is no object.
    """
    module = extra("array_record.python.array_record_module", path)
    reader = module.ArrayRecordReader(str(path))
    count = reader.num_records()
    if not reader.ok():
        raise UserError(f"{path}: cannot be read as ArrayRecord; get it again")
    plain = False
    for start in range(0, count, ROWS):
        raw = reader.read(start, min(start + ROWS, count))
        numbers = range(start + 1, start + 1 + len(raw))
        places = [f"{path}: row {number}" for number in numbers]
        texts = [_text_of(*each) for each in zip(places, raw, strict=True)]
        if start == 0:
            plain = len(columns) == 1 and not texts[0].lstrip().startswith("{")
        if plain:
            yield Block(numbers, [texts])
            continue
        rows = [
            _wanted(place, _object(place, text), columns)
            for place, text in zip(places, texts, strict=True)
        ]
        yield Block(numbers, [list(values) for values in zip(*rows, strict=True)])


def _text_of(place: str, raw: bytes) -> str:
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        raise UserError(
            f"{place}: not UTF-8 (byte 0x{raw[error.start]:02x} at {error.start + 1}); write texts "
            "as UTF-8, or rows as JSON"
        ) from None


def _wanted(place: str, row: dict[str, Any], columns: Sequence[Column]) -> list[Any]:
    """Return the value of each column in a row."""
    values = []
    for column in columns:
        try:
            values.append(inside(row, column.name))
        except KeyError:
            raise UserError(
                f"{place}: has no key {column.name!r}, the {column.side} side; it has "
                f"{listed(_keys(row))}; give each row this key, or choose another with "
                f"{column.remedy}"
            ) from None
    return values


def _object(place: str, line: str, name: str = "", whole: bool = False) -> dict[str, Any]:
    """Return the object in a line of the file `name`, or in a record; `whole`: it may be the first
    line of JSON that is not one object a line.
    """
    try:
        row = json.loads(line)
    except (ValueError, RecursionError) as error:
        whole &= line.strip() in ("[", "{")
        remedy = "write each row on one line" if whole else "correct the line, or remove it"
        where = f" (column {error.colno})" if isinstance(error, json.JSONDecodeError) else ""
        reason = error.msg if isinstance(error, json.JSONDecodeError) else error
        raise UserError(
            f"{place}: not JSON: {reason}{where}; {remedy}"
            + (f", with `jq -c '.[]' {name}` for example" if whole else "")
        ) from None
    if not isinstance(row, dict):
        remedy = (
            f", with `jq -c '.[]' {name}` for example" if name and isinstance(row, list) else ""
        )
        raise UserError(
            f"{place}: is {kind_of(row)}, not an object such as "
            f'{{"text": "..."}}; write each row as one, on a line of its own{remedy}'
        )
    return row


def inside(row: Mapping[str, Any], name: str) -> Any:
    """Return the value of a key, or of one inside others whose names dots separate.

    Raises:
      KeyError: if there is none.
    """
    if name in row:
        return row[name]
    if name == WHOLE:
        return row
    head, _, rest = name.partition(".")
    if rest and isinstance(row.get(head), dict):
        return inside(row[head], rest)
    raise KeyError(name)


def _keys(row: Mapping[str, Any], before: str = "") -> Iterator[str]:
    """Yield the names of all values in a row."""
    for key, value in row.items():
        if isinstance(value, dict) and value:
            yield from _keys(value, f"{before}{key}.")
        else:
            yield before + key


def separated(path: Path, columns: Sequence[Column], separator: str) -> Iterator[Block]:
    """Yield the rows of a file of comma- or TAB-separated values; blank lines are skipped.

    The first row names the columns; if all wanted columns are numbers, counted from 1, there is
    no such row. Commas separate values as in RFC 4180, with quotes around some; between TABs, as
    in text/tab-separated-values of IANA, quotes are like any other sign.
    """
    rows = _quoted(path) if separator == "," else _unquoted(path, separator)
    places: list[int] | None = None
    width, header = 0, "the first row"
    names: list[str] = []
    if all(column.name.isdecimal() for column in columns):
        places = [int(column.name) - 1 for column in columns]
    numbers: list[int] = []
    values: list[list[Any]] = [[] for _ in columns]
    size = 0
    for number, row in rows:
        if not width:
            width = len(row)
            if places is None:
                names, header = row, "the header"
                places = [
                    -1 if column.name == WHOLE else _place(path, number, row, column)
                    for column in columns
                ]
                continue
            for place, column in zip(places, columns, strict=True):
                if not 0 <= place < width:
                    raise UserError(
                        f"{path}:{number}: has columns 1 to {width}, not {column.name}, the "
                        f"{column.side} side; choose one of them with {column.remedy}"
                    )
        if len(row) != width:
            raise UserError(
                f"{path}:{number}: has {len(row)} columns, but {header} {width}; correct the row, "
                "or remove it"
            )
        numbers.append(number)
        for texts, place in zip(values, places or (), strict=True):
            whole = place < 0
            texts.append(dict(zip(names, row, strict=True)) if whole else row[place])
            size += sum(map(len, row)) if whole else len(row[place])
        if len(numbers) == ROWS or size > BYTES:
            yield Block(numbers, values)
            numbers, values, size = [], [[] for _ in columns], 0
    yield Block(numbers, values)


def _place(path: Path, number: int, header: list[str], column: Column) -> int:
    if header.count(column.name) != 1:
        many = "no" if column.name not in header else "more than one"
        raise UserError(
            f"{path}:{number}: the header has {many} column {column.name!r}, the {column.side} "
            f"side; it has {listed(header)}; choose one with {column.remedy}, or without a header "
            "name the columns of all sides by numbers, as in source=1,target=2"
        )
    return header.index(column.name)


def _quoted(path: Path) -> Iterator[tuple[int, list[str]]]:
    """Yield the rows of comma-separated values, each with the number of its first line."""
    csv.field_size_limit(max(csv.field_size_limit(), _FIELD))
    lines = (f"{line}\n" for _, block in file_lines(path) for line in block)
    rows = csv.reader(lines, strict=True)
    before = 0
    try:
        for row in rows:
            if row:
                yield before + 1, row
            before = rows.line_num
    except csv.Error as error:
        raise UserError(
            f"{path}:{before + 1}: not comma-separated values: {error}; write a value with a "
            'comma, a quote or a line break as "...", with each " inside doubled'
        ) from None


def _unquoted(path: Path, separator: str) -> Iterator[tuple[int, list[str]]]:
    for first, lines in file_lines(path):
        for number, line in enumerate(lines, first):
            if line:
                yield number, line.split(separator)


def file_lines(path: Path) -> Iterator[tuple[int, list[str]]]:
    """Yield the lines of a file, split as by `read_lines`, as many at a time as some bytes hold,
    with the number of the first.
    """
    held: list[bytes] = []
    number = 1
    for chunk in _content(path):
        end = chunk.rfind(b"\n") + 1
        held.append(chunk[:end] if end else chunk)
        if end:
            lines = _split(path, b"".join(held), number)
            yield number, lines
            number += len(lines)
            held = [chunk[end:]]
    if any(held):  # the last line has no newline
        yield number, _split(path, b"".join(held), number)


def _split(path: Path, raw: bytes, first: int) -> list[str]:
    if first == 1:
        check_unpacked(raw, path)
        raw = raw.removeprefix(_MARK)
    text = _decoded(path, raw.removesuffix(b"\n"), first)
    lines = text.split("\n")
    return [line.removesuffix("\r") for line in lines] if "\r" in text else lines


def _decoded(path: Path, raw: bytes, first: int) -> str:
    try:
        return raw.decode()
    except UnicodeDecodeError:
        raise not_utf8(path, raw.split(b"\n"), first) from None


def _content(path: Path) -> Iterator[bytes]:
    """Yield the bytes of a file, plain, .gz or .zst, some at a time."""
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            if path.suffix == ".zst":
                yield from _unpacked(file, path)
                return
            while chunk := file.read(BYTES // 4):
                yield chunk
    except (OSError, EOFError, zlib.error) as error:
        raise UserError(f"{path}: cannot be read ({error})") from None


def _unpacked(file: Any, path: Path) -> Iterator[bytes]:
    """Yield the content of the zstd frames of a file."""
    zstandard = extra("zstandard", path)
    frame = None
    try:
        while raw := file.read(_PACKED):
            while raw:
                frame = frame or zstandard.ZstdDecompressor(max_window_size=_WINDOW).decompressobj()
                yield frame.decompress(raw)
                raw = frame.unused_data if frame.eof else b""
                frame = None if frame.eof else frame
    except zstandard.ZstdError as error:
        raise EOFError(error) from None
    if frame is not None:  # zstandard itself does not mind
        raise EOFError("the compressed file is cut off")


def extra(module: str, path: object) -> Any:
    """Return a module of the extra `data`, which a file needs.

    Raises:
      UserError: if it is not installed.
    """
    try:
        return importlib.import_module(module)
    except ImportError:
        package = module.partition(".")[0]
        raise UserError(f"{path}: needs {package}: pip install {package}") from None


def one_line(text: str) -> str:
    """Return a text with spaces for its line breaks, but for one at the end."""
    return re.sub(r"[\r\n]+", " ", text.rstrip("\r\n"))


def kind_of(value: Any) -> str:
    """Return what a message calls a value that is not text."""
    if value is None:
        return "null"
    if isinstance(value, bool | int | float):
        return f"the {'word' if isinstance(value, bool) else 'number'} {json.dumps(value)}"
    kinds = ((str, "text"), (bytes, "bytes"), (Mapping, "an object"), (Sequence, "a list"))
    named = (name for kind, name in kinds if isinstance(value, kind))
    return next(named, f"of type {type(value).__name__}")


def listed(names: Iterable[str]) -> str:
    """Return names for a message, the first ones if there are many."""
    names = list(names)
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return (", ".join(map(repr, names[:_NAMED])) or "none") + more
