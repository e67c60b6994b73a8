"""The files of a token store: for each side, concatenated ids and the offsets of the texts.

They grow block by block, in order, with a journal of sizes and CRC-32s, so what a killed process
has written is found and verified, and writing resumes from there.
"""

import json
import os
import zlib
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import BinaryIO, NamedTuple

import numpy as np

from transformer_jax.base.disk import write_text
from transformer_jax.data.batches.batch import Ragged

SIDES = ("src", "tgt")
_READ = 1 << 20  # bytes


class Sum(NamedTuple):
    """Size and CRC-32 of a file, as far as it has been written."""

    size: int = 0
    crc: int = 0

    def with_more(self, raw: bytes) -> "Sum":
        """Return the sum after appending these bytes."""
        return Sum(self.size + len(raw), zlib.crc32(raw, self.crc))


class GrowingSide:
    """One side of a store being written: NAME.ids, NAME.offsets (int64 [n + 1], in sequences of
    ids) and NAME.journal. `lines` is the number of lines already written.
    """

    def __init__(self, directory: Path, name: str) -> None:
        self._paths = [directory / f"{name}.{ending}" for ending in ("ids", "offsets")]
        self._journal_path = directory / f"{name}.journal"
        for path in (*self._paths, self._journal_path):
            path.touch()
        self.lines, self._sums, rows = self._intact()
        for path, done in zip(self._paths, self._sums, strict=True):
            os.truncate(path, done.size)
        write_text(self._journal_path, rows)
        self._files = [open(path, "ab") for path in self._paths]  # noqa: SIM115 (closed by `close`)
        self._journal = open(self._journal_path, "a", encoding="utf-8")  # noqa: SIM115
        self._total = 0
        if self.lines:
            self._total = int(np.fromfile(self._paths[1], np.int64, offset=8 * self.lines)[0])
        else:
            self._write(b"", np.zeros(1, np.int64).tobytes())

    def _intact(self) -> tuple[int, list[Sum], str]:
        """Return the number of lines that are intact, the sums, and the journal up to there."""
        lines, sums, kept = 0, [Sum(), Sum()], ""
        with open(self._paths[0], "rb") as ids, open(self._paths[1], "rb") as offsets:
            journal = self._journal_path.read_text(encoding="utf-8", errors="replace")
            for row in journal.splitlines():
                try:
                    count, *written = json.loads(row)
                    expected = [Sum(*one) for one in written]
                    stored = [
                        _advanced(file, done, there.size)
                        for file, done, there in zip((ids, offsets), sums, expected, strict=True)
                    ]
                except (ValueError, TypeError):  # the last row, half-written
                    break
                if stored != expected:
                    break
                lines, sums, kept = count, stored, f"{kept}{row}\n"
        return lines, sums, kept

    def append(self, part: Ragged) -> None:
        """Write further sequences."""
        ends = np.cumsum(part.lengths) + self._total
        self._write(part.ids.tobytes(), ends.tobytes())
        self._total += len(part.ids)
        self.lines += len(part.lengths)
        self._journal.write(f"{json.dumps([self.lines, *self._sums])}\n")
        self._journal.flush()

    def _write(self, *raw: bytes) -> None:
        for file, content in zip(self._files, raw, strict=True):
            file.write(content)
            file.flush()
        self._sums = [done.with_more(x) for done, x in zip(self._sums, raw, strict=True)]

    def __enter__(self) -> "GrowingSide":
        return self

    def __exit__(self, *_: object) -> None:
        for file in (*self._files, self._journal):
            file.close()

    @property
    def sums(self) -> dict[str, Sum]:
        """The sums of its files, by name."""
        return {path.name: done for path, done in zip(self._paths, self._sums, strict=True)}

    def forget(self) -> None:
        """Remove the journal, as the files are complete."""
        self._journal_path.unlink()


def _advanced(file: BinaryIO, done: Sum, size: int) -> Sum:
    """Return the sum of a file up to a size, continuing from that of what was read before."""
    while done.size < size:
        raw = file.read(min(_READ, size - done.size))
        if not raw:
            break
        done = done.with_more(raw)
    return done


def sum_of(path: Path) -> Sum:
    """Return the size and CRC-32 of a file."""
    with open(path, "rb") as file:
        return _advanced(file, Sum(), path.stat().st_size)


def intact(directory: Path, names: Sequence[str] = SIDES) -> bool:
    """Return whether all files of a store's sides are there, bit for bit as they were written.

    Reads them all, in parallel, at some GB per second if they are in memory.

    Raises:
      OSError, ValueError, LookupError, TypeError, RecursionError: if they cannot be compared.
    """
    sums = json.loads((directory / "sums.json").read_bytes())
    paths = [path for name in names for path in files_of(directory, name)]
    with ThreadPoolExecutor(len(paths)) as pool:
        return list(pool.map(sum_of, paths)) == [tuple(sums[path.name]) for path in paths]


def files_of(directory: Path, name: str) -> Iterator[Path]:
    """Yield the files of a side: ids and offsets."""
    yield from (directory / f"{name}.{ending}" for ending in ("ids", "offsets"))


def finish(directory: Path, sides: Sequence[GrowingSide]) -> None:
    """Write the sums of a complete store, and remove the journals."""
    sums = {name: done for side in sides for name, done in side.sums.items()}
    write_text(directory / "sums.json", json.dumps(sums))
    for side in sides:
        side.forget()
