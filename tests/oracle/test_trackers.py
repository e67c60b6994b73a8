"""Weights & Biases, MLflow and TensorBoard read back what runs logged, with their own libraries."""

import dataclasses
import json
import math
import shutil
from pathlib import Path

import pytest
from starts import start_at_random
from tiny import RUN

from transformer_jax.experiments.train import run_experiment
from transformer_jax.runs.workdir import WorkDir, read_rows

pytestmark = pytest.mark.oracle
pytest.importorskip("wandb")
pytest.importorskip("mlflow")


@pytest.fixture(scope="module")
def workdir(tmp_path_factory):
    """A run that lost its last checkpoint, as a killed one does, and went on."""
    place = tmp_path_factory.mktemp("tracked")
    workdir = WorkDir(place / "run")
    with pytest.MonkeyPatch.context() as patch:
        start_at_random(patch)
        patch.setenv("WANDB_MODE", "offline")
        patch.setenv("MLFLOW_TRACKING_URI", (place / "mlruns").as_uri())
        patch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
        for steps in (6, 9):
            words = "tensorboard", "wandb", "mlflow"
            training = dataclasses.replace(RUN.training, steps=steps, trackers=words)
            experiment = dataclasses.replace(RUN, training=training)
            assert run_experiment(experiment, workdir, lambda _: "<p>a report") == 0
            if steps == 6:
                shutil.rmtree(workdir.checkpoints / "6")
        yield workdir


@pytest.fixture(scope="module")
def expected(workdir):
    """{(step, name): value} of metrics.jsonl."""
    found = {}
    for row in read_rows(workdir.metrics):
        group = "validation" if "validation_loss" in row else "train"
        for key, value in row.items():
            if key != "step" and value is not None:
                found[row["step"], f"{group}/{key.removeprefix('validation_')}"] = value
    assert {step for step, _ in found} == set(range(1, 10))
    return found


def records(path):
    """Yield the records of a file of Weights & Biases: LevelDB's log format behind 7 bytes."""
    data, at, parts = path.read_bytes(), 7, []
    while at + 7 <= len(data):
        if 32_768 - at % 32_768 < 7:  # the rest of a block holds no header
            at += 32_768 - at % 32_768
            continue
        size, kind = int.from_bytes(data[at + 4 : at + 6], "little"), data[at + 6]
        parts.append(data[at + 7 : at + 7 + size])
        at += 7 + size
        if kind in (1, 4):  # whole, or the last part
            yield b"".join(parts)
            parts = []


def test_wandb(workdir, expected):
    """Its offline files have each row once, under one run."""
    from wandb.proto import wandb_internal_pb2

    found, runs, configs, files = {}, set(), [], set()
    for path in sorted(workdir.trackers.rglob("*.wandb")):
        for data in records(path):
            record = wandb_internal_pb2.Record()
            record.ParseFromString(data)
            kind = record.WhichOneof("record_type")
            if kind == "run":
                runs.add(record.run.run_id)
                configs.append({x.key: json.loads(x.value_json) for x in record.run.config.update})
            elif kind == "files":
                files |= {item.path for item in record.files.files}
            elif kind == "history":
                items = {
                    x.key or "/".join(x.nested_key): json.loads(x.value_json)
                    for x in record.history.item
                }
                step = record.history.step.num
                for key, value in items.items():
                    if key.startswith(("train/", "validation/")):
                        assert (step, key) not in found
                        found[step, key] = value
    assert len(runs) == 1
    assert configs[-1]["training.steps"] == 9
    assert any("report" in path for path in files)
    assert found == pytest.approx(expected)


def test_mlflow(workdir, expected, tmp_path):
    from mlflow.tracking import MlflowClient

    client = MlflowClient()
    (home,) = (x for x in client.search_experiments() if x.name == "transformer_jax")
    (run,) = client.search_runs([home.experiment_id])
    found = {}
    for name in run.data.metrics:
        for point in client.get_metric_history(run.info.run_id, name):
            assert (point.step, name) not in found
            found[point.step, name] = point.value
    assert found == pytest.approx(expected)
    assert run.data.params["model.d_model"] == str(RUN.model.d_model)
    assert run.info.status == "FINISHED"
    path = client.download_artifacts(run.info.run_id, "report.html", str(tmp_path))
    assert Path(path).read_text(encoding="utf-8") == "<p>a report"


def test_tensorboard(workdir, expected):
    """What its reader shows after the rows of the lost steps are hidden."""
    reader = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    shown = reader.EventAccumulator(str(workdir.tensorboard), size_guidance={"scalars": 0})
    shown.Reload()
    names = [name for name in shown.Tags()["scalars"] if not name.startswith("rate/")]
    found = {(p.step, name): p.value for name in names for p in shown.Scalars(name)}
    assert found == pytest.approx(
        {key: value for key, value in expected.items() if math.isfinite(value)}, rel=1e-6
    )
