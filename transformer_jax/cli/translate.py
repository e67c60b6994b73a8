"""transformer-jax translate --workdir=DIR < in.txt > out.txt"""

import dataclasses
import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import IO, Any

from transformer_jax.cli.arguments import Parser
from transformer_jax.cli.evaluate import adjusted
from transformer_jax.workdir import WorkDir

_BLOCK = 4096  # lines at a time: bounded memory, well-filled batches


def main(argv: Sequence[str]) -> int:
    """Translate standard input line by line, and return the exit code."""
    parser = Parser(
        "Translate standard input, a line for a line, in order; empty lines stay empty. At a\n"
        "terminal each line is translated at once."
    )
    parser.add_argument("--workdir", required=True)
    parser.add_argument(
        "--checkpoint", help="best, last, a step or average:N; default: the config's"
    )
    parser.add_argument("--beam-size", type=int, help="1: greedy")
    parser.add_argument(
        "--n-best", type=int, metavar="N", help="N translations of each line, as JSON lines"
    )
    parser.add_argument("--json", action="store_true", help="JSON lines with scores and pieces")
    arguments, overrides = parser.read(argv)
    experiment = adjusted(WorkDir(arguments.workdir).experiment(), overrides)
    decoding = experiment.decoding
    if arguments.beam_size is not None:
        decoding = dataclasses.replace(decoding, beam_size=arguments.beam_size)

    from rich.console import Console
    from rich.progress import track

    from transformer_jax.api import load
    from transformer_jax.experiments.train import use_compilation_cache

    use_compilation_cache()
    trained = load(arguments.workdir, arguments.checkpoint or experiment.evaluation.checkpoint)
    translator = trained.translator(decoding, arguments.n_best or 1)
    console = Console(stderr=True)
    quiet = sys.stdin.isatty() or not console.is_terminal

    def progress(batches: Iterable) -> Iterator:
        return iter(
            track(list(batches), "translating", console=console, transient=True, disable=quiet)
        )

    stdin: Any = sys.stdin
    stdout: Any = sys.stdout
    stdin.reconfigure(encoding="utf-8", errors="replace", newline="\n")
    stdout.reconfigure(encoding="utf-8", newline="\n")
    for block in _blocks(stdin, 1 if stdin.isatty() else _BLOCK):
        for line, found in zip(
            block, translator.hypotheses(trained.params, block, progress), strict=True
        ):
            if not (arguments.json or arguments.n_best):
                print(found[0].text)
                continue
            rows = [
                {"text": t.text, "score": t.score, "pieces": trained.tokenizers.tgt.pieces(t.ids)}
                for t in found
            ]
            print(json.dumps({"source": line, "translations": rows}, ensure_ascii=False))
        sys.stdout.flush()
    return 0


def _blocks(file: IO[str], size: int) -> Iterator[list[str]]:
    """Yield lists of lines; a lone CR, U+2028 and the like are part of a line."""
    block: list[str] = []
    for line in file:
        block.append(line.removesuffix("\n").removesuffix("\r"))
        if len(block) == size:
            yield block
            block = []
    if block:
        yield block
