"""A work directory: its layout, the experiment it belongs to, and who may write to it.

config.json  parts/  tokenizer.model  checkpoints/<step>/  metrics.jsonl  timings.jsonl
expert_loads.jsonl  history.jsonl  train.log  tensorboard/
eval/<split>.<checkpoint>.{hyp,json,jsonl}
"""

import fcntl
import json
import math
import os
import re
import shutil
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from transformer_jax.base.disk import (
    DiskError,
    append_text,
    user_path,
    write_bytes,
    write_text,
    writing,
)
from transformer_jax.base.errors import UserError
from transformer_jax.config import Experiment, parts
from transformer_jax.config.convert import differences, from_json, own_parts, to_json
from transformer_jax.config.metrics import GAUGES
from transformer_jax.config.resuming import may_change

TAKEN = "another trainer is running here"
_CLOUDS = ("gs", "s3", "az", "hf")  # as the first folder of a path; "gs:" anywhere in it


class WorkDirGone(UserError):
    """The work directory is no longer the one that was claimed."""

    exit_code = 74


class WorkDir:
    """The directory of one experiment. Nothing is created before `claim`."""

    _claimed: int | None = None  # open file descriptor, to detect another directory of this name

    def __init__(self, path: str | Path) -> None:
        """Name a directory.

        Raises:
          UserError: if the file system does not accept the name or denies access, or checkpoints
            could not be stored there.
        """
        self.path = user_path(path).absolute()
        if problem := _unfit(self.path):
            raise UserError(f"--workdir={str(self.path).encode(errors='replace').decode()}: "
                            f"checkpoints cannot be stored below {problem}; name another "
                            "directory, or a symbolic link to this one")  # fmt: skip
        self.config = self.path / "config.json"
        self.parts = self.path / "parts"
        self.checkpoints = self.path / "checkpoints"
        self.metrics = self.path / "metrics.jsonl"
        self.timings = self.path / "timings.jsonl"
        # Of models whose layers report something, by gauge: `expert_loads.jsonl`.
        self.reports = {
            name: self.path / f"{gauge.details[0]}.jsonl" for name, gauge in GAUGES.items()
        }
        self.answers = self.path / "answers.jsonl"  # of a model that learns from its own
        self.history = self.path / "history.jsonl"
        self.log = self.path / "train.log"
        self.tensorboard = self.path / "tensorboard"
        self.trackers = self.path / "trackers"  # whose runs this one's are, and what they keep
        self.eval = self.path / "eval"
        try:
            os.stat(self.path / "checkpoints" / ("x" * 64))  # longer than any name we use
        except (FileNotFoundError, NotADirectoryError):
            pass
        except OSError as error:
            shown = f"{str(self.path)[:100]}{'...' * (len(str(self.path)) > 100)}"
            raise UserError(f"--workdir={shown}: {error.strerror}; name another") from None

    def experiment(self) -> Experiment:
        """Read config.json.

        Raises:
          UserError: if it does not exist, or does not fit this version.
        """
        try:
            text = self.config.read_bytes()
        except OSError:
            raise UserError(
                f"{self.path}: no config.json here; train first, or check the path"
            ) from None
        try:
            return from_json(text.decode())
        except (UserError, ValueError) as error:
            raise UserError(f"{self.config}: {error}") from None

    def check(self, experiment: Experiment) -> list[str]:
        """Compare with the experiment of this directory, if it has one.

        Returns one line for each field that differs and may differ.

        Raises:
          UserError: if fields differ that must not; names them all.
        """
        if not self.config.exists():
            if self.path.exists() and not self.path.is_dir():
                raise UserError(f"--workdir={self.path}: is a file; name a directory")
            if self.checkpoints.exists():
                raise UserError(f"{self.path}: has checkpoints but no config.json; use another")
            return []
        changed = differences(self.experiment(), experiment)
        lines = {path: _change(path, *both) for path, both in changed.items()}
        refused = [
            lines[path] for path, both in changed.items()
            if not may_change(path, *both) and (self._trained() or not parts.edited(*both))
        ]  # fmt: skip
        if refused:
            raise UserError(
                f"{self.path}: holds another experiment; use another --workdir, or undo: "
                + "; ".join(refused)
            )
        return list(lines.values())

    def _trained(self) -> bool:
        return self.checkpoints.exists() and any(self.checkpoints.iterdir())

    @contextmanager
    def claim(self, experiment: Experiment) -> Iterator[Experiment]:
        """Create the directory, lock out other trainers, and check again while holding the lock.

        Yields the experiment of this directory. On the first start that is the given one, which is
        written as config.json; a later start decides for itself whether to `write_config`. If the
        first one is refused, before it has a history, the directory is deleted.

        Raises:
          UserError: if another trainer is running here, or another experiment owns the directory.
          DiskError: if nothing can be written.
        """
        new = not self.path.exists()
        try:
            self.path.mkdir(parents=True, exist_ok=True)
        except (FileExistsError, NotADirectoryError, PermissionError) as error:
            raise UserError(f"{self.path}: cannot be created ({error.strerror})") from None
        except OSError as error:
            raise DiskError(f"{self.path}: cannot be created ({error.strerror})") from None
        with writing(str(self.path), self.path):
            lock = open(self.path / ".lock", "ab")  # noqa: SIM115
        with lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)  # released with the process
            except OSError:
                raise UserError(f"{self.path}: {TAKEN}") from None
            self.check(experiment)
            if not self.config.exists():
                self.write_config(experiment)
            self._claimed = os.open(self.path, os.O_RDONLY)
            try:
                yield self.experiment()
            except UserError as error:
                begun = self.history.exists() or self.checkpoints.exists()
                if new and not begun and not isinstance(error, WorkDirGone):
                    shutil.rmtree(self.path, ignore_errors=True)
                raise
            finally:
                os.close(self._claimed)
                self._claimed = None

    def write_config(self, experiment: Experiment) -> None:
        """Write config.json, and a copy of each file of user-defined parts that it names.

        Raises:
          DiskError: if writing fails.
        """
        with writing(str(self.config), self.path):
            write_text(self.config, to_json(experiment))
            for name, text in parts.files([*own_parts(experiment)]).items():
                self.parts.mkdir(exist_ok=True)
                write_bytes(self.parts / name, text)

    def check_claim(self) -> None:
        """Check that the claimed directory is still here; to be called before writing.

        Raises:
          WorkDirGone: if it is not.
        """
        if self._claimed is None:
            return
        try:
            here = os.stat(self.path)
        except (FileNotFoundError, NotADirectoryError):
            here = None
        if here is None or not os.path.samestat(os.fstat(self._claimed), here):
            raise WorkDirGone(
                f"{self.path}: was deleted or moved while a run was training in it; training has "
                "stopped and nothing was written in its place. Put it back and run the same "
                "command to resume from its last checkpoint, or run the command to start afresh"
            )


