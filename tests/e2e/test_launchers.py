"""Four processes, of which one after the other is killed: the launcher starts them all again."""

import os
import random
import signal
import time
from pathlib import Path

import pytest
from launchers import Cluster
from trainer import CACHE, assert_same_run, write_corpus

from transformer_jax.runs.workdir import WorkDir, read_rows

PROCESSES, EVERY, STEPS = 4, 3, 60
# A small language model of bytes, of which little has to be traced at every start.
CHANGES = {
    "model.architecture": "decoder", "model.d_model": 16, "model.d_ff": 32, "model.num_heads": 2,
    "model.num_decoder_layers": 1, "objective.name": "language_model", "objective.document": "file",
    "objective.window": 32, "tgt.codec": "bytes", "data.target_language": "en",
    "data.batching": "pack", "data.max_length": 32, "data.tokens_per_batch": 128,
    "data.rows_divisible_by": 4, "training.steps": STEPS, "training.log_every": 1,
    "optimizer.warmup_steps": 5, "checkpoint.every_steps": EVERY, "checkpoint.keep_last": 2,
    "checkpoint.best_by": "loss", "evaluation.every_steps": 30, "evaluation.bleu_sentences": 0,
}  # fmt: skip


def arguments(home: Path, name: str) -> list[str]:
    values = {**CHANGES, "data.directory": home / "corpus"}
    overrides = [f"--config.{path}={value}" for path, value in values.items()]
    return ["--config=configs/base.py", f"--workdir={home / name}", *overrides]


class Killer:
    """Kills a process of a run at moments of several kinds."""

    def __init__(self, cluster: Cluster, workdir: WorkDir, seed: int) -> None:
        self.cluster, self.workdir, self.random = cluster, workdir, random.Random(seed)
        self.gone: set[int | None] = {None}  # ids of processes of earlier starts
        self.half: set[Path] = set()  # saves that an earlier start left

    def newest(self) -> int:
        """Return the newest step, from names alone."""
        names = [path.name for path in self.workdir.checkpoints.glob("*")]
        return max((int(name) for name in names if name.isdecimal()), default=0)

    def saves(self) -> set[Path]:
        return {*self.workdir.checkpoints.glob("*.orbax-checkpoint-tmp*")}

    def kill(self, kind: str) -> str:
        """Kill a process, chosen at random, and return what was done."""
        numbers = range(self.cluster.count)
        wait(lambda: all(self.cluster.pid(number) not in self.gone for number in numbers))
        before, victim = self.newest(), self.random.randrange(self.cluster.count)
        moment, longest = {
            "starting": (lambda: True, 30.0),
            "training": (lambda: self.newest() > before, 3.0),
            "saving": (lambda: self.saves() - self.half, 0.1),
        }[kind]
        wait(moment)
        time.sleep(self.random.uniform(0, longest))
        pids = [self.cluster.pid(number) for number in numbers]
        step = self.newest()
        os.kill(pids[victim], signal.SIGKILL)
        self.gone |= {*pids}
        self.half |= self.saves()
        return f"{kind}: process {victim} killed after checkpoint {step}"


def wait(moment, seconds: float = 600) -> None:
    end = time.monotonic() + seconds
    while not moment():
        assert time.monotonic() < end, "the moment never came"
        time.sleep(0.001)


@pytest.mark.e2e
def test_killed_processes_are_started_again(tmp_path):
    """Ten times, at random moments: while they start, train and save. The run ends as one that was
    left alone: the same losses to the digit, and the same bits in its checkpoints.
    """
    write_corpus(tmp_path / "corpus", 300)
    cluster = Cluster(tmp_path / "left", PROCESSES, TRANSFORMER_JAX_CACHE=str(CACHE))
    began = time.monotonic()
    assert cluster.slurm(*arguments(tmp_path, "whole")).wait() == 0, cluster.said()
    print(f"left alone: {time.monotonic() - began:.0f} s", flush=True)

    cluster = Cluster(tmp_path / "killed", PROCESSES, TRANSFORMER_JAX_CACHE=str(CACHE))
    began, workdir = time.monotonic(), WorkDir(tmp_path / "run")
    job = cluster.slurm(*arguments(tmp_path, "run"))
    try:
        killer = Killer(cluster, workdir, seed=5)
        kinds = ["starting"] * 3 + ["training"] * 3 + ["saving"] * 4
        killer.random.shuffle(kinds)
        for kind in kinds:
            done = killer.kill(kind)
            print(f"{time.monotonic() - began:.0f} s: {done}", flush=True)
        assert job.wait(timeout=1200) == 0, cluster.said()
    finally:
        if job.poll() is None:
            os.killpg(job.pid, signal.SIGKILL)
    print(f"killed: {time.monotonic() - began:.0f} s", flush=True)
    whole = WorkDir(tmp_path / "whole")
    assert_same_run(workdir, whole)
    assert workdir.metrics.read_bytes() == whole.metrics.read_bytes()
    assert read_rows(workdir.metrics)[-1]["step"] == STEPS
    log = workdir.log.read_text()
    print(*[line for line in log.splitlines() if "resuming" in line or "deleted" in line], sep="\n")
    assert "which was left half-written" in log
