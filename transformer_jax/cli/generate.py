"""transformer-jax generate --workdir=DIR [--prompt=TEXT | --input=FILE] [--output=FILE]"""

import argparse
import json
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from transformer_jax.base.errors import UserError
from transformer_jax.cli.arguments import CHECKPOINTS, WORKDIRS, Parser
from transformer_jax.cli.model import adjusted, load_adjusted, prepare_process
from transformer_jax.cli.translate import check_files
from transformer_jax.config.choices.searches import GREEDY, ONE, SAMPLING, check_search
from transformer_jax.runs.workdir import WorkDir

_BLOCK = 256  # prompts at a time

_HELP = """\
Continue prompts with a language model: print each prompt and its continuation, up to the end of
a line if the model was trained on lines. A prefix language model reads the prompt as its source
and prints only its answer; so does an encoder-decoder pre-trained on text: what is missing from
"the <extra_id_0> ran", or the original of a noisy text.

Prompts come from --prompt, else from the lines of a file or of standard input; an empty one
starts a new text.

By default the search is that of the config's decoding. Any sampling option asks for random texts.
If texts contain line breaks, --json keeps them apart.

The fields of decoding, evaluation and data can be changed."""

_SAMPLING = {  # options for the fields of `SAMPLING`
    "num_samples": ("N", "random texts per prompt"),
    "temperature": ("T", "of sampling; below 1 favours more probable pieces"),
    "top_k": ("K", "sample among the K most probable pieces"),
    "top_p": ("P", "sample among the fewest pieces with probability P"),
    "min_p": ("P", "sample among the pieces with P times the likeliest one's probability"),
    "seed": ("N", "of sampling; the same seed, the same texts"),
}
# Fields that are relative to the length of a source.
_LENGTHS = ("max_length_ratio", "max_extra_length", "min_length_ratio")


def main(argv: Sequence[str]) -> int:
    """Generate text, and return the exit code."""
    arguments, overrides = _parser().read(argv)
    for field, value in overrides:
        if field.removeprefix("decoding.") in _LENGTHS:
            raise UserError(
                f"--config.{field}={value}: is for translations; use --max-tokens=N instead"
            )
    options = _with_options(arguments, overrides)
    experiment = adjusted(WorkDir(arguments.workdir[0]).experiment(), options)
    check_search(experiment.decoding.search, dict(overrides))
    check_files(arguments)
    prepare_process()
    checkpoint = arguments.checkpoint or experiment.evaluation.checkpoint
    trained = load_adjusted(arguments.workdir, checkpoint, experiment)
    decoding = experiment.decoding
    several = decoding.hypotheses if decoding.draws else 1
    generator = trained.generator(decoding, several, arguments.prompt_cache)
    if arguments.stream:
        _stream(arguments, generator, trained.params)
    else:
        _generate(arguments, generator, trained.params, trained.tokenizers.tgt)
    if decoding.draft is not None:
        print(f"drafts: {generator.acceptance}", file=sys.stderr)
    return 0


def _parser() -> Parser:
    parser = Parser(_HELP)
    add = parser.add_argument
    add("--workdir", required=True, action="append", help=WORKDIRS)
    add("--checkpoint", help=CHECKPOINTS)
    add("--prompt", action="append", metavar="TEXT", help="may be repeated")
    add("--suffix", metavar="TEXT", help="write what is between a prompt and this text, with a "
        "model that was trained with objective.fim_rate")  # fmt: skip
    add("--input", type=Path, metavar="FILE", help="one prompt per line, plain or .gz; "
        "default: standard input")  # fmt: skip
    add("--output", type=Path, metavar="FILE", help="default: standard output")
    add("--max-tokens", type=int, metavar="N", help="at most N pieces after each prompt; default: "
        "256; a window of limited positions slides, except in a beam search")  # fmt: skip
    add("--beam-size", metavar="N", help="the most probable text found; 1: greedy")
    add("--sample", action="store_true", help="random texts")
    add_sampling(parser)
    add("--stop", action="append", default=[], metavar="TEXT", help="end before this text; may be "
        "repeated")  # fmt: skip
    add("--stream", action="store_true", help="show the text of one --prompt as it is written, "
        "greedily or, with options of sampling, a random one")  # fmt: skip
    add("--prompt-cache", type=Path, metavar="DIR", help="cache long prompts there for later "
        "ones with the same beginning; at most 1 GiB")  # fmt: skip
    add("--json", action="store_true", help="JSON lines with scores and pieces")
    return parser


