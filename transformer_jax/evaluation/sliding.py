"""Sliding windows: each piece of a text, given at least so many of those before it."""

from collections.abc import Sequence

import numpy as np

from transformer_jax.data.batches.batch import Ragged
from transformer_jax.decoding.loaded import Loaded
from transformer_jax.decoding.text.score import log_probs_of_items, validation_items


def sliding_log_probs(
    loaded: Loaded, texts: Sequence[str], stride: int, tokens_per_batch: int = 4096
) -> list[np.ndarray]:
    """Return the log-probability of each piece, by the windows of training, in the order of the
    texts.

    Windows of the same length overlap: after the first of a text each ends `stride` pieces after
    the one before, or with the text, and what that one does not predict counts. So each piece has
    at least objective.window - stride pieces before it, or all that its text has.
    """
    items = validation_items(loaded, texts)
    trained = items.tgt
    windows, counted = overlapping(trained, loaded.objective.window, stride)
    items = type(items)(windows.emptied(), windows, items.special)
    said = log_probs_of_items(loaded, items, tokens_per_batch)
    each = [row[len(row) - n :] for row, n in zip(said, counted.tolist(), strict=True)]
    return np.split(np.concatenate([*each, np.zeros(0)]), np.cumsum(trained.lengths)[:-1])


def overlapping(windows: Ragged, most: int, stride: int) -> tuple[Ragged, np.ndarray]:
    """Return windows of at most `most` labels over the texts of consecutive ones, each of which
    ends `stride` labels after the one before it, or where its text does; and how many labels at the
    end of each are in no earlier one [n].
    """
    ends = windows.starts + windows.lengths
    # The next text begins with a piece of its own; a window with the last label of the one before.
    first = np.append(True, windows.starts[1:] != ends[:-1])[: len(ends)]
    last = np.append(first[1:], True)[: len(ends)]
    starts, lengths, counted = ([np.zeros(0, np.int64)] for _ in range(3))
    for begin, end in zip(windows.starts[first], ends[last], strict=True):
        stops = np.append(np.arange(min(begin + most, end), end, stride), end)
        begins = np.maximum(stops - most, begin)
        starts.append(begins)
        lengths.append(stops - begins)
        counted.append(np.diff(stops, prepend=begin))
    overlap = windows._replace(starts=np.concatenate(starts), lengths=np.concatenate(lengths))
    return overlap, np.concatenate(counted)
