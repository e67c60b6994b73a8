"""A small trainer in a separate process, to be killed."""

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import jax
import numpy as np
import orbax.checkpoint as ocp

from transformer_jax.config import CheckpointConfig, DataConfig
from transformer_jax.data.sources import spelled_numbers
from transformer_jax.runs.checkpoint import Checkpoints
from transformer_jax.runs.integrity import checksums
from transformer_jax.runs.workdir import WorkDir

ROOT = Path(__file__).parents[2]
SMALL = {
    "model.d_model": 16, "model.d_ff": 32, "model.num_heads": 2,
    "model.num_encoder_layers": 1, "model.num_decoder_layers": 1,
    "tokenizer.vocab_size": 120, "data.source_language": "de", "data.target_language": "en",
    "data.max_length": 32, "data.tokens_per_batch": 512, "data.num_buckets": 1,
    "optimizer.schedule": "constant", "optimizer.learning_rate": 0.003,
    "optimizer.warmup_steps": 5, "training.log_every": 3, "checkpoint.every_steps": 4,
    "checkpoint.keep_last": 2, "checkpoint.best_by": "loss", "evaluation.every_steps": 8,
    "evaluation.bleu_sentences": 0,
}  # fmt: skip


def write_corpus(place: Path, pairs: int) -> None:
    """Write spelled-out numbers as text files."""
    config = DataConfig(
        source="spelled_numbers", source_language="de", target_language="en",
        num_examples=(pairs, 20, 20), max_number=100_000,
    )  # fmt: skip
    place.mkdir()
    for split in ("train", "validation", "test"):
        for language, lines in zip(("de", "en"), spelled_numbers.load(config, split), strict=True):
            (place / f"{split}.{language}").write_text("".join(f"{line}\n" for line in lines))


# Kept from one test run to the next, as tests/conftest.py keeps its own.
CACHE = Path(tempfile.gettempdir()) / "transformer_jax_tests" / "e2e"


def start(home: Path, name: str, devices: int = 1, cache: Path = CACHE, **changes):
    """Start train.py in home/name, reading home/corpus; output goes to home/name.out."""
    values = {**SMALL, "data.directory": home / "corpus", **changes}
    overrides = [f"--config.{path}={value}" for path, value in values.items()]
    command = [sys.executable, "train.py", "--config=configs/base.py", f"--workdir={home / name}"]
    environment = os.environ | {
        "TRANSFORMER_JAX_CACHE": str(cache), "JAX_NUM_CPU_DEVICES": str(devices),
        "JAX_PLATFORMS": "cpu",
    }  # fmt: skip
    with open(home / f"{name}.out", "ab") as output:
        return subprocess.Popen(
            [*command, *overrides], cwd=ROOT, env=environment, stdout=output, stderr=output
        )


def finish(home: Path, name: str, **options) -> int:
    """Run to completion, and return the exit code."""
    return start(home, name, **options).wait(timeout=3600)


def stop(
    process: subprocess.Popen,
    number: signal.Signals,
    moment: Callable[[], object],
    delay: float = 0.0,
) -> int | None:
    """Send a signal `delay` seconds after a moment has come; return the exit code.

    None if the process ended before that.
    """
    end = time.monotonic() + 1200
    while not moment():
        assert time.monotonic() < end, "the moment never came"
        if process.poll() is not None:
            return None
        time.sleep(0.0005)
    time.sleep(delay)
    if process.poll() is not None:
        return None
    process.send_signal(number)
    return process.wait(timeout=300)


def read_arrays(place: Path) -> dict:
    """Return what Orbax saved as numpy arrays, whatever devices it came from."""
    with ocp.PyTreeCheckpointer() as reader:
        tree = reader.metadata(place).item_metadata.tree
        kinds = jax.tree.map(lambda _: ocp.RestoreArgs(restore_type=np.ndarray), tree)
        return reader.restore(place, restore_args=kinds)


def read_steps(workdir: WorkDir) -> dict[int, tuple]:
    """Return arrays and record, without timings, of every checkpoint; all must be intact."""
    checkpoints = Checkpoints(workdir.checkpoints, CheckpointConfig())
    found = {}
    for step in checkpoints.steps():
        record = checkpoints.record(step)
        place = workdir.checkpoints / str(step)
        arrays = {name: read_arrays(place / name) for name in ("params", "training")}
        assert sorted(line.split()[-1] for line in checksums(arrays).values()) == sorted(
            line.split()[-1] for line in record["arrays"].values()
        )
        host = {
            key: value for key, value in record["host"].items() if key not in ("seconds", "run")
        }
        found[step] = arrays, {**record, "host": host}
    checkpoints.close()
    return found


def assert_same_run(one: WorkDir, other: WorkDir) -> None:
    """Same checkpoints, bit for bit; same metrics, byte for byte."""
    assert read_steps(one).keys() == read_steps(other).keys()
    assert_same_end(one, other)


def assert_same_end(one: WorkDir, other: WorkDir) -> None:
    """The same checkpoints where both have one, the last among them, and the same metrics."""
    ours, theirs = read_steps(one), read_steps(other)
    assert max(ours) == max(theirs)
    for step in ours.keys() & theirs.keys():
        jax.tree.map(np.testing.assert_array_equal, ours[step][0], theirs[step][0])
        assert ours[step][1] == theirs[step][1]
    assert one.metrics.read_bytes() == other.metrics.read_bytes()
