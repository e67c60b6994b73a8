"""Lines of text in and out: files, pipes and terminals."""

import gzip
import io
import logging
import select
import sys
import time
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from transformer_jax.base.disk import DiskError, writing
from transformer_jax.base.errors import UserError
from transformer_jax.base.messages import write_any_text
from transformer_jax.data.sources.files import check_unpacked

log = logging.getLogger("transformer_jax")

_CHUNK = 1 << 16  # bytes read at a time
_LONGEST = 1 << 18  # bytes of a line: a book chapter; more is not text, or has no line ends
_CHARACTERS = 1 << 22  # per block, unless a single line has more
_IDLE = 0.05  # seconds without input after which the lines read so far are answered
_PATIENCE = 1.0  # most seconds that a line waits for others, however they trickle in


class Input:
    """Lines of text as they arrive, from a binary file called `name`.

    Lines end only at LF; a CR before it and a byte order mark are dropped. A lone CR, U+2028 and
    the like are part of a line. Bytes that are not UTF-8 become U+FFFD, with one warning.
    """

    def __init__(self, file: Any, name: str) -> None:
        self._file, self._name = file, name
        self._warned = self._begun = False

    def blocks(self, size: int) -> Iterator[list[str]]:
        """Yield lists of at most `size` lines, fewer if no more arrive for a moment.

        Raises:
          UserError: if reading fails, or a line is too long; what came before has been yielded.
        """
        block: list[str] = []
        characters, since = 0, 0.0
        try:
            for line in self._arriving():
                if line is not None:
                    since = since if block else time.monotonic()
                    block.append(line)
                    characters += len(line) + 1
                full = len(block) == size or characters >= _CHARACTERS
                if block and (full or line is None or time.monotonic() > since + _PATIENCE):
                    yield block
                    block, characters = [], 0
        except UserError:
            if block:
                yield block
            raise
        if block:
            yield block

    def count(self) -> int:
        """Read to the end, and return the number of lines; the last may lack its LF."""
        ends, last = 0, b"\n"
        while chunk := self._read():
            ends, last = ends + chunk.count(b"\n"), chunk
        return ends + (not last.endswith(b"\n"))

    def _arriving(self) -> Iterator[str | None]:
        """Yield lines, and None where the next one may take a while."""
        rest, ended = b"", 0
        while chunk := self._read():
            *whole, rest = (rest + chunk).split(b"\n")
            for number, raw in enumerate(whole, ended + 1):
                yield self._decoded(raw, number)
            ended += len(whole)
            self._check(rest, ended + 1)
            if not self._ready():
                yield None
        if rest:
            yield self._decoded(rest, ended + 1)

    def _read(self) -> bytes:
        try:
            chunk = self._file.read1(_CHUNK)
        except (OSError, EOFError, zlib.error) as error:
            reason = getattr(error, "strerror", None) or error
            raise UserError(f"{self._name}: cannot be read ({reason})") from None
        if not self._begun:
            check_unpacked(chunk, self._name)
        self._begun = True
        return chunk

    def _ready(self) -> bool:
        """Wait a moment for input; return whether there is any. A file is always ready."""
        try:
            return bool(select.select([self._file], [], [], _IDLE)[0])
        except io.UnsupportedOperation:  # an in-memory file
            return True

    def _decoded(self, raw: bytes, number: int) -> str:
        self._check(raw, number)
        raw = raw.removesuffix(b"\r")
        if number == 1:
            raw = raw.removeprefix(b"\xef\xbb\xbf")
        try:
            return raw.decode()
        except UnicodeDecodeError:
            if not self._warned:
                log.warning(
                    "%s, line %d: not UTF-8; wrong bytes are read as U+FFFD, here and below; "
                    "convert the input, for example with `iconv -t utf-8`", self._name, number,
                )  # fmt: skip
            self._warned = True
            return raw.decode(errors="replace")

    def _check(self, raw: bytes, number: int) -> None:
        if len(raw) > _LONGEST:
            raise UserError(
                f"{self._name}, line {number}: longer than {_LONGEST:,} bytes; if it is text, "
                "break it into shorter lines"
            )


@contextmanager
def read_from(path: Path | None) -> Iterator[Input]:
    """Open a file, plain or .gz, or standard input.

    Raises:
      UserError: if it cannot be opened.
    """
    if path is None:
        yield Input(sys.stdin.buffer, "standard input")
        return
    with _open("--input", path, "rb") as file:
        yield Input(file, f"--input={path}")


@contextmanager
def write_to(path: Path | None) -> Iterator[IO[str]]:
    """Open a file, plain or .gz, or standard output.

    Raises:
      UserError: if it cannot be opened.
      DiskError: if the disk does not take it all.
    """
    if path is None:
        write_any_text()
        stdout: Any = sys.stdout
        stdout.reconfigure(newline="\n")
        try:
            yield stdout
        except BrokenPipeError:
            raise  # the reader has seen enough
        except OSError as error:
            raise DiskError(f"standard output cannot be written: {error.strerror}") from None
        return
    how = {"encoding": "utf-8", "errors": "backslashreplace", "newline": "\n"}
    with writing(f"--output={path}", path.parent), _open("--output", path, "wt", **how) as file:
        yield file


def _open(option: str, path: Path, mode: str, **how: Any) -> IO[Any]:
    opener: Any = gzip.open if path.suffix == ".gz" else open
    try:
        return opener(path, mode, **how)
    except OSError as error:
        raise UserError(f"{option}={path}: cannot be opened ({error.strerror})") from None


def typed() -> Iterator[str]:
    """Yield the lines typed at a terminal, until the end of input (Ctrl-D)."""
    import readline  # noqa: F401  so that `input` knows cursor keys and earlier lines

    stdin: Any = sys.stdin
    stdin.reconfigure(encoding="utf-8", errors="replace")
    prompt = "> " if sys.stdout.isatty() else ""  # would mix with translations
    while True:
        try:
            yield input(prompt)
        except EOFError:
            if prompt:
                print()
            return
