"""transformer-jax translate --workdir=DIR < in.txt > out.txt"""

import dataclasses
import sys
from collections.abc import Sequence

from transformer_jax.cli.arguments import Parser
from transformer_jax.cli.evaluate import adjusted
from transformer_jax.workdir import WorkDir


def main(argv: Sequence[str]) -> int:
    """Translate standard input line by line, and return the exit code."""
    parser = Parser(
        "Translate standard input, a line for a line, in order; empty lines stay empty."
    )
    parser.add_argument("--workdir", required=True)
    parser.add_argument(
        "--checkpoint", help="best, last, a step or average:N; default: the config's"
    )
    parser.add_argument("--beam-size", type=int, help="1: greedy")
    arguments, overrides = parser.read(argv)
    experiment = adjusted(WorkDir(arguments.workdir).experiment(), overrides)
    decoding = experiment.decoding
    if arguments.beam_size is not None:
        decoding = dataclasses.replace(decoding, beam_size=arguments.beam_size)

    from transformer_jax.api import load
    from transformer_jax.experiments.train import use_compilation_cache

    use_compilation_cache()
    checkpoint = arguments.checkpoint or experiment.evaluation.checkpoint
    trained = load(arguments.workdir, checkpoint)
    translator = trained.translator(decoding)
    sys.stdin.reconfigure(encoding="utf-8", errors="replace", newline="\n")  # type: ignore[union-attr]
    sys.stdout.reconfigure(encoding="utf-8", newline="\n")  # type: ignore[union-attr]
    while block := _read_block(interactive=sys.stdin.isatty()):
        for item in translator.translate(trained.params, block):
            print(item.text)
        sys.stdout.flush()
    return 0


def _read_block(interactive: bool, size: int = 4096) -> list[str]:
    """Read one line from a person, or a block from a pipe: bounded memory, well-filled batches."""
    block = []
    for line in sys.stdin:
        block.append(line.removesuffix("\n").removesuffix("\r"))
        if interactive or len(block) == size:
            break
    return block
