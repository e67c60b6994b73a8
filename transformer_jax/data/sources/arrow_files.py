"""Rows of Parquet and Arrow files, and of data sets that Hugging Face `datasets` saved to disk.

Row groups and record batches are read one at a time, and of these only the wanted columns.
"""

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from transformer_jax.base.errors import UserError
from transformer_jax.data.sources.rows import BYTES, ROWS, WHOLE, Block, Column, extra, listed

_SAVED = "state.json"  # in the folder of a saved data set
_SPLITS = "dataset_dict.json"  # in that of several, one for each split


def parquet(path: Path, columns: Sequence[Column]) -> Iterator[Block]:
    """Yield the rows of a Parquet file."""
    module = extra("pyarrow.parquet", path)
    with _readable(path, "Parquet"), module.ParquetFile(path) as file:
        names = {column.name for column in columns}
        routes = _routes(path, file.schema_arrow, columns)
        size, number = 0, 1
        for group in range(file.num_row_groups):
            about = file.metadata.row_group(group)
            size = about.total_byte_size // max(about.num_rows, 1)
            chosen = None if WHOLE in names else sorted(names)
            for batch in file.iter_batches(_rows_of(size), [group], chosen):
                yield _block(path, batch, columns, routes, number)
                number += batch.num_rows


def arrow(path: Path, columns: Sequence[Column]) -> Iterator[Block]:
    """Yield the rows of an Arrow file, in the file or the stream format, such as Feather."""
    module = extra("pyarrow", path)
    with _readable(path, "Arrow"), module.memory_map(str(path)) as file:
        stream = file.read(6) != b"ARROW1"
        file.seek(0)
        reader = module.ipc.open_stream(file) if stream else module.ipc.open_file(file)
        routes = _routes(path, reader.schema, columns)
        number = 1
        for batch in reader if stream else map(reader.get_batch, range(reader.num_record_batches)):
            rows = _rows_of(batch.nbytes // max(batch.num_rows, 1))
            for start in range(0, batch.num_rows, rows):
                part = batch.slice(start, rows)
                yield _block(path, part, columns, routes, number)
                number += part.num_rows


def saved(folder: Path) -> list[Path] | None:
    """Return the files of a data set that was saved with `save_to_disk`, or None if a folder has
    no such set.

    Raises:
      UserError: if it has several, one for each split, or cannot be read.
    """
    if (folder / _SPLITS).is_file():
        splits = _described(folder / _SPLITS).get("splits", [])
        raise UserError(
            f"{folder}: has a data set for each of the splits {listed(splits)}; name one, as in "
            f"{folder.name}/{(splits or ['train'])[0]}"
        )
    if not (folder / _SAVED).is_file():
        return None
    state = _described(folder / _SAVED)
    if state.get("_indices_data_files") or state.get("_indices_files"):
        raise UserError(
            f"{folder}: is a selection of rows of its files; save it again, with "
            "`flatten_indices().save_to_disk`"
        )
    try:
        return [folder / file["filename"] for file in state["_data_files"]]
    except (LookupError, TypeError):
        raise UserError(
            f"{folder / _SAVED}: lists no files of a data set; save it again, with `save_to_disk`"
        ) from None


def _described(path: Path) -> dict[str, Any]:
    try:
        described = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise UserError(f"{path}: cannot be read as JSON ({error})") from None
    return described if isinstance(described, dict) else {}


@contextmanager
def _readable(path: Path, kind: str) -> Iterator[None]:
    """Turn the errors of a damaged file into one that names it."""
    error = extra("pyarrow", path).ArrowException
    try:
        yield
    except (OSError, error) as reason:
        said = " ".join(str(reason).split())
        raise UserError(f"{path}: cannot be read as {kind} ({said}); get it again") from None


def _rows_of(size: int) -> int:
    """Return how many rows of a size in bytes make a block."""
    return max(1, min(ROWS, BYTES // max(size, 1)))


def _routes(path: Path, schema: Any, columns: Sequence[Column]) -> list[list[str]]:
    """Return the names that lead to each column, from the outermost."""
    routes = []
    for column in columns:
        route = _route(schema, column.name)
        if route is None:
            raise UserError(
                f"{path}: has no column {column.name!r}, the {column.side} side; it has "
                f"{listed(_leaves(schema))}; choose one with {column.remedy}"
            )
        routes.append(route)
    return routes


def _fields(kind: Any) -> dict[str, Any]:
    """Return the fields of a schema, or of the type of a column with others inside, by name."""
    pa = extra("pyarrow", "")
    if isinstance(kind, pa.Schema):
        return {field.name: field for field in kind}
    inside = range(kind.num_fields) if pa.types.is_struct(kind) else ()
    return {kind.field(number).name: kind.field(number) for number in inside}


def _route(kind: Any, name: str) -> list[str] | None:
    fields = _fields(kind)
    if name in fields:
        return [name]
    if name == WHOLE:
        return []
    head, _, rest = name.partition(".")
    if not rest or head not in fields:
        return None
    inner = _route(fields[head].type, rest)
    return None if inner is None else [head, *inner]


def _leaves(kind: Any, before: str = "") -> Iterator[str]:
    for name, field in _fields(kind).items():
        if _fields(field.type):
            yield from _leaves(field.type, f"{before}{name}.")
        else:
            yield before + name


def _block(
    path: Path, batch: Any, columns: Sequence[Column], routes: Sequence[list[str]], first: int
) -> Block:
    compute = extra("pyarrow.compute", path)
    values = []
    for column, route in zip(columns, routes, strict=True):
        if not route:
            values.append(batch.to_pylist())
            continue
        head, *inner = route
        array = batch.column(head)
        if inner:
            array = compute.struct_field(array, inner)
        cells = _values(path, array, column, first)
        classes = _classes(batch.schema, column.name)
        values.append(cells if classes is None else _named(path, cells, classes, column, first))
    return Block(range(first, first + batch.num_rows), values)


def _values(path: Path, array: Any, column: Column, first: int) -> list[Any]:
    """Return the values of a column, which writers of files need not have checked."""
    try:
        return array.to_pylist()
    except UnicodeDecodeError as error:
        for number, value in enumerate(array, first):
            try:
                value.as_py()
            except UnicodeDecodeError:
                raise UserError(
                    f"{path}: row {number}: {column.name!r} is not UTF-8 ({error.reason}); correct "
                    "the row, or remove it"
                ) from None
        raise


def _classes(schema: Any, name: str) -> list[str] | None:
    """Return the names of the classes of a column, if `datasets` wrote them beside it."""
    known = (schema.metadata or {}).get(b"huggingface")
    try:
        feature = json.loads(known)["info"]["features"][name] if known else {}
        return list(feature["names"]) if feature.get("_type") == "ClassLabel" else None
    except (ValueError, LookupError, TypeError, AttributeError):
        return None


def _named(
    path: Path, values: list[Any], classes: list[str], column: Column, first: int
) -> list[Any]:
    """Return the names of classes given by number."""
    for number, value in enumerate(values, first):
        if value is not None and not (isinstance(value, int) and 0 <= value < len(classes)):
            raise UserError(
                f"{path}: row {number}: {column.name!r} is {value}, and its classes are 0 to "
                f"{len(classes) - 1}; remove the row, or give it one of them"
            )
    return [None if value is None else classes[value] for value in values]