def add_sampling(parser: Parser, several: bool = True) -> None:
    """Add an option for each field of random texts, of which there may be several."""
    for name in SAMPLING if several else [name for name in SAMPLING if name != "num_samples"]:
        metavar, what = _SAMPLING[name]
        parser.add_argument(f"--{name.replace('_', '-')}", metavar=metavar, help=what)


def sampling_of(arguments: argparse.Namespace) -> list[tuple[str, str]]:
    """Return the overrides that these options stand for; none of them is given: none."""
    options = {name: getattr(arguments, name, None) for name in SAMPLING}
    fields = [(f"decoding.{name}", value) for name, value in options.items() if value is not None]
    return [("decoding.search", "sample"), *fields] if _samples(arguments) else []


def _with_options(
    arguments: argparse.Namespace, overrides: list[tuple[str, str]]
) -> list[tuple[str, str]]:
    """Return the overrides of the config, those that options stand for included."""
    if arguments.prompt is not None and arguments.input is not None:
        raise UserError("--prompt and --input: give one of them")
    if "" in arguments.stop:
        raise UserError("--stop: must not be empty; name the text before which to end")
    if arguments.stream:
        if len(arguments.prompt or []) != 1 or arguments.json or arguments.output is not None:
            raise UserError("--stream: shows the text of one --prompt, without --json or --output")
        one = [(f"decoding.{name}", str(value)) for name, value in (ONE | GREEDY).items()]
        overrides = [*one, *overrides]
    if sampled := sampling_of(arguments):
        if arguments.beam_size is not None:
            raise UserError("--beam-size: searches for the best text, without sampling; leave it "
                            "out, or --sample and its options")  # fmt: skip
        return [*overrides, *sampled]
    if arguments.beam_size is not None:
        beam = ("decoding.search", "beam"), ("decoding.beam_size", arguments.beam_size)
        return [*overrides, *beam]
    return overrides


def _samples(arguments: argparse.Namespace) -> bool:
    """Say whether random texts are asked for."""
    return arguments.sample or any(getattr(arguments, name, None) is not None for name in SAMPLING)


def _stream(arguments: argparse.Namespace, generator: Any, params: Any) -> None:
    """Show one text as it is written."""
    began, (prompt,) = time.monotonic(), arguments.prompt
    (read,) = _read(arguments, generator, [prompt])
    parts = generator.stream(params, read, arguments.max_tokens, stop=arguments.stop)
    tokens = -1  # the first part is the prompt
    for part in parts:
        print(part, end="", flush=True)
        tokens += 1
    print()
    _report(tokens, time.monotonic() - began)


def _read(arguments: argparse.Namespace, generator: Any, prompts: list[str]) -> list[Any]:
    """Return the prompts, or what is read of them before a suffix."""
    if arguments.suffix is None:
        return prompts
    return [generator.reader.gap(prompt, arguments.suffix) for prompt in prompts]


def _blocks(arguments: argparse.Namespace, source: Any) -> Iterator[list[str]]:
    """Yield prompts, as many at a time as are available."""
    from transformer_jax.cli.lines import typed

    if arguments.prompt is not None:
        yield arguments.prompt
    elif arguments.input is None and sys.stdin.isatty():
        yield from ([line] for line in typed())
    else:
        yield from source.blocks(_BLOCK)


def _generate(arguments: argparse.Namespace, generator: Any, params: Any, codec: Any) -> None:
    from transformer_jax.cli.lines import read_from, write_to

    first, tokens, seconds = 1, 0, 0.0
    with read_from(arguments.input) as source, write_to(arguments.output) as target:
        for block in _blocks(arguments, source):
            began = time.monotonic()
            continuations = generator.generate(
                params, _read(arguments, generator, block), arguments.max_tokens, first,
                stop=arguments.stop,
            )  # fmt: skip
            seconds += time.monotonic() - began
            for prompt, texts in zip(block, continuations, strict=True):
                tokens += sum(len(text.ids) for text in texts)
                if arguments.json:
                    print(_row(prompt, texts, codec), file=target)
                else:
                    print(*(text.text for text in texts), sep="\n", file=target)
            target.flush()
            first += len(block)
    if seconds:
        _report(tokens, seconds)


def _report(tokens: int, seconds: float) -> None:
    print(
        f"{tokens:,} tokens in {seconds:.1f} s with compilation, {tokens / seconds:,.0f} tokens/s",
        file=sys.stderr,
    )


def _row(prompt: str, texts: Sequence[Any], codec: Any) -> str:
    """Return the JSON line of a prompt."""
    rows = [
        {"text": text.text, "log_prob": text.log_prob, "pieces": codec.pieces(text.ids)}
        for text in texts
    ]
    return json.dumps({"prompt": prompt, "texts": rows}, ensure_ascii=False)
