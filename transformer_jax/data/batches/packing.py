"""Packing of pairs into rows."""

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from transformer_jax.data.batches.batch import Placement

_OPEN = 64  # open rows: the newest ones still accept pairs
_BLOCK = 1 << 20  # pairs converted to Python numbers at a time
# Class boundaries of free space, finer where most rows are, among the nearly full ones.
_CLASSES = np.array([*range(1, 9), *(int(2 ** (n / 2)) for n in range(7, 60))])


class Rows(NamedTuple):
    """Row i has pairs[first[i]:first[i + 1]], in their order."""

    pairs: np.ndarray  # [n]
    first: np.ndarray  # [rows + 1]

    @classmethod
    def joined(cls, several: Iterable["Rows"]) -> "Rows":
        """Concatenate rows."""
        pairs, first = zip(*several, strict=True)
        before = np.cumsum([0, *map(len, pairs)])
        begins = [one[:-1] + many for one, many in zip(first, before[:-1], strict=True)]
        return cls(np.concatenate(pairs), np.concatenate([*begins, before[-1:]]))

    def placed(self, rows: np.ndarray, src: np.ndarray, tgt: np.ndarray) -> Placement:
        """Return the placement of the pairs of rows [k], given all lengths on both sides."""
        begin = self.first[rows]
        count = self.first[rows + 1] - begin
        number = np.repeat(np.arange(len(rows)), count)
        place = np.arange(len(number)) - np.repeat(np.cumsum(count) - count, count)
        pairs, offsets = self.pairs[begin[number] + place], []
        for side in (src, tgt):
            taken = side[pairs]
            before = np.cumsum(taken) - taken
            offsets.append(before - before[place == 0][number])
        return Placement(pairs, number, offsets[0], offsets[1], place + 1)


def first_fit(order: np.ndarray, src: np.ndarray, tgt: np.ndarray, length: int) -> Rows:
    """Put each pair into the first of the 64 newest rows that has room on both sides."""
    longest = max(length, *(int(x.max(initial=0)) for x in (src, tgt)))
    classes = np.searchsorted(_CLASSES, np.arange(longest + 1), "right").tolist()
    room = _Open(length, [*classes, -1])  # index -1, for a space of -1, is the last entry
    row = np.empty(len(order), np.int32)
    for start in range(0, len(order), _BLOCK):
        pairs = order[start : start + _BLOCK]
        row[start : start + len(pairs)] = room.place(src[pairs].tolist(), tgt[pairs].tolist())
    by_row = np.argsort(row, kind="stable")
    return Rows(order[by_row], np.cumsum([0, *np.bincount(row)]))


class _Open:
    """The open rows. Row i has slot i modulo 64, a bit; for each class of free space a bit mask has
    the slots with at least that much, so that few rows are examined per pair.
    """

    def __init__(self, length: int, classes: list[int]) -> None:
        self._length, self._classes, self._rows = length, classes, 0
        self._rooms = [[-1] * _OPEN, [-1] * _OPEN]  # by side and slot
        self._slots = [[0] * (max(classes) + 1) for _ in range(2)]  # by side and class

    def place(self, src: list[int], tgt: list[int]) -> list[int]:
        """Return the row of each pair, given the lengths of the pairs in order."""
        classes, (src_rooms, tgt_rooms) = self._classes, self._rooms
        src_slots, tgt_slots = self._slots
        sides = (src_rooms, src_slots), (tgt_rooms, tgt_slots)
        bins, rows = [], self._rows
        for s, t in zip(src, tgt, strict=True):
            may = src_slots[classes[s]] & tgt_slots[classes[t]]
            oldest = rows % _OPEN  # slot of the oldest open row, if all are in use
            older = may >> oldest << oldest
            may ^= older
            while older or may:
                bit = older & -older or may & -may
                slot = bit.bit_length() - 1
                if src_rooms[slot] >= s and tgt_rooms[slot] >= t:
                    break
                older, may = (older ^ bit, may) if older else (0, may ^ bit)
            else:
                slot, bit = oldest, 1 << oldest
                for rooms, slots in sides:
                    for number in range(classes[rooms[slot]] + 1, classes[self._length] + 1):
                        slots[number] ^= bit
                    rooms[slot] = self._length
                rows += 1
                s, t = min(s, self._length + 1), min(t, self._length + 1)
            for (rooms, slots), taken in zip(sides, (s, t), strict=True):
                before = rooms[slot]
                rooms[slot] = room = before - taken  # -1: a pair too long for any row
                for number in range(classes[room] + 1, classes[before] + 1):
                    slots[number] ^= bit
            bins.append(rows - 1 - (rows - 1 - slot) % _OPEN)
        self._rows = rows
        return bins
