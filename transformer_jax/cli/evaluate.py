"""python eval.py --workdir=DIR [--checkpoint=NAME] [--split=test] [--source=F --reference=F]"""

from collections.abc import Sequence
from pathlib import Path

from transformer_jax.cli.arguments import Parser, program
from transformer_jax.config import Experiment, door, override, parse
from transformer_jax.data import sources
from transformer_jax.errors import UserError
from transformer_jax.workdir import WorkDir


def main(argv: Sequence[str]) -> int:
    """Score a checkpoint, and return the exit code."""
    parser = Parser("Translate a split or a file with a trained model, and score the result.")
    parser.add_argument("--workdir", required=True)
    parser.add_argument(
        "--checkpoint", help="best, last, a step or average:N; default: the config's"
    )
    parser.add_argument("--split", default="test", choices=("train", "validation", "test"))
    parser.add_argument("--source", type=Path, help="score this file instead of a split")
    parser.add_argument("--reference", type=Path, help="its translation, line by line")
    arguments, overrides = parser.read(argv)
    if (arguments.source is None) != (arguments.reference is None):
        raise UserError("--source and --reference belong together: give both or neither")

    workdir = WorkDir(arguments.workdir)
    experiment = adjusted(workdir.experiment(), overrides)
    if arguments.source is not None:
        split = arguments.source.name
        src, references = sources.read_parallel(arguments.source, arguments.reference)
        if not src:
            raise UserError(f"{arguments.source}: holds no lines")
    else:
        split, corpus = arguments.split, sources.load(experiment.data, arguments.split)
        src, references = list(corpus.src), list(corpus.tgt)

    from rich.console import Console
    from rich.progress import track

    from transformer_jax.api import load
    from transformer_jax.evaluation.run import evaluate
    from transformer_jax.experiments.train import use_compilation_cache

    use_compilation_cache()
    console = Console(stderr=True)
    checkpoint = arguments.checkpoint or experiment.evaluation.checkpoint
    trained = load(workdir.path, checkpoint)
    trained.experiment = experiment
    result = evaluate(
        trained, src, references, experiment.decoding, split,
        checkpoint, workdir.eval,
        lambda batches: track(batches, "translating", console=console, transient=True),
    )  # fmt: skip
    for line, scored in zip(result["details"], result["scores"].values(), strict=True):
        print(f"{line}\n    {scored['signature']}")
    print(f"exact match = {result['exact_match']:.2f} % of {result['sentences']} sentences")
    print(f"written to {workdir.eval}/{split}.*")
    return 0


def adjusted(experiment: Experiment, overrides: Sequence[tuple[str, str]]) -> Experiment:
    """Return the experiment with overrides of what may change after training."""
    config = door(experiment)
    for field, text in overrides:
        override(config, field, text)
        if field.partition(".")[0] not in ("decoding", "evaluation", "data", "mesh"):
            raise UserError(f"config.{field}: is part of the trained model and cannot change now")
    return parse(config)


entry = program(main)

if __name__ == "__main__":
    entry()
