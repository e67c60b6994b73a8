"""Given translations, in batches of few shapes."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import numpy as np

from transformer_jax.data.batch import Batch, Ragged
from transformer_jax.data.batching import fixed_batches
from transformer_jax.data.objectives import OBJECTIVES
from transformer_jax.data.token_store import TokenStore
from transformer_jax.errors import UserError
from transformer_jax.models.model import Model


def each_pair(
    compute: Callable[[Model, Any, Batch], Any],
    model: Model,
    params: Any,
    src: Sequence[Sequence[int]],
    tgt: Sequence[Sequence[int]],
    tokens_per_batch: int,
) -> Iterator[tuple[int, np.ndarray]]:
    """Yield (pair, its row of the array that `compute` returns for a batch), shortest pairs first.

    The arrays of a batch have a pair a row; `tokens_per_batch` is the most positions on each side.

    Raises:
      UserError: if a line has more pieces than the model has learned positions for.
    """
    store = TokenStore(Ragged.from_lists(src), Ragged.from_lists(tgt))
    longest = max((int(n) for side in store for n in side.lengths), default=0)
    lengths = [16]
    while lengths[-1] < longest:  # doubling: few shapes to compile
        lengths.append(2 * lengths[-1])
    most = model.config.position_limit
    if most is not None:
        if longest > most:
            raise UserError(
                f"a line of {longest} pieces with EOS: config.model.max_positions={most} is the "
                "most that this model knows; leave it out or cut it"
            )
        lengths = [*(length for length in lengths if length < most), most]
    for shape, placement in fixed_batches(store, lengths, tokens_per_batch, 1):
        batch = OBJECTIVES["translate"].examples(store, placement, *shape)
        rows = jax.device_get(compute(model, params, batch))
        yield from zip(placement.pairs.tolist(), rows, strict=False)
