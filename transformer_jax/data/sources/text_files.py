"""Parallel text: one file per side and part, in one folder."""

from collections.abc import Sequence
from difflib import get_close_matches
from pathlib import Path

from transformer_jax.base.disk import user_path
from transformer_jax.base.errors import UserError
from transformer_jax.config import DataConfig
from transformer_jax.data.sources.files import names_in, read_parallel, read_text
from transformer_jax.data.sources.lines import lines_of
from transformer_jax.data.texts import joined

_LISTED = 20  # file names in a message


def load(config: DataConfig, split: str) -> tuple[Sequence[str], Sequence[str]]:
    """Return the lines of both sides of a split.

    Raises:
      UserError: if a file is missing or unreadable, or the two differ in length.
    """
    pairs = [
        read_parallel(
            _find(config, split, f"{part}.{config.source_language}"),
            _find(config, split, f"{part}.{config.target_language}"),
            lines_of,
        )
        for part in getattr(config, split)
    ]
    return joined([src for src, _ in pairs]), joined([tgt for _, tgt in pairs])


def documents(config: DataConfig, split: str) -> tuple[list[str], list[str]]:
    """Return each file of the target side as one text, and no sources.

    Raises:
      UserError: if a file is missing or unreadable.
    """
    names = [f"{part}.{config.target_language}" for part in getattr(config, split)]
    return [], [read_text(_find(config, split, name)) for name in names]


def place(config: DataConfig, split: str, number: int, source: bool) -> str:
    """Return the file and line of one side of a pair."""
    language = config.source_language if source else config.target_language
    for part in getattr(config, split) if config.source == "text" else ():
        path = _find(config, split, f"{part}.{language}")
        count = len(lines_of(path))
        if number <= count:
            return f"{path}:{number}"
        number -= count
    return f"config.data.{split}={getattr(config, split)}: pair {number}"


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
