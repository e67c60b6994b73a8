"""history.jsonl: the environment of each start of a training, and how it ended.

Each start of the trainer writes two rows; one that is killed leaves only the first.
"""

import importlib.metadata
import logging
import os
import platform
import shlex
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import jax

from transformer_jax.base import processor
from transformer_jax.base.errors import UserError
from transformer_jax.data.store.encoding import cores
from transformer_jax.experiments.prepare import Prepared
from transformer_jax.runs.workdir import WorkDir, append_row, read_rows, write_rows

log = logging.getLogger("transformer_jax")

_SOURCE = Path(__file__).parents[2]
_LIBRARIES = ("jax", "flax", "optax", "orbax-checkpoint", "numpy", "sentencepiece")


def started(
    step: int, prepared: Prepared, parameters: int, run: str, changed: dict[str, Any]
) -> dict[str, Any]:
    """Return the row of a start: the command, the code, the machine, the sizes, the run that it
    belongs to, and {path: (old, new)} of the fields changed since the last start."""
    program, *arguments = sys.orig_argv
    tokenizers = prepared.tokenizers
    return {
        "step": step,
        "event": "start",
        "time": time.time(),
        "run": run,
        "changed": changed,
        "command": shlex.join([Path(program).name, *arguments]),
        "commit": commit(),
        "versions": versions(),
        "machine": machine(),
        "parameters": parameters,
        "pairs": len(prepared.selection.pairs),
        "steps_an_epoch": len(prepared.plan),
        "vocabulary": [tokenizers.src.size, tokenizers.tgt.size],
    }


def run_name(workdir: WorkDir) -> str | None:
    """Return the name given to a run at its first start; None if history.jsonl does not have it."""
    with suppress(UserError, OSError):
        names = (row.get("run") for row in read_rows(workdir.history))
        return next((name for name in names if isinstance(name, str)), None)
    return None


def ended(step: int, outcome: str, seconds: dict[str, float]) -> dict[str, Any]:
    """Return the row of an end; `seconds` is by activity, since the last row of timings.jsonl."""
    now = time.time()
    return {"step": step, "event": "end", "time": now, "outcome": outcome, "seconds": seconds}


def note(workdir: WorkDir, row: dict[str, Any]) -> None:
    """Append a row, in the first process only. If writing fails, it is skipped with a warning and
    training continues."""
    if jax.process_index() != 0:
        return
    workdir.check_claim()
    try:
        with suppress(UserError):  # leaves a damaged line as it is
            if workdir.history.exists():  # drops a line that a crash left incomplete
                write_rows(workdir.history, read_rows(workdir.history))
        append_row(workdir.history, row)
    except OSError as error:
        log.warning("%s: not written (%s)", workdir.history, error.strerror)


def commit() -> str | None:
    """Return the commit of this source tree, with "-dirty" appended if files differ from it; None
    outside a git checkout."""
    if not (_SOURCE / ".git").exists():
        return None
    ask = ["git", "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
    with suppress(OSError, subprocess.SubprocessError):
        done = subprocess.run(
            ask, cwd=_SOURCE, capture_output=True, encoding="utf-8", errors="replace", timeout=10,
            check=False,
        )  # fmt: skip
        return done.stdout.strip() or None
    return None


def versions() -> dict[str, str]:
    """Return the versions of Python, this package and the libraries that its results depend on."""
    installed = {"python": platform.python_version()}
    for name in ("transformer-jax", *_LIBRARIES):
        with suppress(importlib.metadata.PackageNotFoundError):
            installed[name] = importlib.metadata.version(name)
    return installed


def machine() -> dict[str, Any]:
    """Return the accelerators, the processor, its instructions and cores, and memory in bytes."""
    return {
        "devices": f"{jax.device_count()} {jax.devices()[0].device_kind}",
        "processes": jax.process_count(),
        **processor.described(),
        "cores": len(cores()),
        "memory": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "system": f"{platform.system()} {platform.machine()}",
    }
