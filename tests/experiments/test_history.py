"""What is recorded at each start of a training run."""

import math
import re
import subprocess

from transformer_jax.experiments import history
from transformer_jax.runs.workdir import WorkDir, read_rows


def test_versions_commit_and_machine_are_recorded():
    versions = history.versions()
    assert {"python", "jax", "transformer-jax"} <= versions.keys()
    commit = history.commit()
    head = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True)
    if head.returncode == 0:
        assert commit is not None
        assert commit.removesuffix("-dirty") == head.stdout.strip()
    machine = history.machine()
    assert machine["memory"] > 2**28
    assert re.match(r"\d+ \w+", machine["devices"])
    assert math.isfinite(machine["cores"])


def test_a_failed_write_does_not_stop_the_training(tmp_path, caplog):
    place = WorkDir(tmp_path / "gone")
    history.note(place, {"step": 1})
    assert "history.jsonl: not written (No such file or directory)" in caplog.text
    place.path.mkdir()
    place.history.write_text('{"step": 1}\n{"st')  # by a start that was killed
    history.note(place, {"step": 2})
    assert [row["step"] for row in read_rows(place.history)] == [1, 2]
