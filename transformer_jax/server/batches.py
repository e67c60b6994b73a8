"""The native protocol: /api/batches, for large numbers of texts."""

import asyncio
import time
from collections.abc import AsyncGenerator
from typing import Literal

from starlette.requests import Request
from starlette.responses import Response

from transformer_jax.server.api import Translate
from transformer_jax.server.door import check_texts, read
from transformer_jax.server.events import line, streamed
from transformer_jax.server.model import Served
from transformer_jax.server.own import error_row, translating, translation_row
from transformer_jax.server.refusals import Refusal
from transformer_jax.server.service import Service
from transformer_jax.server.texts import Patience, check_aligns, translations

_WINDOW = 16  # texts in progress at a time


class Batch(Translate):
    """POST /api/batches: large numbers of texts, answered as they finish."""

    priority: Literal["normal", "low"] = "low"


async def batches(service: Service, request: Request) -> Response:
    """Translate many texts, a few at a time, after those of others: JSON lines as they finish."""
    asked = await read(request, Batch, service.settings)
    lines = asked.lines()
    check_texts(lines, service.settings, service.settings.max_batch)
    check_texts([asked.prefix], service.settings)
    model, patience = translating(service), asked.patience(service)
    model.translation(["a"], asked.n_best, asked.prefix, 1)  # errors common to all of them
    check_aligns(model, asked.alignments)
    parts = _batch(service, model, asked, lines, patience)
    most = patience.seconds * (1 + len(lines))
    return await streamed(request, parts, "application/x-ndjson", most)


async def _batch(
    service: Service, model: Served, asked: Batch, lines: list[str], patience: Patience
) -> AsyncGenerator[bytes]:
    async def one(index: int) -> bytes:
        number = None if asked.line is None else asked.line + index
        last = time.monotonic() + patience.seconds
        while True:
            try:
                (found,) = await translations(
                    service, model, [lines[index]], patience, asked.n_best, asked.prefix,
                    asked.alignments, number,
                )  # fmt: skip
                rows = [translation_row(model, t) for t in found]
                return line({"index": index, "translations": rows})
            except Refusal as error:
                if error.status != 429 or time.monotonic() > last:
                    return line({"index": index, "error": error_row(error)})
                await asyncio.sleep(0.2)
            except ValueError as error:  # a UserError: for this line only
                return line({"index": index, "error": error_row(Refusal(400, str(error)))})

    tasks: set[asyncio.Task[bytes]] = set()
    left = iter(range(len(lines)))
    try:
        while True:
            for index in left:
                tasks.add(asyncio.create_task(one(index)))
                if len(tasks) == _WINDOW:
                    break
            if not tasks:
                return
            done, tasks = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                yield task.result()
    finally:
        for task in tasks:
            task.cancel()
