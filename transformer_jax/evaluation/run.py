"""Score a checkpoint: translate, compare with raw references, write what was found."""

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from transformer_jax.api import TrainedModel
from transformer_jax.config import DecodingConfig
from transformer_jax.disk import write_text
from transformer_jax.evaluation.metrics import exact_match, score


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
    """Translate and score; write <split>.<checkpoint>.hyp and .json; return what the JSON holds.

    References are raw text and never pass through the tokenizer.
    """
    translator = trained.translator(decoding)
    found = translator.translate(trained.params, src, progress)
    hypotheses = [item.text for item in found]
    scores = score(hypotheses, references, trained.experiment.evaluation)
    result = {
        "split": split,
        "checkpoint": checkpoint,
        "steps": trained.steps,
        "sentences": len(hypotheses),
        "scores": {s.name: {"value": s.value, "signature": s.signature} for s in scores},
        "details": [s.details for s in scores],
        "exact_match": exact_match(hypotheses, references),
        "decoding": asdict(decoding),
    }
    directory.mkdir(parents=True, exist_ok=True)
    stem = f"{split}.{checkpoint.replace(':', '-')}"
    write_text(directory / f"{stem}.hyp", "".join(f"{line}\n" for line in hypotheses))
    write_text(directory / f"{stem}.json", json.dumps(result, indent=2) + "\n")
    return result
