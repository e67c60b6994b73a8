"""Streaming responses: server-sent events and JSON lines."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import suppress
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from transformer_jax.server.asking import Gone, unless_gone


def event(value: Any) -> bytes:
    """Return a value as a server-sent event."""
    return b"data: " + msgspec.json.encode(value) + b"\n\n"


def line(value: Any) -> bytes:
    """Return a value as a JSON line."""
    return msgspec.json.encode(value) + b"\n"


async def streamed(
    request: Request, parts: AsyncGenerator[bytes], media_type: str, seconds: float
) -> Response:
    """Return a response that sends parts as they come, for at most `seconds`.

    It waits for the first part, so that earlier errors have their own status.
    """
    try:
        first = await unless_gone(request, anext(parts, b""))
    except BaseException:
        await parts.aclose()
        raise
    return _Stream(first, parts, media_type, seconds)


class _Stream(Response):
    """A streaming response, closed as soon as the client disconnects or reads too slowly."""

    def __init__(
        self, first: bytes, parts: AsyncGenerator[bytes], media_type: str, seconds: float
    ) -> None:
        headers = {"cache-control": "no-store", "x-accel-buffering": "no"}
        super().__init__(None, 200, headers, media_type)
        del self.headers["content-length"]
        self._first, self._parts, self._seconds = first, parts, seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        try:
            with suppress(Gone, TimeoutError, OSError):
                async with asyncio.timeout(self._seconds):
                    await unless_gone(request, self._send(send))
        finally:
            await self._parts.aclose()

    async def _send(self, send: Send) -> None:
        await send(
            {"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers}
        )
        await send({"type": "http.response.body", "body": self._first, "more_body": True})
        async for part in self._parts:
            await send({"type": "http.response.body", "body": part, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})
