"""A run that moves from one device to eight and back has the same batches and the same losses."""

import numpy as np
import pytest
from trainer import finish, write_corpus

from transformer_jax.runs.workdir import WorkDir, read_rows


@pytest.mark.e2e
def test_moving_to_eight_devices_and_back_does_not_change_a_run(tmp_path):
    write_corpus(tmp_path / "corpus", 300)
    every_step = {"training.log_every": 1}
    for devices, steps in ((1, 10), (8, 20), (1, 30)):
        changes = {**every_step, "training.steps": steps}
        assert finish(tmp_path, "moved", devices=devices, **changes) == 0
    assert finish(tmp_path, "stayed", **every_step, **{"training.steps": 30}) == 0
    moved, stayed = (read_rows(WorkDir(tmp_path / name).metrics) for name in ("moved", "stayed"))
    log = WorkDir(tmp_path / "moved").log.read_text()
    assert "mesh data 8 x" in log
    assert len(moved) == len(stayed) == 30 + 4
    print("largest relative difference", largest := differences(moved, stayed))
    assert largest < 1e-5


def differences(one: list[dict], other: list[dict]) -> float:
    largest = 0.0
    for row, same in zip(one, other, strict=True):
        assert row.keys() == same.keys()
        for key in row.keys() & {"step", "target_tokens", "accuracy"}:  # the same batches
            np.testing.assert_allclose(row[key], same[key], rtol=1e-6)
        for key in row.keys() & {"loss", "nll", "validation_loss"}:
            largest = max(largest, abs(row[key] / same[key] - 1))
    return largest
