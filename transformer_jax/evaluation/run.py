"""Score a checkpoint: translate, compare with raw references, write the results."""

import contextlib
import hashlib
import json
import logging
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

from transformer_jax.api import TrainedEnsemble, TrainedModel
from transformer_jax.base.disk import DiskError, write_text, writing
from transformer_jax.config import DecodingConfig
from transformer_jax.data.codecs.codebook import Codebook
from transformer_jax.data.codecs.trees import check_pairs
from transformer_jax.decoding.pictures import PictureCodes
from transformer_jax.evaluation import gallery, moves, summaries, trees
from transformer_jax.evaluation.metrics import Score, exact_match, score, unsuited
from transformer_jax.evaluation.sentences import describe

log = logging.getLogger("transformer_jax")

_RESAMPLES = 1000  # sacrebleu's default
_MOST_SENTENCES = 10_000  # resampled, and described one by one


def digest(lines: Sequence[str]) -> str:
    """Return a hash of lines of text, which shows whether two scores have the same references."""
    text = "".join(f"{line}\n" for line in lines)
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


class Evaluation(NamedTuple):
    """The scores of one checkpoint on one split, and what was scored."""

    result: dict[str, Any]
    hypotheses: list[str] | None  # None if the model writes no lines
    rows: list[dict[str, Any]]  # one per sentence, see `sentences.describe`
    extent: str = ""  # of what was scored, for people, if the scores do not say it
    notes: Sequence[str] = ()  # lines for people, behind the scores

    def write(self, stem: str) -> None:
        """Write STEM.hyp, if there are lines, STEM.json (the result) and STEM.jsonl (the rows).

        Raises:
          DiskError: if writing fails.
        """
        if self.hypotheses is not None:
            write_hypotheses(stem, self.hypotheses)
        with writing(f"{stem}.*", Path(stem).parent):
            write_text(Path(f"{stem}.jsonl"), "".join(f"{json.dumps(x)}\n" for x in self.rows))
            write_text(Path(f"{stem}.json"), json.dumps(self.result, indent=2) + "\n")


def write_hypotheses(stem: str, hypotheses: Sequence[str]) -> None:
    """Write STEM.hyp, and delete the scores beside it, which may belong to other translations.

    Raises:
      DiskError: if writing fails.
    """
    with writing(f"{stem}.hyp", Path(stem).parent):
        write_text(Path(f"{stem}.hyp"), "".join(f"{line}\n" for line in hypotheses))
        for ending in ("json", "jsonl"):
            Path(f"{stem}.{ending}").unlink(missing_ok=True)


def check_writable(directory: Path) -> None:
    """Create a directory if it does not exist, and check that it is writable before any work.

    Raises:
      DiskError: if it is not writable.
    """
    with writing(str(directory), directory):
        directory.mkdir(parents=True, exist_ok=True)
        (directory / ".trial").touch()
        (directory / ".trial").unlink()


def evaluate(
    trained: TrainedModel,
    src: Sequence,
    references: Sequence[str],
    decoding: DecodingConfig,
    split: str,
    checkpoint: str,
    stem: str,
    progress: Any = iter,
    codebook: Codebook | PictureCodes | None = None,
) -> Evaluation:
    """Translate, write STEM.hyp, and score. With a codebook the hypotheses are codes of pictures.

    References are raw text and never pass through the tokenizer. If writing the translations fails,
    they are scored all the same: `Evaluation.write` tries again.
    """
    of_trees = "labelled_F1" in trained.experiment.evaluation.metrics
    if of_trees:
        check_pairs(src, references, lambda number: f"{split}: reference {number}")
    translator = trained.translator(decoding)
    translations = translator.translate(trained.params, src, progress)
    hypotheses = [item.text for item in translations]
    with contextlib.suppress(DiskError):
        write_hypotheses(stem, hypotheses)  # before anything in the scoring can fail
    evaluation = trained.experiment.evaluation
    # The memory of resampling grows with the split: too much for a training split.
    for line in unsuited(evaluation, evaluation.metrics, references):
        log.warning(line)
    small = len(hypotheses) <= _MOST_SENTENCES
    scored = score(hypotheses, references, evaluation, _RESAMPLES if small else 0)
    judged, rates, lines = moves.evaluated(trained, src, ([moves.written(x)] for x in hypotheses))
    result = {
        "split": split,
        "checkpoint": checkpoint,
        "steps": trained.steps,
        "sentences": len(hypotheses),
        "scores": {s.name: _as_dict(s) for s in scored} | rates,
        "details": [s.details for s in scored] + lines,
        "exact_match": exact_match(hypotheses, references, evaluation.lowercase),
        # Best-path decoding has no settings.
        "decoding": None if trained.experiment.objective.record.best_path else asdict(decoding),
        "evaluation": asdict(evaluation),
        "references": digest(references),
    }
    notes = trees.details(hypotheses, references, src) if of_trees else []
    if summaries.TYPES.keys() & {*evaluation.metrics} and all(isinstance(x, str) for x in src):
        notes += summaries.controls(src, references, evaluation)
    if notes:
        result["notes"] = notes
    if decoding.draft is not None:
        result["drafting"] = translator.acceptance.as_dict()
    rows = describe(trained, src, references, translations) if small else []
    for row, one in zip(rows, judged, strict=False):
        row |= one
    for row, value in zip(rows, src, strict=False):
        row |= origin(value)
    if rows and not isinstance(trained, TrainedEnsemble):
        drawings = gallery.shown(trained, src, rows) if codebook is None else (
            gallery.drawn(codebook, rows)
        )  # fmt: skip
        for place, of_row in drawings.items():
            rows[place] |= of_row
    return Evaluation(result, hypotheses, rows)


def described(
    trained: TrainedModel,
    references: Sequence[str],
    split: str,
    checkpoint: str,
    scores: dict[str, dict[str, Any]],
    details: list[str],
) -> dict[str, Any]:
    """Return the result of a model that does not write text."""
    return {
        "split": split,
        "checkpoint": checkpoint,
        "steps": trained.steps,
        "sentences": len(references),
        "scores": scores,
        "details": details,
        "decoding": None,
        "evaluation": asdict(trained.experiment.evaluation),
        "references": digest(references),
    }


def origin(value: Any) -> dict[str, str]:
    """Return the "file" that a value was read from, for its row; nothing if it was not one's own:
    the row's "line" says which it is.
    """
    name = "" if isinstance(value, str) else getattr(value, "name", "")
    return {"file": name} if name else {}


def _as_dict(scored: Score) -> dict[str, Any]:
    row: dict[str, Any] = {"value": scored.value, "signature": scored.signature}
    if scored.interval is not None:
        row["interval"] = list(scored.interval)
    return row
