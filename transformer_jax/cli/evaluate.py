"""python eval.py --workdir=DIR [--checkpoint=NAME] [--split=test] [--source=F --reference=F]"""

from collections.abc import Sequence
from pathlib import Path

from transformer_jax.cli.arguments import CHECKPOINTS, WORKDIRS, Parser, program
from transformer_jax.config import Experiment
from transformer_jax.data import sources
from transformer_jax.door import door, override, parse
from transformer_jax.errors import UserError
from transformer_jax.sweeps.scores import scores_name
from transformer_jax.workdir import WorkDir


def main(argv: Sequence[str]) -> int:
    """Score a checkpoint, and return the exit code."""
    parser = Parser(
        "Translate a split or a file with a trained model, and score the result. The fields of\n"
        "decoding, evaluation and data can be changed."
    )
    parser.add_argument("--workdir", required=True, action="append", help=WORKDIRS)
    parser.add_argument("--checkpoint", help=CHECKPOINTS)
    parser.add_argument("--split", default="test", choices=("train", "validation", "test"))
    parser.add_argument("--source", type=Path, help="score this file instead of a split")
    parser.add_argument("--reference", type=Path, help="its translation, line by line")
    arguments, overrides = parser.read(argv)
    if (arguments.source is None) != (arguments.reference is None):
        raise UserError("--source and --reference belong together: give both or neither")

    workdir = WorkDir(arguments.workdir[0])
    experiment = adjusted(workdir.experiment(), overrides)
    if arguments.source is not None:
        split = arguments.source.name
        src, references = sources.read_parallel(arguments.source, arguments.reference)
        if not src:
            raise UserError(f"{arguments.source}: holds no lines")
    else:
        split, corpus = arguments.split, sources.load(experiment.data, arguments.split)
        src, references = list(corpus.src), list(corpus.tgt)

    from transformer_jax.api import load_ensemble
    from transformer_jax.cli.progress import LineProgress
    from transformer_jax.evaluation import metrics
    from transformer_jax.evaluation.run import check_writable, evaluate
    from transformer_jax.experiments.process import (
        keep_freed_memory,
        use_compilation_cache,
        use_every_core,
    )

    metrics.check(experiment.evaluation)
    use_compilation_cache()
    use_every_core()
    keep_freed_memory()
    checkpoint = arguments.checkpoint or experiment.evaluation.checkpoint
    trained = load_ensemble(arguments.workdir, checkpoint)
    trained.experiment = experiment
    check_writable(workdir.eval)
    with LineProgress(len(src)) as progress:
        name = label(arguments.workdir, checkpoint, workdir.experiment(), experiment)
        stem = str(workdir.eval / f"{split}.{name.replace(':', '-')}")
        evaluation = evaluate(
            trained, src, references, experiment.decoding, split, name, stem, progress.watch
        )
    result = evaluation.result
    for line, scored in zip(result["details"], result["scores"].values(), strict=True):
        print(f"{line}\n    {scored['signature']}")
    print(f"exact match = {result['exact_match']:.2f} % of {result['sentences']} sentences")
    # Now that the scores are shown, whatever the disk does.
    evaluation.write(stem)
    print(f"written to {stem}.*")
    return 0


def label(workdirs: Sequence[str], checkpoint: str, trained: Experiment, scored: Experiment) -> str:
    """Return the name of what is scored: "best", or "a+b.best" of an ensemble; with what changes
    the scores and was not so in training behind it: "best,decoding.alpha=0.6".
    """
    if len(workdirs) > 1:
        names = "+".join(Path(workdir).absolute().name for workdir in workdirs)
        checkpoint = f"{names}.{checkpoint}"
    return scores_name(checkpoint, trained, scored)


def adjusted(experiment: Experiment, overrides: Sequence[tuple[str, str]]) -> Experiment:
    """Return the experiment with overrides of what may change after training."""
    config = door(experiment)
    for field, text in overrides:
        override(config, field, text)
        if field.partition(".")[0] not in ("decoding", "evaluation", "data"):
            raise UserError(f"config.{field}: is part of the trained model and cannot change now")
    return parse(config)


entry = program(main)

if __name__ == "__main__":
    entry()
