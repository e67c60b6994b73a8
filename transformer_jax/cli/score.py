"""transformer-jax score --workdir=DIR [--source=F] --target=F"""

import argparse
import json
from collections.abc import Sequence
from pathlib import Path

from transformer_jax.cli.arguments import WORKDIR, Parser
from transformer_jax.config import ObjectiveConfig
from transformer_jax.data import sources
from transformer_jax.errors import UserError
from transformer_jax.workdir import WorkDir


def main(argv: Sequence[str]) -> int:
    """Print the log-probability of each given pair, and return the exit code."""
    parser = Parser(
        "Print the log-probability (nats) of each target line, given its source line: the sum\n"
        "over its pieces, EOS included, not divided by its length. Of a language model, which has\n"
        "no source, that of each target line, or of the file where it was trained on whole files."
    )
    parser.add_argument("--workdir", required=True, help=WORKDIR)
    parser.add_argument(
        "--checkpoint", help="best, last, a step or average:N; default: the config's"
    )
    parser.add_argument("--source", type=Path, help="needed unless it is a language model")
    parser.add_argument("--target", required=True, type=Path, help="line by line")
    parser.add_argument("--per-token", action="store_true", help="JSON lines, piece by piece")
    arguments = parser.parse_args(list(argv))
    experiment = WorkDir(arguments.workdir).experiment()
    texts = _texts(arguments, experiment.objective)

    from transformer_jax.api import load
    from transformer_jax.experiments.process import keep_freed_memory, use_compilation_cache

    use_compilation_cache()
    keep_freed_memory()
    trained = load(arguments.workdir, arguments.checkpoint or experiment.evaluation.checkpoint)
    for found in trained.score(*texts):
        if arguments.per_token:
            pieces = trained.tokenizers.tgt.pieces(found.ids)
            row = {"score": found.total, "normalization": None, "pieces": pieces,
                   "log_probs": found.log_probs}  # fmt: skip
            print(json.dumps(row, ensure_ascii=False))
        else:
            print(f"{found.total:.6f}")
    return 0


def _texts(arguments: argparse.Namespace, objective: ObjectiveConfig) -> list[list[str]]:
    """Return sources and targets, or the texts alone that a language model is asked about."""
    if objective.kind == "classify":
        raise UserError(
            "config.objective.name='classify': such a model predicts classes; see eval.py"
        )
    if not objective.one_sided:
        if arguments.source is None:
            raise UserError("--source: give the lines that --target holds the translations of")
        return list(sources.read_parallel(arguments.source, arguments.target))
    if arguments.source is not None:
        raise UserError("--source: a language model has no source; give --target alone")
    if objective.document == "file":
        return [[sources.read_text(arguments.target)]]
    return [sources.read_lines(arguments.target)]
