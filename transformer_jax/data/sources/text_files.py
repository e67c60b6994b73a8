"""Text: for each part one file per side, or files with columns for the sides."""

from collections.abc import Iterator, Sequence
from difflib import get_close_matches
from pathlib import Path

from transformer_jax.base.disk import user_path
from transformer_jax.base.errors import UserError
from transformer_jax.config import DataConfig
from transformer_jax.data.sources.chosen import Chosen
from transformer_jax.data.sources.files import names_in, read_parallel, read_text
from transformer_jax.data.sources.lines import lines_of
from transformer_jax.data.sources.rows import WHOLE, Column
from transformer_jax.data.sources.tables import Span, Table, files_of, has_columns
from transformer_jax.data.texts import joined

_LISTED = 20  # file names in a message


def load(
    config: DataConfig, split: str, one_sided: bool = False, labels: bool = False
) -> tuple[Sequence[str], Sequence[str]]:
    """Return the texts of both sides of a split. With `one_sided` both are the target side; with
    `labels` that may be numbers in files with columns.

    Raises:
      UserError: if a file is missing or unreadable, its two sides differ in length, or a row has
        no text.
      DiskError: if the cache cannot be written.
    """
    pairs = [_chosen(config, split, part, one_sided, labels) for part in getattr(config, split)]
    return joined([src for src, _ in pairs]), joined([tgt for _, tgt in pairs])


def documents(config: DataConfig, split: str) -> tuple[list[str], Sequence[str]]:
    """Return each file of the target side as one text, and no sources.

    Raises:
      UserError: if a file is missing or unreadable.
      DiskError: if the cache cannot be written.
    """
    texts: list[Sequence[str]] = []
    for part in getattr(config, split):
        if Chosen.read(part, f"config.data.{split}").rows is not None:
            raise UserError(
                f"config.data.{split}={part!r}: a document is a whole file, of which no rows can "
                "be chosen; name whole files, or choose config.objective.document='line'"
            )
        table = _table(config, split, part, one_sided=True, whole=True)
        if table is None:
            texts.append([read_text(_find(config, split, f"{part}.{config.target_language}"))])
        else:
            texts += table.texts()
    return [], joined(texts)


def conversations(config: DataConfig, split: str) -> tuple[list[str], Sequence[str]]:
    """Return each row of the files of a split as JSON, and no sources.

    Raises:
      UserError: if a file is missing or unreadable, or has no columns.
      DiskError: if the cache cannot be written.
    """
    directory, named = user_path(config.directory or "."), config.named("columns")
    columns = [Column("target", named.get("target", WHOLE))]
    if "source" in named:
        columns.insert(0, Column("source", named["source"]))
    texts: list[Sequence[str]] = []
    for word in getattr(config, split):
        chosen = Chosen.read(word, f"config.data.{split}")
        part = chosen.name
        files = _files(config, split, part)
        names = [str(file) for file in files] if files else [part]
        plain = [name for name in names if not has_columns(name)]
        if plain:
            raise UserError(
                f"config.data.{split}={part!r}: {plain[0]} has no columns, and conversations are "
                f"rows; name files such as conversations.jsonl in {directory.absolute()}"
            )
        assert files is not None
        rows = Table(files, columns, objects=True).texts()
        texts += [chosen.of(side, f"config.data.{split}") for side in rows]
    return [], joined(texts)


def place(
    config: DataConfig, split: str, number: int, source: bool, whole_rows: bool = False
) -> str:
    """Return the file and line of one side of a pair, or of a text that is a whole row."""
    for word in getattr(config, split) if config.source == "text" else ():
        chosen = Chosen.read(word, f"config.data.{split}")
        spans = list(_spans(config, split, chosen.name, source, whole_rows))
        rows = chosen.numbers(sum(len(numbers) for numbers, _ in spans))
        if number > len(rows):
            number -= len(rows)
            continue
        row = rows[number - 1]
        for numbers, named in spans:
            if row < len(numbers):
                return named(numbers[row])
            row -= len(numbers)
    return f"config.data.{split}={getattr(config, split)}: pair {number}"


def _spans(
    config: DataConfig, split: str, part: str, source: bool, whole_rows: bool
) -> Iterator[Span]:
    """Yield where the texts of one side of a part are."""
    files = _files(config, split, part)
    if files is not None:
        column = Column("target", WHOLE) if whole_rows else _columns(config, "target")[0]
        yield from Table(files, [column]).spans()  # rows are those of any column
        return
    language = config.source_language if source else config.target_language
    path = _find(config, split, f"{part}.{language}")
    yield Span(range(1, len(lines_of(path)) + 1), lambda number: f"{path}:{number}")


