"""Lines of large text files, which stay on the disk: in memory is none but what is asked for."""

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

from transformer_jax.data.files import not_utf8, read_lines
from transformer_jax.data.texts import Texts
from transformer_jax.disk import cache_dir, writing
from transformer_jax.errors import UserError

HELD = 2**26  # bytes of a file whose lines are held in memory; one that is packed is four times it
_BLOCK = 2**24  # bytes that are looked at at a time
_MARK = b"\xef\xbb\xbf"


class Stamp(NamedTuple):
    """What changes when a file does."""

    size: int
    modified: int  # ns
    inode: int

    @classmethod
    def of(cls, file: Path | int) -> "Stamp":
        """Return the stamp of a file, or of a descriptor."""
        found = os.stat(file)
        return cls(found.st_size, found.st_mtime_ns, found.st_ino)


class _Content:
    """The bytes of a file that may not change, wherever its lines are read: here or by another
    process, which opens it for itself.
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
        """Return the bytes from `begin` on to before `end`."""
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
    """Return what to say of a file that is not any more what it was."""
    return UserError(f"{path}: was changed while it was read; start again")


class Lines(Texts):
    """The lines of a plain file, as `read_lines` cuts them: `offsets` [n + 1] say where each one
    begins, and the last one ends.

    Raises:
      UserError: where lines are read, if the file is not any more what it was.
    """

    def __init__(self, content: _Content, offsets: np.ndarray, origin: str) -> None:
        self._content, self._offsets, self._origin = content, offsets, origin

    @property
    def origin(self) -> str:
        """See Texts."""
        return self._origin

    def __len__(self) -> int:
        return len(self._offsets) - 1

    def between(self, start: int, stop: int) -> list[str]:
        """See Texts."""
        begin, end = (int(self._offsets[place]) for place in (start, stop))
        text = self._content.read(begin, end).decode()
        lines = text.split("\n")[: stop - start]
        return [line.removesuffix("\r") for line in lines] if "\r" in text else lines

    def part(self, start: int, stop: int) -> "Lines":
        """See Texts."""
        origin = f"{self._origin}[{start}:{stop}]"
        return Lines(self._content, self._offsets[start : stop + 1], origin)


def lines_of(path: Path) -> Sequence[str]:
    """Return the lines of a UTF-8 file, plain or .gz, as `read_lines` does; those of a large file
    stay on the disk. Where its lines begin is found once and kept in the cache, as long as the
    file's size, inode and time of change stay; what is packed is unpacked there.

    Raises:
      UserError: if the file is missing, or not UTF-8: then with the line's number.
      DiskError: if the cache cannot be written.
    """
    packed = path.suffix == ".gz"
    try:
        stamp = Stamp.of(path)
    except OSError:
        return read_lines(path)  # says what is wrong
    if stamp.size * (4 if packed else 1) <= HELD:
        return read_lines(path)
    origin = f"{path.resolve()} {tuple(stamp)}"
    name = hashlib.blake2b(origin.encode(), digest_size=16).hexdigest()
    plain, offsets = path, cache_dir() / "lines" / f"{name}.offsets"
    with writing(f"where lines begin of {path}", offsets):
        offsets.parent.mkdir(parents=True, exist_ok=True)
        if packed:
            plain = offsets.with_suffix(".txt")
            _unpack(path, plain)
            stamp = Stamp.of(plain)
        if not _fits(offsets, stamp):
            _index(path, plain, offsets)
    if not packed and Stamp.of(path) != stamp:
        raise changed(path)
    return Lines(_Content(plain, stamp), np.asarray(np.memmap(offsets, np.int64, "r")), origin)


def _unpack(path: Path, plain: Path) -> None:
    """Write what is packed, if it is not there yet."""
    if plain.exists():
        return
    partial = plain.with_name(f"{plain.name}.{os.getpid()}.partial")
    try:
        with gzip.open(path) as file, open(partial, "wb") as out:
            shutil.copyfileobj(file, out, _BLOCK)
        partial.replace(plain)
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise UserError(f"{path}: cannot be read ({error})") from None
    finally:
        partial.unlink(missing_ok=True)


def _fits(offsets: Path, stamp: Stamp) -> bool:
    """Whether the offsets that are kept are those of such a file."""
    try:
        with open(offsets, "rb") as file:
            file.seek(-8, os.SEEK_END)
            return int.from_bytes(file.read(8), "little") == stamp.size
    except OSError:
        return False


def _index(path: Path, plain: Path, offsets: Path) -> None:
    """Write where the lines of a file begin, and where the last one ends."""
    partial = offsets.with_name(f"{offsets.name}.{os.getpid()}.partial")
    decoder = codecs.getincrementaldecoder("utf-8")()
    try:
        with open(plain, "rb") as file, open(partial, "wb") as out:
            here = len(_MARK) if file.read(len(_MARK)) == _MARK else 0
            begins = file.seek(here)
            out.write(np.int64(here).tobytes())
            while block := file.read(_BLOCK):
                decoder.decode(block)
                ends = np.flatnonzero(np.frombuffer(block, np.uint8) == ord("\n")) + 1 + here
                out.write(ends.astype(np.int64).tobytes())
                begins, here = int(ends[-1]) if len(ends) else begins, here + len(block)
            decoder.decode(b"", final=True)
            if begins < here:  # the last line has no end
                out.write(np.int64(here).tobytes())
        partial.replace(offsets)
    except UnicodeDecodeError:
        with open(plain, "rb") as file:
            file.seek(len(_MARK) if file.read(len(_MARK)) == _MARK else 0)
            raise not_utf8(path, (line.removesuffix(b"\n") for line in file)) from None
    finally:
        partial.unlink(missing_ok=True)
