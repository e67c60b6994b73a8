"""The evaluations that eval.py stored for a run: scores, and the search settings used for them.

The settings are those stored with an evaluation, never those of config.json, which may be older or
newer.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from transformer_jax.base.errors import UserError
from transformer_jax.config import EvaluationConfig
from transformer_jax.config.convert import parse
from transformer_jax.config.metrics import PROTOCOL
from transformer_jax.runs.workdir import WorkDir
from transformer_jax.sweeps.points import shown
from transformer_jax.sweeps.scores import decoding_of


def evaluations(workdir: WorkDir) -> list[dict[str, Any]]:
    """Return the results of eval.py for each split and checkpoint, without the sentences.

    Raises:
      UserError: if a file is damaged.
    """
    rows = []
    for path in sorted(workdir.eval.glob("*.json")):
        try:
            written = json.loads(path.read_text(encoding="utf-8"))
            lengths = re.search(r"ratio = ([\d.]+)", " ".join(written["details"]))
            keys = ("split", "checkpoint", "steps", "sentences", "scores")
            kept = {key: written[key] for key in keys}
            decoding = decoding_of(written)
        except (ValueError, KeyError, TypeError, AttributeError):
            raise UserError(f"{path}: damaged; run eval.py again, or delete it") from None
        rows.append(
            {**kept, "exact_match": written.get("exact_match"),
             "length_ratio": float(lengths[1]) if lengths else None, "decoding": decoding,
             "evaluation": written.get("evaluation"), "references": written.get("references"),
             "sentences_file": str(path.with_suffix(".jsonl"))}
        )  # fmt: skip
    return rows


def classes_of(found: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return what `confusion.by_class` found in one of these evaluations; None if nothing, or it
    was made by an older version.
    """
    path = Path(found["sentences_file"]).with_suffix(".json")
    return json.loads(path.read_text(encoding="utf-8")).get("classes")


def protocol_of(written: Mapping[str, Any], where: str) -> EvaluationConfig:
    """Return the protocol that eval.py stored with scores, with defaults for fields that its
    version did not have. The metrics follow from the scores.

    Raises:
      UserError: if it is damaged; begins with its location, `where`.
    """
    fields = {**asdict(EvaluationConfig()), **written["evaluation"]}
    fields["metrics"] = EvaluationConfig.metrics
    return parse(fields, EvaluationConfig, where)


def unlike(one: EvaluationConfig, other: EvaluationConfig) -> str | None:
    """Return the field that makes scores of two protocols incomparable, if there is one."""
    return next((name for name in PROTOCOL if getattr(one, name) != getattr(other, name)), None)


def scored_split(workdirs: Sequence[WorkDir]) -> str:
    """Return "test" if that was scored or nothing was, else a split that was scored."""
    scored = [evaluation["split"] for workdir in workdirs for evaluation in evaluations(workdir)]
    return "test" if "test" in scored or not scored else scored[0]


def decoding_differences(
    settings: Sequence[Mapping[str, Any] | None],
) -> dict[str, list[str]]:
    """Return {"decoding.FIELD": its value in each evaluation} for the fields that differ.

    None stands for an evaluation that did not record its settings.
    """
    known = [one for one in settings if one is not None]
    return {
        f"decoding.{name}": ["not recorded" if s is None else shown(s[name]) for s in settings]
        for name in (known[0] if known else {})
        if len({one[name] for one in known}) > 1
    }
