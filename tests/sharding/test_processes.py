"""Real processes over loopback act as one, however rows are divided and whichever dies."""

import dataclasses
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import jax
import numpy as np
import pytest
from tiny import RUN

from transformer_jax.base.errors import UserError
from transformer_jax.config import CheckpointConfig, Experiment, MeshConfig
from transformer_jax.config.convert import to_json
from transformer_jax.experiments import train as runs
from transformer_jax.runs.checkpoint import Checkpoints
from transformer_jax.runs.workdir import WorkDir, read_rows
from transformer_jax.sharding.processes import joined
from transformer_jax.training.loop import Outcome

ROOT = Path(__file__).parents[2]


def changed(steps: int, mesh: tuple[int, int, int], bleu: int = 0) -> Experiment:
    return dataclasses.replace(
        RUN,
        model=dataclasses.replace(RUN.model, norm="rms_norm", biases=()),  # fewer operations
        training=dataclasses.replace(RUN.training, steps=steps),
        mesh=MeshConfig(*mesh),
        evaluation=dataclasses.replace(RUN.evaluation, bleu_sentences=bleu),
    )


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A directory for runs; compiled programs and tokens are cached from earlier test runs."""
    with pytest.MonkeyPatch.context() as patch:
        cache = Path(tempfile.gettempdir()) / "transformer_jax_tests" / "processes"
        patch.setenv("TRANSFORMER_JAX_CACHE", str(cache))
        patch.setattr(runs.process, "use_compilation_cache", lambda: None)
        yield tmp_path_factory.mktemp("runs")


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def start(home: Path, name: str, experiment: Experiment, devices: int) -> list[subprocess.Popen]:
    """Start two processes of train.py with the given number of devices each."""
    config = home / f"{name}.py"
    config.write_text(
        "from transformer_jax.config.convert import door, from_json\n"
        f"def get_config():\n    return door(from_json({to_json(experiment)!r}))\n"
    )
    argv = [
        sys.executable, str(ROOT / "train.py"), f"--config={config}", f"--workdir={home / name}",
        f"--coordinator=127.0.0.1:{free_port()}", "--num_processes=2",
    ]  # fmt: skip
    environment = {**os.environ, "JAX_NUM_CPU_DEVICES": str(devices), "PYTHONPATH": str(ROOT)}
    processes = []
    for number in range(2):
        with open(home / f"{name}.{number}.err", "w") as errors:
            processes.append(subprocess.Popen(
                [*argv, f"--process_id={number}"], env=environment, cwd=home,
                stdout=subprocess.DEVNULL, stderr=errors,
            ))  # fmt: skip
    return processes


def wait(processes: list[subprocess.Popen], seconds: float) -> list[int]:
    """Return the exit codes; a process that takes longer is killed, and its code is negative."""
    until = time.monotonic() + seconds
    for process in processes:
        try:
            process.wait(max(0, until - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.kill()
    return [process.wait() for process in processes]


def shown(home: Path, name: str) -> str:
    return "".join((home / f"{name}.{number}.err").read_text() for number in range(2))


def assert_close(one: WorkDir, other: WorkDir) -> None:
    """Check that rows of metrics.jsonl are equal up to rounding, and counts exactly."""
    rows, others = read_rows(one.metrics), read_rows(other.metrics)
    assert [row.keys() for row in rows] == [row.keys() for row in others]
    for row, its in zip(rows, others, strict=True):
        for key, value in row.items():
            exact = isinstance(value, int)
            assert value == (its[key] if exact else pytest.approx(its[key], rel=1e-5)), key


@pytest.mark.thorough
def test_a_run_moves_from_two_processes_to_one(home, monkeypatch):
    """3 steps by two processes with 2 devices each, then 3 by one with 1, equal 6 steps by one.

    Both ends use one program, that of other tests, so that it is compiled once.
    """
    monkeypatch.setenv("JAX_DISABLE_MOST_OPTIMIZATIONS", "1")  # both compile in half the time
    three = changed(3, (1, 2, 2))  # parameters are divided between the processes
    assert wait(start(home, "two", three, devices=2), 900) == [0, 0], shown(home, "two")
    shared, alone = WorkDir(home / "two"), WorkDir(home / "one")
    for workdir in (shared, alone):
        assert runs.run_experiment(changed(6, (1, 1, 1)), workdir) == Outcome.FINISHED
    assert "resuming at step 3" in shared.log.read_text()
    assert "of 2 process(es); mesh data 1 x fsdp 2 x tensor 2" in shared.log.read_text()
    assert [row["step"] for row in read_rows(shared.metrics)] == [1, 2, 3, 3, 4, 5, 6, 6]
    assert_close(shared, alone)


@pytest.mark.e2e
def test_a_run_moves_from_one_process_to_two(home):
    """The other way round, with rows divided between the processes and greedy BLEU."""
    shared, alone = WorkDir(home / "then_two"), WorkDir(home / "alone")
    assert runs.run_experiment(changed(3, (1, 1, 1), bleu=8), shared) == Outcome.FINISHED
    processes = start(home, "then_two", changed(6, (2, 2, 1), bleu=8), devices=2)
    assert wait(processes, 600) == [0, 0], shown(home, "then_two")
    assert runs.run_experiment(changed(6, (1, 1, 1), bleu=8), alone) == Outcome.FINISHED
    assert_close(shared, alone)


@pytest.fixture
def running(home, request):
    """The name of a run that would not end, and its two processes, in the middle of it."""
    name = re.sub(r"\W", "_", request.node.name)
    processes = start(home, name, changed(10**6, (-1, 1, 1)), devices=1)
    until = time.monotonic() + 300
    while len(read_rows(home / name / "metrics.jsonl")) < 5:
        assert time.monotonic() < until, shown(home, name)
        assert [p.poll() for p in processes] == [None, None], shown(home, name)
        time.sleep(0.2)
    yield name, processes
    for process in processes:
        process.kill()
        process.wait()


@pytest.mark.e2e
@pytest.mark.parametrize("victim", [0, 1])
def test_a_process_that_dies_is_named(home, running, victim):
    """The other one ends within 60 s with code 75 and a line that names the dead process."""
    name, processes = running
    processes[victim].kill()
    code = wait(processes, 60)[1 - victim]
    if (victim, code) == (0, -signal.SIGABRT):
        # JAX aborts when the connection to process 0 breaks, and on a busy machine does so first.
        assert "another task died" in shown(home, name)
        return
    assert code == 75, shown(home, name)
    said = rf"^error: process {victim}\b.*; run the same command again"
    assert re.search(said, shown(home, name), re.M)


@pytest.mark.e2e
@pytest.mark.parametrize("asked", [0, 1])
def test_a_signal_to_one_stops_both(home, running, asked):
    """They save the same step and exit with 75, whichever got the signal; and the run resumes."""
    name, processes = running
    processes[asked].send_signal(signal.SIGTERM)
    assert wait(processes, 120) == [75, 75], shown(home, name)
    step = max(int(path.name) for path in (home / name / "checkpoints").iterdir())
    again = start(home, name, changed(step + 2, (-1, 1, 1)), devices=1)
    assert wait(again, 300) == [0, 0], shown(home, name)
    assert f"resuming at step {step}," in (home / name / "train.log").read_text()
    losses = [row["loss"] for row in read_rows(home / name / "metrics.jsonl") if "loss" in row]
    assert len(losses) == step + 2
    assert np.isfinite(losses).all()


ALIKE = """
import sys
from transformer_jax.base.errors import UserError
from transformer_jax.sharding.processes import all_or_none, check_same, joined
port, me = map(int, sys.argv[1:])
with joined(f"127.0.0.1:{port}", 2, me):
    for write in (lambda: None, lambda: me or open("/nowhere/file", "w"), lambda: None):
        try:
            with all_or_none():
                write()
            print("written")
        except (OSError, UserError) as error:
            print("failed:", error)
    check_same("training text", "the same")
    try:
        check_same("training text", f"that of {me}")
    except UserError as error:
        print(error)
