"""Continuous batching: sentences flow through a batch and take the places of finished ones.

A batch has a static shape: the number of sentences, the source length, and the room for tokens.
Sentences are taken shortest first. When all that fit one shape have started, those still active
move on to the next shape, among longer sentences; so do sentences whose output outgrew its room.
The last shapes hold ever fewer sentences, so that stragglers do not drag a full batch along.

With several devices, each has its own rows and its own loop; nothing is exchanged.
"""

import itertools
from collections import deque
from collections.abc import Generator, Iterator, Sequence
from typing import Any

import numpy as np

from transformer_jax.decoding.batching.batch_shapes import batch_shapes
from transformer_jax.decoding.batching.engine import Engine
from transformer_jax.decoding.batching.rows import (
    Found,
    Moving,
    Rows,
    Sentence,
)
from transformer_jax.decoding.search.acceptance import Acceptance
from transformer_jax.decoding.search.request import Form
from transformer_jax.decoding.search.state import Search

__all__ = ["Sentence", "stream"]

_TURN = 8  # shares of a batch's rows that are admitted before results are reported


def stream(
    engine: Engine,
    search: Search,
    params: Any,
    sentences: Sequence[Sentence],
    budget: int,
    positions: int = 1 << 30,
    acceptance: Acceptance | None = None,
) -> Iterator[Found]:
    """Yield the results of each sentence, best hypothesis first, in the order of finishing.

    `budget` is the maximum of source positions times hypotheses at a time on a device; `positions`
    is how many the model has; `acceptance` counts accepted proposals of drafts, if any.
    """
    if not sentences:
        return
    lengths = [len(sentence.ids) for sentence in sentences]
    limits = [sentence.limit for sentence in sentences]
    order = sorted(range(len(sentences)), key=lengths.__getitem__)
    shapes = batch_shapes(
        lengths, limits, search.width, budget, engine.devices, positions, engine.accelerated
    )
    moving: Moving = []
    for shape, following in itertools.zip_longest(shapes, shapes[1:]):
        mine = [i for i in order if lengths[i] <= shape.src_length]
        order = order[len(mine) :]
        next_rows = 0 if following is None else following.rows
        arguments = engine, search, params, shape, next_rows
        rows = Rows(*arguments, _form(sentences), acceptance)
        queues = [deque(mine[device :: engine.devices]) for device in range(engine.devices)]
        moving = yield from _drain(rows, next_rows, moving, queues, sentences)


def _form(sentences: Sequence[Sentence]) -> Form:
    ids, shortlist = sentences[0].ids, sentences[0].shortlist
    longest = max(len(sentence.prefix) for sentence in sentences)
    return Form(
        prefix=-(-longest // 8) * 8,  # few shapes
        channels=ids.shape[1] if isinstance(ids, np.ndarray) and ids.ndim == 2 else None,
        shortlist=0 if shortlist is None else len(shortlist),
    )


def _drain(
    rows: Rows, next_rows: int, moving: Moving, queues: Sequence[deque[int]],
    sentences: Sequence[Sentence],
) -> Generator[Found, None, Moving]:  # fmt: skip
    """Search until the next shape can take over; yield results, return the sentences left.

    Sentences moving from the previous shape are admitted before those waiting in the queues.
    """
    left: Moving = []
    runs = not any(queues)  # no sentence starts here, so no program for that is needed
    size = _TURN * rows.shape.share
    while True:
        while moving and rows.fits(moving[-1][1]):
            rows.put(*moving.pop())
        # Number of active sentences per device at which others can be admitted.
        wake = np.full(len(queues), next_rows)
        if moving:
            wake[:] = rows.shape.rows - int((moving[-1][1] >= 0).sum(1).max())
        elif not any(queues) and (rows.owners >= 0).sum(1).max() <= next_rows:
            return left + list(rows.remove(rows.owners >= 0))
        if runs:
            rows.run(int(wake[0]))
            left += yield from rows.harvest()
            continue
        parts = [[] if moving else list(itertools.islice(queue, size)) for queue in queues]
        for device, queue in enumerate(queues):
            if len(queue) > len(parts[device]) and not moving:
                wake[device] = rows.shape.rows - rows.shape.share
        numbered = [[(i, sentences[i]) for i in part] for part in parts]
        drained = yield from rows.drain(numbered, size, wake)
        left += drained.paused
        for queue, count in zip(queues, drained.entered, strict=True):
            for _ in range(count):
                queue.popleft()
