"""The facts of a run, read from its work directory while the trainer may be writing there."""

import dataclasses
import shlex
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from transformer_jax.base.errors import UserError
from transformer_jax.base.messages import program
from transformer_jax.config import DataConfig, Experiment
from transformer_jax.config.choices.codecs import SIZED
from transformer_jax.config.convert import differences
from transformer_jax.config.metrics import VALIDATION, validation
from transformer_jax.reports.curves import minutes_along, tokens_along
from transformer_jax.reports.evaluations import evaluations
from transformer_jax.reports.naming import named
from transformer_jax.runs.workdir import WorkDir, read_rows
from transformer_jax.sweeps import table
from transformer_jax.sweeps.points import Point, as_text, shown

Rows = list[dict[str, Any]]

_NAMED = 4  # parts that a sentence names one by one
ACTIVITIES = ("step", "input", "evaluation", "checkpoint")


@dataclass(frozen=True)
class Run:
    """A work directory and one of its checkpoints."""

    name: str
    workdir: WorkDir
    experiment: Experiment
    checkpoint: str  # best, last, a step or average:N

    @cached_property
    def metrics(self) -> Rows:
        return read_rows(self.workdir.metrics)

    @cached_property
    def timings(self) -> Rows:
        return read_rows(self.workdir.timings)

    @cached_property
    def history(self) -> Rows:
        return read_rows(self.workdir.history)

    @cached_property
    def evaluations(self) -> Rows:
        return evaluations(self.workdir)

    def evaluation(self, split: str) -> dict[str, Any] | None:
        """Return eval.py's result for this checkpoint on a split; None if it has not been run."""
        wanted = (split, self.checkpoint)
        scored = (row for row in self.evaluations if (row["split"], row["checkpoint"]) == wanted)
        return next(scored, None)

    @property
    def training(self) -> str:
        """The name of its work directory, without the checkpoint."""
        return self.name.removesuffix(f"@{self.checkpoint}")

    @cached_property
    def point(self) -> Point:
        """The run as a point of a sweep."""
        return Point("", {}, self.experiment, self.workdir, ())


def read(workdir: WorkDir, checkpoint: str | None = None, name: str | None = None) -> Run:
    """Return a run; without a checkpoint, the one that eval.py uses by default.

    Raises:
      UserError: if there is none, or it has nothing to show yet.
    """
    experiment = workdir.experiment()
    run = Run(
        name or workdir.path.name + (f"@{checkpoint}" if checkpoint else ""),
        workdir, experiment, checkpoint or experiment.evaluation.checkpoint,
    )  # fmt: skip
    if not run.metrics and not run.evaluations:
        raise UserError(
            f"{workdir.path}: holds neither metrics nor scores yet; wait for the first row of "
            "metrics.jsonl, or check the path"
        )
    return run


# --- what was trained, on what, how far -----------------------------------------------------------


def facts(run: Run) -> dict[str, Any]:
    """Return the facts for a summary of the run."""
    experiment, started = run.experiment, _last_start(run)
    steps = max((row["step"] for row in (*run.metrics, *run.timings)), default=None)
    data = experiment.data
    return {
        "model": _model(experiment),
        "parameters": started.get("parameters") or table.parameters(run.point),
        "translates": experiment.objective.translates,
        **named(experiment),
        "source_language": data.source_language,
        "target_language": data.target_language,
        "corpus": f"{_corpus(data)} ({_listed(data.train)})",
        "splits": {x: _listed(getattr(data, x)) for x in ("train", "validation", "test")},
        "pairs": started.get("pairs"),
        "tokenizer": _tokenizer(experiment),
        "steps": steps,
        "steps_planned": experiment.training.steps,
        "tokens": None if steps is None else round(tokens_along(run.metrics)([steps])[0]) or None,
        "steps_an_epoch": started.get("steps_an_epoch"),
        "minutes": 0.0 if steps is None else float(minutes_along(run.timings)([steps])[0]),
        "state": state(run),
        "validation": {
            metric.title: metric.shown(value)
            for name, value in table.best_validation(run.point).items() if name in VALIDATION
            for metric in [validation(name, experiment.objective.kind)]
        },
        "seed": experiment.seed,
        "machine": _machine(started.get("machine")),
        "versions": ", ".join(f"{k} {v}" for k, v in started.get("versions", {}).items()) or None,
        "commit": started.get("commit"),
        "command": started.get("command") or command(run),
        "recorded": bool(started),
        "workdir": str(run.workdir.path),
    }  # fmt: skip


