"""Where the time goes: seconds by activity, and traces of single steps."""

import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import jax


class Times:
    """Seconds since it was made, by what they went on; what nothing names is the step's."""

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._seconds: dict[str, float] = defaultdict(float)
        self._lapped: dict[str, float] = {}
        self.now: tuple[str, float] | None = None  # what `on` counts, and since when

    @contextmanager
    def on(self, what: str) -> Iterator[None]:
        """Count the time inside towards `what`."""
        began = time.monotonic()
        self.now = what, began
        yield
        self.now = None
        self._seconds[what] += time.monotonic() - began

    def seconds(self) -> dict[str, float]:
        """Return the seconds so far by activity."""
        whole = time.monotonic() - self._began
        seconds = {name: self._seconds[name] for name in ("input", "evaluation", "checkpoint")}
        return {"step": whole - sum(seconds.values()), **seconds}

    def lap(self) -> dict[str, float]:
        """Return the seconds since the last lap by activity, rounded: laps add up to all of it."""
        before, self._lapped = self._lapped, self.seconds()
        return {name: round(now - before.get(name, 0.0), 3) for name, now in self._lapped.items()}

    def told(self) -> str:
        """Return the shares, as in "step 90 %, input 1 %, evaluation 6 %, checkpoint 3 %"."""
        seconds = self.seconds()
        whole = max(sum(seconds.values()), 1e-9)
        shares = ", ".join(f"{name} {value / whole:.1%}" for name, value in seconds.items())
        return f"{whole:.0f} s since the start of training: {shares}"


@contextmanager
def traced(step: Callable, start: int, steps: tuple[int, ...], directory: Path) -> Iterator[Any]:
    """Yield the step, which also writes a trace of those from steps[0] to steps[1].

    `start` steps are done already. What of the range comes after them, and before the end of the
    context, is traced. TensorBoard's profile plugin opens the directory, and Perfetto the file
    perfetto_trace.json.gz in it.
    """
    if not steps or start >= steps[1]:
        yield step
        return
    first, last = steps
    done, running = start, False

    def traced_step(state: Any, batch: Any) -> Any:
        nonlocal done, running
        done += 1
        if not first <= done <= last:
            return step(state, batch)
        if not running:
            jax.block_until_ready(state)  # nothing of the steps before
            jax.profiler.start_trace(directory, create_perfetto_trace=True)
            running = True
        with jax.profiler.StepTraceAnnotation("train", step_num=done):
            result = step(state, batch)
        if done == last:
            jax.block_until_ready(result)
            jax.profiler.stop_trace()
            running = False
        return result

    try:
        yield traced_step
    finally:
        if running:
            jax.profiler.stop_trace()
