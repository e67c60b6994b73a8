"""Where pairs come from: parallel text files, TFDS, or a generator. Each source is a `Corpus`."""

import gzip
import hashlib
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from transformer_jax.choices import pick
from transformer_jax.config import DataConfig
from transformer_jax.data import spelled_numbers, tfds
from transformer_jax.errors import UserError

Split = Literal["train", "validation", "test"]


@dataclass(frozen=True)
class Corpus:
    """Pairs of one split: `src[i]` and `tgt[i]` belong together."""

    src: Sequence[str]
    tgt: Sequence[str]
    fingerprint: str  # changes with the content

    def __len__(self) -> int:
        return len(self.src)

    def __getitem__(self, index: int) -> dict[str, str]:
        return {"src": self.src[index], "tgt": self.tgt[index]}


def load(config: DataConfig, split: Split) -> Corpus:
    """Return the pairs of a split.

    Raises:
      UserError: if files are missing, unreadable or do not match.
    """
    src, tgt = pick(SOURCES, config.source, "config.data.source")(config, split)
    if not src:
        raise UserError(f"config.data.{split}={getattr(config, split)}: holds no pairs")
    return Corpus(src, tgt, _fingerprint(src, tgt))


def _fingerprint(*sides: Sequence[str]) -> str:
    hasher = hashlib.blake2b(digest_size=16)
    for side in sides:
        hasher.update(len(side).to_bytes(8, "little"))
        hasher.update("\n".join(side).encode())
    return hasher.hexdigest()


def read_lines(path: Path) -> list[str]:
    """Return the lines of a UTF-8 file, plain or .gz.

    Lines end at LF alone (a CR before it is dropped, and so is a byte order mark): U+2028, NEL and
    lone CR occur inside sentences, and cutting there would shift one side against the other.

    Raises:
      UserError: if the file is missing, or not UTF-8: then with the line's number.
    """
    try:
        raw = path.read_bytes()
        if path.suffix == ".gz":
            raw = gzip.decompress(raw)
    except (OSError, EOFError, zlib.error) as error:
        raise UserError(f"{path}: cannot be read ({error})") from None
    raw = raw.removeprefix(b"\xef\xbb\xbf")
    lines = raw.split(b"\n")
    if lines[-1] == b"":
        lines.pop()
    try:
        return [line.removesuffix(b"\r").decode() for line in lines]
    except UnicodeDecodeError:
        pass
    for number, line in enumerate(lines, 1):
        try:
            line.decode()
        except UnicodeDecodeError as error:
            raise UserError(
                f"{path}:{number}: not UTF-8 (byte 0x{line[error.start]:02x} at column "
                f"{error.start + 1}); convert the file, with `iconv -t utf-8` for example"
            ) from None
    raise AssertionError("unreachable: some line failed to decode")


def read_parallel(src_path: Path, tgt_path: Path) -> tuple[list[str], list[str]]:
    """Read two files that belong together line by line.

    Raises:
      UserError: if their line counts differ.
    """
    src, tgt = read_lines(src_path), read_lines(tgt_path)
    if len(src) != len(tgt):
        raise UserError(
            f"{src_path} has {len(src)} lines, {tgt_path} has {len(tgt)}: "
            "line i of one must be the translation of line i of the other"
        )
    return src, tgt


def _text(config: DataConfig, split: Split) -> tuple[list[str], list[str]]:
    directory = Path(config.directory or ".")
    src: list[str] = []
    tgt: list[str] = []
    for part in getattr(config, split):
        one, other = read_parallel(
            _find(directory, f"{part}.{config.source_language}", config),
            _find(directory, f"{part}.{config.target_language}", config),
        )
        src += one
        tgt += other
    return src, tgt


def _find(directory: Path, name: str, config: DataConfig) -> Path:
    for path in (directory / name, directory / f"{name}.gz"):
        if path.is_file():
            return path
    get = f" Get it with: {config.how_to_get}" if config.how_to_get else ""
    raise UserError(
        f"config.data.directory={config.directory!r}: found neither {name} nor {name}.gz in "
        f"{directory.absolute()}. Set --config.data.directory to where the corpus lies.{get}"
    )


SOURCES: dict[str, Callable[[DataConfig, Split], tuple[Sequence[str], Sequence[str]]]] = {
    "text": _text,
    "tfds": tfds.load,
    "spelled_numbers": spelled_numbers.load,
}
