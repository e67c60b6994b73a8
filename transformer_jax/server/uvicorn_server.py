"""uvicorn with additions: a drain at SIGTERM, a limit for slow headers, reloads."""

import asyncio
import logging
import signal
import threading
from typing import Any

import uvicorn
from starlette.applications import Starlette
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from transformer_jax.server.service import Service

log = logging.getLogger("transformer_jax")

_HEADERS = 10.0  # seconds for the headers of a request
_IDLE = 30.0  # seconds that a connection stays open between requests
_LONGEST = 1 << 15  # bytes of the headers
_FED = 1 << 12  # bytes parsed at a time: headers are counted to within as many


class _Patient(HttpToolsProtocol):
    """HTTP/1.1 with a limit for the size of headers, and time limits for these, for the rest of a
    request that was answered before it was complete, and for a client that stops reading its
    response. uvicorn waits for all of these forever.
    """

    _timer: asyncio.TimerHandle | None = None
    _heads = False  # whether the headers of a request are arriving
    _read = 0  # bytes of them, without those parsed together with what came before

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._watch()

    def data_received(self, data: bytes) -> None:
        for start in range(0, len(data), _FED):
            some = data[start : start + _FED]
            arriving = self._heads
            super().data_received(some)
            if self.transport.is_closing():
                break
            self._read += len(some) if self._heads and arriving else 0
            if self._read > _LONGEST:
                self.send_400_response(f"headers of more than {_LONGEST} bytes")
                break
        self._watch()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._heads, self._read = True, 0

    def on_headers_complete(self) -> None:
        super().on_headers_complete()
        self._heads = False
        if self.scope["http_version"] < "1.1":
            self.cycle.send = _Unchunked(self.cycle)  # type: ignore[method-assign]

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._stop()

    def timeout_keep_alive_handler(self) -> None:
        super().timeout_keep_alive_handler()
        self.loop.call_later(_HEADERS, self.transport.abort)  # does nothing once it is closed

    @property
    def _waits(self) -> bool:
        """Whether the connection waits only for what the client sends next."""
        return self.cycle is None or self.cycle.response_complete

    def _watch(self) -> None:
        if not self._waits:
            self._stop()
        elif self._timer is None:
            self._timer = self.loop.call_later(_HEADERS, self._late)

    def _stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _late(self) -> None:
        self._timer = None
        if self._waits and not self.transport.is_closing():
            self.transport.close()
            self.loop.call_later(_HEADERS, self.transport.abort)


class _Unchunked:
    """Sends a response to a client of HTTP/1.0, which knows no chunks: one of unknown length ends
    with the connection.
    """

    def __init__(self, cycle: RequestResponseCycle) -> None:
        self._cycle, self._send, self._open = cycle, cycle.send, False

    async def __call__(self, message: Any) -> None:
        if message["type"] == "http.response.start":
            names = {name.lower() for name, _ in message.get("headers", [])}
            self._open = b"content-length" not in names
            self._cycle.chunked_encoding = False if self._open else None
        elif self._open:  # uvicorn counts down to the end that was announced
            self._cycle.expected_content_length = len(message.get("body", b""))
        await self._send(message)


class Server(uvicorn.Server):
    """A server that finishes requests in progress on exit; a second signal ends it at once."""

    def __init__(
        self, app: Starlette, service: Service, drain: float = 60.0, watch: float = 0.0
    ) -> None:
        config = uvicorn.Config(
            app, http=_Patient, ws="none", lifespan="on", log_config=None,
            access_log=False, server_header=False, timeout_keep_alive=int(_IDLE),
            timeout_graceful_shutdown=int(drain) + 1,
        )  # fmt: skip
        super().__init__(config)
        self._service, self._drain, self._watch = service, drain, watch
        self._tasks: set[asyncio.Task] = set()
        self.failed = False  # whether the search thread ended by itself

    async def startup(self, sockets: Any = None) -> None:
        """Listen."""
        await super().startup(sockets)
        self._loop = asyncio.get_running_loop()
        if hasattr(signal, "SIGHUP") and threading.current_thread() is threading.main_thread():
            self._loop.add_signal_handler(signal.SIGHUP, self._begin, self._service.reload)
        if self._watch:
            self._begin(self._watched)
        for server in self.servers:
            for socket in server.sockets:
                host, port = socket.getsockname()[:2]
                log.info("listening on http://%s:%d", f"[{host}]" if ":" in host else host, port)

    async def on_tick(self, counter: int) -> bool:
        """Return whether to exit."""
        if not self._service.worker.alive and not self._service.closing:
            log.error("the search thread has ended; the server exits")
            self.failed = True
            return True
        return await super().on_tick(counter)

    def handle_exit(self, sig: int, frame: Any) -> None:
        """Drain at the first signal; exit at the second."""
        if self._service.closing or not self.started:
            self.force_exit = True
            super().handle_exit(sig, frame)
        else:
            self._service.closing = True
            self._loop.call_soon_threadsafe(self._begin, self._end)

    def _begin(self, work: Any) -> None:
        task = self._loop.create_task(work())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _end(self) -> None:
        await self._service.drain(self._drain)
        self.should_exit = True

    async def _watched(self) -> None:
        """Reload when the work directory names a checkpoint other than the one loaded."""
        while True:
            await asyncio.sleep(self._watch)
            if await asyncio.to_thread(self._service.stale):
                await self._service.reload()