def _corpus(data: DataConfig) -> str:
    return data.name or Path(data.directory or data.source).name


def _listed(names: Sequence[str]) -> str:
    """Return the names of parts for a sentence: of many, the first and the last, and their number;
    the settings list them all.
    """
    if len(names) <= _NAMED:
        return shown(tuple(names))
    return f"{names[0]} to {names[-1]}, {len(names)} parts"


def state(run: Run) -> str:
    """Return the state of a run: as its trainer last recorded it, else inferred from its rows."""
    step = max((row["step"] for row in run.metrics), default=0)
    if run.history and run.history[-1]["event"] == "end":
        return str(run.history[-1]["outcome"])
    if step >= run.experiment.training.steps:
        return "finished"
    heard = [row["time"] for row in [*run.timings[-1:], *run.history[-1:]] if "time" in row]
    ago = f"; last row {_ago(time.time() - max(heard))} before this page" if heard else ""
    return f"running or interrupted{ago}"


def _ago(seconds: float) -> str:
    for size, unit in ((86400, "days"), (3600, "hours"), (60, "minutes")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{max(seconds, 0):.0f} seconds"


def command(run: Run) -> str:
    """Return a command that trains the same model, derived from config.json."""
    changed = differences(Experiment(), run.experiment)
    words = [*program("train").split(), "--config=configs/base.py", f"--workdir=runs/{run.name}"]
    changed.pop("data.how_to_get", None)  # for display only
    words += [f"--config.{path}={as_text(new)}" for path, (_, new) in changed.items()]
    return shlex.join(words)


def settings(run: Run, split: str) -> list[list[str]]:
    """Return [path, value, default] of the fields that differ from the defaults; decoding fields as
    they were when `split` was scored, if it was.
    """
    experiment, scored = run.experiment, run.evaluation(split)
    if scored is not None and scored["decoding"] is not None:
        known = {item.name for item in dataclasses.fields(experiment.decoding)}
        stored = {name: value for name, value in scored["decoding"].items() if name in known}
        decoding = dataclasses.replace(experiment.decoding, **stored)
        experiment = dataclasses.replace(experiment, decoding=decoding)
    changed = differences(Experiment(), experiment)
    return [[path, shown(value), shown(default)] for path, (default, value) in changed.items()]


def _last_start(run: Run) -> dict[str, Any]:
    return next((row for row in reversed(run.history) if row["event"] == "start"), {})


def _model(experiment: Experiment) -> str:
    c = experiment.model
    if c.architecture == "dlinear":
        return f"two linear maps, moving average of {c.trend_rows} rows, {c.compute_dtype}"
    layers = [f"{getattr(c, f'num_{name}_layers')} {name}" for name in c.stacks]
    own = {
        "recurrent": f"{c.recurrence}, attention {c.source_attention}",
        "elmo": ", ".join(c.encoder_pattern), "decomposable_attention": f"d_ff {c.d_ff}",
    }.get(c.architecture, f"d_ff {c.d_ff}, {c.num_heads} heads, {c.residual}")  # fmt: skip
    sizes = f"d_model {c.d_model}, {own}, dropout {c.dropout_rate:g}, {c.compute_dtype}"
    return f"{' and '.join(layers)} layers, {sizes}" if layers else sizes


def _tokenizer(experiment: Experiment) -> str:
    config, (source, target) = experiment.tokenizer, experiment.codecs
    known = {name: f"{name}, at most {config.vocab_size:,} pieces" for name in SIZED}
    known["subwords"] = config.model or known["subwords"].replace("subwords", config.algorithm)
    one, other = known.get(source, source), known.get(target, target)
    several = "one vocabulary" if config.joint else "two vocabularies"
    return f"{one}, {several}" if one == other else f"source {one}; target {other}"


def _machine(machine: dict[str, Any] | None) -> str | None:
    if machine is None:
        return None
    several = f" of {machine['processes']} processes" if machine["processes"] > 1 else ""
    return (
        f"{machine['devices']}{several}; {machine['processor']}, {machine['cores']} cores, "
        f"{machine['memory'] / 2**30:.0f} GiB; {machine['system']}"
    )


# --- times ---------------------------------------------------------------------------------------


def seconds(run: Run) -> dict[str, float]:
    """Return the seconds of a run by activity; {} if they were not recorded."""
    parts = [row["seconds"] for row in [*run.timings, *run.history] if "seconds" in row]
    return {name: round(sum(part[name] for part in parts), 1) for name in ACTIVITIES if parts}
