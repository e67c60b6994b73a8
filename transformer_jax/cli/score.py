"""transformer-jax score --workdir=DIR [--source=F] --target=F [--mutations=A23G,...]"""

import argparse
import json
import math
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from transformer_jax.base.errors import UserError
from transformer_jax.cli.arguments import WORKDIR, Parser
from transformer_jax.config import Experiment, ObjectiveConfig
from transformer_jax.data.conversations import compared
from transformer_jax.data.sources import files
from transformer_jax.data.sources.rows import WHOLE, Column
from transformer_jax.data.sources.tables import Table, has_columns
from transformer_jax.runs.workdir import WorkDir


def main(argv: Sequence[str]) -> int:
    """Print the log-probability of each given pair, and return the exit code."""
    parser = Parser(
        "Print the log-probability (nats) of each target line, given its source line: the sum\n"
        "over its pieces, EOS included, not divided by its length. For a language model, with no\n"
        "source, that of each target line, or of the file if it was trained on whole files.\n"
        "The last line, on standard error, is the total: perplexity and bits per byte."
    )
    parser.add_argument("--workdir", required=True, help=WORKDIR)
    parser.add_argument(
        "--checkpoint", help="best, last, a step or average:N; default: the config's"
    )
    parser.add_argument("--source", type=Path, help="required unless it is a language model")
    parser.add_argument("--target", type=Path, help="line by line")
    parser.add_argument(
        "--preferences", type=Path, metavar="FILE",
        help="for a chat model, in place of --target: write the rows of this file of preferences\n"
        "with \"reference\", the log-probabilities of both answers, for objective.name='prefer'",
    )  # fmt: skip
    parser.add_argument("--output", type=Path, metavar="FILE",
                        help="of --preferences; default: standard output")  # fmt: skip
    parser.add_argument("--per-token", action="store_true", help="JSON lines, piece by piece")
    parser.add_argument(
        "--mutations", metavar="A23G,...",
        help="of the one sequence in --target, a line or FASTA: for a masked language model, the\n"
        "log-probability of each new letter less that of the old one, which alone is hidden",
    )  # fmt: skip
    arguments = parser.parse_args(list(argv))
    experiment = WorkDir(arguments.workdir).experiment()
    if (arguments.target is None) == (arguments.preferences is None):
        raise UserError("--target: give this, or --preferences")
    if arguments.preferences is not None:
        return _preferences(arguments, experiment)
    if arguments.mutations is not None:
        texts = [[_sequence(arguments.target)]]
    else:
        texts = _texts(arguments, experiment.objective)
    if not any(texts[-1]):
        raise UserError(f"--target={arguments.target}: contains no text; name another file")

    trained = _loaded(arguments, experiment)
    if arguments.mutations is not None:
        names = arguments.mutations.split(",")
        for name, score in zip(names, trained.mutations(texts[0][0], names), strict=True):
            print(f"{name}\t{score:.6f}")
        return 0
    scores = trained.score(*texts)
    for score in scores:
        if arguments.per_token:
            pieces = trained.tokenizers.tgt.pieces(score.ids)
            row = {"score": score.total, "normalization": None, "pieces": pieces,
                   "log_probs": score.log_probs}  # fmt: skip
            print(json.dumps(row, ensure_ascii=False))
        else:
            print(f"{score.total:.6f}")
    if scores:
        print(_summary(scores), file=sys.stderr)
    return 0


def _loaded(arguments: argparse.Namespace, experiment: Experiment) -> Any:
    from transformer_jax.api import load
    from transformer_jax.experiments.process import keep_freed_memory, use_compilation_cache

    use_compilation_cache()
    keep_freed_memory()
    return load(arguments.workdir, arguments.checkpoint or experiment.evaluation.checkpoint)


def _preferences(arguments: argparse.Namespace, experiment: Experiment) -> int:
    """Write rows of preferences with the log-probabilities of both answers."""
    from transformer_jax.cli.lines import write_to
    from transformer_jax.decoding.text.preferences import compared_log_probs

    path = arguments.preferences
    if not has_columns(path.name):
        raise UserError(f"--preferences={path}: has no columns; name a file such as pairs.jsonl")
    (texts,) = Table([path], [Column("target", WHOLE)], objects=True).texts()
    pairs = compared(texts, lambda number: f"{path}: row {number}")
    rows = compared_log_probs(_loaded(arguments, experiment).loaded, pairs)
    with write_to(arguments.output) as target:
        for text, both in zip(texts, rows.tolist(), strict=True):
            row = json.loads(text) | {"reference": [round(x, 6) for x in both]}
            print(json.dumps(row, ensure_ascii=False), file=target)
    return 0


def _summary(scores: Sequence[Any]) -> str:
    """Summarise all lines; with bytes where the codec keeps texts unchanged."""
    pieces = sum(len(summary.ids) for summary in scores)
    nats = -math.fsum(summary.total for summary in scores)
    each = nats / math.log(2) / len(scores)
    summary = f"{pieces:,} pieces: perplexity {math.exp(min(nats / max(pieces, 1), 700.0)):.4f}"
    summary += f", {each:.4f} bits per text"
    sizes = [getattr(score, "bytes", None) or 0 for score in scores]
    if not all(sizes):
        return summary
    bits, size = nats / math.log(2) / sum(sizes), sum(sizes)
    return f"{summary}; {size:,} bytes, line ends included: {bits:.4f} bits per byte"


def _sequence(path: Path) -> str:
    """Return the only sequence of a file."""
    columns = [Column("target", "sequence")] if has_columns(path.name) else []
    found = Table([path], columns).texts()[0] if columns else files.read_lines(path)
    if len(found) != 1:
        raise UserError(f"--target={path}: has {len(found)} sequences; --mutations are of one")
    return found[0]


def _texts(arguments: argparse.Namespace, objective: ObjectiveConfig) -> list[list[str]]:
    """Return sources and targets, or only the texts for a language model."""
    if objective.labels:
        raise UserError(
            f"config.objective.name={objective.name!r}: such a model predicts "
            f"{objective.record.labels}; see eval.py"
        )
    if not objective.one_sided:
        if arguments.source is None:
            raise UserError("--source: give the lines that --target translates")
        src, tgt = files.read_parallel(arguments.source, arguments.target)
        return [list(src), list(tgt)]
    if arguments.source is not None:
        raise UserError("--source: a language model has no source; give only --target")
    if objective.document == "file":
        return [[files.read_text(arguments.target)]]
    return [files.read_lines(arguments.target)]
