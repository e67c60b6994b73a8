"""Continuous batching: sentences flow through a batch and take the places of finished ones.

A batch has static shapes: so many sentences of such a length with room for so many tokens.
Sentences are taken shortest first. When those that fit one shape have all begun, what is still
active moves on to the next one, among longer sentences; so do sentences whose output outgrew their
room. The last shapes hold ever fewer sentences, so that stragglers do not drag a full batch along.

On several devices each has rows of its own and loops on its own; nothing is exchanged.
"""

import itertools
from collections.abc import Generator, Iterator, Sequence
from typing import Any

import jax
import numpy as np

from transformer_jax.decoding.batching.batch_shapes import BatchShape, batch_shapes
from transformer_jax.decoding.batching.engine import Engine
from transformer_jax.decoding.batching.rows import (
    Found,
    Moving,
    Owners,
    Rows,
    Sentence,
    request_of,
)
from transformer_jax.decoding.search.acceptance import Acceptance
from transformer_jax.decoding.search.state import Search, SearchRequest

__all__ = ["Sentence", "stream"]


def stream(
    engine: Engine,
    search: Search,
    params: Any,
    sentences: Sequence[Sentence],
    budget: int,
    positions: int = 1 << 30,
    acceptance: Acceptance | None = None,
) -> Iterator[Found]:
    """Yield what is found for each sentence, best hypothesis first, in the order of finishing.

    `budget` is the most source positions times hypotheses at a time on a device; `positions` is how
    many the model knows; `acceptance` counts how drafts fare, where there are any.
    """
    if not sentences:
        return
    lengths = [len(sentence.ids) for sentence in sentences]
    limits = [sentence.limit for sentence in sentences]
    order = sorted(range(len(sentences)), key=lengths.__getitem__)
    shapes = batch_shapes(lengths, limits, search.width, budget, engine.devices, positions)
    moving: Moving = []
    for shape, following in itertools.zip_longest(shapes, shapes[1:]):
        mine = [i for i in order if lengths[i] <= shape.src_length]
        order = order[len(mine) :]
        next_rows = 0 if following is None else following.rows
        prefix = _prefix_length(sentences)
        given = engine, search, params, shape, next_rows, prefix
        rows = Rows(*given, acceptance=acceptance, channels=_channels(sentences))
        fresh = _requests(engine, shape, mine, sentences)
        moving = yield from _drain(rows, next_rows, moving, fresh)


def _requests(
    engine: Engine, shape: BatchShape, order, sentences: Sequence[Sentence]
) -> Iterator[tuple[SearchRequest, Owners]]:
    """Yield the sentences that begin in a shape, a share of its rows at a time."""
    size = shape.share * engine.devices
    prefix = _prefix_length(sentences)
    for start in range(0, len(order), size):
        part = [(i, sentences[i]) for i in order[start : start + size]]
        given = engine.devices, shape.share, shape.src_length, prefix, part
        yield request_of(*given, channels=_channels(sentences))


def _channels(sentences: Sequence[Sentence]) -> int | None:
    first = sentences[0].ids
    return first.shape[1] if isinstance(first, np.ndarray) and first.ndim == 2 else None


def _prefix_length(sentences: Sequence[Sentence]) -> int:
    longest = max(len(sentence.prefix) for sentence in sentences)
    return -(-longest // 8) * 8  # few shapes


def _drain(
    rows: Rows, next_rows: int, moving: Moving, fresh: Iterator[tuple[SearchRequest, Owners]]
) -> Generator[Found, None, Moving]:
    """Search until the next shape can take over; yield what is found, return what is left.

    Sentences on the move from the shape before come in ahead of the fresh ones.
    """
    left: Moving = []
    waiting = next(fresh, None)
    nobody = None
    if waiting is not None:  # admitting nobody is no other program than admitting somebody
        nobody = jax.tree.map(np.zeros_like, waiting[0]), np.full_like(waiting[1], -1)
    while True:
        while moving and rows.fits(moving[-1][1]):
            rows.put(*moving.pop())
        entering = nobody
        if waiting is not None and not moving and rows.fits(waiting[1]):
            entering, waiting = waiting, next(fresh, None)
        following = moving[-1] if moving else waiting
        wake = next_rows  # active sentences of a device that are few enough for others to come in
        if following is not None:
            wake = rows.shape.rows - int((following[1] >= 0).sum(1).max())
        if entering is nobody and (rows.owners >= 0).sum(1).max() <= wake:
            return left + list(rows.remove(rows.owners >= 0))
        if entering is None:
            rows.run(wake)
        else:
            rows.admit(*entering, wake)
        left += yield from rows.harvest()
