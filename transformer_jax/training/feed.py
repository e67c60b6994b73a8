"""Prefetching: batches as arrays on devices, ahead of the step that needs them."""

import itertools
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

from jax.sharding import Mesh

from transformer_jax.data.batches.batching import BatchSource
from transformer_jax.sharding.mesh import place_batches

_AHEAD = 2  # calls whose batches are placed on the devices before they are needed


def feed(
    source: BatchSource, mesh: Mesh, start: int, steps_at: Callable[[int], int] = lambda _: 1
) -> Iterator[Any]:
    """Yield placed batches from number `start` on, endlessly; a thread prepares the next ones.

    Those of several steps at once, as many as `steps_at` says after how many others, are stacked.
    """
    iterator = _prefetched(source, start)
    placed: deque[Any] = deque()
    while True:
        while len(placed) < _AHEAD:
            count = steps_at(start)
            placed.append(place_batches(list(itertools.islice(iterator, count)), mesh))
            start += count
        yield placed.popleft()


def _prefetched(source: BatchSource, start: int) -> Iterator[Any]:
    try:
        import grain
    except ImportError:  # training works without it: batches are quick to make
        return map(source.__getitem__, itertools.count(start))
    batches = grain.MapDataset.source(source).to_iter_dataset(
        grain.ReadOptions(num_threads=1, prefetch_buffer_size=8)
    )
    iterator = iter(batches)
    iterator.set_state({"next_index": start})
    return iterator
