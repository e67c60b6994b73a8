"""What runs wrote for a split, and whether it can be compared."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from transformer_jax.config import EvaluationConfig, average_count
from transformer_jax.data import files
from transformer_jax.errors import UserError
from transformer_jax.evaluation.run import digest
from transformer_jax.messages import program
from transformer_jax.reports.evaluations import protocol_of, unlike
from transformer_jax.reports.units import TEXTS, UNITS
from transformer_jax.sweeps.scores import decoding_of
from transformer_jax.workdir import WorkDir, read_rows

_SIZES = ("tokens", "characters", "bytes")  # of a split, which its windows share


@dataclass(frozen=True)
class System:
    """What a run wrote for a split."""

    name: str
    hypotheses: list[str] | None  # None: of what writes no lines
    references: str  # their digest
    evaluation: EvaluationConfig
    decoding: dict[str, Any] | None = None  # the search settings; None if they were not recorded
    scores: tuple[str, ...] = ()  # the names of those that eval.py wrote
    kind: str = "translate"  # of the objective
    rows: Sequence[dict[str, Any]] = ()  # of each unit; () where there are none
    block: int = 1  # so many units in succession are drawn together
    command: str = ""  # which scores it

    @property
    def translates(self) -> bool:
        """Whether what it wrote is compared with references that it did not store."""
        return UNITS[self.kind] is TEXTS


def read_system(workdir: WorkDir, checkpoint: str | None, split: str) -> System:
    """Read eval/<split>.<checkpoint>.*; None takes the checkpoint eval.py does.

    The checkpoint may have settings behind it, as in "best,decoding.alpha=0.6": those of eval.py.

    Raises:
      UserError: if they are not there or do not belong together.
    """
    experiment = workdir.experiment()
    name = checkpoint or experiment.evaluation.checkpoint
    name, *changed = name.split(",")
    average_count(name)  # refuses what is no checkpoint's name
    stem = workdir.eval / ",".join([f"{split}.{name.replace(':', '-')}", *changed])
    words = [f"--workdir={workdir.path}", f"--checkpoint={name}", f"--split={split}"]
    command = " ".join([program("evaluate"), *words, *(f"--config.{text}" for text in changed)])
    label = f"{workdir.path}@{checkpoint}" if checkpoint else str(workdir.path)
    return read_scored(str(stem), experiment.objective.kind, label, command)


def read_scored(stem: str, kind: str, name: str, command: str) -> System:
    """Read STEM.json, and STEM.hyp or STEM.jsonl beside it, of an objective of this kind.

    Raises:
      UserError: if they are not there or do not belong together; `command` makes them.
    """
    if kind not in UNITS:
        raise UserError(f"{name}: of objective.name={kind!r} there is no paired test")
    translates, written, lines = UNITS[kind] is TEXTS, Path(f"{stem}.json"), Path(f"{stem}.hyp")
    try:
        result = json.loads(written.read_text(encoding="utf-8"))
        hypotheses = files.read_lines(lines) if translates or lines.exists() else None
    except (UserError, OSError, ValueError):
        missing = f"{lines}: no such translations" if translates else f"{written}: no such scores"
        raise UserError(f"{missing}; make them with: {command}") from None
    scores = tuple(result.get("scores", ()))
    sizes = {key: result[key] for key in _SIZES if key in result}
    rows = [sizes | row for row in read_rows(Path(f"{stem}.jsonl"), "line")]
    units = len(rows) if hypotheses is None else len(hypotheses)
    known = {"references", "evaluation", "sentences"} <= result.keys()
    if not known or (hypotheses is not None and result["sentences"] != units):
        raise UserError(f"{written}: incomplete or older than this version; run again: {command}")
    rows = rows if len(rows) == units else []  # of an older version, or of very many sentences
    evaluation = protocol_of(result, f"{written}: evaluation")
    return System(
        name, hypotheses, result["references"], evaluation, decoding_of(result),
        scores + ("exact_match",) * (result.get("exact_match") is not None), kind, rows,
        result.get("horizon", 1), command,
    )  # fmt: skip


def check(systems: Sequence[System], references: Sequence[str] | None) -> None:
    """Check that all systems were scored on these references and by one protocol; without
    references, on the same units.

    Raises:
      UserError: if not.
    """
    first = systems[0]
    expected = first.references if references is None else digest(references)
    for system in systems:
        if UNITS[system.kind] is not UNITS[first.kind]:
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
        if _cut(system) != _cut(first):
            raise UserError(
                f"{system.name}: was scored in other windows or pieces than {first.name}; "
                "only models with the same windows and the same tokenizer can be tested"
            )
        field = unlike(first.evaluation, system.evaluation)
        if field is not None:
            raise UserError(
                f"{system.name}: was scored with evaluation.{field}="
                f"{getattr(system.evaluation, field)!r}, {first.name} with "
                f"{getattr(first.evaluation, field)!r}; score both by one protocol"
            )


def _cut(system: System) -> tuple[int, list]:
    """Return what rows of the same units have in common."""
    return system.block, [row.get("pieces") for row in system.rows]
