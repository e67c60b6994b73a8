"""A search process: `python -m` this file, with an open socket and the cores that it may use.

It gets plans of streams and sentences from its parent, and sends results: see `pool`. It ends when
the parent does.
"""

import os
import pickle
import signal
import sys
import threading
import traceback
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from queue import SimpleQueue
from typing import Any

from transformer_jax.config import parts

Key = tuple[int, str]  # the number of a model, and the kind of search


@dataclass
class Texts:
    """A stream, and the sentences that it has not admitted yet."""

    stream: Any
    waiting: dict[int, Any] = field(default_factory=dict)
    watched: set[int] = field(default_factory=set)

    @property
    def busy(self) -> bool:
        return bool(self.waiting or self.stream.numbers)


class Searcher:
    """Turns of all streams. Messages arrive in a thread and are handled between turns; another
    thread sends those of a moment together.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._inbox: SimpleQueue[tuple] = SimpleQueue()
        self._outbox: SimpleQueue[tuple] = SimpleQueue()
        self._plans: dict[Key, Any] = {}
        self._texts: dict[Key, Texts] = {}

    def run(self) -> None:
        """Search until the parent ends."""
        for work in (self._read, self._write):
            threading.Thread(target=work, daemon=True).start()
        while True:
            idle = not any(texts.busy for texts in self._texts.values())
            while idle or not self._inbox.empty():
                name, *values = self._inbox.get()
                getattr(self, f"_{name}")(*values)
                idle = False
            for key, texts in list(self._texts.items()):
                if texts.busy:
                    self._turn(key, texts)

    def _read(self) -> None:
        try:
            while True:
                self._inbox.put(self._connection.recv())
        except (OSError, EOFError):
            os._exit(0)  # wherever the other threads are

    def _write(self) -> None:
        while True:
            messages = [self._outbox.get()]
            while not self._outbox.empty():
                messages.append(self._outbox.get())
            with suppress(OSError):  # the parent has ended
                self._connection.send(messages)

    def _turn(self, key: Key, texts: Texts) -> None:
        try:
            for number, tokens, scores in texts.stream.turn(texts.waiting.items(), texts.watched):
                self._outbox.put(("found", *key, number, tokens, scores))
                texts.waiting.pop(number, None)
                texts.watched.discard(number)
            for number in texts.stream.numbers & texts.waiting.keys():
                del texts.waiting[number]
            if written := list(texts.stream.written()):
                self._outbox.put(("written", *key, written))
        except Exception:
            self._outbox.put(("failed", *key, traceback.format_exc()))
            self._texts[key] = Texts(self._plans[key].stream())

    # Messages, by their names.

    def _load(self, model: int, files: list, pickled: bytes, begin: float) -> None:
        """Make and compile the streams of a model, with the files of its parts, while others
        search.
        """

        def load() -> None:
            try:
                for path, text in files:
                    parts.admit_text(path, text)
                plans = {kind: plan.to_device() for kind, plan in pickle.loads(pickled).items()}
                texts = {kind: Texts(plan.stream()) for kind, plan in plans.items()}
                for one in texts.values():
                    one.stream.compile(begin)
                self._inbox.put(("loaded", model, plans, texts))
            except Exception as error:
                self._inbox.put(("not_loaded", model, f"{type(error).__name__}: {error}"))

        threading.Thread(target=load, daemon=True).start()

    def _loaded(self, model: int, plans: dict[str, Any], texts: dict[str, Texts]) -> None:
        self._plans |= {(model, kind): plan for kind, plan in plans.items()}
        self._texts |= {(model, kind): one for kind, one in texts.items()}
        self._outbox.put(("loaded", model, None))

    def _not_loaded(self, model: int, reason: str) -> None:
        self._outbox.put(("loaded", model, reason))

    def _forget(self, model: int) -> None:
        """Drop a model that nobody uses any more."""
        for key in [key for key in self._texts if key[0] == model]:
            del self._texts[key], self._plans[key]

    def _admit(self, model: int, kind: str, sentences: list, watched: list[int]) -> None:
        texts = self._texts[model, kind]
        texts.waiting |= dict(sentences)
        texts.watched.update(watched)

    def _release(self, model: int, kind: str, number: int) -> None:
        texts = self._texts[model, kind]
        if texts.waiting.pop(number, None) is None:
            texts.stream.release(number)
        texts.watched.discard(number)


def main() -> None:
    """Search for the parent."""
    descriptor, cores = sys.argv[1:]
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # the parent decides when searches end
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {int(core) for core in cores.split(",")})
    os.nice(5)  # the server goes first: it has little to do, and refuses what is too much
    import jax

    from transformer_jax.experiments.process import keep_freed_memory, use_compilation_cache

    jax.config.update("jax_num_cpu_devices", 1)
    use_compilation_cache()
    keep_freed_memory()
    Searcher(Connection(int(descriptor))).run()


if __name__ == "__main__":
    main()
