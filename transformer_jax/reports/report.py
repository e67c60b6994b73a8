"""The contents of a report, gathered from work directories as plain data."""

import contextlib
import dataclasses
import math
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from transformer_jax.base.errors import UserError
from transformer_jax.base.messages import program
from transformer_jax.config.metrics import TRANSLATION, VALIDATION, in_nats
from transformer_jax.evaluation.metrics import is_right
from transformer_jax.evaluation.sentences import picked
from transformer_jax.reports import breakdown, runs, sweep_rows
from transformer_jax.reports.compare import TITLES, against_first, shown_p
from transformer_jax.reports.curves import curves
from transformer_jax.reports.evaluations import (
    classes_of,
    decoding_differences,
    protocol_of,
    scored_split,
    unlike,
)
from transformer_jax.reports.runs import Run
from transformer_jax.reports.systems import read_scored
from transformer_jax.runs.workdir import WorkDir, read_rows
from transformer_jax.sweeps.points import shown

_MOST_TESTED = 5000  # translations that paired tests resample: more would take too long
_MOST_POINTS = 8000  # in the curves of all runs together
_DRAWN = (
    "line", "file", "reference", "hypothesis", "probability", "mse", "picture", "looked", "caption"
)  # fmt: skip
_SHOWN = ("hypothesis", "attention")  # of a sentence's row, besides its scores


