"""CRC-32 of an array from its parts, each computed where the part is.

The register of a CRC is linear in the message (Peterson and Brown 1961): what a part adds to it is
its own register, shifted by the bytes that follow; and additions are by exclusive or.
"""

import functools
import zlib
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

_POLYNOMIAL = 0xEDB88320  # of zlib, lowest power in the highest bit
_ONES = 0xFFFFFFFF
_SHORT = 64  # bytes of a run up to which columns are faster than a call of zlib for each


def contribution(part: np.ndarray, shape: Sequence[int], start: Sequence[int]) -> int:
    """Return what a part, which begins at indices `start` of an array, adds to the array's CRC."""
    if not part.size:
        return 0
    size, runs = part.dtype.itemsize, [*part.shape]
    axis = len(shape) - 1
    while axis > 0 and runs[axis] == shape[axis]:
        axis -= 1
    axis = max(axis, 0)  # from this one on, bytes are consecutive
    length = size * int(np.prod(runs[axis:], dtype=np.int64))
    rows = np.ascontiguousarray(part).reshape(-1).view(np.uint8).reshape(-1, length)
    added = _registers(rows).reshape(runs[:axis] or (1,))
    stride = size * int(np.prod(shape[axis:], dtype=np.int64))
    if shape:
        after = stride // shape[axis] * (shape[axis] - start[axis] - runs[axis])
        added = _shifted(added, after)
    for outer in reversed(range(axis)):
        added = _joined(added, stride)
        added = _shifted(added, stride * (shape[outer] - start[outer] - runs[outer]))
        stride *= shape[outer]
    return int(added.reshape(()))


def completed(added: int, size: int) -> int:
    """Return the CRC-32 of an array of `size` bytes, given the sum of all contributions."""
    ones = _shifted(np.array([_ONES], np.uint32), size)
    return added ^ int(ones[0]) ^ _ONES


def _registers(rows: NDArray[np.uint8]) -> NDArray[np.uint32]:
    """Return the register after each row, from 0."""
    if rows.shape[1] > _SHORT:
        calls = (zlib.crc32(row.data, _ONES) ^ _ONES for row in rows)
        return np.fromiter(calls, np.uint32, len(rows))
    table, register = _bytewise(), np.zeros(len(rows), np.uint32)
    for column in rows.T:
        register = table[(register ^ column) & 0xFF] ^ (register >> 8)
    return register


def _joined(registers: NDArray[np.uint32], stride: int) -> NDArray[np.uint32]:
    """Add along the last axis, each followed by `stride` bytes more than the next one."""
    while registers.shape[-1] > 1:
        if registers.shape[-1] % 2:
            nothing = np.zeros_like(registers[..., :1])
            registers = np.concatenate([nothing, registers], -1)
        registers = _shifted(registers[..., ::2], stride) ^ registers[..., 1::2]
        stride *= 2
    return registers[..., 0]


def _shifted(registers: NDArray[np.uint32], count: int) -> NDArray[np.uint32]:
    """Return registers after `count` further bytes of zero."""
    if not count:
        return registers
    tables = _shift(count)
    pieces = (tables[i][(registers >> 8 * i) & 0xFF] for i in range(4))
    return functools.reduce(np.bitwise_xor, pieces)


@functools.lru_cache(maxsize=1024)
def _shift(count: int) -> NDArray[np.uint32]:
    """Return the images of all values of each byte of a register, [4, 256]."""
    power = _power(8 * count)
    images = np.zeros((4, 256), np.uint32)
    for bit in range(32):
        byte, low = divmod(bit, 8)
        with_bit = np.arange(256) >> low & 1 == 1
        images[byte, with_bit] ^= np.uint32(_product(1 << bit, power))
    return images


def _power(exponent: int) -> int:
    """Return x to the power of `exponent`, modulo the polynomial."""
    result, factor = 1 << 31, 1 << 30
    while exponent:
        if exponent & 1:
            result = _product(result, factor)
        factor, exponent = _product(factor, factor), exponent >> 1
    return result


def _product(one: int, other: int) -> int:
    result = 0
    for bit in range(31, -1, -1):
        if one >> bit & 1:
            result ^= other
        other = other >> 1 ^ (_POLYNOMIAL if other & 1 else 0)
    return result


@functools.cache
def _bytewise() -> NDArray[np.uint32]:
    """Return the register after one byte, by its value."""
    return _shift(1)[0]
