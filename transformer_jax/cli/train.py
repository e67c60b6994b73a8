"""python train.py --config=configs/NAME.py [--workdir=DIR] [--config.FIELD=VALUE ...]"""

from collections.abc import Sequence
from pathlib import Path

from transformer_jax.cli.arguments import Parser, load_config, program
from transformer_jax.cli.compare import place_of
from transformer_jax.config.convert import parse
from transformer_jax.runs.workdir import WorkDir, default_workdir


def main(argv: Sequence[str]) -> int:
    """Train, and return the exit code."""
    parser = Parser("Train a model, or resume its training.")
    parser.add_argument(
        "--config",
        required=True,
        help="a file, or a NAME of configs/; FILE:VARIANT, NAME:VARIANT; "
        "or a work directory, for the config of its run",
    )
    parser.add_argument("--workdir", help="default: runs/NAME or runs/NAME-VARIANT")
    group = parser.add_argument_group(
        "multiple processes, each started by the same command with its own --process_id"
    )
    group.add_argument(
        "--coordinator",
        help="HOST:PORT of process 0, or auto: JAX finds all three (SLURM, Open MPI, TPU pods ...)",
    )
    group.add_argument("--num_processes", type=int)
    group.add_argument("--process_id", type=int, help="from 0")
    arguments, overrides = parser.read(argv)
    experiment = parse(load_config(arguments.config, overrides))
    workdir = WorkDir(arguments.workdir or default_workdir(arguments.config))

    # These start jax, so only after the checks.
    from transformer_jax.experiments.process import keep_freed_memory
    from transformer_jax.experiments.train import run_experiment
    from transformer_jax.sharding.processes import joined

    keep_freed_memory()
    with joined(arguments.coordinator, arguments.num_processes, arguments.process_id):
        return int(run_experiment(experiment, workdir, _page))


def _page(workdir: Path) -> str:
    """Return the report of a run, for trackers."""
    from transformer_jax.plots.page import render
    from transformer_jax.reports.report import gather

    return render(gather([place_of(str(workdir))], None))


entry = program(main)

if __name__ == "__main__":
    entry()
