"""transformer-jax translate --workdir=DIR [--input=FILE] [--output=FILE]"""

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from transformer_jax.base.errors import UserError
from transformer_jax.cli.arguments import CHECKPOINTS, WORKDIRS, Parser
from transformer_jax.cli.model import adjusted, load_adjusted, prepare_process
from transformer_jax.config import DecodingConfig
from transformer_jax.config.choices.searches import check_search
from transformer_jax.data.sources.files import check_unpacked
from transformer_jax.runs.workdir import WorkDir

_BLOCK = 4096  # lines at a time: bounded memory, well-filled batches

_HELP = """\
Translate text line by line, in order; empty lines stay empty. Without --input and --output
it reads standard input and writes standard output: at a terminal each line is translated at once,
in a pipe as soon as no more arrive.

For a model that reads sound or pictures, a line is the name of a file.

Scores in JSON lines are log-probabilities (nats), normalised as "normalization" says: divided by
the length penalty of these settings; for a line translated in parts, the sum over the parts.

The fields of decoding, evaluation and data can be changed."""


def main(argv: Sequence[str]) -> int:
    """Translate line by line, and return the exit code."""
    arguments, overrides = _parser().read(argv)
    overrides += _as_overrides(arguments)
    experiment = adjusted(WorkDir(arguments.workdir[0]).experiment(), overrides)
    check_search(experiment.decoding.search, dict(overrides))
    check_files(arguments)
    n_best = _n_best(arguments, experiment.decoding)

    from transformer_jax.cli.lines import read_from

    total = None
    if arguments.input is not None and arguments.input.is_file():  # a pipe can be read only once
        with read_from(arguments.input) as source:
            total = source.count()
    prepare_process()
    checkpoint = arguments.checkpoint or experiment.evaluation.checkpoint
    trained = load_adjusted(arguments.workdir, checkpoint, experiment)
    translator = trained.translator(experiment.decoding, n_best)
    as_json = arguments.json or arguments.alignments or arguments.n_best or n_best > 1
    decoding = experiment.decoding
    if experiment.objective.record.best_path:  # which has no penalty
        decoding = replace(decoding, alpha=0.0)
    rows = Rows(trained.tokenizers.tgt, decoding)
    render = rows.render if as_json else lambda line, translations: translations[0].text
    _translate(arguments, total, translator, trained, render)
    if experiment.decoding.draft is not None:
        print(f"drafts: {translator.acceptance}", file=sys.stderr)
    return 0


def _parser() -> Parser:
    parser = Parser(_HELP)
    add = parser.add_argument
    add("--workdir", required=True, action="append", help=WORKDIRS)
    add("--checkpoint", help=CHECKPOINTS)
    add("--input", type=Path, metavar="FILE", help="plain or .gz; default: standard input")
    add("--output", type=Path, metavar="FILE", help="default: standard output")
    add("--n-best", type=int, metavar="N", help="N translations per line, as JSON lines")
    search = parser.add_mutually_exclusive_group()
    search.add_argument("--beam-size", metavar="N", help="1: greedy")
    search.add_argument("--sample", type=int, metavar="N", help="N random translations per line")
    add("--prefix", metavar="TEXT", help="start every translation with TEXT")
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


def _n_best(arguments: argparse.Namespace, decoding: DecodingConfig) -> int:
    """Return how many translations of each line to print."""
    wanted, most = arguments.n_best, decoding.hypotheses
    if wanted is None:  # all samples, unless re-ranking chooses among them
        return most if decoding.rerank == "none" and arguments.sample else 1
    option, field = "--sample" if decoding.draws else "--beam-size", decoding.record.width
    if not 1 <= wanted <= most:
        remedy = f"; add {option}={wanted}" if wanted > most else ""
        raise UserError(
            f"--n-best={wanted}: must lie between 1 and decoding.{field}={most}{remedy}"
        )
    return wanted


def check_files(arguments: argparse.Namespace) -> None:
    """Check what would otherwise fail only after the model is loaded."""
    source, path = arguments.input, arguments.output
    if source is not None:
        try:
            source.stat()
        except OSError as error:
            raise UserError(f"--input={source}: cannot be opened ({error.strerror})") from None
        if source.is_file() and source.suffix != ".gz":  # a pipe is read only once
            check_unpacked(_head(source), f"--input={source}")
    if path is None:
        return
    check_output(path)
    if source is not None and path.exists() and path.samefile(source):
        raise UserError(f"--output={path}: is the input; name another file")


def check_output(path: Path) -> None:
    """Check that --output can be written."""
    if path.suffix in (".xz", ".zst", ".bz2", ".zip", ".lz4", ".7z"):
        raise UserError(f"--output={path}: only .gz is written compressed; leave out {path.suffix}")
    if path.is_dir() or not path.absolute().parent.is_dir():
        raise UserError(f"--output={path}: must be a file in a directory that exists")


def _head(path: Path) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read(16)
    except OSError as error:
        raise UserError(f"--input={path}: cannot be opened ({error.strerror})") from None


def _translate(
    arguments: argparse.Namespace,
    total: int | None,
    translator: Any,
    trained: Any,
    render: Callable[[str, Sequence[Any]], str],
) -> None:
    from transformer_jax.base.progress import LineProgress
    from transformer_jax.cli.lines import read_from, typed, write_to

    person = arguments.input is None and sys.stdin.isatty()
    seen = arguments.output is None and sys.stdout.isatty()  # a bar would be in the way
    first = 1
    with (
        read_from(arguments.input) as source,
        write_to(arguments.output) as target,
        LineProgress(total, hidden=person or seen) as progress,
    ):
        blocks = ([line] for line in typed()) if person else source.blocks(_BLOCK)
        for block in blocks:
            prefixes = None if arguments.prefix is None else [arguments.prefix] * len(block)
            hypotheses = translator.hypotheses(
                trained.params,
                trained.opened(block),
                progress.watch,
                prefixes,
                first,
                arguments.alignments,
            )
            for line, translations in zip(block, hypotheses, strict=True):
                print(render(line, translations), file=target)
            target.flush()
            first += len(block)
            progress.reached(first - 1)


class Rows:
    """JSON lines: the translations of each line, with pieces and the normalisation of scores."""

    def __init__(self, tokenizer: Any, decoding: DecodingConfig) -> None:
        self._tokenizer = tokenizer
        self._normalization = {
            "length_penalty": decoding.length_penalty,
            "alpha": decoding.alpha,
            "coverage_penalty": decoding.coverage_penalty if decoding.competes else 0.0,
        }

    def render(self, line: str, translations: Sequence[Any]) -> str:
        """Return the JSON line for a line of text."""
        rows = []
        for translation in translations:
            pieces = self._tokenizer.pieces(translation.ids)
            row = {"text": translation.text, "score": translation.score, "pieces": pieces}
            if translation.alignments is not None:
                row["alignments"] = translation.alignments
            rows.append(row)
        whole = {"source": line, "normalization": self._normalization, "translations": rows}
        return json.dumps(whole, ensure_ascii=False)
