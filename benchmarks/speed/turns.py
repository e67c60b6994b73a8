"""Run engines in turn, each in its own process, set up as its users would; and print results."""

import json
import multiprocessing
import statistics
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

from transformer_jax.base import processor

Run = Callable[[], Any]  # the work of one turn


class Worker:
    """A process that makes a Run, executes it once, and again on each request."""

    def __init__(self, make: Callable[..., Run], *arguments: Any) -> None:
        context = multiprocessing.get_context("spawn")
        self._connection, theirs = context.Pipe()
        self._process = context.Process(target=_work, args=(theirs, make, arguments))
        self._process.start()
        theirs.close()  # so that a worker's death is an EOFError here
        self.first_seconds, self.result = self._connection.recv()  # compilation included

    def turn(self) -> float:
        """Run once more, and return the seconds it took."""
        self._connection.send(None)
        seconds, self.result = self._connection.recv()
        return seconds

    def close(self) -> None:
        """End the process."""
        self._connection.close()
        self._process.join()


def _work(connection: Any, make: Callable[..., Run], arguments: tuple[Any, ...]) -> None:
    run = make(*arguments)
    while True:
        began = time.perf_counter()
        result = run()
        connection.send((time.perf_counter() - began, result))
        try:
            connection.recv()
        except EOFError:
            return


def take_turns(workers: Mapping[str, Worker], rounds: int) -> dict[str, float]:
    """Return the median seconds of each worker, and end the workers."""
    seconds: dict[str, list[float]] = {name: [] for name in workers}
    for _ in range(rounds):
        for name, worker in workers.items():
            seconds[name].append(worker.turn())
    for worker in workers.values():
        worker.close()
    return {name: statistics.median(times) for name, times in seconds.items()}


def show_processor() -> None:
    """Say on which processor this runs: CPUs differ in what they are fast at."""
    print(f"processor: {json.dumps(processor.described())}", file=sys.stderr, flush=True)


def show(row: Mapping[str, Any]) -> None:
    """Print a result as one JSON line, with the processor and its instructions."""
    print(json.dumps({**row, **processor.described()}), flush=True)


def matmul() -> Run:
    """Return a large float32 product, whose result is its number of operations."""
    import jax
    import jax.numpy as jnp

    size = 2048
    x = jnp.ones((size, size))
    product = jax.jit(jnp.matmul)

    def run() -> int:
        product(x, x).block_until_ready()
        return 2 * size**3

    return run