def _chosen(
    config: DataConfig, split: str, part: str, one_sided: bool, labels: bool
) -> tuple[Sequence[str], Sequence[str]]:
    """Return the texts of both sides of the rows of a part that are meant."""
    field = f"config.data.{split}"
    chosen = Chosen.read(part, field)
    src, tgt = _sides(config, split, chosen.name, one_sided, labels)
    return chosen.of(src, field), chosen.of(tgt, field)


def _sides(
    config: DataConfig, split: str, part: str, one_sided: bool, labels: bool
) -> tuple[Sequence[str], Sequence[str]]:
    """Return the texts of both sides of a part."""
    table = _table(config, split, part, one_sided, labels=labels)
    if table is not None:
        texts = table.texts()
        return texts[0], texts[-1]
    return read_parallel(
        _find(config, split, f"{part}.{config.source_language}"),
        _find(config, split, f"{part}.{config.target_language}"),
        lines_of,
    )


def _table(
    config: DataConfig, split: str, part: str, one_sided: bool = False, whole: bool = False,
    labels: bool = False,
) -> Table | None:  # fmt: skip
    """Return the columns of the files that a part names, or None if it is the beginning of names of
    files with one side each.
    """
    files = _files(config, split, part)
    if files is None:
        return None
    columns = _columns(config, "target")
    if not one_sided:
        columns = _columns(config, "source") + columns
    return Table(files, columns, whole, breaks=one_sided, numbers=labels)


def _columns(config: DataConfig, side: str) -> list[Column]:
    """Return the columns of a side, in the order in which they are named."""
    language = config.source_language if side == "source" else config.target_language
    names = [entry.partition("=")[2] for entry in config.columns if entry.startswith(f"{side}=")]
    return [Column(side, name) for name in names or [language]]


def _files(config: DataConfig, split: str, part: str) -> Sequence[Path] | None:
    """Return the files with columns that a part names, or None; see `_table`."""
    directory = user_path(config.directory or ".")
    sides = (config.source_language, config.target_language)
    names = (f"{part}.{side}{packed}" for side in sides for packed in ("", ".gz"))
    paired = any((directory / name).is_file() for name in names)
    files = None if paired else files_of(directory, part)
    if files is None:
        return None
    if not files:
        raise UserError(
            f"config.data.{split}={part!r}: there are no such files in {directory.absolute()}, "
            f"which has {_listed(names_in(directory)) or 'none'}; correct the name, or set "
            "--config.data.directory"
            + (f". Get them with: {config.how_to_get}" if config.how_to_get else "")
        )
    return files


def _find(config: DataConfig, split: str, name: str) -> Path:
    directory = user_path(config.directory or ".")
    for path in (directory / name, directory / f"{name}.gz"):
        if path.is_file():
            return path
    raise UserError(
        f"config.data.directory={config.directory!r}: found neither {name} nor {name}.gz in "
        f"{directory.absolute()}{_remedy(config, split, names_in(directory))}"
        + (f" Get it with: {config.how_to_get}" if config.how_to_get else "")
    )


def _remedy(config: DataConfig, split: str, names: list[str]) -> str:
    """Return the remedy for a split that is not among the files of these names."""
    source, target = f".{config.source_language}", f".{config.target_language}"
    parts = [
        name.removesuffix(source)
        for name in names
        if name.endswith(source) and name.removesuffix(source) + target in names
    ]
    paired = {part + ending for part in parts for ending in (source, target)}
    single = [name for name in names if name.endswith((source, target)) and name not in paired]
    written = [name for name in names for part in getattr(config, split)
               if name.startswith(f"{part}.") and has_columns(name)]  # fmt: skip
    if written:
        return (
            f", which has {_listed(names)}. Name a file with columns by its whole name, as in "
            f"--config.data.{split}={written[0]}."
        )
    if parts:
        others = {part for s in ("train", "validation", "test") for part in getattr(config, s)}
        free = [part for part in parts if part not in others]
        (near,) = get_close_matches(split, free, n=1, cutoff=0) or ["PART"]
        halves = f", and no other side of {_listed(single)}" if single else ""
        return (
            f", which has the parts {_listed(parts)}{halves}. Name those of this split, as in "
            f"--config.data.{split}={near}, or set --config.data.directory."
        )
    holds = f", which has {_listed(names)}" if names else ""
    return (
        f"{holds}. Set --config.data.directory to the location of the corpus, or "
        "--config.data.source_language and --config.data.target_language to the suffixes of its "
        "files."
    )


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - _LISTED} more" if len(names) > _LISTED else ""
    return ", ".join(names[:_LISTED]) + more