def _unfit(path: Path) -> str | None:
    """Return why checkpoints could not be stored below an absolute path, or None: the libraries
    that write them take a backslash for a slash, and some names for those of cloud storage.
    """
    if "\\" in str(path):
        return "a path with a backslash"
    try:
        str(path).encode()
    except UnicodeEncodeError:
        return "a path that is not UTF-8"
    if {*path.parts[1:2]} & {*_CLOUDS} or "gs:" in path.parts:
        return "a path that begins like one of cloud storage"
    return None


def _change(path: str, old: Any, new: Any) -> str:
    if parts.edited(old, new):
        return f"{path}: {parts.short(old, 12)!r} -> {parts.short(new, 12)!r}, the file has changed"
    return f"{path}: {old!r} -> {new!r}"


def append_row(path: Path, row: dict[str, Any]) -> None:
    """Append one JSON line, or nothing if the disk fails; NaN and infinity become null."""
    append_text(path, _line(row))


def _line(row: dict[str, Any]) -> str:
    clean = {
        key: None if isinstance(value, float) and not math.isfinite(value) else value
        for key, value in row.items()
    }
    return json.dumps(clean) + "\n"


def read_rows(path: Path, key: str = "step") -> list[dict[str, Any]]:
    """Read the rows of a JSON Lines file, ignoring a last line cut short by a crash.

    Each row has an integer under `key`.

    Raises:
      UserError: if any other line is not such a row.
    """
    rows = []
    lines = path.read_bytes().split(b"\n") if path.exists() else []
    for number, line in enumerate(lines[:-1], 1):
        try:
            row = json.loads(line)
            if type(row[key]) is not int:
                raise ValueError
        except (ValueError, TypeError, KeyError, RecursionError):
            raise UserError(f"{path}:{number}: damaged; repair or delete this line") from None
        rows.append(row)
    return rows


def minutes_of(timings: Sequence[dict[str, Any]]) -> list[float]:
    """Return the cumulative minutes of training, excluding validation and saving, at step 0 and at
    each row of rates, across resumed parts.
    """
    minutes, before = [0.0], 0
    for row in timings:
        minutes.append(minutes[-1] + (row["step"] - before) / max(row["steps_per_s"], 1e-4) / 60)
        before = row["step"]
    return minutes


def write_rows(path: Path, rows: Iterable[dict[str, Any]]) -> None:
    """Rewrite the file with all rows.

    Raises:
      DiskError: if writing fails; the file is unchanged.
    """
    with writing(str(path), path.parent):
        write_text(path, "".join(map(_line, rows)))


def default_workdir(config_spec: str) -> str:
    """Return runs/<config>[-<variant>] for --config=configs/<config>.py[:<variant>].

    Raises:
      UserError: if the config is a work directory, which implies no name for another.
    """
    if user_path(config_spec).is_dir():
        raise UserError(f"--config={config_spec}: is a run; name a new directory with --workdir")
    path, variant = config_file(config_spec)
    return f"runs/{Path(path).stem}" + (f"-{variant}" if variant else "")


def config_file(spec: str) -> tuple[str, str | None]:
    """Split PATH or PATH:VARIANT. What exists decides, as a path may contain colons too."""
    heads = [spec, *(spec[: colon.start()] for colon in reversed([*re.finditer(":", spec)]))]
    path = next((head for head in heads if user_path(head).is_file()), spec.partition(":")[0])
    return path, spec[len(path) + 1 :] if len(path) < len(spec) else None


def run_and_checkpoint(text: str) -> tuple[str, str | None]:
    """Split RUN or RUN@CHECKPOINT, also with settings as in best,decoding.draft=runs/a@last. What
    exists decides, as the path of a run may contain @ too.
    """
    cuts = [(text[: at.start()], text[at.end() :]) for at in reversed([*re.finditer("@", text)])]
    cuts = [(path, name) for path, name in cuts if "/" not in name.partition(",")[0]]
    if not cuts or user_path(text).exists():
        return text, None
    return next(((path, name) for path, name in cuts if user_path(path).exists()), cuts[0])
