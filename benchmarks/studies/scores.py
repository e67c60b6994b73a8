"""Collect the scores of several seeds of one recipe into one JSON file.

    python benchmarks/studies/scores.py --protocol=lc-tok --output=results/NAME.json WORKDIR...

Each work directory holds a finished training run and its scores from eval.py. Scores are those of
the split and checkpoint given (by default test, and the config's), each with sacrebleu's signature
and 95 % bootstrap interval; with the SHA-256 of the translations, and the minutes of training
(without evaluation) and the real target tokens after which greedy BLEU on the validation split
first reached 30, 35, and its last value.
"""

import argparse
import hashlib
import json
import re
from pathlib import Path
from typing import Any

from transformer_jax.base.disk import write_text
from transformer_jax.base.errors import UserError
from transformer_jax.reports import runs
from transformer_jax.reports.curves import curves
from transformer_jax.runs.workdir import WorkDir


def repeatable(command: str) -> str:
    """Return a command without machine-specific paths."""
    command = re.sub(r"( --config\.data\.directory)=\S+", r"\1=DIR", command)
    return re.sub(r" --workdir=\S+", "", command)


def reached(validation: dict[str, list], bleu: float) -> dict[str, float] | None:
    """Return when validation BLEU first reached a value, or None."""
    for minutes, tokens, found in zip(
        validation["minutes"], validation["tokens"], validation["validation_bleu"], strict=True
    ):
        if found is not None and found >= bleu:
            return {"minutes": round(minutes, 1), "target_tokens": int(tokens)}
    return None


def seed(path: Path, split: str, checkpoint: str | None) -> dict[str, Any]:
    """Return the scores and the cost of one run."""
    run = runs.read(WorkDir(path), checkpoint)
    shown = run.evaluation(split)
    if shown is None:
        raise UserError(f"{path}: no scores of {split} by {run.checkpoint}; run eval.py first")
    hypotheses = Path(shown["sentences_file"]).with_suffix(".hyp")
    facts, validation = runs.facts(run), curves(run.metrics, run.timings)["validation"]
    last = validation["validation_bleu"][-1]
    return {
        "seed": facts["seed"],
        "bleu": shown["scores"]["BLEU"],
        "chrf": shown["scores"]["chrF"],
        "checkpoint": shown["checkpoint"],
        "steps": shown["steps"],
        "parameters": facts["parameters"],
        "target_tokens": facts["tokens"],
        "minutes": round(facts["minutes"], 1),
        "validation_bleu": last,
        "reached": {"30": reached(validation, 30), "35": reached(validation, 35),
                    "last": reached(validation, last)},
        "hypotheses_sha256": hashlib.sha256(hypotheses.read_bytes()).hexdigest(),
        "machine": facts["machine"],
        "command": repeatable(facts["command"]),
        "commit": facts["commit"],
        "decoding": shown["decoding"],
    }  # fmt: skip


def one(rows: list[dict[str, Any]], key: str) -> Any:
    """Return the value that all rows share.

    Raises:
      UserError: if they differ.
    """
    values = {json.dumps(row[key]) for row in rows}
    if len(values) > 1:
        raise UserError(f"the runs differ in {key}: {', '.join(sorted(values))}")
    return rows[0][key]


def main() -> None:
    """Read the runs and write the file."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("workdirs", nargs="+", type=Path)
    parser.add_argument("--protocol", required=True, help="lc-tok or raw")
    parser.add_argument("--split", default="test")
    parser.add_argument("--checkpoint")
    parser.add_argument("--output", required=True, type=Path)
    arguments = parser.parse_args()
    rows = [seed(path, arguments.split, arguments.checkpoint) for path in arguments.workdirs]
    scores = [round(row["bleu"]["value"], 2) for row in rows]
    minutes = [row["minutes"] for row in rows]
    signatures = [{"signature": row["bleu"]["signature"]} for row in rows]
    result = {
        "protocol": arguments.protocol,
        "split": arguments.split,
        "seeds": [row["seed"] for row in rows],
        "bleu": scores,
        "bleu_mean": round(sum(scores) / len(scores), 2),
        "signature": one(signatures, "signature"),
        "minutes": minutes,
        "machine": one(rows, "machine"),
        "command": rows[0]["command"],
        "commit": one(rows, "commit"),
        "runs": rows,
    }
    write_text(arguments.output, json.dumps(result, indent=2) + "\n")
    print(f"{arguments.protocol} {arguments.split}: {scores}, mean {result['bleu_mean']}")
    print(f"written to {arguments.output}")


if __name__ == "__main__":
    main()
