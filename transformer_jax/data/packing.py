"""Which pairs share a row."""

import numpy as np

Item = tuple[int, int, int, int]  # pair, source offset, target offset, segment


def first_fit(order: np.ndarray, src: np.ndarray, tgt: np.ndarray, length: int) -> list[list[Item]]:
    """Put each pair into the first of the 64 newest open rows that has room on both sides."""
    rows: list[list[Item]] = []
    used: list[tuple[int, int]] = []
    first_open = 0
    for pair in order.tolist():
        s, t = int(src[pair]), int(tgt[pair])
        for row in range(first_open, len(rows)):
            if used[row][0] + s <= length and used[row][1] + t <= length:
                break
        else:
            row = len(rows)
            rows.append([])
            used.append((0, 0))
            first_open = max(0, row - 63)
        rows[row].append((pair, *used[row], len(rows[row]) + 1))
        used[row] = (used[row][0] + s, used[row][1] + t)
    return rows
