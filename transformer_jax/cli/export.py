"""transformer-jax export [--to=FORMAT] --workdir=DIR --output=OUT"""

import argparse
import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from transformer_jax.base.disk import write_text, writing
from transformer_jax.base.errors import UserError
from transformer_jax.cli.arguments import WORKDIR, Parser
from transformer_jax.config import Experiment
from transformer_jax.runs.workdir import WorkDir

log = logging.getLogger("transformer_jax")


class Format(NamedTuple):
    """A kind of directory that is written for an engine.

    write: takes the experiment and the arguments; returns the trained model, and the engine as the
      README.md describes it.
    options: those that no other format has.
    """

    write: Callable[[Experiment, argparse.Namespace], tuple[Any, Any]]
    options: tuple[str, ...] = ()


def main(argv: Sequence[str]) -> int:
    """Write a trained model for another engine, and return the exit code."""
    arguments = _parser().parse_args(list(argv))
    for name, format in FORMATS.items():
        for option in format.options:
            value = getattr(arguments, option)
            if name != arguments.to and value != _parser().get_default(option):
                shown = option.replace("_", "-")
                raise UserError(f"--{shown}={value}: is for --to={name}; leave it out")

    from transformer_jax.reports import card

    stated = card.Stated(
        arguments.license, arguments.data_license, _listed(arguments.language),
        _listed(arguments.datasets),
    )  # fmt: skip
    card.check(stated)
    workdir = WorkDir(arguments.workdir)
    trained, engine = FORMATS[arguments.to].write(workdir.experiment(), arguments)
    _describe(workdir, trained, engine, arguments, stated)
    return 0


def _parser() -> Parser:
    parser = Parser(
        "Write a trained model for another engine, with a README.md for the Hugging Face Hub."
    )
    parser.add_argument(
        "--to",
        "--format",
        default="ctranslate2",
        choices=tuple(FORMATS),
        help="ctranslate2 (default), huggingface, gguf (llama.cpp) or stablehlo",
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
        "--dtype", default="float32", help="gguf: matrices in float32 (default), float16, bfloat16"
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
    for name, example, what in (
        ("license", "apache-2.0", "licence of the model, by the Hub's name for it"),
        ("data-license", "cc-by-4.0", "licence of the data that it was trained on"),
        ("language", "de,en", "languages, by their ISO 639 codes"),
        ("datasets", "wmt/wmt14", "data sets that it was trained on, by their names on the Hub"),
    ):
        parser.add_argument(
            f"--{name}", default="", metavar=example.upper(), help=f"README.md: {what}"
        )
    return parser


def _listed(text: str) -> tuple[str, ...]:
    return tuple(filter(None, text.split(",")))


def _describe(
    workdir: WorkDir, trained: Any, engine: Any, arguments: argparse.Namespace, stated: Any
) -> None:
    """Write README.md."""
    from transformer_jax.reports import card, runs

    experiment, place = trained.experiment, arguments.output.absolute()
    checkpoint = arguments.checkpoint or experiment.evaluation.checkpoint
    run = runs.Run(workdir.path.name, workdir, experiment, checkpoint)
    with writing(str(place / "README.md"), place):
        write_text(place / "README.md", card.card(trained, run, place.name, engine, stated))


def _huggingface(experiment: Experiment, arguments: argparse.Namespace) -> tuple[Any, Any]:
    from transformer_jax.api import load
    from transformer_jax.export import programs
    from transformer_jax.export.huggingface import directory, settings
    from transformer_jax.models import lora
    from transformer_jax.reports.card import Engine

    settings.refuse(experiment)
    predicted, kind = settings.predicted(experiment), arguments.family
    directory.family_of(lora.without(experiment.model), predicted, kind)
    trained = load(arguments.workdir, arguments.checkpoint)
    family = directory.export(
        trained.experiment, trained.params, trained.tokenizers, arguments.output, kind
    )
    auto, place = directory.auto_class(family), arguments.output.absolute()
    print(f"written to {place} as {family.model_type}; in Python:")
    print(f"    tokenizer = transformers.AutoTokenizer.from_pretrained({str(place)!r})")
    print(f"    transformers.{auto}.from_pretrained({str(place)!r})")
    program = programs.transformers(place.name, auto)
    return trained, Engine("transformers", (family.model_type, "safetensors"), program)


def _ctranslate2(experiment: Experiment, arguments: argparse.Namespace) -> tuple[Any, Any]:
    from transformer_jax.api import load
    from transformer_jax.export import programs
    from transformer_jax.export.ctranslate2 import directory, search_options, settings
    from transformer_jax.models import lora
    from transformer_jax.reports.card import Engine

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
    program = programs.ctranslate2(arguments.output.absolute().name, two_sided, given)
    tags = () if arguments.quantization == "float32" else (arguments.quantization,)
    return trained, Engine("ctranslate2", tags, program)


def _stablehlo(experiment: Experiment, arguments: argparse.Namespace) -> tuple[Any, Any]:
    from transformer_jax.api import load
    from transformer_jax.export import programs, stablehlo
    from transformer_jax.reports.card import Engine

    stablehlo.refuse(experiment)
    trained = load(arguments.workdir, arguments.checkpoint)
    stablehlo.export(
        trained.experiment, trained.params, trained.tokenizers, arguments.output,
        arguments.length, arguments.max_tokens, arguments.platforms.split(","),
    )  # fmt: skip
    place = arguments.output.absolute()
    print(f"written to {place}; {place / 'README.json'} describes how to call the programs")
    program = programs.stablehlo(place.name, len(trained.experiment.model.stacks))
    return trained, Engine("jax", ("stablehlo",), program)


def _gguf(experiment: Experiment, arguments: argparse.Namespace) -> tuple[Any, Any]:
    from transformer_jax.api import load
    from transformer_jax.export import programs
    from transformer_jax.export.gguf import directory
    from transformer_jax.reports.card import Engine

    directory.refuse(experiment)
    trained = load(arguments.workdir, arguments.checkpoint)
    place = directory.export(
        trained.experiment, trained.params, trained.tokenizers, arguments.output,
        arguments.dtype, arguments.license,
    )  # fmt: skip
    print(f"written to {place.absolute()}; to continue a text:")
    print(f"    llama-cli -m {place.absolute()} -no-cnv -p TEXT")
    program = programs.llama_cpp(arguments.output.absolute().name, place.name)
    return trained, Engine("llama.cpp", ("gguf",), program)


def _onnx(experiment: Experiment, arguments: argparse.Namespace) -> tuple[Any, Any]:
    raise UserError(
        "--to=onnx: no library that converts to ONNX goes with the versions used here; write "
        "--to=huggingface, and convert that directory with optimum-cli export onnx "
        "--model=DIRECTORY OUTPUT"
    )


FORMATS = {
    "ctranslate2": Format(_ctranslate2, options=("quantization",)),
    "huggingface": Format(_huggingface, options=("family",)),
    "gguf": Format(_gguf, options=("dtype",)),
    "stablehlo": Format(_stablehlo, options=("length", "max_tokens", "platforms")),
    "onnx": Format(_onnx),  # which says what to do instead
}
