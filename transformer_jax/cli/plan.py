"""transformer-jax plan --config=configs/NAME.py [--config.FIELD=VALUE ...]"""

import math
import os
from collections.abc import Sequence
from dataclasses import astuple

from transformer_jax.base.errors import UserError
from transformer_jax.cli.arguments import Parser, load_config
from transformer_jax.config.convert import parse

_MOST = 2**16  # devices of a search


def main(argv: Sequence[str]) -> int:
    """Print the cost of a run, without training."""
    parser = Parser("Estimate the cost of a run: memory, operations, time, energy.")
    parser.add_argument(
        "--config", required=True, help="a file, or a NAME of configs/; FILE:VARIANT, NAME:VARIANT"
    )
    parser.add_argument(
        "--libtpu",
        default=os.environ.get("TRANSFORMER_JAX_LIBTPU"),
        help="directory that holds libtpu, to compile for TPU slices (TRANSFORMER_JAX_LIBTPU)",
    )
    parser.add_argument("--rate", type=float, help="operations per second that a device reaches")
    parser.add_argument("--watts", type=float, help="power that a device draws meanwhile")
    parser.add_argument(
        "--noise-scale", type=float, metavar="TOKENS",
        help="as a run with training.noise_scale=True measured it: what it means for the batch",
    )  # fmt: skip
    parser.add_argument(
        "--search", type=int, metavar="DEVICES",
        help="print the best meshes of so many H100s instead, by formulas",
    )  # fmt: skip
    arguments, overrides = parser.read(argv)
    if arguments.search is not None and not 1 <= arguments.search <= _MOST:
        raise UserError(f"--search={arguments.search}: must be at least 1 and at most {_MOST:,}")
    for name in ("rate", "watts", "noise-scale"):
        value = getattr(arguments, name.replace("-", "_"))
        if value is not None and not 0 < value < math.inf:
            raise UserError(f"--{name}={value:g}: must be above 0")
    if arguments.watts is not None and arguments.rate is None:
        raise UserError(f"--watts={arguments.watts:g}: the time is not known; give --rate too")
    experiment = parse(load_config(arguments.config, overrides))

    if arguments.search is not None:
        from transformer_jax.experiments.mesh_search import search

        for line in search(experiment, arguments.search):
            print(line, flush=True)
        return 0

    import jax  # after the checks

    # Without an accelerator, a mesh of any size is compiled for simulated devices.
    wanted = math.prod(size for size in astuple(experiment.mesh) if size != -1)
    if wanted > 1:
        jax.config.update("jax_num_cpu_devices", wanted)

    from transformer_jax.experiments.plan import report

    given = arguments.libtpu, arguments.rate, arguments.watts, arguments.noise_scale
    for line in report(experiment, *given):
        print(line, flush=True)
    return 0
