"""Weights & Biases and MLflow, which follow metrics.jsonl in threads of their own.

A tracker is sent every row once, also those written before it was chosen. A resumed run, which
writes again the rows after its last checkpoint, goes on in the same run of the tracker: those are
the same rows, and are not sent again. A tracker that fails is left out, with a warning; one that
hangs delays nothing but the end of training, by `PATIENCE` seconds.
"""

import importlib.util
import json
import math
import os
import queue
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import jax

from transformer_jax.base.disk import write_text
from transformer_jax.base.errors import UserError
from transformer_jax.config import Experiment
from transformer_jax.config.convert import flat
from transformer_jax.runs.workdir import WorkDir, read_rows
from transformer_jax.training.logs import log

PATIENCE = 60.0  # seconds
PROJECT = "transformer_jax"
Row = Mapping[str, Any]  # of metrics.jsonl


class Tracker(Protocol):
    """What a library is asked for; every method may raise whatever it likes."""

    def begin(self, known: str | None, config: Mapping[str, Any]) -> str:
        """Go on with a known run of the tracker, or begin one; return its identifier."""

    def send(self, step: int, values: Mapping[str, float]) -> None:
        """Log the values of a step, by "group/name"."""

    def end(self, page: str | None, finished: bool) -> None:
        """Attach the report, a page of HTML, and close the run."""


class WandB:
    """Weights & Biases. WANDB_PROJECT, WANDB_ENTITY, WANDB_MODE=offline ... mean what they say."""

    def __init__(self, directory: Path, name: str) -> None:
        self._directory, self._name = directory, name

    def begin(self, known: str | None, config: Mapping[str, Any]) -> str:
        """Log in, and begin or resume the run."""
        import wandb

        self._directory.mkdir(parents=True, exist_ok=True)
        self._library = wandb
        self._run = wandb.init(
            project=os.environ.get("WANDB_PROJECT", PROJECT),
            name=os.environ.get("WANDB_NAME", self._name),
            id=known or os.environ.get("WANDB_RUN_ID"),
            resume="allow",
            dir=self._directory,
            config=dict(config),
            settings=wandb.Settings(silent=True, console="off"),
        )
        return str(self._run.id)

    def send(self, step: int, values: Mapping[str, float]) -> None:
        """Add to the step; it is complete once a later one is sent."""
        self._run.log(dict(values), step=step)

    def end(self, page: str | None, finished: bool) -> None:
        """Attach the page as `report`, and wait until all is sent."""
        if page is not None:
            self._run.log({"report": self._library.Html(page, inject=False)})
        self._run.finish(exit_code=0 if finished else 1)


class MLflow:
    """MLflow. MLFLOW_TRACKING_URI and MLFLOW_EXPERIMENT_NAME mean what they say."""

    def __init__(self, directory: Path, name: str) -> None:
        self._name = name

    def begin(self, known: str | None, config: Mapping[str, Any]) -> str:
        """Begin a run with the config as its parameters, or set a known one to running."""
        from mlflow.entities import Metric, Param
        from mlflow.tracking import MlflowClient

        self._metric, self._client = Metric, MlflowClient()
        if known is not None:
            self._client.set_terminated(known, "RUNNING")
            self._id = known
            return known
        name = os.environ.get("MLFLOW_EXPERIMENT_NAME", PROJECT)
        existing = self._client.get_experiment_by_name(name)
        home = existing.experiment_id if existing else self._client.create_experiment(name)
        self._id = str(self._client.create_run(home, run_name=self._name).info.run_id)
        params = [Param(key, str(value)[:6000]) for key, value in config.items()]
        for start in range(0, len(params), 100):  # the most in one call
            self._client.log_batch(self._id, params=params[start : start + 100])
        return self._id

    def send(self, step: int, values: Mapping[str, float]) -> None:
        """Log them in one call."""
        now = int(1000 * time.time())
        metrics = [self._metric(key, value, now, step) for key, value in values.items()]
        self._client.log_batch(self._id, metrics=metrics)

    def end(self, page: str | None, finished: bool) -> None:
        """Attach the page as report.html."""
        if page is not None:
            self._client.log_text(self._id, page, "report.html")
        self._client.set_terminated(self._id, "FINISHED" if finished else "KILLED")


# By word, which is also the name of the library. TensorBoard's files are the work of `board.py`.
TRACKERS: dict[str, Callable[[Path, str], Tracker]] = {"wandb": WandB, "mlflow": MLflow}


