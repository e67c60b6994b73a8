"""Search processes, and the models that they have.

XLA's devices on one CPU share a pool of threads, among which the many small kernels of a search
hop; two processes with a core each search up to twice as fast as one with two devices.
"""

import logging
import os
import pickle
import re
import socket
import subprocess
import sys
import threading
import weakref
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import transformer_jax
from transformer_jax.config import parts
from transformer_jax.data.store.encoding import cores
from transformer_jax.decoding.text.live import LivePlan
from transformer_jax.server.processes import child
from transformer_jax.server.processes.spread import SpreadStream

log = logging.getLogger("transformer_jax")

Plans = Mapping[str, LivePlan]  # by kind of search

_DEVICES = re.compile(r"--xla_force_host_platform_device_count=\S*")


class SearchProcess:
    """A process on some cores. `told` gets its messages, and `ended` is called at its end, both in
    a thread of its own.
    """

    def __init__(
        self, cores: list[int], told: Callable[["SearchProcess", list[tuple]], None],
        ended: Callable[["SearchProcess"], None],
    ) -> None:  # fmt: skip
        self.cores, self._told, self._at_end = cores, told, ended
        self.models: set[int] = set()  # those it has
        self.texts = 0  # that it is searching, or will
        self.ended = False
        self._loading: dict[int, Future[None]] = {}
        self._sending = threading.Lock()
        path = os.pathsep.join([str(Path(transformer_jax.__file__).parents[1]), *sys.path])
        flags = _DEVICES.sub("", os.environ.get("XLA_FLAGS", ""))
        count = str(len(cores))
        mine = {"PYTHONPATH": path, "JAX_PLATFORMS": "cpu", "XLA_FLAGS": flags}
        mine |= {"NPROC": count, "OMP_NUM_THREADS": count}
        ours, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", child.__name__, str(theirs.fileno()),
                 ",".join(map(str, cores))],
                stdin=subprocess.DEVNULL, stdout=2, env=os.environ | mine,
                pass_fds=[theirs.fileno()],
            )  # fmt: skip
        self._connection = Connection(ours.detach())
        threading.Thread(target=self._read, daemon=True).start()

    def send(self, *message: Any) -> None:
        """Send a message; nothing happens if the process has ended."""
        with self._sending, suppress(OSError):  # `ended` is called
            self._connection.send(message)

    def load(self, model: int, *values: Any) -> Future[None]:
        """Have it make and compile the streams of a model."""
        future = self._loading[model] = Future()
        if self.ended:
            self._fail()
        self.send("load", model, *values)
        return future

    def loaded(self, model: int, reason: str | None) -> None:
        """Note that it has a model now, or the reason why not."""
        if reason is None:
            self.models.add(model)
        if (future := self._loading.pop(model, None)) is not None:
            if reason is None:
                future.set_result(None)
            else:
                future.set_exception(RuntimeError(reason))

    def kill(self) -> None:
        """End it."""
        self._process.kill()

    def wait(self) -> int:
        """Wait for its end, and return its exit code."""
        return self._process.wait()

    def _read(self) -> None:
        try:
            while True:
                self._told(self, self._connection.recv())
        except (OSError, EOFError, pickle.UnpicklingError):
            self.ended = True
            self.kill()
            self._fail()
            self._at_end(self)

    def _fail(self) -> None:
        for model in list(self._loading):
            self.loaded(model, f"a search process ended, exit code {self.wait()}")


