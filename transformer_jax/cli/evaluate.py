"""python eval.py --workdir=DIR [--checkpoint=NAME] [--split=test] [--source=F --reference=F]"""

import argparse
import importlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from transformer_jax.base.errors import UserError
from transformer_jax.cli.arguments import CHECKPOINTS, WORKDIRS, Parser, program
from transformer_jax.cli.model import adjusted, load_adjusted, prepare_process
from transformer_jax.config import Experiment
from transformer_jax.config.choices.searches import check_search
from transformer_jax.data import sources
from transformer_jax.data.sources import files
from transformer_jax.runs.workdir import WorkDir
from transformer_jax.sweeps.scores import scores_name


def _parser() -> Parser:
    parser = Parser(
        "Translate a split or a file with a trained model, and score the result. For a language\n"
        "model, print how well it predicts a split: loss (nats per piece), perplexity, bits per\n"
        "character. For a classifier, print its accuracy; for a tagger, word accuracy and entity\n"
        "F1; for numbers, their correlation; for answers, SQuAD's scores; for forecasts, their\n"
        "errors and those of simple baselines; for pictures, how close the reconstructions from\n"
        "their codes are. The fields of decoding, evaluation and data can be changed."
    )
    parser.add_argument("--workdir", required=True, action="append", help=WORKDIRS)
    parser.add_argument("--checkpoint", help=CHECKPOINTS)
    parser.add_argument("--split", default="test", choices=("train", "validation", "test"))
    parser.add_argument("--source", type=Path, help="score this file instead of a split")
    parser.add_argument("--reference", type=Path, help="its translation, line by line")
    parser.add_argument(
        "--codebook", type=Path, help="a file of pictures codebook, or the work directory of an "
        "autoencoder, for models that write its codes; a report then shows their pictures"
    )  # fmt: skip
    return parser


def main(argv: Sequence[str]) -> int:
    """Score a checkpoint, and return the exit code."""
    arguments, overrides = _parser().read(argv)
    if (arguments.source is None) != (arguments.reference is None):
        raise UserError("--source and --reference belong together: give both or neither")

    workdir = WorkDir(arguments.workdir[0])
    experiment = adjusted(workdir.experiment(), overrides)
    check_search(experiment.decoding.search, dict(overrides))
    one_sided = experiment.objective.one_sided
    if arguments.source is not None and one_sided:
        raise UserError(
            "--source: such a model has no source; name the split's parts instead, as in "
            "--config.data.test=PART"
        )
    if arguments.codebook is not None and not experiment.objective.translates:
        raise UserError("--codebook: such a model writes no codes of pictures; leave it out")
    corpus = _corpus(arguments, experiment)
    split = arguments.split if arguments.source is None else arguments.source.name

    from transformer_jax.evaluation import metrics
    from transformer_jax.evaluation.run import check_writable

    metrics.check(experiment.evaluation)
    prepare_process()
    checkpoint = arguments.checkpoint or experiment.evaluation.checkpoint
    trained = load_adjusted(arguments.workdir, checkpoint, experiment)
    check_writable(workdir.eval)
    name = label(arguments.workdir, checkpoint, workdir.experiment(), experiment)
    stem = str(workdir.eval / f"{split}.{name.replace(':', '-')}")
    if experiment.objective.translates:
        _translate(trained, corpus, split, name, stem, arguments.codebook)
    else:
        _evaluate(trained, corpus, split, name, stem)
    return 0


def _evaluate(trained: Any, corpus: sources.Corpus, split: str, name: str, stem: str) -> None:
    """Score what is no translation, by the module that the objective's record names."""
    module = f"transformer_jax.evaluation.{trained.experiment.objective.record.evaluated}"
    evaluation = importlib.import_module(module).evaluate(trained, corpus, split, name)
    written = f"written to {stem}.{'json' if evaluation.hypotheses is None else '*'}"
    last = "; ".join([*filter(None, [evaluation.extent]), written])
    _report(evaluation, stem, [*evaluation.result["details"], *evaluation.notes], last)


def _translate(
    trained: Any, corpus: sources.Corpus, split: str, name: str, stem: str, codebook: Path | None
) -> None:
    from transformer_jax.base.progress import LineProgress
    from transformer_jax.cli.pictures import codebook_at
    from transformer_jax.evaluation.run import evaluate

    book = None if codebook is None else codebook_at(codebook)
    sides, decoding = (list(corpus.src), list(corpus.tgt)), trained.experiment.decoding
    with LineProgress(len(corpus)) as progress:
        evaluation = evaluate(trained, *sides, decoding, split, name, stem, progress.watch, book)
    result = evaluation.result
    lines = []
    for line, scored in zip(result["details"], result["scores"].values(), strict=True):
        lines.append("\n    ".join([line, *filter(None, [scored["signature"]])]))
    lines += result.get("notes", ())
    lines.append(f"exact match = {result['exact_match']:.2f} % of {result['sentences']} sentences")
    if decoding.draft is not None:
        lines.append(f"drafts: {trained.translator(decoding).acceptance}")
    _report(evaluation, stem, lines, f"written to {stem}.*")


def _report(evaluation: Any, stem: str, lines: Sequence[str], last: str) -> None:
    """Write the scores, and print them even if the disk fails."""
    try:
        evaluation.write(stem)
    finally:
        print(*lines, sep="\n")
    print(last)


def _corpus(arguments: argparse.Namespace, experiment: Experiment) -> sources.Corpus:
    """Return what to score: a split, or two files."""
    if arguments.source is None:
        return sources.load(experiment.data, arguments.split, experiment.objective)
    src, references = files.read_parallel(arguments.source, arguments.reference)
    if not src:
        raise UserError(f"{arguments.source}: holds no lines")

    def place(number: int, source: bool) -> str:
        return f"{arguments.source if source else arguments.reference}:{number}"

    return sources.Corpus(src, sources.checked(experiment.objective, src, references, place), "")


def label(workdirs: Sequence[str], checkpoint: str, trained: Experiment, scored: Experiment) -> str:
    """Return the name of what is scored: "best", or "a+b.best" for an ensemble; followed by
    settings that change the scores and differ from training: "best,decoding.alpha=0.6".
    """
    if len(workdirs) > 1:
        names = "+".join(Path(workdir).absolute().name for workdir in workdirs)
        checkpoint = f"{names}.{checkpoint}"
    return scores_name(checkpoint, trained, scored)


entry = program(main)

if __name__ == "__main__":
    entry()
