"""python train.py --config=configs/NAME.py [--workdir=DIR] [--config.FIELD=VALUE ...]"""

from collections.abc import Sequence

from transformer_jax.cli.arguments import Parser, load_config, program
from transformer_jax.config import parse
from transformer_jax.workdir import WorkDir, default_workdir


def main(argv: Sequence[str]) -> int:
    """Train, and return the exit code."""
    parser = Parser("Train a model, or go on training it.")
    parser.add_argument(
        "--config", required=True, help="configs/NAME.py or configs/NAME.py:VARIANT"
    )
    parser.add_argument("--workdir", help="default: runs/NAME or runs/NAME-VARIANT")
    arguments, overrides = parser.read(argv)
    experiment = parse(load_config(arguments.config, overrides))
    workdir = WorkDir(arguments.workdir or default_workdir(arguments.config))

    from transformer_jax.experiments.train import run_experiment  # starts jax: after the checks

    return int(run_experiment(experiment, workdir))


entry = program(main)

if __name__ == "__main__":
    entry()