def check(words: Sequence[str]) -> None:
    """Raise a UserError if the library of a tracker is not installed."""
    for word in filter(TRACKERS.__contains__, words):
        spec = importlib.util.find_spec(word)
        if (
            spec is None or spec.origin is None
        ):  # a folder wandb/, where its runs are, is no library
            raise UserError(
                f"config.training.trackers: {word!r} is not installed; pip install {word}, or "
                "leave the word out"
            )


class Trackers:
    """All chosen trackers of a run, from `begin` to the end of its context. Only the first process
    has any.
    """

    def __init__(
        self, experiment: Experiment, workdir: WorkDir, page: Callable[[Path], str] | None = None
    ) -> None:
        """`page` makes the report of a work directory, for runs that end."""
        words = experiment.training.trackers if jax.process_index() == 0 else ()
        values = flat(experiment)
        self._followers = [Follower(word, workdir, values) for word in words if word in TRACKERS]
        self._page, self._workdir = page, workdir
        self.finished = False

    def begin(self) -> None:
        """Send the rows of metrics.jsonl, which must be those up to where the run goes on."""
        for follower in self._followers:
            follower.begin()

    def row(self, row: Row) -> None:
        """Send a row of metrics.jsonl, soon."""
        for follower in self._followers:
            follower.row(row)

    def __enter__(self) -> "Trackers":
        return self

    def __exit__(self, *_: object) -> None:
        page = self._report() if self.finished and self._followers else None
        for follower in self._followers:
            follower.close(page, self.finished)

    def _report(self) -> str | None:
        try:
            return None if self._page is None else self._page(self._workdir.path)
        except Exception as error:  # of a part of one's own, say: the run is finished all the same
            log.warning("trackers get no report: %s", error)
            return None


class Follower:
    """Sends rows to a tracker, in a thread.

    `trackers/<word>.json` of the work directory has the tracker's run and the last row it was sent.
    """

    def __init__(self, word: str, workdir: WorkDir, config: Mapping[str, Any]) -> None:
        self._word, self._workdir, self._config = word, workdir, config
        self._state = workdir.trackers / f"{word}.json"
        self._tracker = TRACKERS[word](workdir.trackers, workdir.path.name)
        self._queue: queue.Queue[Any] = queue.Queue()
        self._thread = threading.Thread(target=self._follow, name=word, daemon=True)

    def begin(self) -> None:
        """Send the rows that there are, and from now on those that follow."""
        self._thread.start()

    def row(self, row: Row) -> None:
        """Send a row, soon; NaN is left out."""
        if self._thread.is_alive():
            self._queue.put(row)

    def close(self, page: str | None, finished: bool) -> None:
        """Send what is left, and the report of a finished run."""
        if not self._thread.is_alive():
            return
        self._queue.put((page, finished))
        self._thread.join(PATIENCE)
        if self._thread.is_alive():
            log.warning(
                "%s: did not take all rows within %g seconds; metrics.jsonl has them, and it gets "
                "them if the run goes on", self._word, PATIENCE,
            )  # fmt: skip

    def _follow(self) -> None:
        try:
            known = (
                json.loads(self._state.read_text(encoding="utf-8")) if self._state.exists() else {}
            )
            run = self._tracker.begin(known.get("run"), self._config)
            last = tuple(known.get("last", ()))
            self._note(run, last)
            for row in read_rows(self._workdir.metrics):
                last = self._send(run, row, last)
            while not isinstance(item := self._queue.get(), tuple):
                last = self._send(run, item, last)
            self._tracker.end(*item)
        except Exception as error:
            first = str(error).strip().partition("\n")[0][:300]
            log.warning(
                "%s: %s: %s; training goes on without it; a resumed run tries again, and "
                "metrics.jsonl has all rows", self._word, type(error).__name__, first,
            )  # fmt: skip

    def _send(self, run: str, row: Row, last: tuple[Any, ...]) -> tuple[Any, ...]:
        """Send a row unless it was sent, and return the place of the last one sent."""
        validation = any(key.startswith("validation_") for key in row)
        place = row["step"], int(validation)
        if place <= last:
            return last
        group = "validation" if validation else "train"
        self._tracker.send(
            row["step"],
            {
                f"{group}/{key.removeprefix('validation_')}": float(value)
                for key, value in row.items()
                if key != "step" and value is not None and not math.isnan(value)
            },
        )
        self._note(run, place)
        return place

    def _note(self, run: str, last: tuple[Any, ...]) -> None:
        self._state.parent.mkdir(exist_ok=True)
        write_text(self._state, json.dumps({"run": run, "last": list(last)}) + "\n")
