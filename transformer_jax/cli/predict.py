"""transformer-jax predict --workdir=DIR [FILE ...] [--format=csv] [--output=FILE]"""

import argparse
import logging
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

from transformer_jax.base.errors import UserError
from transformer_jax.cli.arguments import WORKDIR, Parser
from transformer_jax.cli.model import adjusted, load_adjusted, prepare_process
from transformer_jax.cli.translate import check_output
from transformer_jax.config import Experiment
from transformer_jax.config.choices.searches import check_search
from transformer_jax.runs.workdir import WorkDir

log = logging.getLogger("transformer_jax")

FORMATS = ("text", "csv", "jsonl")
_TEXTS, _FILES = 1024, 128  # read and predicted at a time

_HELP = """\
{what}.

A model that reads text takes the lines of files, or of standard input; in a pair, or between a
question and its context, is a TAB. One that reads pictures, sounds or series takes files of these;
without any, each line of standard input is the name of one. A folder stands for all files within
that the model can read, in the order of their paths. They are resized, cut and scaled as in
training.

The fields of decoding, evaluation and data can be changed."""


class Place(NamedTuple):
    """Where an input comes from."""

    file: str | None  # None: standard input
    line: int | None = None  # from 1; None: the whole file
    text: str | None = None  # the line

    def __str__(self) -> str:
        name = self.file or "standard input"
        return name if self.line is None else f"{name}:{self.line}"

    @property
    def columns(self) -> dict[str, Any]:
        """What a row of the output begins with."""
        row = {"file": self.file, "line": self.line, "input": self.text}
        return {name: value for name, value in row.items() if value is not None}


def main(argv: Sequence[str], verb: str = "predict") -> int:
    """Predict what follows from files, and return the exit code. `verb` is the only one allowed,
    unless it is "predict".
    """
    arguments, overrides = _parser(verb).read(argv)
    experiment = adjusted(WorkDir(arguments.workdir).experiment(), overrides)
    check_search(experiment.decoding.search, dict(overrides))
    _check(arguments, experiment, verb)

    from transformer_jax.cli.lines import write_to
    from transformer_jax.cli.predictions import writer_of
    from transformer_jax.decoding import inputs
    from transformer_jax.decoding.predict import check_verb

    of = check_verb(experiment.objective, experiment.verb)
    inputs.check_exist(arguments.files)
    prepare_process()
    checkpoint = arguments.checkpoint or experiment.evaluation.checkpoint
    trained: Any = load_adjusted([arguments.workdir], checkpoint, experiment)
    files = inputs.files(arguments.files, trained.loaded.reads)
    _check_apart(arguments.output, files)
    with write_to(arguments.output) as target:
        write = writer_of(of, _format(arguments), target)
        for places, values in _blocks(files, trained, arguments.skip):
            kept, rows = _predicted(trained, places, values, arguments)
            write([place.columns for place in kept], rows)
            target.flush()
            if arguments.plot is not None and rows:
                _plot(trained, values[0], rows[0], arguments.plot)
    return 0


def _parser(verb: str) -> Parser:
    from transformer_jax.cli.main import COMMANDS

    what = COMMANDS[verb]
    parser = Parser(_HELP.format(what=what[:1].upper() + what[1:]))
    add = parser.add_argument
    add("files", nargs="*", type=Path, metavar="FILE", help="files or folders; default: standard "
        "input")  # fmt: skip
    add("--workdir", required=True, help=WORKDIR)
    add("--checkpoint", help="best, last, a step or average:N; default: the config's")
    add("--format", choices=FORMATS, help="default: that in which --output ends, else text")
    add("--output", type=Path, metavar="FILE", help="default: standard output")
    add("--top", type=int, metavar="N", help="how many classes to name, most likely first; "
        "default: 3")  # fmt: skip
    add("--skip", action="store_true", help="leave out malformed input, with a warning for each")
    add("--plot", type=Path, metavar="FILE", help="also draw the forecast of one file: .svg, .pdf "
        "or .png")  # fmt: skip
    return parser


def _check(arguments: argparse.Namespace, experiment: Experiment, verb: str) -> None:
    """Check what would otherwise fail only after the model is loaded."""
    own = experiment.verb
    if verb not in ("predict", own):
        from transformer_jax.cli.main import COMMANDS

        use = own if own in COMMANDS else "predict"
        raise UserError(
            f"{verb}: --workdir={arguments.workdir} was trained with config.objective.name="
            f"{experiment.objective.name!r}; use `transformer-jax {use}`"
        )
    if arguments.top is not None and (own != "classify" or arguments.top < 1):
        what = "must be at least 1" if own == "classify" else (
            "is for models that predict classes; leave it out"
        )  # fmt: skip
        raise UserError(f"--top={arguments.top}: {what}")
    if arguments.output is not None:
        check_output(arguments.output)
    if arguments.plot is None:
        return
    from transformer_jax.plots.picture import check_suffix

    if own != "forecast":
        raise UserError(f"--plot={arguments.plot}: is for forecasts; leave it out")
    if len(arguments.files) != 1 or not arguments.files[0].is_file():
        raise UserError(f"--plot={arguments.plot}: draws the forecast of one file; give one")
    check_suffix(arguments.plot, "--plot")


