"""Texts not held in memory: they are read or generated on demand."""

import hashlib
from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import Any, overload

import numpy as np

_BLOCK = 10_000  # texts in memory at a time


class Texts(Sequence[str], ABC):
    """A lazy sequence of texts. Its slices are lazy too, and are sent without the texts to other
    processes.
    """

    made = False  # whether the origin determines the texts everywhere, not just on this disk

    @property
    @abstractmethod
    def origin(self) -> str:
        """A description that determines the texts: different texts have different origins."""

    @abstractmethod
    def between(self, start: int, stop: int) -> list[str]:
        """Return the texts from `start` up to but not including `stop`."""

    @abstractmethod
    def part(self, start: int, stop: int) -> "Texts":
        """Return the same range, unread."""

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[str]: ...
    def __getitem__(self, index: int | slice) -> str | Sequence[str]:
        places = range(len(self))[index]
        if isinstance(places, int):
            return self.between(places, places + 1)[0]
        if places.step != 1:
            return [self[place] for place in places]
        return self.part(places.start, max(places.start, places.stop))

    def __iter__(self) -> Iterator[str]:
        for start in range(0, len(self), _BLOCK):
            yield from self.between(start, min(start + _BLOCK, len(self)))


class Stored(Texts):
    """Texts in a file, between `offsets` [n + 1]: where they begin, and the end of the last one."""

    def __init__(self, file: Any, offsets: np.ndarray, origin: str) -> None:
        self._file, self._offsets, self._origin = file, offsets, origin

    @property
    def origin(self) -> str:
        """See Texts."""
        return self._origin

    def __len__(self) -> int:
        return len(self._offsets) - 1

    def part(self, start: int, stop: int) -> Texts:
        """See Texts."""
        origin = f"{self._origin}[{start}:{stop}]"
        return type(self)(self._file, self._offsets[start : stop + 1], origin)


class Joined(Texts):
    """The concatenation of several sequences of texts."""

    def __init__(self, parts: Sequence[Sequence[str]]) -> None:
        self._parts = parts
        self._ends = list(accumulate(map(len, parts)))

    @property
    def origin(self) -> str:
        """See Texts."""
        return f"joined {[origin_of(part) for part in self._parts]}"

    def __len__(self) -> int:
        return self._ends[-1] if self._ends else 0

    def between(self, start: int, stop: int) -> list[str]:
        """See Texts."""
        return [text for part in self._cut(start, stop) for text in part]

    def part(self, start: int, stop: int) -> Texts:
        """See Texts."""
        return Joined(self._cut(start, stop))

    def _cut(self, start: int, stop: int) -> list[Sequence[str]]:
        pieces = []
        number = bisect_right(self._ends, start)
        while start < stop:
            first = self._ends[number] - len(self._parts[number])
            end = min(stop, self._ends[number])
            pieces.append(self._parts[number][start - first : end - first])
            start, number = max(start, end), number + 1
        return pieces


class Prefixed(Texts):
    """Texts with a prefix and a space before each; an empty one stays empty."""

    def __init__(self, texts: Texts, prefix: str) -> None:
        self._texts, self._prefix = texts, prefix

    @property
    def origin(self) -> str:
        """See Texts."""
        return f"{self._prefix!r} before {self._texts.origin}"

    @property
    def made(self) -> bool:  # type: ignore[override]
        """See Texts."""
        return self._texts.made

    def __len__(self) -> int:
        return len(self._texts)

    def between(self, start: int, stop: int) -> list[str]:
        """See Texts."""
        return _prefixed(self._texts.between(start, stop), self._prefix)

    def part(self, start: int, stop: int) -> Texts:
        """See Texts."""
        return Prefixed(self._texts.part(start, stop), self._prefix)


def origin_of(side: Sequence[str]) -> str:
    """Return the origin of texts; of those held in memory, a hash of themselves."""
    if isinstance(side, Texts):
        return side.origin
    return hashlib.blake2b(repr(list(side)).encode(), digest_size=16).hexdigest()


def joined(parts: Sequence[Sequence]) -> Sequence:
    """Return the concatenation of several sequences, unread if one of them is."""
    filled = [part for part in parts if len(part)]
    if len(filled) == 1 and isinstance(filled[0], Texts):
        return filled[0]
    if any(isinstance(part, Texts) for part in filled):
        return Joined(filled)
    return [value for part in parts for value in part]


def prefixed(texts: Sequence[str], prefix: str) -> Sequence[str]:
    """Return texts with a prefix and a space before each; an empty line stays empty."""
    if isinstance(texts, Texts):
        return Prefixed(texts, prefix)
    return _prefixed(texts, prefix)


def _prefixed(lines: Sequence[str], prefix: str) -> list[str]:
    return [f"{prefix} {line}" if line.strip() else line for line in lines]


def first_difference(one: str, other: str) -> int:
    """Return how many characters two texts begin with in common."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((i for i, (a, b) in pairs if a != b), min(len(one), len(other)))


def spread(total: int, most: int) -> list[int]:
    """Return `most` of `total` indices, evenly spaced, or all: splits may be sorted by length."""
    count = min(total, most)
    return [i * total // count for i in range(count)]
