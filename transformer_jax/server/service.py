"""What all requests share: the current model, and reloading it."""

import asyncio
import gc
import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, TypeVar

from transformer_jax.base.errors import UserError
from transformer_jax.server.http import Refusal
from transformer_jax.server.metrics import Metrics
from transformer_jax.server.model import Served
from transformer_jax.server.settings import Settings
from transformer_jax.server.tickets import Worker
from transformer_jax.training.heartbeat import Heartbeat, duration

log = logging.getLogger("transformer_jax")

T = TypeVar("T")
_LOADING = "loading"  # name of threads that load and compile
_AGAIN = 5.0  # seconds after which to retry while the server starts or stops


class Service:
    """A model, the search thread, limits and metrics.

    `load` reads a model; it is called again for each reload. It must neither compute nor compile
    much: `Served.compile` does that while others are served. `steps` says which checkpoint it
    would read.
    """

    def __init__(
        self, load: Callable[[], Served], settings: Settings,
        steps: Callable[[], list[int]] | None = None,
    ) -> None:  # fmt: skip
        self._steps = steps
        self._tried: list[int] | None = None
        self._load, self.settings, self.metrics = load, settings, Metrics()
        with _heard("loading the model"):
            self._model = load()
        self.worker = Worker(settings.queue, self.metrics.searched)
        self.metrics.waiting.set_function(lambda: self.worker.waiting)
        self.metrics.running.set_function(lambda: self.worker.running)
        self.ready, self.closing = False, False
        self.active = 0  # requests that are being answered
        self._reloading = asyncio.Lock()
        self._counting, self._counted = threading.Lock(), 0

    def numbers(self, count: int) -> int:
        """Return the first of the numbers of `count` texts, on which their samples depend. None of
        them repeats before 2**30 texts, whatever is reloaded meanwhile.
        """
        with self._counting:
            first = 1 + self._counted % 2**30
            self._counted += count
            return first

    async def start(self) -> None:
        """Compile everything; requests are refused until then."""
        log.info("compiling; requests are refused meanwhile")
        began = time.monotonic()
        with _heard("compiling, the first time for minutes"):
            await _apart(self._model.compile)
        _settle()
        self.ready = True
        self.metrics.ready.set(1)
        log.info("ready, compiled in %s", duration(time.monotonic() - began))

    @property
    def model(self) -> Served:
        """The current model.

        Raises:
          Refusal: if it is not ready, or the server is shutting down.
        """
        if self.closing:
            raise Refusal(503, "the server is shutting down", _AGAIN)
        if not self.ready:
            raise Refusal(503, "the model is being compiled", _AGAIN)
        if not self.worker.alive:
            raise Refusal(503, "the server has failed; see its log")
        return self._model

    @property
    def loading(self) -> bool:
        """Whether a model is being loaded or compiled."""
        return any(thread.name == _LOADING for thread in threading.enumerate())

    async def reload(self) -> bool:
        """Serve what the work directory holds now; requests in progress keep the previous model.

        If it cannot be read, keep the previous model, log why, and return False.
        """
        async with self._reloading:
            try:
                with _heard("reloading"):
                    model = await _apart(self._loaded)
            except Exception as error:
                known = isinstance(error, UserError | OSError)
                log.error("reload failed; the previous model stays in use: %s", error,
                          exc_info=not known)  # fmt: skip
                self.metrics.reloaded("failed")
                return False
            self._model = model
            _settle()
            self.metrics.reloaded("done")
            log.info("reloaded: %s", model.trained)
            return True

    def stale(self) -> bool:
        """Return whether there is a checkpoint other than the current one; once for each."""
        try:
            steps = self._steps() if self._steps is not None else None
        except (UserError, OSError):
            return False  # the directory is being written, or missing
        news = steps not in (None, self._model.trained.steps, self._tried)
        self._tried = steps
        return news

    def _loaded(self) -> Served:
        model = self._load()
        model.compile()
        return model

    async def drain(self, seconds: float) -> None:
        """Refuse new requests, and wait at most `seconds` for those in progress."""
        self.closing = True
        log.info("shutting down: %d requests are being answered", self.active)
        try:
            async with asyncio.timeout(seconds):
                while self.active:
                    await asyncio.sleep(0.02)
        except TimeoutError:
            log.warning("%d requests were not answered in %g s and are dropped",
                        self.active, seconds)  # fmt: skip
        await asyncio.to_thread(self.worker.close)
        for _ in range(100):  # for the last clients to be told
            if not self.active:
                return
            await asyncio.sleep(0.02)


@contextmanager
def _heard(doing: str) -> Iterator[None]:
    """Log now and then how long something has taken."""
    began = time.monotonic()
    heartbeat = Heartbeat(lambda: f"{doing}: {duration(time.monotonic() - began)} so far")
    heartbeat.start()
    try:
        yield
    finally:
        heartbeat.stop()


async def _apart(function: Callable[[], T]) -> T:
    """Run a slow function in a thread that shutdown does not wait for; return its result."""
    loop, future = asyncio.get_running_loop(), asyncio.get_running_loop().create_future()

    def tell(outcome: Any, error: BaseException | None) -> None:
        if future.done():
            return
        if error is None:
            future.set_result(outcome)
        else:
            future.set_exception(error)

    def work() -> None:
        outcome, failure = None, None
        try:
            outcome = function()
        except BaseException as error:
            failure = error
        with suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(tell, outcome, failure)

    threading.Thread(target=work, name=_LOADING, daemon=True).start()
    return await future


def _settle() -> None:
    """Exclude what is loaded and compiled from garbage collection: going through it would stop all
    requests for half a second, now and then.
    """
    gc.unfreeze()
    gc.collect()
    gc.freeze()
