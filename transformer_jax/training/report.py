"""Reporting of a run: metrics.jsonl, timings.jsonl, TensorBoard, train.log, a progress bar."""

import logging
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from transformer_jax.base.disk import DiskError, sync, writing
from transformer_jax.config import TrainingConfig
from transformer_jax.config.metrics import GAUGES, NOISE, ROLLOUTS
from transformer_jax.runs.workdir import WorkDir, append_row
from transformer_jax.training.board import Board
from transformer_jax.training.heartbeat import Heartbeat, progress_line
from transformer_jax.training.loss import Sums
from transformer_jax.training.moved import Reports
from transformer_jax.training.profiling import Times
from transformer_jax.training.rows import Scored, take_up, validation_row
from transformer_jax.training.step import StepMetrics, each_step
from transformer_jax.training.trackers import Trackers

log = logging.getLogger("transformer_jax")


class Report:
    """Sums the metrics of steps and writes a row every `log_every` steps.

    The sums since the last row are part of a checkpoint (`state`), so that a resumed run writes the
    same rows as an uninterrupted one.
    """

    def __init__(
        self,
        workdir: WorkDir,
        config: TrainingConfig,
        schedule: Any,
        items_of: Callable[[int], list[int]],  # of the training data, in batch i
        state: dict[str, Any],
        scored: Scored | None = None,
        times: Times | None = None,
        noun: str = "line",
        trackers: Trackers | None = None,
    ) -> None:
        """Resume from a state, with the rows up to its step; `scored` has the validation scores
        that checkpoints hold, by step, and `noun` is the word for an item."""
        self._times = times or Times()
        self._workdir, self._config, self._schedule = workdir, config, schedule
        self._items_of, self._noun = items_of, noun
        self._writes = jax.process_index() == 0  # the others only keep the sums
        window = state.get("window") or {}
        # States from before weights were counted had a weight of 1 per token, and those from before
        # steps with a report were counted had one in every step.
        older: dict[str, Any] = {"weight": window.get("tokens", 0.0)}
        for name, gauge in GAUGES.items():
            older[gauge.steps] = window.get("steps", 0) if window.get(name) else 0
        self._window = _EMPTY | older | window
        self._usual_loss: float | None = state.get("usual_loss")  # running mean
        self.tokens = int(state.get("tokens", 0))
        self.skipped = int(state.get("skipped", 0))
        self.bad_steps = 0  # most updates skipped in a row: several steps are read at a time
        self._pending: tuple[int, StepMetrics, dict[str, float]] | None = None
        start = int(state.get("step", 0))
        self._rows = 0  # of metrics.jsonl
        if self._writes:
            self._rows = take_up(workdir, state, scored or {}, config.log_every)
        self._waiting: list[tuple[Path, dict[str, Any]]] = []  # rows not yet on disk
        board = self._writes and "tensorboard" in config.trackers
        self._board = Board(workdir.tensorboard, start) if board else None
        self._trackers = trackers
        if trackers is not None:
            trackers.begin()  # now that metrics.jsonl has the rows up to here
        self.step = self._read = start  # of those read together, the one reported, and the last
        self._lapped = start  # the last row's
        self.restart_clock()
        self._bar = Progress(
            TextColumn("step {task.completed}/{task.total}"), BarColumn(None),
            TextColumn("{task.fields[status]}"), TimeElapsedColumn(), TextColumn("left"),
            TimeRemainingColumn(), console=Console(stderr=True),
            disable=not (sys.stderr.isatty() and self._writes),
        )  # fmt: skip
        self._task = self._bar.add_task("", total=config.steps, completed=start, status="compiling")
        self._heartbeat = Heartbeat(self._alive) if self._bar.disable and self._writes else None
        self._seconds = float(state.get("seconds", 0.0))  # of training before this start
        self._rate = 0.0  # steps per second, last known

    def __enter__(self) -> "Report":
        self._bar.start()
        if self._heartbeat is not None:
            self._heartbeat.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._heartbeat is not None:
            self._heartbeat.stop()
        self._bar.stop()
        if self._board is not None:
            self._board.close()

    def state(self) -> dict[str, Any]:
        """Return the state that a checkpoint must hold."""
        return {
            "window": dict(self._window),
            "usual_loss": self._usual_loss,
            "tokens": self.tokens,
            "skipped": self.skipped,
            "rows": self._rows,
        }

    def push(
        self, step: int, metrics: StepMetrics, written: dict[str, float] | None = None
    ) -> None:
        """Accept the metrics of steps just dispatched, up to `step`; read those before them.
        `written` are those of the answers that the step learned from, see ROLLOUTS.
        """
        self.flush()
        self._pending = step, metrics, written or {}

    def flush(self) -> None:
        """Read the pending metrics; waits for their step."""
        if self._pending is not None:
            (self._read, metrics, written), self._pending = self._pending, None
            for step, each in each_step(jax.device_get(metrics), self._read):
                self._take(step, each, written)

    def _take(self, step: int, metrics: StepMetrics, written: dict[str, float]) -> None:
        sums, self.step = metrics.sums, step
        self.tokens += int(sums.tokens)
        self.bad_steps = max(self.bad_steps, int(metrics.bad_steps))
        if metrics.skipped:
            self.skipped += 1
            self._warn_of_items(step, "loss or gradient not finite; update skipped")
        else:
            if sums.weight:
                self._watch(step, float(sums.loss / sums.weight), float(metrics.grad_norm))
            window = self._window
            means = {"grad_norm": metrics.grad_norm, **metrics.gauges, **metrics.noise, **written}
            for key, value in (sums._asdict() | means).items():
                window[key] = window.get(key, 0.0) + float(value)
            window["steps"] += 1
            for name, value in metrics.gauges.items():
                window[GAUGES[name].steps] += bool(value)
        if step % self._config.log_every == 0:
            self._write(step, metrics.reports)
        else:
            self._bar.update(self._task, completed=step)

    def _watch(self, step: int, loss: float, norm: float) -> None:
        """Report a loss far above the previous ones."""
        usual, bound = self._usual_loss, self._config.loss_spike
        if usual is not None and bound is not None and loss > bound * usual > 0:
            what = f"loss {loss:.4g} is above {bound:g} x {usual:.4g}, the running mean"
            self._warn_of_items(step, f"{what}; gradient norm {norm:.4g}")
        self._usual_loss = loss if usual is None else 0.9 * usual + 0.1 * loss

    def _warn_of_items(self, step: int, what: str) -> None:
        items = [str(item) for item in self._items_of(step - 1)]
        named = ", ".join(items[:10]) + f" and {len(items) - 10} more" * (len(items) > 10)
        of = f"{self._noun}s {named} of the training data"
        log.warning("step %d: %s; its batch: %s", step, what, of)
        log.debug("step %d: all %ss of its batch: %s", step, self._noun, ", ".join(items))

    def _write(self, step: int, reports: Reports) -> None:
        w, self._window = self._window, dict(_EMPTY)
        nan = float("nan")
        per_token = 1 / w["weight"] if w["weight"] else nan
        row = {
            "step": step,
            "loss": w["loss"] * per_token,
            "nll": w["nll"] * per_token,
            "accuracy": w["correct"] * per_token,
            **{key: w[key] / w[n] if w[n] else nan for key, n in _MEANS.items() if key in w},
            **_noise_scale(w),
            "learning_rate": float(self._schedule(step - 1 - self.skipped)),
            "target_tokens": self.tokens,
            "skipped": self.skipped,
        }
        self._append(self._workdir.metrics, row)
        for name, layers in reports.items():
            if each := {layer: x.tolist() for layer, x in sorted(layers.items()) if x.any()}:
                row_of = {"step": step, GAUGES[name].details[1]: each}
                self._append(self._workdir.reports[name], row_of)
        self._to_board(step, "train", row)
        # Steps read together share their time evenly, so a row may have part of it.
        share, lap = ((step - n) / (self._read - n) for n in (self._clock_step, self._lapped))
        elapsed, processor = self._elapsed(), time.process_time() - self._clock_processor
        rate = (self.tokens - self._clock_tokens) / (share * elapsed)
        self._rate = (step - self._clock_step) / (share * elapsed)
        rates = {
            "target_tokens_per_s": round(rate, 1),
            "steps_per_s": round(self._rate, 4),
        }
        spent = round(share * processor, 3)
        timing: dict[str, Any] = {"step": step, "time": time.time(), **rates}
        timing |= {"processor_seconds": spent, "seconds": self._times.lap(lap)}
        self._lapped = step
        self._set_clock((1 - share) * elapsed, (1 - share) * processor)
        self._append(self._workdir.timings, timing)
        self._to_board(step, "rate", rates)
        status = f"loss {row['loss']:.3f}  {rate:,.0f} target tokens/s"
        for name, gauge in GAUGES.items():
            if row.get(name, 0) > 0:
                status += f"  {gauge.shown.format(row[name])}"
        if "reward" in row:
            status += f"  reward {row['reward']:.3f}"
        self._bar.update(self._task, completed=step, status=status)
        if self._bar.disable:
            self._say("step %d  %s", step, status)

    def validation(self, step: int, scores: dict[str, float]) -> None:
        """Write the scores of a validation."""
        self._append(self._workdir.metrics, validation_row(step, scores))
        self._to_board(step, "validation", scores)
        listed = "  ".join(f"{key} {value:.4g}" for key, value in scores.items())
        self._say("step %d  validation  %s", step, listed)

    def _say(self, *message: Any) -> None:
        log.info(*message)
        if self._heartbeat is not None:
            self._heartbeat.beat()

    def _alive(self) -> str:
        """Return the line to log after half a minute without another."""
        doing = self._times.now
        if self.step > self._clock_step and (doing is None or doing[0] != "compilation"):
            self._rate = (self.step - self._clock_step) / self._elapsed()
        spent = self._times.seconds()
        trained = self._seconds + spent["step"] + spent["input"]
        return progress_line(self.step, self._config, self._rate, trained, doing)

    def restart_clock(self) -> None:
        """Exclude what happened since the last row, a validation or a save, from the rates."""
        self._set_clock()

    def _set_clock(self, elapsed: float = 0.0, processor: float = 0.0) -> None:
        """Count the next row's time from now, on top of what its first steps have taken already."""
        self._clock = time.monotonic() - elapsed
        self._clock_processor = time.process_time() - processor
        self._clock_tokens = self.tokens
        self._clock_compiling = self._times.of("compilation")
        self._clock_step = self.step

    def _elapsed(self) -> float:
        """Return the seconds since then that steps took, without compilation."""
        compiling = self._times.of("compilation") - self._clock_compiling
        return max(time.monotonic() - self._clock - compiling, 1e-9)

    def _append(self, path: Path, row: dict[str, Any]) -> None:
        self._rows += path == self._workdir.metrics
        if self._writes:
            self._waiting.append((path, row))
        try:
            self.write_out()
        except DiskError as error:
            log.warning("%s; %d rows are kept in memory", error, len(self._waiting))

    def write_out(self) -> None:
        """Write the rows that wait for disk space.

        Raises:
          DiskError: if there still is none.
          WorkDirGone: if the directory no longer exists.
        """
        self._workdir.check_claim()
        while self._waiting:
            path, row = self._waiting[0]
            with writing(str(path), path.parent):
                append_row(path, row)
            self._waiting.pop(0)
            if self._trackers is not None and path == self._workdir.metrics:
                self._trackers.row(row)

    def make_durable(self) -> None:
        """Return once no row can be lost any more; raises like `write_out`."""
        self.write_out()
        w = self._workdir
        for path in (w.metrics, w.timings, *w.reports.values()) * self._writes:
            if not path.exists():  # nothing is reported
                continue
            with writing(str(path), path.parent):
                sync(path)

    def _to_board(self, step: int, group: str, values: dict[str, Any]) -> None:
        if self._board is not None:
            self._board.add(step, group, {key: values[key] for key in values if key != "step"})


# Mean -> the number of steps that it is over. A step whose layers report nothing, as all are frozen
# or dropped, does not count for a gauge: that is not a gauge of 0.
_MEANS = {
    "grad_norm": "steps", **{name: gauge.steps for name, gauge in GAUGES.items()},
    **dict.fromkeys((*ROLLOUTS, *NOISE), "steps"),
}  # fmt: skip
_EMPTY = dict.fromkeys((*Sums._fields, "grad_norm"), 0.0) | dict.fromkeys(_MEANS.values(), 0)


def _noise_scale(window: dict[str, Any]) -> dict[str, float]:
    """Return the noise scale of a window's steps, if they measured it; nan where the true gradient
    is lost in the noise.
    """
    if "gradient_signal" not in window:
        return {}
    signal, noise = (max(window[key], 0.0) for key in ("gradient_signal", "gradient_noise"))
    return {"noise_scale": noise / signal if signal else float("nan")}