"""


@pytest.mark.thorough
def test_a_write_that_fails_on_one_process_fails_on_all():
    """And a process that reads something else than the first says so."""
    port = free_port()
    environment = {**os.environ, "JAX_NUM_CPU_DEVICES": "1", "PYTHONPATH": str(ROOT)}
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", ALIKE, f"{port}", f"{me}"], env=environment,
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
        )
        for me in range(2)
    ]  # fmt: skip
    shown = [process.communicate(timeout=120)[0].splitlines() for process in processes]
    one, other = ([line for line in lines if not line.startswith("[Gloo]")] for lines in shown)
    assert one == ["written", "failed: [Errno 2] No such file or directory: '/nowhere/file'",
                   "written"]  # fmt: skip
    assert other[:3] == ["written", "failed: process 0 cannot write", "written"]
    assert other[3].startswith("training text: process 1 has a different one from process 0")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((None, 2, None), ["--coordinator=HOST:PORT"]),
        (("127.0.0.1:1", None, None), ["--num_processes", "--process_id"]),
        (("auto", 2, 0), ["auto takes neither"]),
        (("127.0.0.1:1", 2, 2), ["--process_id=2", "--num_processes=2"]),
        *(
            (((place, 2, me), [f"--coordinator={place}: must be HOST:PORT", "1 to 65535"]))
            for place in ("127.0.0.1", "here:", "here:http", ":1234", "here:0", "here:65536", "")
            for me in (0, 1)
        ),
    ],
)
def test_inconsistent_arguments_are_rejected(arguments, words):
    with pytest.raises(UserError) as caught, joined(*arguments):
        pass
    for word in words:
        assert word in str(caught.value)
    assert jax.process_count() == 1


@pytest.mark.parametrize("address", ["", "127.0.0.1"])
def test_a_port_in_use_is_refused_by_the_process_that_would_listen_there(address):
    """JAX ends in a segmentation fault."""
    with socket.create_server((address, 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(
            UserError, match=rf"port {port} cannot be used \(Address already in use"
        ):
            joined(f"127.0.0.1:{port}", 2, 0).__enter__()


# Two processes with two devices each, and arrays divided among them in several ways, all of which
# are saved as steps 1 and 2. Then it does what it is told.
SAVED = """
import os, signal, sys
from pathlib import Path
import jax, numpy as np
from jax.sharding import AxisType, NamedSharding, PartitionSpec as P
from transformer_jax.config import CheckpointConfig
from transformer_jax.runs.checkpoint import Checkpoints, DamagedCheckpoint
from transformer_jax.runs.integrity import checksums
from transformer_jax.sharding.processes import joined, together
port, me, place, then = int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]), sys.argv[4]
with joined(f"127.0.0.1:{port}", 2, me):
    mesh = jax.make_mesh((2, 2), ("fsdp", "tensor"), axis_types=(AxisType.Auto,) * 2)
    whole = np.random.default_rng(0).normal(size=(4, 60, 80)).astype(np.float32)
    specs = P("fsdp", None, "tensor"), P(None, "fsdp"), P(("fsdp", "tensor")), P("tensor"), P()
    places = {f"w{i}": NamedSharding(mesh, spec) for i, spec in enumerate(specs)}
    params = {
        name: jax.make_array_from_callback(whole.shape, sharding, lambda index: whole[index])
        for name, sharding in places.items()
    }
    print(checksums(params) == checksums(dict.fromkeys(places, whole)))
    rest = {name: params.pop(name) for name in ("w3", "w4")}  # both processes have all of them
    checkpoints = Checkpoints(place, CheckpointConfig())
    for step in (1, 2):
        checkpoints.save(step, params, rest, {"step": step})
    checkpoints.wait()
    if then == "lost":
        wide = np.random.default_rng(1).normal(size=(4000, 2000)).astype(np.float32)
        split = NamedSharding(mesh, P("fsdp"))
        large = jax.make_array_from_callback(wide.shape, split, lambda index: wide[index])
        checkpoints.save(3, {"w": large}, {}, {"step": 3})
        if me == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        checkpoints.wait()
    if me == 0:  # the part of process 1 is cut
        parts = (place / "2/params/ocdbt.process_1/d").iterdir()
        largest = max(parts, key=lambda path: path.stat().st_size)
        os.truncate(largest, largest.stat().st_size // 2)
    together("cut")
    def outline(x):
        return jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=x.sharding)
    like = jax.tree.map(outline, (params, rest))
    again = Checkpoints(place, CheckpointConfig())
    for step in (2, 1):
        try:
            found = again.restore(step, *like)[:2]
            print(checksums(found) == checksums((params, rest)))
        except DamagedCheckpoint as error:
            print(error)
