"""transformer-jax export --format=ctranslate2 --workdir=DIR --output=OUT"""

import logging
from collections.abc import Sequence
from pathlib import Path

from transformer_jax.cli.arguments import WORKDIR, Parser
from transformer_jax.workdir import WorkDir

log = logging.getLogger("transformer_jax")


def main(argv: Sequence[str]) -> int:
    """Write a trained model for another engine, and return the exit code."""
    parser = Parser("Write a trained model for another engine.")
    parser.add_argument("--format", default="ctranslate2", choices=("ctranslate2",))
    parser.add_argument("--workdir", required=True, help=WORKDIR)
    parser.add_argument(
        "--checkpoint", help="best, last, a step or average:N; default: the config's"
    )
    parser.add_argument("--output", required=True, type=Path, help="the new directory")
    parser.add_argument(
        "--quantization", default="float32", help="float32 (default), int8, float16 ..."
    )
    arguments = parser.parse_args(list(argv))
    experiment = WorkDir(arguments.workdir).experiment()

    from transformer_jax.api import load
    from transformer_jax.export import ctranslate2, search_options

    ctranslate2.refuse(experiment.model)
    ctranslate2.refuse_codecs(experiment.codecs)
    for warning in search_options.lacks(experiment.decoding):
        log.warning("%s", warning)
    trained = load(arguments.workdir, arguments.checkpoint)
    ctranslate2.export(
        experiment.model, trained.params, trained.tokenizers, arguments.output,
        arguments.quantization,
    )  # fmt: skip
    place, given = str(arguments.output.absolute()), search_options.options(experiment.decoding)
    print(f"written to {place}; in Python, with the settings of this run:")
    print("    pieces = sentencepiece.SentencePieceProcessor("
          f"{place + '/source.spm'!r}).encode(lines, out_type=str)")  # fmt: skip
    print(f"    ctranslate2.Translator({place!r}).translate_batch([[*line, '</s>'] for line in "
          f"pieces], {', '.join(f'{k}={v!r}' for k, v in given.items())})")  # fmt: skip
    return 0
