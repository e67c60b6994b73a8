"""transformer-jax teach --workdir=TEACHER --config=CONFIG [--config.FIELD=VALUE ...]"""

from collections.abc import Sequence

from transformer_jax.base.disk import user_path
from transformer_jax.base.errors import UserError
from transformer_jax.cli.arguments import Parser, load_config
from transformer_jax.config.convert import parse


def main(argv: Sequence[str]) -> int:
    """Write a teacher's predictions for the training data of a config, and return the exit code."""
    parser = Parser(
        "Write what a model predicts for the training data of a config, into its data.teacher, so\n"
        "that another model can be trained on it: distillation by logits. The config is that of\n"
        "the model to train. If it is interrupted, the same command goes on."
    )
    parser.add_argument("--workdir", required=True, help="the work directory of the teacher")
    parser.add_argument(
        "--checkpoint", help="best, last, a step or average:N; default: the teacher's config's"
    )
    parser.add_argument(
        "--config", required=True, help="a file, or a NAME of configs/; FILE:VARIANT, NAME:VARIANT"
    )
    parser.add_argument(
        "--top-k", type=int, default=32, metavar="K",
        help="the likeliest pieces that are kept, with the mass of all others; default: 32",
    )  # fmt: skip
    parser.add_argument(
        "--temperature", type=float, action="append", metavar="T",
        help="may be repeated: training.distillation_temperature can then be any of these;\n"
        "default: what it is in the config",
    )  # fmt: skip
    arguments, overrides = parser.read(argv)
    if arguments.top_k < 1:
        parser.error(f"--top-k={arguments.top_k}: must be at least 1")
    experiment = parse(load_config(arguments.config, overrides))
    if experiment.data.teacher is None:
        raise UserError("config.data.teacher=None: name the directory to write, here too")
    temperatures = arguments.temperature or [experiment.training.distillation_temperature]
    for temperature in temperatures:
        if not 0 < temperature <= 100:
            parser.error(f"--temperature={temperature:g}: must be above 0 and at most 100")

    from transformer_jax.api import load
    from transformer_jax.experiments.process import keep_freed_memory, use_compilation_cache
    from transformer_jax.experiments.teach import teach

    use_compilation_cache()
    keep_freed_memory()
    teacher = load(arguments.workdir, arguments.checkpoint)
    output = user_path(experiment.data.teacher)
    print(teach(experiment, teacher, output, arguments.top_k, tuple(dict.fromkeys(temperatures))))
    return 0
