"""Batch shapes for a stream of sentences."""

from collections.abc import Sequence
from typing import NamedTuple

_LENGTHS = (16, 32, 64, 128, 256, 512, 1024)
_SHORT = 128  # positions up to which padding a few sentences is cheap
_FEWEST = 4  # rows: a smaller batch is not worth its compilation
_BRIEF = 32  # positions of most sentences
_FEW = 8  # sentences per device for which another shape is not worth its compilation


class BatchShape(NamedTuple):
    """The shape of a batch."""

    rows: int  # on each device
    src_length: int
    room: int  # for tokens

    @property
    def share(self) -> int:
        """Rows refilled at a time: few, so that few are idle, but not one by one."""
        return max(1, self.rows // 8)


def batch_shapes(
    lengths: Sequence[int],
    limits: Sequence[int],
    width: int,
    budget: int,
    devices: int,
    positions: int = 1 << 30,
    few: bool = False,
) -> list[BatchShape]:
    """Return the shapes for sentences of these lengths and token limits, shortest first.

    `budget` is the maximum of source positions times hypotheses at a time on each device;
    `positions` is how many the model has. With `few`, there is one shape for all sources, and one
    for outputs far longer than they: where compiling takes longer than padding.
    """
    longest = min(next((n for n in _LENGTHS if n >= max(lengths)), max(lengths)), positions)
    most = min(_rounded(max(limits)), positions)
    shapes: list[BatchShape] = []
    shorter = -1  # a prompt may have no piece besides the one that is not read
    for length in (*(n for n in _LENGTHS if n < longest and not few), longest):
        new = -(-sum(shorter < n <= length for n in lengths) // devices)
        if new <= _FEW and length < min(longest, _SHORT):
            continue  # they go with the longer ones
        shorter = length
        if not new:
            continue
        crowd = -(-sum(n <= length for n in lengths) // devices)
        crowd = _rounded(crowd) if crowd <= _FEW else -(-crowd // _FEW) * _FEW
        rows = max(min(budget // (length * width), crowd), 1)
        # Most outputs are about as long as their source, and every step reads the whole room.
        room = min(-(-(length + length // 4 + 2) // 8) * 8, most)
        shapes.append(BatchShape(rows, length, room))
    rows, length, room = shapes[-1]
    fitting = max(4 * budget // (most * width), 1)  # outputs far longer than sources are rare
    if rows <= min(_FEW, fitting):
        return [*shapes[:-1], BatchShape(rows, length, most)]
    if room < most:
        shapes.append(BatchShape(min(-(-rows // 4), fitting), length, most))
    if rows >= 32 and not few:
        shapes.append(BatchShape(min(rows // 16, fitting), length, most))
    return shapes


def live_shapes(longest: int, most: int, rows: int, positions: int = 1 << 30) -> list[BatchShape]:
    """Return the shapes for sentences not known in advance, by length and then by rows.

    They are few, since all are compiled before the first sentence arrives: sources of up to 32
    pieces and of up to `longest`, with outputs of up to `most`; for each a batch of `rows`, a
    small one, and one in between.
    """
    longest = min(-(-max(longest, 1) // 8) * 8, positions)
    most = min(-(-most // 8) * 8, positions)
    short = (_BRIEF, min(_BRIEF + _BRIEF // 2, most))
    sizes = [short, (longest, most)] if longest > _BRIEF or most > short[1] else [(longest, most)]
    if longest <= _BRIEF and len(sizes) == 2:
        sizes[0] = (longest, short[1])
    few = {max(1, rows // 16), max(1, rows // 4)} if rows > _FEWEST else set[int]()
    return [BatchShape(n, *size) for size in sizes for n in sorted({*few, rows})]


def _rounded(number: int) -> int:
    """Round up to a power of two, or beyond 256 to a multiple of 256, to keep shapes few."""
    return 1 << (number - 1).bit_length() if number <= 256 else -(-number // 256) * 256
