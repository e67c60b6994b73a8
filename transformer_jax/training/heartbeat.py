"""Heartbeat where no progress bar shows: a log line whenever there was none for a while."""

import logging
import threading
import time
from collections.abc import Callable

from transformer_jax.config import TrainingConfig

log = logging.getLogger("transformer_jax")

PERIOD = 30.0  # seconds without a line before one is logged
_DOING = {
    "input": "waiting for a batch", "compilation": "compiling", "evaluation": "validating",
    "checkpoint": "saving",
}  # fmt: skip


class Heartbeat:
    """A thread that logs `line()` when `beat` has not been called for PERIOD seconds."""

    def __init__(self, line: Callable[[], str]) -> None:
        self._line = line
        self._over = threading.Event()
        self._beaten = threading.Event()
        self._thread = threading.Thread(target=self._run, name="heartbeat", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def beat(self) -> None:
        """Note that a line was logged."""
        self._beaten.set()

    def stop(self) -> None:
        """End the thread."""
        self._over.set()
        self._beaten.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._over.is_set():
            if not self._beaten.wait(PERIOD):
                log.info(self._line())
            self._beaten.clear()


def progress_line(
    step: int,
    config: TrainingConfig,
    rate: float,
    trained: float,
    doing: tuple[str, float] | None,
) -> str:
    """Return "step 120 of 1000  0.5 steps/s  29 min left".

    `rate` is in steps per second, 0 until the first step since a start is done; `trained` is the
    training time so far in seconds; `doing` is an activity other than steps, and its start.
    """
    parts = [f"step {step} of {config.steps}"]
    if doing is not None and doing[0] in _DOING:
        parts.append(f"{_DOING[doing[0]]} for {duration(time.monotonic() - doing[1])}")
    elif rate == 0:
        parts.append("compiling, or in the first step")
    if rate > 0:
        left = (config.steps - step) / rate
        if config.max_minutes is not None:
            left = min(left, max(60 * config.max_minutes - trained, 0))
        parts += [f"{rate:.3g} steps/s", f"{duration(left)} left"]
    return "  ".join(parts)


def duration(seconds: float) -> str:
    """Return "42 s", "29 min" or "3 h 5 min"."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 100 else f"{minutes // 60:,} h {minutes % 60} min"
