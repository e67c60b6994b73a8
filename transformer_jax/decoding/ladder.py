"""The shapes of the batches that a stream of sentences goes through."""

from collections.abc import Sequence
from typing import NamedTuple

_LENGTHS = (16, 32, 64, 128, 256, 512, 1024)


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
    most = min(-(-max(limits) // 32) * 32, positions)  # few shapes, here too
    rungs = []
    shorter = 0
    for length in (*(n for n in _LENGTHS if n < longest), longest):
        crowd = -(-sum(n <= length for n in lengths) // devices)
        crowd = crowd if crowd < 8 else -(-crowd // 8) * 8  # few shapes
        rows = min(budget // (length * width), crowd)
        # Most outputs are about as long as their source, and every step reads the whole room.
        room = min(-(-(length + length // 4 + 2) // 8) * 8, most)
        if any(shorter < n <= length for n in lengths):
            rungs.append(Rung(max(rows, 1), length, room))
        shorter = length
    rows, length, room = rungs[-1]
    fitting = max(4 * budget // (most * width), 1)  # outputs far longer than sources are few
    if room < most:
        rungs.append(Rung(min(-(-rows // 4), fitting), length, most))
    if rows >= 32:
        rungs.append(Rung(min(rows // 16, fitting), length, most))
    return rungs
