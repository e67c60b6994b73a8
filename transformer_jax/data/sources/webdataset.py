"""WebDataset: samples in tar files, each a picture or a sound beside what is said of it.

Consecutive files whose paths agree up to the first dot of the name are a sample; what follows the
dot is the column: 0001.jpg and 0001.cls are the columns jpg and cls of 0001
(https://github.com/webdataset/webdataset).
"""

import json
import tarfile
import zlib
from collections.abc import Container, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from transformer_jax.base.disk import user_path
from transformer_jax.base.errors import UserError
from transformer_jax.config import DataConfig
from transformer_jax.data.sources.rows import Column, inside, kind_of, listed, one_line
from transformer_jax.data.sources.tables import files_of

_ENDINGS = (".tar", ".tar.gz", ".tgz")


class Sample(NamedTuple):
    """The files of a sample by their columns; `place` is for messages."""

    place: str
    files: dict[str, bytes]

    def content(self, column: Column, usual: Container[str] = ()) -> tuple[str, bytes]:
        """Return the name and the content of a column; if that has no name, of the only one that is
        usual.

        Raises:
          UserError: if there is none, or more than one.
        """
        wanted = [column.name] if column.name else usual
        members = [name for name in self.files if name in wanted]
        if len(members) != 1:
            many = "more than one" if members else f"no {column.name}".strip()
            raise UserError(
                f"{self.place}: has {many} file for the {column.side} side among "
                f"{listed(self.files)}; add or choose one, with {column.remedy}"
            )
        return f"{self.place}.{members[0]}", self.files[members[0]]

    def text(self, column: Column) -> str:
        """Return the text of a column on one line; of `json.a.b`, what is at a.b in a .json file.

        Raises:
          UserError: if there is none.
        """
        name, _, key = column.name.partition(".")
        try:
            if column.name in self.files or name != "json":
                return one_line(self.files[column.name].decode())
            value = inside(json.loads(self.files["json"]), key)
        except KeyError:
            raise UserError(
                f"{self.place}: has no {column.name!r}, the {column.side} side; it has "
                f"{listed(self.files)}; add it, or choose another with {column.remedy}"
            ) from None
        except (ValueError, RecursionError, AttributeError, TypeError) as error:
            raise UserError(
                f"{self.place}: {column.name!r}, the {column.side} side, cannot be read ({error}); "
                "correct it, or remove the sample"
            ) from None
        if isinstance(value, str | int | float) and not isinstance(value, bool):
            return one_line(str(value))
        raise UserError(
            f"{self.place}: {column.name!r}, the {column.side} side, is {kind_of(value)}, not "
            f"text; correct it, or choose another with {column.remedy}"
        )


def samples_of(config: DataConfig, split: str, part: str) -> Iterator[Sample] | None:
    """Return the samples of a part that names tar files, or None if it names none.

    Raises:
      UserError: if they are not there; or if it names none, but there are columns, which only
        these have.
    """
    directory = user_path(config.directory or ".")
    if part.endswith(_ENDINGS) and not (directory / part).is_dir():
        files = files_of(directory, part)
        if files:
            return _samples(files)
        raise UserError(
            f"config.data.{split}={part!r}: there are no such files in {directory.absolute()}; "
            "correct the name, or set --config.data.directory"
            + (f". Get them with: {config.how_to_get}" if config.how_to_get else "")
        )
    if config.columns:
        raise UserError(
            f"config.data.columns={config.columns}: are of tar files, and data.{split}={part!r} "
            "names none; name some, as in shards/*.tar, or leave it at ()"
        )
    return None


def _samples(files: Sequence[Path]) -> Iterator[Sample]:
    for path in files:
        sample = Sample("", {})
        for name, content in _members(path):
            folder, slash, last = name.rpartition("/")
            stem, _, column = last.partition(".")
            place = f"{path}: {folder}{slash}{stem}"
            if place != sample.place:
                if sample.files:
                    yield sample
                sample = Sample(place, {})
            if column.lower() in sample.files:
                raise UserError(f"{place}: has two files .{column}; remove one")
            sample.files[column.lower()] = content
        if sample.files:
            yield sample


def _members(path: Path) -> Iterator[tuple[str, bytes]]:
    """Yield the names and contents of the files in a tar file, one at a time."""
    try:
        with tarfile.open(path, "r|*") as archive:
            for member in archive:
                file = archive.extractfile(member) if member.isfile() else None
                if file is not None and not Path(member.name).name.startswith("."):
                    yield member.name.removeprefix("./"), file.read()
    except (OSError, EOFError, tarfile.TarError, zlib.error) as error:
        raise UserError(f"{path}: cannot be read as .tar ({error}); get it again") from None


def column(config: DataConfig, side: str, usual: str) -> Column:
    """Return the column of a side, by default `usual`."""
    return Column(side, config.named("columns").get(side, usual))
