"""Score a checkpoint: translate, compare with raw references, write what was found."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from transformer_jax.api import TrainedModel
from transformer_jax.config import DecodingConfig
from transformer_jax.disk import write_text
from transformer_jax.evaluation.metrics import Score, exact_match, score
from transformer_jax.evaluation.sentences import describe

_RESAMPLES = 1000  # sacrebleu's own number
_MOST_SENTENCES = 10_000  # resampled, and described one by one


def digest(lines: Sequence[str]) -> str:
    """Return a hash of lines of text, by which two scores are known to have the same references."""
    text = "".join(f"{line}\n" for line in lines)
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def evaluate(
    trained: TrainedModel,
    src: Sequence[str],
    references: Sequence[str],
    decoding: DecodingConfig,
    split: str,
    checkpoint: str,
    directory: Path,
    progress: Any = iter,
) -> dict[str, Any]:
    """Translate and score; write <split>.<checkpoint>.hyp, .json and .jsonl; return what the JSON
    holds.

    The JSON lines have a row for each sentence, see `sentences.describe`. References are raw text
    and never pass through the tokenizer.
    """
    translator = trained.translator(decoding)
    found = translator.translate(trained.params, src, progress)
    hypotheses = [item.text for item in found]
    evaluation = trained.experiment.evaluation
    # Resampling takes memory in proportion: too much for a training split.
    small = len(hypotheses) <= _MOST_SENTENCES
    scores = score(hypotheses, references, evaluation, _RESAMPLES if small else 0)
    result = {
        "split": split,
        "checkpoint": checkpoint,
        "steps": trained.steps,
        "sentences": len(hypotheses),
        "scores": {s.name: _told(s) for s in scores},
        "details": [s.details for s in scores],
        "exact_match": exact_match(hypotheses, references),
        "decoding": asdict(decoding),
        "evaluation": asdict(evaluation),
        "references": digest(references),
    }
    _write(
        directory, result, hypotheses, describe(trained, src, references, found) if small else []
    )
    return result


def _write(
    directory: Path, result: dict[str, Any], hypotheses: list[str], rows: list[dict[str, Any]]
) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    stem = f"{result['split']}.{result['checkpoint'].replace(':', '-')}"
    write_text(directory / f"{stem}.hyp", "".join(f"{line}\n" for line in hypotheses))
    write_text(directory / f"{stem}.jsonl", "".join(f"{json.dumps(row)}\n" for row in rows))
    write_text(directory / f"{stem}.json", json.dumps(result, indent=2) + "\n")


def _told(scored: Score) -> dict[str, Any]:
    told: dict[str, Any] = {"value": scored.value, "signature": scored.signature}
    if scored.interval is not None:
        told["interval"] = list(scored.interval)
    return told
