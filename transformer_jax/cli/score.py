"""transformer-jax score --workdir=DIR --source=F --target=F"""

import json
from collections.abc import Sequence
from pathlib import Path

from transformer_jax.cli.arguments import WORKDIR, Parser
from transformer_jax.data import sources
from transformer_jax.workdir import WorkDir


def main(argv: Sequence[str]) -> int:
    """Print the log-probability of each given pair, and return the exit code."""
    parser = Parser(
        "Print the log-probability (nats) of each target line, given its source line: the sum\n"
        "over its pieces, EOS included, not divided by its length."
    )
    parser.add_argument("--workdir", required=True, help=WORKDIR)
    parser.add_argument(
        "--checkpoint", help="best, last, a step or average:N; default: the config's"
    )
    parser.add_argument("--source", required=True, type=Path)
    parser.add_argument("--target", required=True, type=Path, help="line by line")
    parser.add_argument("--per-token", action="store_true", help="JSON lines, piece by piece")
    arguments = parser.parse_args(list(argv))
    experiment = WorkDir(arguments.workdir).experiment()
    src, tgt = sources.read_parallel(arguments.source, arguments.target)

    from transformer_jax.api import load
    from transformer_jax.decoding.text.score import score_pairs
    from transformer_jax.experiments.process import keep_freed_memory, use_compilation_cache

    use_compilation_cache()
    keep_freed_memory()
    trained = load(arguments.workdir, arguments.checkpoint or experiment.evaluation.checkpoint)
    scores = score_pairs(trained.model, trained.params, trained.tokenizers, src, tgt) if src else []
    for found in scores:
        if arguments.per_token:
            pieces = trained.tokenizers.tgt.pieces(found.ids)
            row = {"score": found.total, "normalization": None, "pieces": pieces,
                   "log_probs": found.log_probs}  # fmt: skip
            print(json.dumps(row, ensure_ascii=False))
        else:
            print(f"{found.total:.6f}")
    return 0
