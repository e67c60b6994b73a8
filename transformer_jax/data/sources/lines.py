"""Lines of large text files, which stay on disk and are read on demand."""

import codecs
import gzip
import hashlib
import os
import shutil
import zlib
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from transformer_jax.base.disk import cache_dir, locked, writing
from transformer_jax.base.errors import UserError
from transformer_jax.data.sources.files import check_unpacked, not_utf8, read_lines
from transformer_jax.data.texts import Stored

HELD = 2**26  # largest file, in bytes, to be held in memory; a compressed one counts four times
_BLOCK = 2**24  # bytes processed at a time
_MARK = b"\xef\xbb\xbf"


class Stamp(NamedTuple):
    """The metadata that identify a version of a file."""

    size: int
    modified: int  # ns
    inode: int

    @classmethod
    def of(cls, file: Path | int) -> "Stamp":
        """Return the stamp of a file or file descriptor."""
        status = os.stat(file)
        return cls(status.st_size, status.st_mtime_ns, status.st_ino)


class _Content:
    """The bytes of a file that must not change while its lines are read, here or in another
    process, which opens the file itself.
    """

    def __init__(self, path: Path, stamp: Stamp) -> None:
        self._path, self._stamp = path, stamp

    @cached_property
    def _file(self) -> int:
        try:
            file = os.open(self._path, os.O_RDONLY)
        except OSError as error:
            raise UserError(f"{self._path}: cannot be read ({error})") from None
        if Stamp.of(file) != self._stamp:
            os.close(file)
            raise changed(self._path)
        return file

    def read(self, begin: int, end: int) -> bytes:
        """Return the bytes from `begin` up to but not including `end`."""
        raw = os.pread(self._file, end - begin, begin)
        if len(raw) < end - begin:
            raise changed(self._path)
        return raw

    def __getstate__(self) -> dict[str, Any]:
        return {"_path": self._path, "_stamp": self._stamp}

    def __del__(self) -> None:
        if "_file" in self.__dict__:
            os.close(self._file)


def changed(path: Path) -> UserError:
    """Return the error for a file that has changed."""
    return UserError(f"{path}: changed while being read; start again")


class Lines(Stored):
    """The lines of an uncompressed file, a `_Content`, split as by `read_lines`.

    Raises:
      UserError: when lines are read, if the file has changed.
    """

    def between(self, start: int, stop: int) -> list[str]:
        """See Texts."""
        begin, end = (int(self._offsets[place]) for place in (start, stop))
        text = self._file.read(begin, end).decode()
        lines = text.split("\n")[: stop - start]
        return [line.removesuffix("\r") for line in lines] if "\r" in text else lines


def lines_of(path: Path) -> Sequence[str]:
    """Return the lines of a UTF-8 file, plain or .gz, like `read_lines`; those of a large file stay
    on disk. Its line offsets are computed once and cached for as long as the file's size, inode and
    modification time stay the same; a .gz file is decompressed into the cache.

    Raises:
      UserError: if the file is missing or not UTF-8, then with the line number.
      DiskError: if the cache cannot be written.
    """
    packed = path.suffix == ".gz"
    try:
        stamp = Stamp.of(path)
    except OSError:
        return read_lines(path)  # raises with the reason
    if stamp.size * (4 if packed else 1) <= HELD:
        return read_lines(path)
    origin = f"{path.resolve()} {tuple(stamp)}"
    name = hashlib.blake2b(origin.encode(), digest_size=16).hexdigest()
    plain, offsets = path, cache_dir() / "lines" / f"{name}.offsets"
    if packed:
        plain = offsets.with_suffix(".txt")
    if not _fits(offsets, plain):
        with writing(f"the line offsets of {path}", offsets):
            offsets.parent.mkdir(parents=True, exist_ok=True)
            with locked(offsets):  # another run may be at it, and would replace what this one reads
                if packed:
                    _unpack(path, plain)
                if not _fits(offsets, plain):
                    _index(path, plain, offsets)
    if packed:
        stamp = Stamp.of(plain)
    elif Stamp.of(path) != stamp:
        raise changed(path)
    return Lines(_Content(plain, stamp), np.asarray(np.memmap(offsets, np.int64, "r")), origin)


def _unpack(path: Path, plain: Path) -> None:
    """Decompress a file, unless that has been done."""
    if plain.exists():
        return
    partial = plain.with_name(f"{plain.name}.partial")
    try:
        with gzip.open(path) as file, open(partial, "wb") as out:
            shutil.copyfileobj(file, out, _BLOCK)
        partial.replace(plain)
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise UserError(f"{path}: cannot be read ({error})") from None
    finally:
        partial.unlink(missing_ok=True)


def _fits(offsets: Path, plain: Path) -> bool:
    """Return whether the cached offsets belong to an uncompressed file as it is now."""
    try:
        with open(offsets, "rb") as file:
            file.seek(-8, os.SEEK_END)
            return int.from_bytes(file.read(8), "little") == Stamp.of(plain).size
    except OSError:
        return False


def _index(path: Path, plain: Path, offsets: Path) -> None:
    """Write the starts of the lines of a file, and the end of the last one."""
    partial = offsets.with_name(f"{offsets.name}.partial")
    decoder = codecs.getincrementaldecoder("utf-8")()
    try:
        with open(plain, "rb") as file, open(partial, "wb") as out:
            head = file.read(16)
            check_unpacked(head, path)
            here = len(_MARK) if head.startswith(_MARK) else 0
            begins = file.seek(here)
            out.write(np.int64(here).tobytes())
            while block := file.read(_BLOCK):
                decoder.decode(block)
                ends = np.flatnonzero(np.frombuffer(block, np.uint8) == ord("\n")) + 1 + here
                out.write(ends.astype(np.int64).tobytes())
                begins, here = int(ends[-1]) if len(ends) else begins, here + len(block)
            decoder.decode(b"", final=True)
            if begins < here:  # the last line has no newline
                out.write(np.int64(here).tobytes())
        partial.replace(offsets)
    except UnicodeDecodeError:
        with open(plain, "rb") as file:
            file.seek(len(_MARK) if file.read(len(_MARK)) == _MARK else 0)
            raise not_utf8(path, (line.removesuffix(b"\n") for line in file)) from None
    finally:
        partial.unlink(missing_ok=True)
