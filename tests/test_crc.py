"""The CRC-32 of an array is the sum of what its parts add, however it is cut."""

import itertools
import zlib

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from transformer_jax.base.crc import completed, contribution


@st.composite
def cut_arrays(draw):
    """An array, and on each axis the borders of its parts."""
    shape = draw(st.lists(st.integers(1, 40), max_size=3)) + draw(st.sampled_from([[], [7], [130]]))
    borders = [
        sorted({0, size, *draw(st.lists(st.integers(0, size), max_size=2))}) for size in shape
    ]
    dtype = draw(st.sampled_from([np.uint8, np.float16, np.float32, np.int64]))
    seed = draw(st.integers(0, 9))
    values = np.random.default_rng(seed).integers(
        0, 256, (*shape, np.dtype(dtype).itemsize), np.uint8
    )
    return values.reshape(-1).view(dtype).reshape(shape), borders


@given(cut_arrays())
@settings(max_examples=60, deadline=None)
def test_parts_add_up_to_the_checksum_of_the_whole(case):
    array, borders = case
    added = 0
    for part in itertools.product(*map(itertools.pairwise, borders)):
        start = [begin for begin, _ in part]
        added ^= contribution(array[tuple(slice(*ends) for ends in part)], array.shape, start)
    assert completed(added, array.nbytes) == zlib.crc32(array.tobytes())


def test_nothing_adds_nothing():
    empty = np.zeros((0, 3), np.float32)
    assert completed(contribution(empty, (0, 3), (0, 0)), 0) == zlib.crc32(b"") == 0