def _check_apart(output: Path | None, files: Sequence[Path]) -> None:
    """Check that the output replaces none of the input."""
    if output is not None and output.exists() and any(path.samefile(output) for path in files):
        raise UserError(f"--output={output}: is one of the input files; name another file")


def _format(arguments: argparse.Namespace) -> str:
    if arguments.format is not None:
        return arguments.format
    name = "" if arguments.output is None else arguments.output.name.removesuffix(".gz")
    ending = name.rpartition(".")[2]
    return ending if ending in FORMATS else "text"


Block = tuple[list[Place], list[Any]]  # places, and what the source side's codec encodes


def _blocks(files: Sequence[Path], trained: Any, skip: bool) -> Iterator[Block]:
    """Yield inputs, a few at a time; without files, those of standard input."""
    from transformer_jax.data.codecs.codec import VectorCodec

    if not isinstance(trained.loaded.reads, VectorCodec):
        yield from _lines_of(files, skip) if files else _typed()
        return
    named = iter([files]) if files else (
        [Path(place.text or "") for place in places if place.text] for places, _ in _typed()
    )  # fmt: skip
    for paths in named:
        for start in range(0, len(paths), _FILES):
            block = _opened(paths[start : start + _FILES], trained, skip)
            if block[0]:
                yield block


def _typed() -> Iterator[Block]:
    """Yield the lines of standard input as they arrive, one by one from a terminal."""
    from transformer_jax.cli.lines import read_from, typed

    first = 1
    with read_from(None) as source:
        person = sys.stdin.isatty()
        for block in ([line] for line in typed()) if person else source.blocks(_TEXTS):
            yield [Place(None, number, line) for number, line in enumerate(block, first)], block
            first += len(block)


def _lines_of(files: Sequence[Path], skip: bool) -> Iterator[Block]:
    """Yield the lines of files, each block from one file."""
    from transformer_jax.data.sources.lines import lines_of

    for path in files:
        lines: Sequence[str] = ()
        with _skipped(skip):
            lines = lines_of(path)
        for start in range(0, len(lines), _TEXTS):
            block = list(lines[start : start + _TEXTS])
            places = [Place(str(path), n, line) for n, line in enumerate(block, start + 1)]
            yield places, block


def _opened(paths: Sequence[Path], trained: Any, skip: bool) -> Block:
    """Return the values in files, prepared as in training."""
    places, values = [], []
    codec, data = trained.loaded.reads, trained.experiment.data
    for path in paths:
        with _skipped(skip):
            values.append(codec.prepared(path, str(path), data))
            places.append(Place(str(path)))
    return places, values


def _predicted(
    trained: Any, places: list[Place], values: list, arguments: argparse.Namespace
) -> tuple[list[Place], list[Any]]:
    """Return a row for each value, and its place; an error names the place at fault, which is found
    by halves.
    """
    if len(values) == 1:
        with _skipped(arguments.skip, f"{places[0]}: "):
            return places, trained.predictions(values, arguments.top or 3)
        return [], []
    with suppress(UserError):
        return places, trained.predictions(values, arguments.top or 3)
    half = len(values) // 2
    one, other = (
        _predicted(trained, places[part], values[part], arguments)
        for part in (slice(half), slice(half, None))
    )
    return one[0] + other[0], one[1] + other[1]


@contextmanager
def _skipped(skip: bool, place: str = "") -> Iterator[None]:
    """Name the remedy if an input is malformed, or warn and go on."""
    try:
        yield
    except UserError as error:
        if not skip:
            raise UserError(f"{place}{error}; --skip leaves such input out") from None
        log.warning("%s%s; left out", place, error)


def _plot(trained: Any, rows: Any, found: dict[str, Any], output: Path) -> None:
    """Draw a forecast behind the end of a series [rows channels]."""
    import numpy as np

    from transformer_jax.plots.forecast import draw
    from transformer_jax.plots.picture import save

    objective = trained.experiment.objective
    point = np.array(found["forecast"])
    deciles = np.array(found["deciles"]) if "deciles" in found else None
    seen = np.concatenate([rows[-objective.window :], np.full_like(point, np.nan)])
    dates = [*rows.dates[-objective.window :], *found["dates"]] if found["dates"] else []
    last = min(objective.window, 2 * objective.horizon)
    save(draw(seen, point, deciles, last, found["columns"], dates), output)
