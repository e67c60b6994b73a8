"""The shapes of the batches that a stream of sentences goes through."""

from collections.abc import Sequence
from typing import NamedTuple

_LENGTHS = (16, 32, 64, 128, 256, 512, 1024)
_FEW = 8  # sentences on a device for which another shape is not worth its compilation


class Rung(NamedTuple):
    """The shape of a batch."""

    rows: int  # on each device
    src_length: int
    room: int  # for tokens

    @property
    def share(self) -> int:
        """Rows that are refilled at a time: few, so that few stand idle, but not one by one."""
        return max(1, self.rows // 8)


def ladder(
    lengths: Sequence[int],
    limits: Sequence[int],
    width: int,
    budget: int,
    devices: int,
    positions: int = 1 << 30,
) -> list[Rung]:
    """Return the rungs for sentences of these lengths and most tokens, shortest first.

    `budget` is the most source positions times hypotheses at a time, on each device; `positions` is
    how many the model knows.
    """
    longest = min(next((n for n in _LENGTHS if n >= max(lengths)), max(lengths)), positions)
    most = min(_rounded(max(limits)), positions)
    rungs = []
    shorter = 0
    for length in (*(n for n in _LENGTHS if n < longest), longest):
        new = -(-sum(shorter < n <= length for n in lengths) // devices)
        if new <= _FEW and length < min(longest, _LENGTHS[3]):
            continue  # they go with the longer ones
        crowd = -(-sum(n <= length for n in lengths) // devices)
        crowd = 1 << (crowd - 1).bit_length() if crowd <= _FEW else -(-crowd // _FEW) * _FEW
        rows = min(budget // (length * width), crowd)
        # Most outputs are about as long as their source, and every step reads the whole room.
        room = min(-(-(length + length // 4 + 2) // 8) * 8, most)
        if new:
            rungs.append(Rung(max(rows, 1), length, room))
        shorter = length
    rows, length, room = rungs[-1]
    if rows <= _FEW:
        return [*rungs[:-1], Rung(rows, length, most)]
    if room < most:
        rungs.append(Rung(-(-rows // 4), length, most))
    if rows >= 32:
        rungs.append(Rung(rows // 16, length, most))
    return rungs


def _rounded(limit: int) -> int:
    """Return a room for that many tokens; there are few, so that few are compiled."""
    return 1 << (limit - 1).bit_length() if limit <= 256 else -(-limit // 256) * 256
