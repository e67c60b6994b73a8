"""transformer-jax inspect --workdir=DIR: the contents of a work directory."""

import dataclasses
import json
from collections.abc import Sequence

from transformer_jax.cli.arguments import WORKDIR, Parser
from transformer_jax.config import Experiment
from transformer_jax.config.convert import differences
from transformer_jax.runs.workdir import WorkDir, read_rows


def main(argv: Sequence[str]) -> int:
    """Print the config, the checkpoints, the last metrics and the scores of a run."""
    parser = Parser("Show the contents of a work directory.")
    parser.add_argument("--workdir", required=True, help=WORKDIR)
    parser.add_argument("--parameters", action="store_true", help="list every parameter")
    arguments = parser.parse_args(list(argv))
    workdir = WorkDir(arguments.workdir)
    experiment = workdir.experiment()
    print("config, where it differs from configs/base.py:")
    for field, (_, value) in differences(Experiment(), experiment).items():
        print(f"  {field} = {value!r}")

    from transformer_jax.api import load
    from transformer_jax.reports.evaluations import decoding_differences, evaluations
    from transformer_jax.runs.checkpoint import Checkpoints, DamagedCheckpoint
    from transformer_jax.runs.retention import Record, best
    from transformer_jax.sweeps.scores import decoding_of

    checkpoints = Checkpoints(workdir.checkpoints, experiment.checkpoint)
    print("checkpoints:")
    records: dict[int, Record] = {}
    damaged: dict[int, DamagedCheckpoint] = {}
    for step in checkpoints.steps():
        try:
            records[step] = checkpoints.record(step)
        except DamagedCheckpoint as error:
            damaged[step] = error
    chosen = best(records, experiment.checkpoint.best_by)
    for step in sorted([*records, *damaged]):
        if step in damaged:
            print(f"  {step}  {damaged[step]}")
            continue
        scores = records[step]["scores"] or {}
        listed = "  ".join(f"{key} {value:.4g}" for key, value in scores.items())
        print(f"  {step}{'  best' if step == chosen else ''}  {listed}".rstrip())
    rows = [row for row in read_rows(workdir.metrics) if "loss" in row]
    if rows:
        print(f"last row of metrics.jsonl: {json.dumps(rows[-1])}")
    own = decoding_of({"decoding": dataclasses.asdict(experiment.decoding)})
    for scored in evaluations(workdir):
        listed = "  ".join(f"{key} {value['value']:.2f}" for key, value in scored["scores"].items())
        changed = decoding_differences([scored["decoding"], own]) if scored["decoding"] else {}
        other = ", ".join(f"{path}={was}, not {now}" for path, (was, now) in changed.items())
        print(
            f"{scored['split']}.{scored['checkpoint']}: {listed}{f'  with {other}' * bool(other)}"
        )
    if arguments.parameters and checkpoints.steps():
        import jax

        for key, leaf in jax.tree_util.tree_leaves_with_path(load(workdir.path, "last").params):
            print(f"  {jax.tree_util.keystr(key, simple=True, separator='/')}  {leaf.shape}")
    return 0
