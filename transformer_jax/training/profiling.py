"""Where the time goes: seconds by activity, and traces of single steps."""

import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import jax


class Times:
    """Seconds since it was made, by activity.

    Time without a named activity counts as the step's, as does "compilation": waiting for a
    program.
    """

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._seconds: dict[str, float] = defaultdict(float)
        self._lapped: dict[str, float] = {}
        self.now: tuple[str, float] | None = None  # what `on` counts, and its start

    @contextmanager
    def on(self, what: str) -> Iterator[None]:
        """Count the time inside towards `what`."""
        began = time.monotonic()
        self.now = what, began
        yield
        self.now = None
        self._seconds[what] += time.monotonic() - began

    def of(self, what: str) -> float:
        """Return the seconds spent on `what`, up to the last time that it ended."""
        return self._seconds.get(what, 0.0)

    def seconds(self) -> dict[str, float]:
        """Return the seconds so far by activity."""
        whole = time.monotonic() - self._began
        seconds = {name: self._seconds[name] for name in ("input", "evaluation", "checkpoint")}
        return {"step": whole - sum(seconds.values()), **seconds}

    def lap(self, share: float = 1.0) -> dict[str, float]:
        """Return the seconds since the last lap by activity, or a share of them, which leaves the
        rest to the next lap; rounded: laps add up to the total.
        """
        now, before = self.seconds(), self._lapped
        lap = {name: share * (now[name] - before.get(name, 0.0)) for name in now}
        self._lapped = {name: before.get(name, 0.0) + lap[name] for name in now}
        return {name: round(seconds, 3) for name, seconds in lap.items()}

    def summary(self) -> str:
        """Return the shares, as in "step 90 %, input 1 %, evaluation 6 %, checkpoint 3 %"."""
        seconds = self.seconds()
        whole = max(sum(seconds.values()), 1e-9)
        shares = ", ".join(f"{name} {value / whole:.1%}" for name, value in seconds.items())
        return f"{whole:.0f} s since the start of training: {shares}"


class Trace:
    """A trace of the steps from steps[0] to steps[1], as far as they run in its context.

    TensorBoard's profile plugin opens the directory; Perfetto opens the file
    perfetto_trace.json.gz in it.
    """

    def __init__(self, steps: tuple[int, ...], directory: Path, done: int) -> None:
        """`done` steps have already been run; without `steps` there is no trace."""
        self._first, self._last = steps or (0, 0)
        self._directory, self._done, self._running = directory, done, False

    def of(self, step: Callable[[], Any], state: Any, count: int = 1) -> Any:
        """Return step(), which runs the next `count` steps, and trace it if one is requested.

        `state` is the result of the steps before it, which the trace waits for.
        """
        begun, self._done = self._done + 1, self._done + count
        if begun > self._last or self._done < self._first:
            return step()
        if not self._running:
            jax.block_until_ready(state)  # excludes the steps before
            jax.profiler.start_trace(self._directory, create_perfetto_trace=True)
            self._running = True
        with jax.profiler.StepTraceAnnotation("train", step_num=begun):
            result = step()
        if self._done >= self._last:
            jax.block_until_ready(result)
            self.close()
        return result

    def close(self) -> None:
        """Write the trace, if one is being recorded."""
        if self._running:
            self._running = False
            jax.profiler.stop_trace()

    def __enter__(self) -> "Trace":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