def gather(
    places: Sequence[tuple[WorkDir, str | None]], split: str | None = None
) -> dict[str, Any]:
    """Return the contents of a report on runs, or on one sweep.

    `places` are work directories, each with the checkpoint whose translations of `split` are shown
    (None: the one that eval.py uses by default), or a single sweep directory. The split defaults to
    test if that was scored or nothing was.

    Raises:
      UserError: if one of them holds neither a run nor a sweep.
    """
    swept = [place for place, _ in places if sweep_rows.is_sweep(place.path)]
    if swept and len(places) > 1:
        raise UserError(f"{swept[0].path}: is a sweep; give it a report of its own")
    sweep = None
    if swept:
        points = sweep_rows.points(swept[0].path)
        split = split or scored_split([point.workdir for point in points])
        sweep, all_runs = sweep_rows.rows(points, swept[0].path, split)
        best = sweep["verdict"]["best"]
        whole = [run for run in all_runs if run.name == best] or all_runs[:1]
    else:
        whole = all_runs = named([runs.read(*place) for place in places])
        split = split or scored_split([run.workdir for run in whole])
    most = max(50, min(1000, _MOST_POINTS // len(all_runs)))
    first = {run.workdir.path: run for run in reversed(all_runs)}  # per training
    return {
        "title": f"Sweep {swept[0].path.name}" if swept else _title(all_runs),
        "made": time.strftime("%Y-%m-%d %H:%M %Z"),
        "split": split,
        "runs": [
            _run(run, run in whole, run is not first[run.workdir.path], split, most)
            for run in all_runs
        ],
        "sweep": sweep,
        "nats": all(in_nats(run.experiment.objective.kind) for run in all_runs),
        "validations": {f"validation_{name}": f"Validation {metric.title}"
                        for name, metric in VALIDATION.items() if name != "loss"},
        "scores": _scores([run for run in whole if run is first[run.workdir.path]]),
        "classes": _classes(whole, split),
        "gallery": _gallery(whole, split),
        "tests": _tests(whole, split),
        **_systems(whole, split),
    }  # fmt: skip


def _title(whole: Sequence[Run]) -> str:
    *others, last = [run.name for run in whole]
    return f"Runs {', '.join(others)} and {last} compared" if others else f"Run {last}"


def named(found: list[Run]) -> list[Run]:
    """Distinguish runs whose directories have the same name."""
    names = [run.name for run in found]
    return [
        run if names.count(run.name) == 1
        else dataclasses.replace(run, name=f"{run.workdir.path.parent.name}/{run.name}")
        for run in found
    ]  # fmt: skip


def _run(run: Run, whole: bool, again: bool, split: str, most: int) -> dict[str, Any]:
    """Return what is shown of a run; for a sweep's points other than the best, only curves and
    times.

    `again`: another checkpoint of the same training is shown before it.
    """
    content: dict[str, Any] = {
        "name": run.name, "training": run.training, "whole": whole, "again": again,
        "curves": {} if again else curves(run.metrics, run.timings, most),
        "seconds": {} if again else runs.seconds(run),
    }  # fmt: skip
    if whole:
        command = (
            f"{program('evaluate')} --workdir={run.workdir.path} --checkpoint={run.checkpoint}"
        )
        command += f" --split={split}"
        content |= {
            "facts": runs.facts(run), "settings": runs.settings(run, split),
            "evaluation": run.evaluation(split), "evaluations": run.evaluations,
            "evaluate": command, "checkpoint": run.checkpoint,
        }  # fmt: skip
    return content


def _scores(whole: Sequence[Run]) -> list[dict[str, Any]]:
    """Return every evaluation of these runs, with the search settings in which they differ."""
    rows = [{"run": run.training, **row} for run in whole for row in run.evaluations]
    differing = decoding_differences([row["decoding"] for row in rows])
    for number, row in enumerate(rows):
        row["search"] = {path.partition(".")[2]: of[number] for path, of in differing.items()}
        if row["decoding"] is not None:
            row["search"].setdefault("beam_size", shown(row["decoding"]["beam_size"]))
    return rows


def _classes(whole: Sequence[Run], split: str) -> list[dict[str, Any]]:
    """Return the scores of each class and the confusion matrix of each run that has classes."""
    evaluations = [(run.name, run.evaluation(split)) for run in whole]
    tables = [(name, classes_of(row)) for name, row in evaluations if row is not None]
    return [{"name": name, **classes} for name, classes in tables if classes]


def _gallery(whole: Sequence[Run], split: str) -> list[dict[str, Any]]:
    """Return the examples of each run that have pictures."""
    galleries = []
    for run in whole:
        evaluation = run.evaluation(split)
        rows = read_rows(Path(evaluation["sentences_file"]), "line") if evaluation else []
        drawn = [
            {key: row[key] for key in _DRAWN if key in row}
            | {"right": "caption" in row or is_right(row)}
            for row in rows
            if "picture" in row
        ]
        # Wrong predictions first, the most confident of them first; then the smallest errors.
        drawn.sort(key=lambda row: (
            row["right"], -row.get("probability", 0.0), row.get("mse", 0.0),
        ))  # fmt: skip
        if drawn:
            galleries.append({"name": run.name, "examples": drawn})
    return galleries


# --- translations of one split --------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class _Scored:
    """A run's translations of the split."""

    number: int  # of the run
    name: str
    result: dict[str, Any]  # what eval.py wrote
    rows: list[dict[str, Any]]  # one per sentence


def _systems(whole: Sequence[Run], split: str) -> dict[str, Any]:
    """Return the systems that share the first one's references, with their translations."""
    comparable = [
        _Scored(number, run.name, evaluation, rows)
        for number, run in enumerate(whole)
        if (evaluation := run.evaluation(split))
        # Results of older versions, or of very many sentences, have no rows.
        and (rows := read_rows(Path(evaluation["sentences_file"]), "line"))
        and len(rows) == evaluation["sentences"]
        and {"chrF", "counts"} <= rows[0].keys()  # translations
    ]
    comparable = [system for system in comparable if _alike(system, comparable[0])]
    if not comparable:
        return {"systems": [], "groups": {}, "sentences": [], "picked": {}}
    systems = [system.rows for system in comparable]
    return {
        "systems": [{"run": system.number, "name": system.name} for system in comparable],
        "groups": {"length": breakdown.by_length(systems),
                   "rarest": breakdown.by_rarest_word(systems),
                   "words": breakdown.words_found(systems)},
        "sentences": [_sentence(rows) for rows in zip(*systems, strict=True)],
        "picked": picked(systems[0]),
    }  # fmt: skip


def _alike(one: _Scored, other: _Scored) -> bool:
    """Say whether both were scored on the same references by the same protocol."""
    protocols = (protocol_of(system.result, "evaluation") for system in (one, other))
    return one.result["references"] == other.result["references"] and unlike(*protocols) is None


def _tests(whole: Sequence[Run], split: str) -> list[dict[str, Any]]:
    """Return the tests of each run against the first, as in `transformer-jax compare`."""
    systems = []
    for run in whole:
        evaluation = run.evaluation(split)
        most = _MOST_TESTED if run.experiment.objective.translates else math.inf
        if evaluation is not None and evaluation["sentences"] <= most:
            stem = str(Path(evaluation["sentences_file"]).with_suffix(""))
            with contextlib.suppress(UserError):  # written by an older version
                systems.append(read_scored(stem, run.experiment.objective.kind, run.name, ""))
    return [
        {
            "one": systems[0].name,
            "other": result.system,
            "metric": result.metric,
            "different": result.different,
            "p": [[TITLES[name], p] for name, p in result.p_values.items()],
            "shown_p": [shown_p(p) for p in result.p_values.values()],
            "difference": result.difference,
        }
        for result in against_first(systems)
    ]


def _sentence(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return a sentence with the output of each system."""
    systems: list[dict[str, Any]] = []
    for row in rows:
        missing, extra = breakdown.marks(row["reference"], row["hypothesis"])
        kept = {key: row[key] for key in (*_SHOWN, *TRANSLATION) if key in row}
        systems.append({**kept, "missing": missing, "extra": extra})
    first = rows[0]
    return {"line": first["line"], "source": first["source"], "reference": first["reference"],
            "systems": systems}  # fmt: skip
