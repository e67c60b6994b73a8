"""A work directory on a 64 MB disk: training continues while it is full, and loses nothing."""

import os
import shutil
import subprocess
import time

import pytest
from trainer import assert_same_end, finish, read_steps, start, write_corpus

from transformer_jax.runs.workdir import WorkDir

# 2.6 million numbers: a checkpoint, with parameters and both moments of Adam, is at most 32 MB.
LARGE = {
    "model.d_model": 256, "model.d_ff": 1024, "model.num_heads": 4, "data.tokens_per_batch": 256,
    "training.log_every": 1, "checkpoint.every_steps": 2, "checkpoint.keep_last": 1,
    "evaluation.every_steps": 2, "training.steps": 12, "data.rows_divisible_by": 1,
}  # fmt: skip


@pytest.fixture
def small_disk(tmp_path):
    """Mount 64 MB, or skip."""
    place = tmp_path / "disk"
    place.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=64m", "none", str(place)]
    if os.getuid() != 0 or subprocess.run(command, capture_output=True).returncode:
        pytest.skip("mounting a small disk needs root")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


def fill(disk, leave: int) -> None:
    """Fill the disk except for `leave` bytes."""
    (disk / "filler").unlink(missing_ok=True)
    free = shutil.disk_usage(disk).free
    (disk / "filler").write_bytes(bytes(max(free - leave, 0)))


@pytest.mark.e2e
def test_training_survives_a_full_disk(tmp_path, small_disk):
    """The disk fills up and is freed: failures are reported, and nothing is missing in the end."""
    write_corpus(tmp_path / "corpus", 300)
    process = start(tmp_path, "disk", **LARGE)
    workdir = WorkDir(small_disk)
    while not (workdir.checkpoints / "2").exists() and process.poll() is None:
        time.sleep(0.01)
    fill(small_disk, 0)
    while "what was saved before is intact" not in (tmp_path / "disk.out").read_text():
        assert process.poll() is None
        time.sleep(0.01)
    assert min(read_steps(workdir)) >= 2
    (small_disk / "filler").unlink()
    assert process.wait(timeout=3600) == 0
    shown = (tmp_path / "disk.out").read_text()
    print(shown)
    assert "Traceback" not in shown
    assert "No space left on device (at most" in shown
    assert f"MB free in {small_disk}" in shown
    assert finish(tmp_path, "whole", **LARGE) == 0
    assert_same_end(workdir, WorkDir(tmp_path / "whole"))  # a best one without room is missing


@pytest.mark.e2e
def test_training_stops_on_a_full_disk_if_so_configured(tmp_path, small_disk):
    """And resumes when there is room again."""
    write_corpus(tmp_path / "corpus", 300)
    assert finish(tmp_path, "disk", **{**LARGE, "training.steps": 4}) == 0
    fill(small_disk, 1_000_000)
    stop = {**LARGE, "checkpoint.on_failed_save": "stop"}
    assert finish(tmp_path, "disk", **stop) == 74
    shown = (tmp_path / "disk.out").read_text()
    print(shown)
    assert "stopped at step 6, which is not saved; free disk space" in shown
    assert [*read_steps(WorkDir(small_disk))] == [4]
    fill(small_disk, 0)  # nothing at all can be written
    assert finish(tmp_path, "disk", **stop) == 74
    assert "Traceback" not in (tmp_path / "disk.out").read_text()
    assert (
        "cannot be written: No space left" in (tmp_path / "disk.out").read_text().splitlines()[-1]
    )
    (small_disk / "filler").unlink()
    assert finish(tmp_path, "disk", **LARGE) == 0
    assert finish(tmp_path, "whole", **LARGE) == 0
    assert_same_end(WorkDir(small_disk), WorkDir(tmp_path / "whole"))
