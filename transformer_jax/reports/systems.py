"""The outputs of runs on a split, and checks that they can be compared."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from transformer_jax.base.errors import UserError
from transformer_jax.base.messages import program
from transformer_jax.config import EvaluationConfig, average_count
from transformer_jax.data.sources import files
from transformer_jax.evaluation.run import digest
from transformer_jax.reports.evaluations import protocol_of, unlike
from transformer_jax.reports.units import TEXTS, table_of
from transformer_jax.runs.workdir import WorkDir, read_rows
from transformer_jax.sweeps.scores import decoding_of

_SIZES = ("tokens", "characters", "bytes")  # of a split, apportioned to its windows


@dataclass(frozen=True)
class System:
    """The output of a run on a split."""

    name: str
    hypotheses: list[str] | None  # None if the model writes no lines
    references: str  # their digest
    evaluation: EvaluationConfig
    decoding: dict[str, Any] | None = None  # the search settings; None if they were not recorded
    scores: tuple[str, ...] = ()  # the names of the scores that eval.py wrote
    kind: str = "translate"  # of the objective
    rows: Sequence[dict[str, Any]] = ()  # one per unit; () if there are none
    block: int = 1  # number of consecutive units that are resampled together
    command: str = ""  # that scores it

    @property
    def translates(self) -> bool:
        """Whether its output is compared with references that are not stored with it."""
        return table_of(self.kind) is TEXTS


def read_system(workdir: WorkDir, checkpoint: str | None, split: str) -> System:
    """Read eval/<split>.<checkpoint>.*; the checkpoint defaults to that of eval.py.

    Settings of eval.py may follow the checkpoint, as in "best,decoding.alpha=0.6".

    Raises:
      UserError: if the files are missing or do not belong together.
    """
    experiment = workdir.experiment()
    name = checkpoint or experiment.evaluation.checkpoint
    name, *changed = name.split(",")
    average_count(name)  # refuses invalid checkpoint names
    stem = workdir.eval / ",".join([f"{split}.{name.replace(':', '-')}", *changed])
    words = [f"--workdir={workdir.path}", f"--checkpoint={name}", f"--split={split}"]
    command = " ".join([program("evaluate"), *words, *(f"--config.{text}" for text in changed)])
    label = f"{workdir.path}@{checkpoint}" if checkpoint else str(workdir.path)
    return read_scored(str(stem), experiment.objective.kind, label, command)


def read_scored(stem: str, kind: str, name: str, command: str) -> System:
    """Read STEM.json, and STEM.hyp or STEM.jsonl beside it, for an objective of this kind.

    Raises:
      UserError: if they are missing or do not belong together; it names `command`, which writes
        them.
    """
    if table_of(kind) is None:
        raise UserError(f"{name}: there is no paired test for objective.name={kind!r}")
    translates, written, lines = table_of(kind) is TEXTS, Path(f"{stem}.json"), Path(f"{stem}.hyp")
    try:
        result = json.loads(written.read_text(encoding="utf-8"))
        hypotheses = files.read_lines(lines) if translates or lines.exists() else None
    except (UserError, OSError, ValueError):
        missing = f"{lines}: no such translations" if translates else f"{written}: no such scores"
        raise UserError(f"{missing}; create them with: {command}") from None
    scores = tuple(result.get("scores", ()))
    sizes = {key: result[key] for key in _SIZES if key in result}
    rows = [sizes | row for row in read_rows(Path(f"{stem}.jsonl"), "line")]
    units = len(rows) if hypotheses is None else len(hypotheses)
    known = {"references", "evaluation", "sentences"} <= result.keys()
    if not known or (hypotheses is not None and result["sentences"] != units):
        raise UserError(f"{written}: incomplete or older than this version; run again: {command}")
    rows = rows if len(rows) == units else []  # from an older version, or too many sentences
    evaluation = protocol_of(result, f"{written}: evaluation")
    return System(
        name, hypotheses, result["references"], evaluation, decoding_of(result),
        scores + ("exact_match",) * (result.get("exact_match") is not None), kind, rows,
        result.get("horizon", 1), command,
    )  # fmt: skip


def check(systems: Sequence[System], references: Sequence[str] | None) -> None:
    """Check that all systems were scored on these references and by one protocol; if references is
    None, on the same ones.

    Raises:
      UserError: if not.
    """
    first = systems[0]
    expected = first.references if references is None else digest(references)
    for system in systems:
        if table_of(system.kind) is not table_of(first.kind):
            raise UserError(
                f"{system.name}, {first.name}: one has objective.name={system.kind!r} and the "
                f"other {first.kind!r}; compare models of one kind"
            )
        if system.references != expected:
            raise UserError(
                f"{system.name}: was scored on other references than {first.name}; "
                "score both on the same files"
                if system.references != first.references
                else f"{system.name}: its references have changed since; run eval.py again, or "
                "name the file with --reference"
            )
        if not _same_units(system, first):
            raise UserError(
                f"{system.name}: was scored in other windows or pieces than {first.name}; "
                "only models with the same windows and the same tokenizer can be compared"
            )
        field = unlike(first.evaluation, system.evaluation)
        if field is not None:
            raise UserError(
                f"{system.name}: was scored with evaluation.{field}="
                f"{getattr(system.evaluation, field)!r}, {first.name} with "
                f"{getattr(first.evaluation, field)!r}; score both by one protocol"
            )


def _same_units(one: System, other: System) -> bool:
    """Say whether two systems have the same units, as far as their rows are known."""
    pieces = [[row.get("pieces") for row in system.rows] for system in (one, other)]
    return one.block == other.block and (pieces[0] == pieces[1] or [] in pieces)
