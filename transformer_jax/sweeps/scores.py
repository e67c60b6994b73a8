"""The scores of a point: their files, and whether they match its settings."""

import dataclasses
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from transformer_jax.config import DecodingConfig, Experiment
from transformer_jax.config.convert import differences, door, override, parse
from transformer_jax.sweeps.points import Point, name_of, shown

# Settings that do not affect the translations and their scores.
_SAME_SCORES = (
    "data.directory", "data.how_to_get", "decoding.tokens_per_batch", "evaluation.checkpoint",
    "evaluation.metrics",
)  # fmt: skip


def scores_name(checkpoint: str, trained: Experiment, scored: Experiment) -> str:
    """Return the name that eval.py gives to scores: the checkpoint, followed by settings that
    affect the scores and differ from config.json, as in "best,decoding.alpha=0.6".
    """
    changed = {path: new for path, (_, new) in differences(trained, scored).items()}
    for path in _SAME_SCORES:
        changed.pop(path, None)
    return f"{checkpoint},{name_of('', changed)}" if changed else checkpoint


def spelled(checkpoint: str, trained: Experiment) -> tuple[str, Experiment]:
    """Return a name like "best,decoding.alpha=0.6" as `scores_name` gives it, regardless of the
    order and form of its settings, and the experiment with them.

    Raises:
      UserError: if there is no such field, or its value is invalid.
    """
    name, *settings = re.split(r",(?=\w+\.\w+=)", checkpoint)
    config = door(trained)
    for text in settings:
        path, _, value = text.partition("=")
        override(config, path, value)
    scored = parse(config)
    return scores_name(name, trained, scored), scored


def score_file(point: Point, split: str) -> Path:
    """Return the file of the scores that `Point.evaluate_command` writes."""
    checkpoint = point.experiment.evaluation.checkpoint.replace(":", "-")
    name = scores_name(checkpoint, point.stored(), point.scored())
    return point.workdir.eval / f"{split}.{name}.json"


def read_scores(point: Point, split: str) -> dict[str, Any]:
    """Return eval.py's result for a point since it was trained; {} if there is none or it is
    damaged.
    """
    file, metrics = score_file(point, split), point.workdir.metrics
    try:
        if file.stat().st_mtime < metrics.stat().st_mtime:
            return {}
        written = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return written if isinstance(written, dict) else {}


def is_scored(point: Point, split: str) -> bool:
    """Say whether the scores exist, are no older than the training, and were made with the point's
    own decoding settings.
    """
    return bool(read_scores(point, split)) and not disagreement(point, split)


def disagreement(point: Point, split: str) -> str:
    """Return how the decoding settings stored with the scores differ from the point's; "" if they
    agree.
    """
    stored = decoding_of(read_scores(point, split))
    own = decoding_of({"decoding": dataclasses.asdict(point.experiment.decoding)})
    if stored is None or own is None:
        return ""
    differing = [
        f"decoding.{name}={shown(stored[name])} instead of {shown(own[name])}"
        for name in own
        if stored[name] != own[name]
    ]
    return f"{split} was scored with {', '.join(differing)}" if differing else ""


def decoding_of(written: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the decoding settings that eval.py stored with scores, with defaults for those that
    its version did not have; None if it stored none.
    """
    if not written.get("decoding"):
        return None
    settings = {**dataclasses.asdict(DecodingConfig()), **written["decoding"]}
    del settings["tokens_per_batch"]  # does not affect the translations
    return {k: tuple(v) if isinstance(v, list) else v for k, v in settings.items()}
