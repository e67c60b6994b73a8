"""Files written whole or not at all, and what to say of a disk that does not take them."""

import errno
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from absl import logging as absl_logging

from transformer_jax.errors import UserError


class DiskError(UserError):
    """The disk is full or fails; the message is one line that says for what, and what room is."""

    exit_code = 74


# What is wrong is the name or what lies there, and not the disk.
_MISTAKES = (
    errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.EEXIST, errno.EACCES, errno.EPERM,
    errno.ENAMETOOLONG, errno.ELOOP,
)  # fmt: skip


def exit_code(error: Exception) -> int:
    """Return the exit code of a program that an error of the file system ends."""
    mistake = isinstance(error, OSError) and error.errno in _MISTAKES
    return UserError.exit_code if mistake else DiskError.exit_code


@contextmanager
def writing(what: str, place: Path, need: int = 0) -> Iterator[None]:
    """Turn errors of the disk into a DiskError that names `what` and the room at `place`.

    `need` is how many bytes `what` takes, where that is known.
    """
    try:
        yield
    except DiskError:
        raise
    except (OSError, ValueError) as error:
        found = re.search(r"([^:]*) \[os_error_code=", str(error))  # TensorStore's ValueErrors
        if not isinstance(error, OSError) and found is None:
            raise
        reason = found[1].strip() if found else error.strerror if isinstance(error, OSError) else ""
        existing = next(path for path in (place, *place.parents) if path.is_dir())
        room = f"{shutil.disk_usage(existing).free / 1e6:,.1f} MB free in {existing}"
        needed = f"at most {need / 1e6:,.1f} MB needed, " if need else ""
        failure = DiskError(f"{what} cannot be written: {reason or error} ({needed}{room})")
        failure.exit_code = exit_code(error)
        raise failure from None


def check_room(place: Path, need: int) -> None:
    """Raise OSError if a directory's disk has no room for so many bytes."""
    if shutil.disk_usage(place).free < need:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@contextmanager
def quiet() -> Iterator[None]:
    """Keep absl, through which Orbax logs, from printing tracebacks of what is raised as well."""
    before = absl_logging.get_verbosity()
    absl_logging.set_verbosity(absl_logging.FATAL)
    try:
        yield
    finally:
        absl_logging.set_verbosity(before)


def write_text(path: Path, text: str) -> None:
    """Write a file whole or not at all."""
    write_bytes(path, text.encode())


def write_bytes(path: Path, content: bytes) -> None:
    """Write a file whole or not at all; one that has this content stays, and needs no room."""
    with suppress(OSError):
        if path.read_bytes() == content:
            return
    partial = path.with_name(f"{path.name}.partial")
    try:
        with open(partial, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial, path)
    except OSError:
        partial.unlink(missing_ok=True)
        raise


def sync(path: Path) -> None:
    """Return when a file, if there is one, would survive a loss of power."""
    with suppress(FileNotFoundError), open(path, "rb") as file:
        os.fsync(file.fileno())


def append_text(path: Path, text: str) -> None:
    """Append to a file all of the text or nothing."""
    with open(path, "ab", buffering=0) as file:
        size = file.seek(0, os.SEEK_END)
        rest = text.encode()
        try:
            while rest:
                rest = rest[file.write(rest) :]
        except OSError:
            file.truncate(size)
            raise


def cache_dir() -> Path:
    """Return the place of what all runs share: token stores, compiled programs."""
    named = os.environ.get("TRANSFORMER_JAX_CACHE")
    return Path(named) if named else Path.home() / ".cache" / "transformer_jax"
