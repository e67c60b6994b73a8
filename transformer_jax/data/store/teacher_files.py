"""What a teacher predicts for the items of training, in a directory: for each predicted position
its likeliest pieces, so that training needs no teacher in memory.

teacher.json  of what: see Header
teacher.ids, teacher.offsets, sums.json  rows of numbers, as the sides of a token store are kept
"""

import dataclasses
import hashlib
import json
import shutil
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from transformer_jax.base.disk import write_text, writing
from transformer_jax.base.errors import UserError
from transformer_jax.data.batches.batch import Ragged
from transformer_jax.data.store.store_files import GrowingSide, files_of, finish, intact
from transformer_jax.data.store.token_store import TokenStore

_HEADER, _NAME = "teacher.json", "teacher"
_FORMAT = 1  # of the rows


@dataclass(frozen=True)
class Header:
    """What the predictions are of; all of it must match for writing to be resumed."""

    items: str  # the digest of the items of training, see `digest_of`
    teacher: str  # its directory and step, for people
    vocabulary: int  # pieces
    top_k: int  # of them are kept at each position
    temperatures: tuple[float, ...]  # at which the mass of all others is known
    format: int = _FORMAT


class Predictions(NamedTuple):
    """Of n predicted positions."""

    ids: np.ndarray  # int32 [n K], of the likeliest pieces
    log_probs: np.ndarray  # float32 [n K], nats, at temperature 1
    # float32 [n, temperatures]: log sum exp(log p / T) over all other pieces
    rest: np.ndarray

    @property
    def packed(self) -> np.ndarray:
        """As rows of int32, floats by their bits."""
        parts = self.ids, *(x.astype(np.float32).view(np.int32) for x in self[1:])
        return np.concatenate(parts, axis=1, dtype=np.int32)

    @classmethod
    def unpacked(cls, rows: np.ndarray, top_k: int) -> "Predictions":
        """Return what `packed` made rows of."""
        floats = np.ascontiguousarray(rows[:, top_k:]).view(np.float32)
        return cls(rows[:, :top_k], floats[:, :top_k], floats[:, top_k:])


def digest_of(identity: Mapping[str, str], objective: str, items: TokenStore) -> str:
    """Return a digest of the items that an objective makes of a training text: of the digests in
    `identity`, of the text and the tokenizer, and of where items begin and end.
    """
    digest = hashlib.blake2b(digest_size=16)
    digest.update(json.dumps([objective, sorted(identity.items())]).encode())
    for side in items[:2]:
        for array in (side.starts, side.lengths):
            digest.update(np.ascontiguousarray(array, np.int64).tobytes())
    return digest.hexdigest()


def write(directory: Path, header: Header, parts: Callable[[int], Iterator[Ragged]]) -> bool:
    """Write a directory, or finish one that was begun; return False if it is complete already.
    `parts` yields the packed rows of consecutive items, from the one of a given number on.

    Raises:
      UserError: if the directory exists and holds anything else.
      DiskError: if it cannot be written.
    """
    if directory.exists():
        if _header(directory) == header and intact(directory, (_NAME,)):
            return False
        raise UserError(
            f"{directory}: exists, and has other predictions or is damaged; delete it, or name "
            "another directory"
        )
    partial = directory.with_name(f"{directory.name}.partial")
    with writing(f"what the teacher predicts, {directory},", directory.parent):
        if partial.exists() and _header(partial) != header:
            shutil.rmtree(partial)
        partial.mkdir(parents=True, exist_ok=True)
        write_text(partial / _HEADER, json.dumps(dataclasses.asdict(header), indent=2) + "\n")
        with GrowingSide(partial, _NAME) as side:
            for part in parts(side.lines):
                side.append(part)
            finish(partial, [side])
        partial.rename(directory)
    return True


def _header(directory: Path) -> Header | None:
    """Return the header of a directory; None if it has none that can be read."""
    try:
        known = json.loads((directory / _HEADER).read_bytes())
        return Header(**{**known, "temperatures": tuple(known["temperatures"])})
    except (OSError, ValueError, TypeError, KeyError):
        return None


class TeacherStore:
    """The predictions of a teacher for the items of training, at one temperature."""

    def __init__(self, directory: Path, items: str, temperature: float) -> None:
        """Open a directory that was written for items with this digest.

        Raises:
          UserError: if it was not, is damaged, or lacks the temperature.
        """
        place = f"config.data.teacher={str(directory)!r}"
        again = "write it with: transformer-jax teach --workdir=TEACHER --config=CONFIG"
        header = _header(directory)
        try:
            whole = header is not None and intact(directory, (_NAME,))
        except (OSError, ValueError, LookupError, TypeError, RecursionError):
            whole = False
        if header is None or not whole:
            missing = "is damaged" if directory.exists() else "does not exist"
            raise UserError(f"{place}: {missing}; {again}")
        if header.items != items:
            raise UserError(
                f"{place}: was written for other training data, another tokenizer or another "
                f"objective than these; {again}, into a new directory"
            )
        if temperature not in header.temperatures:
            known = ", ".join(f"{t:g}" for t in header.temperatures)
            raise UserError(
                f"config.training.distillation_temperature={temperature:g}: {directory} was "
                f"written for {known}; choose that, or write another directory with --temperature"
            )
        self.header, self._temperature = header, temperature
        ids, offsets = files_of(directory, _NAME)
        width = 2 * header.top_k + len(header.temperatures)
        self._offsets = np.asarray(np.memmap(offsets, np.int64, "r"))
        self._rows = np.zeros((0, width), np.int32)
        if self._offsets[-1]:
            self._rows = np.asarray(np.memmap(ids, np.int32, "r")).reshape(-1, width)
        self.digest = f"{zlib.crc32((directory / 'sums.json').read_bytes()):08x}"

    @property
    def described(self) -> str:
        """A line for the log."""
        header = self.header
        return (
            f"teacher: {header.teacher}; its {header.top_k} likeliest of {header.vocabulary:,} "
            f"pieces at {len(self._rows):,} positions, temperature {self._temperature:g}"
        )

    def counts(self, items: np.ndarray) -> np.ndarray:
        """Return at how many positions it predicts in each of some items [n]."""
        return self._offsets[items + 1] - self._offsets[items]

    def of(self, items: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the likeliest pieces at all these positions [m K], and their log-probabilities and
        that of all others [m K+1], at the temperature.
        """
        count = self.counts(items)
        within = np.arange(int(count.sum())) - np.repeat(np.cumsum(count) - count, count)
        rows = self._rows[np.repeat(self._offsets[items], count) + within]
        kept = Predictions.unpacked(rows, self.header.top_k)
        rest = kept.rest[:, self.header.temperatures.index(self._temperature)]
        each = np.concatenate([kept.log_probs / self._temperature, rest[:, None]], axis=1)
        each = each.astype(np.float64)
        total = np.logaddexp.reduce(each, axis=1, keepdims=True)
        return kept.ids, np.minimum(each - total, 0).astype(np.float32)
