"""Run the points of a sweep, each as a process of the training program, several at a time.

sweep.jsonl records how each ended, so that the same command resumes where it stopped: finished
points are skipped, interrupted ones resume from their last checkpoint, failed ones start again.
"""

import os
import signal
import subprocess
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, Protocol

from transformer_jax.base.disk import write_bytes
from transformer_jax.runs.workdir import TAKEN, append_row, read_rows
from transformer_jax.sweeps.points import Point
from transformer_jax.sweeps.scores import is_scored

FINISHED, DIVERGED, INTERRUPTED = 0, 70, 75  # exit codes of the training program
_REFUSED = 2  # the exit code of any program for invalid input
_TICK = 0.1  # seconds between polls of the processes

Program = tuple[str, list[str]]  # its name in the record, its command


class Watcher(Protocol):
    """Callbacks for when a program starts, while it runs, and when it ends; and for when a point
    has to wait for another trainer in its directory.
    """

    def started(self, point: Point, program: str) -> None: ...
    def waits(self, point: Point) -> None: ...
    def running(self, points: Sequence[Point]) -> None: ...
    def ended(self, point: Point, code: int, last_line: str) -> None: ...


class Record:
    """The record of what ran in a sweep's directory and how it ended, with output in logs/."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / "sweep.jsonl"
        self._logs = directory / "logs"

    def code(self, point: Point, program: str | None = None) -> int | None:
        """Return the exit code of the last program that ran for a point; None before the first, or
        if it is not the named program.
        """
        last = (self._rows(point) or [{}])[-1]
        return last.get("code") if program in (None, last.get("program")) else None

    def add(self, point: Point, program: str, code: int, seconds: float) -> None:
        """Record that a program ended."""
        row = {"point": point.name, "program": program, "code": code, "seconds": round(seconds, 2)}
        text = self._path.read_bytes() if self._path.exists() else b""
        if not text.endswith(b"\n"):  # the last row was cut short by a crash
            write_bytes(self._path, text[: text.rfind(b"\n") + 1])
        append_row(self._path, row)

    def log(self, point: Point) -> Path:
        """Return the log file for the output of the point's programs."""
        self._logs.mkdir(exist_ok=True)
        return self._logs / f"{point.name}.log"

    def due(self, point: Point, split: str | None) -> list[Program]:
        """Return the programs that a point still needs: training, and scoring `split` if given."""
        trained = [row["code"] for row in self._rows(point) if row["program"] == "train"][-1:]
        if trained in ([], [FINISHED]):  # the trainer knows of later starts, too
            trained = _noted(point, trained)
        score = [] if split is None else [("evaluate", point.evaluate_command(split))]
        if not point.belongs() or trained not in ([FINISHED], [DIVERGED]):
            return [("train", point.train_command()), *score]
        return [] if trained == [DIVERGED] or split is None or is_scored(point, split) else score

    def _rows(self, point: Point) -> list[dict[str, Any]]:
        return [row for row in read_rows(self._path, "code") if row["point"] == point.name]


def _noted(point: Point, otherwise: list[int]) -> list[int]:
    """Return the exit code that a trainer recorded itself, for example in a cluster job; [] if the
    last one did not finish, and `otherwise` if none recorded anything.
    """
    rows = read_rows(point.workdir.history)
    if not rows:
        return otherwise
    codes = {"finished": FINISHED, "diverged": DIVERGED}
    return [codes[rows[-1]["outcome"]]] if rows[-1].get("outcome") in codes else []


