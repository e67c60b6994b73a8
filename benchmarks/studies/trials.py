"""Training runs of studies: a config with some fields changed, trained once and kept."""

import json
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from transformer_jax.cli.arguments import load_config
from transformer_jax.config import Experiment
from transformer_jax.config.convert import parse
from transformer_jax.runs.workdir import WorkDir, read_rows

ROOT = Path(__file__).parents[2]
_DIVERGED = 70  # exit code of train.py


def experiment_of(config: str, fields: Mapping[str, Any]) -> Experiment:
    """Return the experiment of a config, a path from the root, with fields by their paths."""
    texts = [(path, str(value)) for path, value in fields.items()]
    return parse(load_config(str(ROOT / config), texts))


def losses(place: Path) -> list[tuple[int, float]]:
    """Return the updates and losses of all validations; a loss that is no number is infinite."""
    rows = [row for row in read_rows(WorkDir(place).metrics) if "validation_loss" in row]
    return [(row["step"], float(row["validation_loss"] or "inf")) for row in rows]


def with_earlier(
    rows: Sequence[Mapping[str, Any]], by: Sequence[str], path: Path, name: str
) -> list[Any]:
    """Return the rows as JSON has them, after those of an earlier table (`name` in the file `path`)
    that no new row has the same fields `by` as: so a machine need not train again what others did.
    """
    new = json.loads(json.dumps(rows))
    old = json.loads(path.read_text())[name] if path.exists() else []
    known = [[row[key] for key in by] for row in new]
    return [row for row in old if [row[key] for key in by] not in known] + new


def run(config: str, fields: Mapping[str, Any], place: Path) -> float:
    """Train in a work directory, or what is left of it, and return the last loss; infinite if it
    diverged.
    """
    last = experiment_of(config, fields).training.steps
    if losses(place)[-1:] and losses(place)[-1][0] == last:
        return losses(place)[-1][1]
    command = [sys.executable, str(ROOT / "train.py"), f"--config={ROOT / config}",
               f"--workdir={place}"]  # fmt: skip
    command += [f"--config.{path}={value}" for path, value in fields.items()]
    began = time.monotonic()
    code = subprocess.run(command, capture_output=True, check=False).returncode
    if code not in (0, _DIVERGED):
        raise SystemExit(f"{place}: exit code {code}; see its train.log, and run this again")
    loss = losses(place)[-1][1] if code == 0 else float("inf")
    minutes = (time.monotonic() - began) / 60
    print(json.dumps({"run": place.name, "loss": round(loss, 4), "minutes": round(minutes, 2)}),
          flush=True)  # fmt: skip
    return loss
