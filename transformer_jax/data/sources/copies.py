"""Copies of texts in the cache: one file of texts and one of where each begins, read on demand."""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import BinaryIO

import numpy as np

from transformer_jax.base.errors import UserError
from transformer_jax.data.texts import Stored


class Copied(Stored):
    """Texts in a file, a path, as UTF-8 without separators. It is opened for each read: there may
    be thousands of such files.

    Raises:
      UserError: when texts are read, if the file is gone.
    """

    def between(self, start: int, stop: int) -> list[str]:
        """See Texts."""
        ends = (self._offsets[start : stop + 1] - self._offsets[start]).tolist()
        try:
            with open(self._file, "rb") as file:
                raw = os.pread(file.fileno(), ends[-1], int(self._offsets[start]))
        except OSError as error:
            raise UserError(f"{self._file}: cannot be read ({error}); start again") from None
        if len(raw) < ends[-1]:
            raise UserError(f"{self._file}: is cut off; remove it, and start again")
        spans = pairwise(ends)
        if raw.isascii():  # each character is a byte
            text = raw.decode()
            return [text[begin:end] for begin, end in spans]
        return [raw[begin:end].decode() for begin, end in spans]


class Copy:
    """A copy that is in the cache, or will be. It is whole once there are offsets: they are moved
    into place last.
    """

    def __init__(self, path: Path) -> None:
        self._path, self._offsets = path, path.with_suffix(".offsets")

    def intact(self) -> bool:
        """Return whether the copy is there and whole."""
        try:
            with open(self._offsets, "rb") as file:
                file.seek(-8, os.SEEK_END)
                return int.from_bytes(file.read(8), "little") == self._path.stat().st_size
        except OSError:
            return False

    @contextmanager
    def written(self) -> Iterator["Growing"]:
        """Write the copy: it is whole if nothing is raised, and else not there."""
        partial = [path.with_name(f"{path.name}.partial") for path in (self._path, self._offsets)]
        try:
            with open(partial[0], "wb") as texts, open(partial[1], "wb") as offsets:
                yield Growing(texts, offsets)
            partial[0].replace(self._path)
            partial[1].replace(self._offsets)
        finally:
            for path in partial:
                path.unlink(missing_ok=True)

    def texts(self) -> Copied:
        """Return the texts, unread."""
        offsets = np.asarray(np.memmap(self._offsets, np.int64, "r"))
        return Copied(self._path, offsets, f"copy {self._path.stem}")


class Growing:
    """The files of a copy that is being written."""

    def __init__(self, texts: BinaryIO, offsets: BinaryIO) -> None:
        self._texts, self._offsets, self._end = texts, offsets, 0
        offsets.write(np.int64(0).tobytes())

    def append(self, texts: Sequence[str]) -> None:
        """Add texts."""
        whole = "".join(texts)
        if whole.isascii():
            sizes = [*map(len, texts)]
            raw = whole.encode()
        else:
            encoded = [text.encode() for text in texts]
            sizes, raw = [*map(len, encoded)], b"".join(encoded)
        ends = np.cumsum(sizes, dtype=np.int64) + self._end
        self._texts.write(raw)
        self._offsets.write(ends.tobytes())
        self._end += len(raw)
