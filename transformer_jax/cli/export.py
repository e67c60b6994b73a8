"""transformer-jax export [--to=ctranslate2 | huggingface | stablehlo] --workdir=DIR --output=OUT"""

import argparse
import logging
from collections.abc import Sequence
from pathlib import Path

from transformer_jax.base.errors import UserError
from transformer_jax.cli.arguments import WORKDIR, Parser
from transformer_jax.runs.workdir import WorkDir

log = logging.getLogger("transformer_jax")

# Options of one engine.
_OF = {
    "quantization": "ctranslate2", "family": "huggingface", "length": "stablehlo",
    "max_tokens": "stablehlo", "platforms": "stablehlo",
}  # fmt: skip


def main(argv: Sequence[str]) -> int:
    """Write a trained model for another engine, and return the exit code."""
    parser = Parser("Write a trained model for another engine.")
    parser.add_argument(
        "--to",
        "--format",
        default="ctranslate2",
        choices=tuple(ENGINES),
        help="ctranslate2 (default), huggingface or stablehlo",
    )
    parser.add_argument("--workdir", required=True, help=WORKDIR)
    parser.add_argument(
        "--checkpoint", help="best, last, a step or average:N; default: the config's"
    )
    parser.add_argument("--output", required=True, type=Path, help="the new directory")
    parser.add_argument(
        "--quantization",
        default="float32",
        help="ctranslate2: float32 (default), int8, float16 ...; huggingface output is "
        "float32, which from_pretrained(..., dtype=...) converts",
    )
    parser.add_argument(
        "--family",
        help="huggingface: opt, mistral ..., where several can represent the model",
    )
    parser.add_argument(
        "--length", type=int, metavar="N",
        help="stablehlo: pieces of a source or prompt, and of all texts whose lengths cannot be "
        "dynamic; default: those of training",
    )  # fmt: skip
    parser.add_argument(
        "--max-tokens", type=int, metavar="N",
        help="stablehlo: pieces that the decoding step has room for; default: 256, or the model's "
        "limit of positions",
    )  # fmt: skip
    parser.add_argument("--platforms", default="cpu,cuda,tpu", help="stablehlo: comma-separated")
    arguments = parser.parse_args(list(argv))
    for name, engine in _OF.items():
        value = getattr(arguments, name)
        if engine != arguments.to and value != parser.get_default(name):
            option = name.replace("_", "-")
            raise UserError(f"--{option}={value}: is for --to={engine}; leave it out")
    ENGINES[arguments.to](arguments)
    return 0


def _huggingface(arguments: argparse.Namespace) -> None:
    experiment = WorkDir(arguments.workdir).experiment()

    from transformer_jax.api import load
    from transformer_jax.export.huggingface import directory, settings
    from transformer_jax.models import lora

    settings.refuse(experiment)
    predicted, kind = settings.predicted(experiment), arguments.family
    directory.family_of(lora.without(experiment.model), predicted, kind)
    trained = load(arguments.workdir, arguments.checkpoint)
    family = directory.export(
        trained.experiment, trained.params, trained.tokenizers, arguments.output, kind
    )
    place = str(arguments.output.absolute())
    print(f"written to {place} as {family.model_type}; in Python:")
    print(f"    tokenizer = transformers.AutoTokenizer.from_pretrained({place!r})")
    print(f"    transformers.{directory.auto_class(family)}.from_pretrained({place!r})")


def _ctranslate2(arguments: argparse.Namespace) -> None:
    experiment = WorkDir(arguments.workdir).experiment()

    from transformer_jax.api import load
    from transformer_jax.export.ctranslate2 import directory, search_options, settings
    from transformer_jax.models import lora

    settings.refuse_objective(experiment.objective)
    settings.refuse(lora.without(experiment.model))
    settings.refuse_codecs(experiment.codecs)
    for warning in search_options.lacks(experiment.decoding):
        log.warning("%s", warning)
    trained = load(arguments.workdir, arguments.checkpoint)
    directory.export(
        trained.experiment.model, trained.params, trained.tokenizers, arguments.output,
        arguments.quantization,
    )  # fmt: skip
    place, two_sided = str(arguments.output.absolute()), not experiment.objective.one_sided
    file, text = ("source.spm", "lines") if two_sided else ("text.spm", "prompts")
    call = f"Translator({place!r}).translate_batch([[*line, '</s>'] for line in pieces], "
    if not two_sided:
        call = f"Generator({place!r}).generate_batch([['<s>', *prompt] for prompt in pieces], "
    never = search_options.unwritten(
        trained.tokenizers.tgt, experiment.objective, experiment.decoding
    )
    given = search_options.options(experiment.decoding, two_sided, never)
    print(f"written to {place}; in Python, with the settings of this run:")
    print("    pieces = sentencepiece.SentencePieceProcessor("
          f"{place + '/' + file!r}).encode({text}, out_type=str)")  # fmt: skip
    print(f"    ctranslate2.{call}{', '.join(f'{k}={v!r}' for k, v in given.items())})")


def _stablehlo(arguments: argparse.Namespace) -> None:
    experiment = WorkDir(arguments.workdir).experiment()

    from transformer_jax.api import load
    from transformer_jax.export import stablehlo

    stablehlo.refuse(experiment)
    trained = load(arguments.workdir, arguments.checkpoint)
    stablehlo.export(
        trained.experiment, trained.params, trained.tokenizers, arguments.output,
        arguments.length, arguments.max_tokens, arguments.platforms.split(","),
    )  # fmt: skip
    place = arguments.output.absolute()
    print(f"written to {place}; {place / 'README.json'} describes how to call the programs")


ENGINES = {"ctranslate2": _ctranslate2, "huggingface": _huggingface, "stablehlo": _stablehlo}
