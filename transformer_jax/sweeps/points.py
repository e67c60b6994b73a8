"""The points of a sweep: experiments, each with its own work directory."""

import fcntl
import hashlib
import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from transformer_jax.base import command_text
from transformer_jax.base.errors import UserError
from transformer_jax.config import Experiment, parts
from transformer_jax.config.convert import differences, own_parts, value_at
from transformer_jax.config.metrics import PROTOCOL
from transformer_jax.runs.workdir import WorkDir, read_rows
from transformer_jax.sweeps.grid import Settings

_NOT_TRAINED = ("decoding.", "evaluation.", "checkpoint.", "mesh.", "profile.", "data.test")
_SCORED_WITH = (*PROTOCOL, "metrics", "season")  # fields of evaluation


@dataclass(frozen=True)
class Point:
    """One experiment of a sweep, and its work directory."""

    variant: str  # of the config file; "" if the sweep has none
    settings: dict[str, Any]  # path of a swept field -> its value
    experiment: Experiment
    workdir: WorkDir
    arguments: tuple[str, ...]  # of the training program

    @property
    def name(self) -> str:
        return self.workdir.path.name

    def train_command(self) -> list[str]:
        """Return the command that trains it or resumes its training."""
        return [sys.executable, "-m", "transformer_jax.cli.train", *self.arguments]

    def evaluate_command(self, split: str) -> list[str]:
        """Return the command that scores it, with its own settings where config.json differs."""
        program = [sys.executable, "-m", "transformer_jax.cli.evaluate"]
        words = [*program, f"--workdir={self.workdir.path}", f"--split={split}"]
        words += [f"--parts={file}" for file in parts.homes([*own_parts(self.experiment)])]
        stored, checkpoint = self.stored(), self.experiment.evaluation.checkpoint
        if checkpoint != stored.evaluation.checkpoint:
            words.append(f"--checkpoint={checkpoint}")
        changed = differences(stored, self.scored())
        return words + [f"--config.{path}={as_text(new)}" for path, (_, new) in changed.items()]

    def stored(self) -> Experiment:
        """Return the experiment of its work directory's config.json; its own if there is none."""
        return self.workdir.experiment() if self.workdir.config.exists() else self.experiment

    def scored(self) -> Experiment:
        """Return the same with the point's own search, test data and scoring protocol."""
        own, stored = self.experiment, self.stored()
        protocol = {name: getattr(own.evaluation, name) for name in _SCORED_WITH}
        return replace(
            stored, decoding=own.decoding, data=replace(stored.data, test=own.data.test),
            evaluation=replace(stored.evaluation, **protocol),
        )  # fmt: skip

    def _changed(self) -> dict[str, tuple[Any, Any]]:
        return differences(self.stored(), self.experiment)

    def step(self) -> int:
        """Return the last step that it is known to have completed."""
        return max((row["step"] for row in read_rows(self.workdir.timings)[-1:]), default=0)

    def belongs(self) -> bool:
        """Say whether its work directory holds this experiment, apart from fields that do not need
        more training: a finished run keeps its config.json.
        """
        exists = self.workdir.config.exists()
        return exists and all(path.startswith(_NOT_TRAINED) for path in self._changed())

    def busy(self) -> bool:
        """Say whether a trainer is running in its directory."""
        try:
            with open(self.workdir.path / ".lock", "rb") as lock:
                fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except FileNotFoundError:
            return False
        except OSError:
            return True
        return False


def make_points(
    spec: str,
    variants: Sequence[str],
    fixed: Sequence[tuple[str, str]],
    grid: Sequence[Settings],
    directory: Path,
    load: Callable[[str, Sequence[tuple[str, str]]], Experiment],
) -> list[Point]:
    """Return the points: every setting of the grid in every variant of the config `spec`.

    `fixed` are overrides shared by all points; `load` creates an experiment from a config's name
    and overrides.

    Raises:
      UserError: if a point is not a valid experiment, or its directory holds another one.
    """
    swept = {path for settings in grid for path in settings}
    for path, _ in fixed:
        if path in swept:
            raise UserError(f"config.{path}: is both fixed and swept; leave one out")
    points: dict[str, Point] = {}
    for variant in variants:
        config = f"{spec}:{variant}" if variant else spec
        for texts in grid:
            overrides = [*fixed, *texts.items()]
            experiment = load(config, overrides)
            settings = {path: value_at(experiment, path) for path in texts}
            name = name_of(variant, settings)
            if name in points:
                raise UserError(f"two points of the sweep are the same: {name}")
            workdir = WorkDir(directory / name)
            arguments = [f"--config={config}", f"--workdir={workdir.path}"]
            arguments += [f"--config.{path}={text}" for path, text in overrides]
            points[name] = Point(variant, settings, experiment, workdir, tuple(arguments))
    for point in points.values():
        point.workdir.check(point.experiment)
    return list(points.values())


def shown(value: Any) -> str:
    """Return a value as a table shows it: a user's own part without its file's digest."""
    value = parts.short(value)
    return "+".join(map(str, value)) if isinstance(value, tuple) else str(value)


def as_text(value: Any) -> str:
    """Return a value in command-line syntax."""
    return command_text.as_text(value) if isinstance(value, tuple) else str(value)


def name_of(first: str, settings: dict[str, Any]) -> str:
    """Return a distinguishing name that is safe in a path, such as "FIRST,decoding.alpha=0.6"."""
    parts = [first] * bool(first) + [f"{path}={shown(v)}" for path, v in settings.items()]
    plain = ",".join(parts)
    safe = re.sub(r"[^\w.=,+-]", "_", plain)[:120]
    if safe == plain:
        return safe
    return f"{safe}-{hashlib.blake2b(plain.encode(), digest_size=4).hexdigest()}"