class _Job:
    """A point being worked on: its programs, one after the other."""

    def __init__(
        self, point: Point, split: str | None, slot: int, record: Record, watcher: Watcher
    ) -> None:
        self.point, self.slot, self._split = point, slot, split
        self._programs = deque(record.due(point, split))
        self._record, self._watcher = record, watcher
        self._process: subprocess.Popen | None = None
        self._waited = False  # for another trainer, which may finish what was due here

    def send(self, number: int) -> None:
        """Pass a signal on."""
        if self._process is not None:
            self._process.send_signal(number)

    def poll(self, environment: dict[str, str], stopping: bool) -> int | None:
        """Start what can start and record what ended; return the exit code when nothing is left."""
        if self._process is not None:
            code = self._process.poll()
            if code is None:
                return None
            code = code if code >= 0 else 128 - code
            self._process = None
            if code == _REFUSED and TAKEN in _text(self._record.log(self.point), self._logged):
                self._wait()  # another sweep was quicker
                return INTERRUPTED if stopping else None
            name, _ = self._programs.popleft()
            if name == "train" and code == FINISHED and not self.point.belongs():
                code = _REFUSED  # finished with other settings, as its last line says
            self._record.add(self.point, name, code, time.monotonic() - self._start)
            if code != FINISHED or not self._programs:
                return code
        if stopping:
            return INTERRUPTED
        if self.point.busy():  # one of another sweep, or that outlived a killed one
            self._wait()
            return None
        if self._waited:
            self._programs = deque(self._record.due(self.point, self._split))
            self._waited = False
        if not self._programs:  # another sweep finished the point in the meantime
            return self._record.code(self.point) or FINISHED
        self._launch(environment)
        return None

    def _wait(self) -> None:
        if not self._waited:
            self._watcher.waits(self.point)
        self._waited = True

    def _launch(self, environment: dict[str, str]) -> None:
        name, command = self._programs[0]
        self._watcher.started(self.point, name)
        self._start = time.monotonic()
        with open(self._record.log(self.point), "ab") as log:
            self._logged = log.tell()
            # A new session, so that Ctrl-C reaches it only once: through this process.
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                env=environment, start_new_session=True,
            )  # fmt: skip


def run(
    points: Sequence[Point], directory: Path, jobs: int, split: str | None, watcher: Watcher
) -> int:
    """Train every point, and score `split` with each if given.

    Returns 0 if every point is finished, 75 after a signal, else the largest exit code.
    """
    record = Record(directory)
    waiting = [point for point in points if record.due(point, split)]
    jobs_now: list[_Job] = []
    slots, codes = deque(range(jobs)), []
    with _stop_signals(jobs_now) as signals:
        while jobs_now or (waiting and not signals):
            while waiting and slots and not signals:
                # A sweep beside this one has its points: take another.
                point = next((point for point in waiting if not point.busy()), waiting[0])
                waiting.remove(point)
                jobs_now.append(_Job(point, split, slots.popleft(), record, watcher))
            for job in list(jobs_now):
                code = job.poll(_environment(job.slot, jobs), bool(signals))
                if code is not None:
                    jobs_now.remove(job)
                    slots.append(job.slot)
                    codes.append(code)
                    watcher.ended(job.point, code, _last_line(record.log(job.point)))
            watcher.running([job.point for job in jobs_now])
            time.sleep(_TICK)
    codes += [code for point in points if (code := record.code(point)) == DIVERGED]
    return INTERRUPTED if signals or INTERRUPTED in codes else max(codes, default=0)


def _environment(slot: int, jobs: int) -> dict[str, str]:
    """Return a job's environment, with its share of the GPUs in CUDA_VISIBLE_DEVICES."""
    environment = dict(os.environ)
    devices = environment.get("CUDA_VISIBLE_DEVICES", "").split(",")
    if 1 < jobs <= len(devices):
        environment["CUDA_VISIBLE_DEVICES"] = ",".join(devices[slot::jobs])
    return environment


def _text(log: Path, start: int = 0) -> str:
    """Return the text of a log, without its first `start` bytes."""
    return log.read_bytes()[start:].decode(errors="replace") if log.exists() else ""


def _last_line(log: Path) -> str:
    lines = _text(log).split("\n")
    return next((line.strip() for line in reversed(lines) if line.strip()), "")


@contextmanager
def _stop_signals(jobs: list[_Job]) -> Iterator[list[int]]:
    """Collect SIGTERM and SIGINT in a list, and pass them on to the running programs."""
    seen: list[int] = []

    def note(number: int, frame: FrameType | None) -> None:
        seen.append(number)
        for job in jobs:
            job.send(number)

    old = {number: signal.signal(number, note) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield seen
    finally:
        for number, handler in old.items():
            signal.signal(number, handler)
