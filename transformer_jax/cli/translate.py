"""transformer-jax translate --workdir=DIR [--input=FILE] [--output=FILE]"""

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from transformer_jax.cli.arguments import Parser
from transformer_jax.cli.evaluate import adjusted
from transformer_jax.errors import UserError
from transformer_jax.workdir import WorkDir

_BLOCK = 4096  # lines at a time: bounded memory, well-filled batches

_HELP = """\
Translate text, a line for a line, in order; empty lines stay empty. Without --input and --output
from standard input to standard output; at a terminal each line is translated at once.

Several checkpoints (--checkpoint=best,last,1200), or several work directories with the same
tokenizer, are an ensemble."""


def main(argv: Sequence[str]) -> int:
    """Translate line by line, and return the exit code."""
    arguments, overrides = _parser().read(argv)
    overrides += _as_overrides(arguments)
    experiment = adjusted(WorkDir(arguments.workdir[0]).experiment(), overrides)
    _check_files(arguments)

    from transformer_jax.api import load_ensemble
    from transformer_jax.cli.lines import count_lines
    from transformer_jax.experiments.process import (
        keep_freed_memory,
        use_compilation_cache,
        use_every_core,
    )

    # A pipe can be read but once.
    file = arguments.input is not None and arguments.input.is_file()
    total = count_lines(arguments.input) if file else None
    use_compilation_cache()
    use_every_core()
    keep_freed_memory()
    checkpoint = arguments.checkpoint or experiment.evaluation.checkpoint
    trained = load_ensemble(arguments.workdir, checkpoint)
    n_best = arguments.n_best
    if n_best is None:  # all samples, unless re-ranking is to choose among them
        chosen = experiment.decoding.rerank == "none" and arguments.sample
        n_best = arguments.sample if chosen else 1
    translator = trained.translator(experiment.decoding, n_best)
    as_json = arguments.json or arguments.alignments or arguments.n_best or n_best > 1
    tokenizer = trained.tokenizers.tgt if as_json else None
    _translate(arguments, total, translator, trained.params, lambda *x: _render(tokenizer, *x))
    return 0


def _parser() -> Parser:
    parser = Parser(_HELP)
    add = parser.add_argument
    add("--workdir", required=True, action="append", help="several: an ensemble")
    add("--checkpoint", help="best, last, a step or average:N, or several; default: the config's")
    add("--input", type=Path, metavar="FILE", help="plain or .gz; default: standard input")
    add("--output", type=Path, metavar="FILE", help="default: standard output")
    add("--n-best", type=int, metavar="N", help="N translations of each line, as JSON lines")
    search = parser.add_mutually_exclusive_group()
    search.add_argument("--beam-size", metavar="N", help="1: greedy")
    search.add_argument(
        "--sample", type=int, metavar="N", help="N random translations of each line"
    )
    add("--prefix", metavar="TEXT", help="every translation begins so")
    add("--json", action="store_true", help="JSON lines with scores and pieces")
    add("--alignments", action="store_true",
        help="JSON lines with pairs of words, [source, target] from 0")  # fmt: skip
    return parser


def _as_overrides(arguments: argparse.Namespace) -> list[tuple[str, str]]:
    if arguments.beam_size is not None:
        return [("decoding.search", "beam"), ("decoding.beam_size", arguments.beam_size)]
    if arguments.sample is not None:
        return [("decoding.search", "sample"), ("decoding.num_samples", str(arguments.sample))]
    return []


def _check_files(arguments: argparse.Namespace) -> None:
    """Check what would else be noticed only after the model is loaded."""
    path = arguments.output
    if path is None:
        return
    if path.is_dir() or not path.absolute().parent.is_dir():
        raise UserError(f"--output={path}: must be a file in a directory that exists")
    if arguments.input is not None and path.exists() and path.samefile(arguments.input):
        raise UserError(f"--output={path}: is the input; name another file")


def _translate(
    arguments: argparse.Namespace,
    total: int | None,
    translator: Any,
    params: Any,
    render: Callable[[str, Sequence[Any]], str],
) -> None:
    from transformer_jax.cli.lines import LineProgress, blocks, read_from, typed, write_to

    person = arguments.input is None and sys.stdin.isatty()
    seen = arguments.output is None and sys.stdout.isatty()  # a bar would only get in between
    first = 1
    with (
        read_from(arguments.input) as source,
        write_to(arguments.output) as target,
        LineProgress(total, hidden=person or seen) as progress,
    ):
        for block in blocks(typed() if person else source, 1 if person else _BLOCK):
            prefixes = None if arguments.prefix is None else [arguments.prefix] * len(block)
            found = translator.hypotheses(
                params, block, progress.watch, prefixes, first, arguments.alignments
            )
            for line, translations in zip(block, found, strict=True):
                print(render(line, translations), file=target)
            target.flush()
            first += len(block)
            progress.reached(first - 1)


def _render(tokenizer: Any, line: str, translations: Sequence[Any]) -> str:
    """Return the line that is printed: JSON if there is a tokenizer to name the pieces."""
    if tokenizer is None:
        return translations[0].text
    rows = []
    for found in translations:
        row = {"text": found.text, "score": found.score, "pieces": tokenizer.pieces(found.ids)}
        if found.alignments is not None:
            row["alignments"] = found.alignments
        rows.append(row)
    return json.dumps({"source": line, "translations": rows}, ensure_ascii=False)