"""


def save_in_two(place: Path, then: str) -> list[subprocess.Popen]:
    port = free_port()
    environment = {**os.environ, "JAX_NUM_CPU_DEVICES": "2", "PYTHONPATH": str(ROOT)}
    return [
        subprocess.Popen(
            [sys.executable, "-c", SAVED, f"{port}", f"{me}", str(place), then], env=environment,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )
        for me in range(2)
    ]  # fmt: skip


@pytest.mark.thorough
def test_a_checkpoint_that_one_process_cannot_read_is_damaged_for_all(tmp_path):
    """They agree on an earlier one. Checksums of divided arrays are those of the whole ones, though
    each process reads its own part.
    """
    processes = save_in_two(tmp_path / "run", "read")
    shown = [process.communicate(timeout=300)[0].splitlines() for process in processes]
    lines = [[line for line in each if not line.startswith("[Gloo]")] for each in shown]
    place = tmp_path / "run/2"
    for me, (same, damaged, restored) in enumerate(lines):
        assert (same, restored) == ("True", "True")
        why = "cannot be read" if me == 1 else "process 1 cannot read it"
        assert damaged.startswith(f"{place}: damaged: {why}")


@pytest.mark.e2e
def test_a_process_lost_in_a_save_leaves_the_checkpoint_before_it(tmp_path):
    """What is half-written is never taken for a checkpoint, and named when it is deleted."""
    processes = save_in_two(tmp_path / "run", "lost")
    codes = wait(processes, 120)
    assert codes[1] == -signal.SIGKILL
    assert codes[0] == 75, processes[0].stderr.read()
    assert "process 1" in processes[0].stderr.read()
    checkpoints = Checkpoints(tmp_path / "run", CheckpointConfig())
    assert checkpoints.steps() == [1, 2]
    (left,) = checkpoints.clean()
    assert left.startswith("3.orbax-checkpoint-tmp")
    here = jax.sharding.SingleDeviceSharding(jax.devices()[0])
    outline = jax.ShapeDtypeStruct((4, 60, 80), np.float32, sharding=here)
    like = [dict.fromkeys(names, outline) for names in (("w0", "w1", "w2"), ("w3", "w4"))]
    params, rest, _ = checkpoints.restore(2, *like)
    for found in (params["w1"], params["w2"], rest["w3"], rest["w4"]):
        np.testing.assert_array_equal(found, params["w0"])