class SearchPool:
    """Processes that share the cores. One that ends is replaced, and its texts start again."""

    def __init__(self, count: int) -> None:
        self.news = threading.Event()  # there may be something to do
        self.gone: deque[int] = deque()  # models that nobody uses any more
        self._plans: dict[int, Plans] = {}
        self._streams: weakref.WeakValueDictionary[child.Key, SpreadStream]
        self._streams = weakref.WeakValueDictionary()
        self._numbers, self._closed, self._lock = 0, False, threading.Lock()
        self._all: list[SearchProcess] = []
        with self._lock:
            self._all += [self._process(cores()[index::count]) for index in range(count)]

    @property
    def processes(self) -> list[SearchProcess]:
        """Those that have not ended."""
        return [process for process in self._all if not process.ended]

    def add(self, plans: Plans) -> "SpreadStreams":
        """Return the streams of a new model; `compile` has the processes make them."""
        self._numbers += 1
        self._plans[self._numbers] = plans
        return SpreadStreams(self, self._numbers, plans)

    def stream(self, model: int, kind: str) -> SpreadStream:
        """Return a stream that hears of this kind of search from now on."""
        stream = SpreadStream(self, model, kind, self._plans[model][kind])
        self._streams[model, kind] = stream
        return stream

    def load(self, model: int, processes: list[SearchProcess]) -> None:
        """Have processes make and compile the streams of a model, and wait for it.

        Raises:
          RuntimeError: if one could not, or there is none.
        """
        if not processes:
            raise RuntimeError("all search processes have ended")
        pickled = pickle.dumps({kind: plan.to_host() for kind, plan in self._plans[model].items()})
        # Each begins with other programs, and finds those of the others in the cache.
        begins = [index / len(processes) for index in range(len(processes))]
        futures = [process.load(model, parts.admitted(), pickled, begin)
                   for process, begin in zip(processes, begins, strict=True)]  # fmt: skip
        for future in futures:
            future.result()

    def forget(self) -> None:
        """Drop the models that nobody uses any more."""
        while self.gone:
            model = self.gone.popleft()
            self._plans.pop(model, None)
            for process in self.processes:
                process.models.discard(model)
                process.send("forget", model)

    def close(self) -> None:
        """End all processes."""
        with self._lock:
            self._closed = True
        for process in self._all:
            process.kill()
            process.wait()

    def _process(self, cores: list[int]) -> SearchProcess:
        return SearchProcess(cores, self._told, self._ended)

    def _told(self, process: SearchProcess, messages: list[tuple]) -> None:
        """Pass messages on to those who wait for them."""
        for name, model, *values in messages:
            if name == "loaded":
                process.loaded(model, *values)
                if model not in self._plans:
                    process.send("forget", model)
            elif (stream := self._streams.get((model, values[0]))) is not None:
                stream.hear(process, name, *values[1:])
        self.news.set()

    def _ended(self, process: SearchProcess) -> None:
        """Replace a process that has ended, unless it never had a model."""
        with self._lock:
            if self._closed:
                return
            new = self._process(process.cores) if process.models else None
            self._all = self.processes + ([new] if new else [])
        code = process.wait()
        what = "starting another" if new else "it was not ready yet"
        log.error("a search process ended, exit code %s; %s", code, what)
        for stream in list(self._streams.values()):
            stream.hear(process, "ended", f"a search process ended, exit code {code}")
        self.news.set()
        if new is None:
            return
        try:
            for model in list(self._plans):
                self.load(model, [new])
        except RuntimeError as error:
            log.error("a search process could not be replaced: %s", error)
            new.models.clear()  # so that it is not replaced again
            new.kill()


class SpreadStreams:
    """The streams of a model, each spread over all processes of a pool; see `LocalStreams`."""

    def __init__(self, pool: SearchPool, model: int, plans: Plans) -> None:
        self._pool, self._model = pool, model
        self.streams = {kind: pool.stream(model, kind) for kind in plans}
        weakref.finalize(self, pool.gone.append, model).atexit = False

    def compile(self) -> None:
        """Have all processes make and compile their streams."""
        self._pool.load(self._model, self._pool.processes)

    def renew(self, kind: str) -> None:
        """Restart a stream, without its sentences."""
        if not self._pool.processes:
            raise RuntimeError("all search processes have ended")
        for number in self.streams[kind].numbers:
            self.streams[kind].release(number)
        self.streams[kind] = self._pool.stream(self._model, kind)
