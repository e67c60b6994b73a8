"""What a model predicts at each position of the items of another model's training."""

import functools
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from transformer_jax.base.arrays import Array, Float, Int
from transformer_jax.data.batches.batch import Batch, Ragged
from transformer_jax.data.store.teacher_files import Predictions
from transformer_jax.data.store.token_store import TokenStore
from transformer_jax.decoding.loaded import Loaded
from transformer_jax.decoding.text.teacher_forced import each_item
from transformer_jax.models.model import Model

_POSITIONS = 2**17  # whose predictions are held at a time


def predictions_of(
    loaded: Loaded, items: TokenStore, kept: np.ndarray, first: int, top_k: int,
    temperatures: tuple[float, ...], tokens_per_batch: int = 4096,
) -> Iterator[Ragged]:  # fmt: skip
    """Yield the packed predictions of consecutive items from number `first` on, none for those that
    are not `kept` [n]: the `top_k` likeliest pieces where the objective predicts one, without
    dropout.
    """
    compute = functools.partial(_likeliest, top_k=top_k, temperatures=temperatures)
    width = 2 * top_k + len(temperatures)
    size = max(1, _POSITIONS // max(1, int(np.maximum(*items.lengths).mean())))
    for begin in range(first, len(items), size):
        end = min(begin + size, len(items))
        chosen = begin + np.flatnonzero(kept[begin:end])
        rows = [np.zeros((0, width), np.int32)] * (end - begin)
        part = _only(items, chosen)
        for number, arrays, predicted in each_item(compute, loaded, part, tokens_per_batch):
            found = Predictions(*(array[predicted] for array in arrays))
            rows[chosen[number] - begin] = found.packed
        yield Ragged.from_lists(rows)


def _only(items: TokenStore, numbers: np.ndarray) -> TokenStore:
    """Return some of the items; sides without sequences stay so."""
    src, tgt = (
        side._replace(starts=side.starts[numbers], lengths=side.lengths[numbers])
        if len(side.lengths) else side
        for side in items[:2]
    )  # fmt: skip
    return type(items)(src, tgt, items.special)


@functools.partial(jax.jit, static_argnums=0, static_argnames=("top_k", "temperatures"))
def _likeliest(
    model: Model, params: Any, batch: Batch, top_k: int, temperatures: tuple[float, ...]
) -> tuple[Int[Array, "B T K"], Float[Array, "B T K"], Float[Array, "B T _"]]:
    logs = jax.nn.log_softmax(model.outputs(params, batch, None)["tokens"].logits())
    log_probs, ids = jax.lax.top_k(logs, top_k)
    others = jnp.put_along_axis(logs, ids, -jnp.inf, axis=-1, inplace=False)
    rest = [jax.nn.logsumexp(others / t, axis=-1) for t in temperatures]
    return ids, log_probs, jnp.stack(rest, axis=-1)
