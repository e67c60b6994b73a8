"""Text files: lines end only at LF, and errors name the file and the line."""

import gzip
import zlib
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from transformer_jax.base.errors import UserError

# The first bytes of compressed files, what they are called, and what unpacks them.
_PACKED = (
    (b"\x1f\x8b", "gzip", "gunzip -k"),
    (b"\xfd7zXZ\x00", "xz", "xz -dk"),
    (b"\x28\xb5\x2f\xfd", "zstd", "zstd -d"),
    (b"BZh", "bzip2", "bzip2 -dk"),
    (b"PK\x03\x04", "zip", "unzip"),
    (b"7z\xbc\xaf\x27\x1c", "7-zip", "7z x"),
    (b"\x04\x22\x4d\x18", "lz4", "lz4 -d"),
)


def check_unpacked(head: bytes, name: object) -> None:
    """Check by the first bytes of a text that it is not compressed.

    Raises:
      UserError: if it is; the message begins with `name`.
    """
    for magic, kind, command in _PACKED:
        if head.startswith(magic) and (kind != "bzip2" or head[4:10] == b"1AY&SY"):
            raise UserError(
                f"{name}: is compressed ({kind}); unpack it first, with `{command}` for example: "
                "of compressed files only those named .gz are read"
            )


def read_lines(path: Path) -> list[str]:
    """Return the lines of a UTF-8 file, plain or .gz.

    Lines end only at LF (a preceding CR is dropped, and so is a byte order mark): U+2028, NEL and
    lone CR occur inside sentences, and splitting there would misalign the two sides.

    Raises:
      UserError: if the file is missing or not UTF-8, then with the line number.
    """
    raw = _read(path)
    lines = raw.split(b"\n")
    if lines[-1] == b"":
        lines.pop()
    try:
        return [line.removesuffix(b"\r").decode() for line in lines]
    except UnicodeDecodeError:
        raise not_utf8(path, lines) from None


def read_text(path: Path) -> str:
    """Return the text of a UTF-8 file, plain or .gz, with newlines, without a byte order mark.

    Raises:
      UserError: if the file is missing or not UTF-8, then with the line number.
    """
    raw = _read(path)
    try:
        return raw.decode()
    except UnicodeDecodeError:
        raise not_utf8(path, raw.split(b"\n")) from None


def _read(path: Path) -> bytes:
    try:
        raw = path.read_bytes()
        if path.suffix == ".gz":
            raw = gzip.decompress(raw)
    except (OSError, EOFError, zlib.error) as error:
        raise UserError(f"{path}: cannot be read ({error})") from None
    check_unpacked(raw, path)
    return raw.removeprefix(b"\xef\xbb\xbf")


def not_utf8(path: Path, lines: Iterable[bytes], first: int = 1) -> UserError:
    """Return the error for lines of which one is not UTF-8; `first` is the number of the first."""
    for number, line in enumerate(lines, first):
        try:
            line.decode()
        except UnicodeDecodeError as error:
            return UserError(
                f"{path}:{number}: not UTF-8 (byte 0x{line[error.start]:02x} at column "
                f"{error.start + 1}); convert the file, with `iconv -t utf-8` for example"
            )
    raise AssertionError("unreachable: some line failed to decode")


def read_parallel(
    src_path: Path, tgt_path: Path, read: Callable[[Path], Sequence[str]] = read_lines
) -> tuple[Sequence[str], Sequence[str]]:
    """Read two parallel files.

    Raises:
      UserError: if their line counts differ.
    """
    src, tgt = read(src_path), read(tgt_path)
    if len(src) != len(tgt):
        raise UserError(
            f"{src_path} has {len(src)} lines, {tgt_path} has {len(tgt)}: "
            "line i of one must be the translation of line i of the other"
        )
    return src, tgt


def names_in(directory: Path) -> list[str]:
    """Return the names of the files in a directory, without .gz; none if it does not exist."""
    try:
        return sorted({path.name.removesuffix(".gz") for path in directory.iterdir()})
    except OSError:
        return []
