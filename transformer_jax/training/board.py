"""TensorBoard event files."""

import math
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any


class Board:
    """Event files, written immediately.

    tensorboardX's own SummaryWriter passes events to a thread, which dies on a full disk; from then
    on the trainer would wait for it. Here, values that cannot be written are dropped: metrics.jsonl
    has them.
    """

    def __init__(self, directory: Path, start: int) -> None:
        self._directory, self._start = directory, start
        self._writer: Any = None
        try:
            from tensorboardX import event_file_writer, proto, summary
        except ImportError:
            self._library: Any = None  # training works without it
        else:
            self._library = event_file_writer, proto.event_pb2, summary

    def add(self, step: int, group: str, values: Mapping[str, Any]) -> None:
        """Write the values of a step as group/name."""
        if self._library is None:
            return
        files, events, summary = self._library
        try:
            if self._writer is None:
                self._directory.mkdir(exist_ok=True)
                name = str(self._directory / "events")
                self._writer = files.EventsWriter(name, f".{time.time_ns()}")
                # This hides what a killed run wrote after its last checkpoint.
                log = events.SessionLog(status=events.SessionLog.START)
                self._write(events.Event(session_log=log), self._start + 1)
            known = {name: value for name, value in values.items() if not math.isnan(value)}
            for name, value in known.items():
                self._write(events.Event(summary=summary.scalar(f"{group}/{name}", value)), step)
            self._writer.flush()
        except OSError:
            self.close()  # later values go to a new file

    def _write(self, event: Any, step: int) -> None:
        event.step, event.wall_time = step, time.time()
        self._writer.write_event(event)

    def close(self) -> None:
        """Close the file."""
        writer, self._writer = self._writer, None
        with suppress(OSError):
            if writer is not None:
                writer.close()
