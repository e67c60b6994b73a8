"""transformer-jax inspect --workdir=DIR: what is in a work directory."""

import json
from collections.abc import Sequence

from transformer_jax.cli.arguments import Parser
from transformer_jax.config import Experiment, differences
from transformer_jax.workdir import WorkDir, read_rows


def main(argv: Sequence[str]) -> int:
    """Print the config, the checkpoints, the last metrics and the scores of a run."""
    parser = Parser("Show what a work directory holds.")
    parser.add_argument("--workdir", required=True)
    parser.add_argument("--parameters", action="store_true", help="list every parameter")
    arguments = parser.parse_args(list(argv))
    workdir = WorkDir(arguments.workdir)
    experiment = workdir.experiment()
    print("config, where it differs from configs/base.py:")
    for field, (_, value) in differences(Experiment(), experiment).items():
        print(f"  {field} = {value!r}")

    from transformer_jax.api import load
    from transformer_jax.checkpoint import Checkpoints, DamagedCheckpoint

    checkpoints = Checkpoints(workdir.checkpoints, experiment.checkpoint)
    print("checkpoints:")
    for step in checkpoints.steps():
        try:
            scores = checkpoints.scores(step) or {}
            told = "  ".join(f"{key} {value:.4g}" for key, value in scores.items())
            print(f"  {step}{'  best' if step == checkpoints.best() else ''}  {told}")
        except DamagedCheckpoint as error:
            print(f"  {step}  {error}")
    rows = [row for row in read_rows(workdir.metrics) if "loss" in row]
    if rows:
        print(f"last row of metrics.jsonl: {json.dumps(rows[-1])}")
    for path in sorted(workdir.eval.glob("*.json")):
        scores = json.loads(path.read_text(encoding="utf-8"))["scores"]
        told = "  ".join(f"{key} {value['value']:.2f}" for key, value in scores.items())
        print(f"{path.name}: {told}")
    if arguments.parameters and checkpoints.steps():
        import jax

        for key, leaf in jax.tree_util.tree_leaves_with_path(load(workdir.path, "last").params):
            print(f"  {jax.tree_util.keystr(key, simple=True, separator='/')}  {leaf.shape}")
    return 0
