"""Atomic file writes, and error messages for a full or failing disk."""

import errno
import fcntl
import os
import re
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from absl import logging as absl_logging
from safetensors import SafetensorError

from transformer_jax.base.errors import UserError


class DiskError(UserError):
    """A full or failing disk; the one-line message names what was written and the free space."""

    exit_code = 74


# The path or what is at it is wrong, not the disk.
_MISTAKES = (
    errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.EEXIST, errno.EACCES, errno.EPERM,
    errno.ENAMETOOLONG, errno.ELOOP,
)  # fmt: skip


def exit_code(error: Exception) -> int:
    """Return the exit code for a program that ends with this file-system error."""
    mistake = isinstance(error, OSError) and error.errno in _MISTAKES
    return UserError.exit_code if mistake else DiskError.exit_code


@contextmanager
def writing(what: str, place: Path, need: int = 0) -> Iterator[None]:
    """Turn disk errors into a DiskError that names `what` and the free space at `place`.

    `need` is the size of `what` in bytes, where known.
    """
    try:
        yield
    except DiskError:
        raise
    except (OSError, ValueError, SafetensorError) as error:
        # TensorStore's ValueErrors, and safetensors' own.
        said = re.search(r"([^:]*) (\[os_error_code=|\(os error )", str(error))
        if not isinstance(error, OSError) and said is None:
            raise
        reason = said[1].strip() if said else error.strerror if isinstance(error, OSError) else ""
        existing = next(path for path in (place, *place.parents) if path.is_dir())
        room = f"{shutil.disk_usage(existing).free / 1e6:,.1f} MB free in {existing}"
        needed = f"at most {need / 1e6:,.1f} MB needed, " if need else ""
        failure = DiskError(f"{what} cannot be written: {reason or error} ({needed}{room})")
        failure.exit_code = exit_code(error)
        raise failure from None


def check_room(place: Path, need: int) -> None:
    """Raise OSError if a directory's disk has fewer than `need` bytes free."""
    if shutil.disk_usage(place).free < need:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@contextmanager
def quiet() -> Iterator[None]:
    """Keep absl, through which Orbax logs, from also printing tracebacks of raised errors."""
    before = absl_logging.get_verbosity()
    absl_logging.set_verbosity(absl_logging.FATAL)
    try:
        yield
    finally:
        absl_logging.set_verbosity(before)


def write_text(path: Path, text: str) -> None:
    """Write a file atomically."""
    write_bytes(path, text.encode())


def write_bytes(path: Path, content: bytes) -> None:
    """Write a file atomically; one that already has this content is left alone. Of several
    processes that write it at a time, the last one wins.
    """
    with suppress(OSError):
        if path.read_bytes() == content:
            return
    partial = path.with_name(f"{path.name}.{secrets.token_hex(4)}.partial")
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
    """Flush a file, if it exists, to disk, so that it survives a power failure."""
    with suppress(FileNotFoundError), open(path, "rb") as file:
        os.fsync(file.fileno())


def append_text(path: Path, text: str) -> None:
    """Append all of the text to a file, or nothing."""
    with open(path, "ab", buffering=0) as file:
        size = file.seek(0, os.SEEK_END)
        rest = text.encode()
        try:
            while rest:
                rest = rest[file.write(rest) :]
        except OSError:
            file.truncate(size)
            raise


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Keep other processes that also lock `path` waiting; what it locks is for them to know."""
    with open(path.with_suffix(".lock"), "wb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # released with the process
        yield


def cache_dir() -> Path:
    """Return the directory shared by all runs, for token stores and compiled programs.

    Raises:
      UserError: if it is not named and there is no home directory, as in some containers.
    """
    named = os.environ.get("TRANSFORMER_JAX_CACHE")
    if named:
        return user_path(named)
    home = os.path.expanduser("~")
    if home == "~":
        raise UserError(
            "TRANSFORMER_JAX_CACHE: not set, and this user has no home directory for the cache; "
            "set it to a folder"
        )
    return Path(home, ".cache", "transformer_jax")


def user_path(text: str | Path) -> Path:
    """Return a path that a user wrote; ~ is the home directory, as in a shell, and ./~ a folder of
    that name.

    Raises:
      UserError: if there is no home directory.
    """
    path = os.path.expanduser(text)
    if path == "~" or path.startswith("~/"):
        raise UserError(f"{text}: this user has no home directory; write out the path")
    return Path(path)
