"""Teacher forcing: running a model on given texts, in batches of few shapes."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import jax
import numpy as np

from transformer_jax.base.errors import UserError
from transformer_jax.config import ModelConfig, ObjectiveConfig
from transformer_jax.data.batches.batch import Batch, Ragged
from transformer_jax.data.batches.batching import fixed_batches
from transformer_jax.data.codecs.codec import special_of
from transformer_jax.data.store.token_store import TokenStore
from transformer_jax.decoding.loaded import Loaded
from transformer_jax.models.model import Model


def each_pair(
    compute: Callable[[Model, Any, Batch], Any],
    loaded: Loaded,
    src: Sequence[Sequence[int]],
    tgt: Sequence[Sequence[int]],
    tokens_per_batch: int,
) -> Iterator[tuple[int, np.ndarray]]:
    """Yield (pair, its row of the array that `compute` returns for a batch); see `each_item`. Each
    target is written from its source, whatever the objective.
    """
    loaded = replace(loaded, objective=ObjectiveConfig("translate"))
    special = special_of(loaded.codecs.tgt)
    items = TokenStore(Ragged.from_lists(src), Ragged.from_lists(tgt), special)
    for pair, row, _ in each_item(compute, loaded, items, tokens_per_batch):
        yield pair, row


def each_item(
    compute: Callable[[Model, Any, Batch], Any],
    loaded: Loaded,
    items: TokenStore,
    tokens_per_batch: int,
) -> Iterator[tuple[int, Any, np.ndarray]]:
    """Yield (item, its row of the array that `compute` returns for a batch, or of each array, the
    positions of the row where something is predicted, by the main target if there are several),
    shortest first.

    The arrays of a batch have one item per row; `tokens_per_batch` is the most positions per side.

    Raises:
      UserError: if an item has more pieces than the model has learned positions for.
    """
    longest = max((int(n) for side in items.lengths for n in side), default=0)
    lengths = [16]
    while lengths[-1] < longest:  # doubling: few shapes to compile
        lengths.append(2 * lengths[-1])
    check_positions(loaded.model.config, longest)
    most = loaded.model.config.position_limit
    if most is not None:
        lengths = [*(length for length in lengths if length < most), most]
    for shape, placement in fixed_batches(items, lengths, tokens_per_batch, 1):
        batch = loaded.task.examples(items, placement, *shape)
        rows = jax.device_get(compute(loaded.model, loaded.params, batch))
        weights = batch.targets[batch.main].weight
        predicted = [np.flatnonzero(weight) for weight in weights]
        rows = zip(*rows, strict=True) if isinstance(rows, tuple) else rows
        yield from zip(placement.pairs.tolist(), rows, predicted, strict=False)


def check_positions(config: ModelConfig, longest: int) -> None:
    """Check that a model has enough positions.

    Raises:
      UserError: if it does not.
    """
    most = config.position_limit
    if most is not None and longest > most:
        raise UserError(
            f"a line of {longest} pieces with EOS: config.model.max_positions={most} is the most "
            "that this model can read; leave it out or shorten it"
        )
