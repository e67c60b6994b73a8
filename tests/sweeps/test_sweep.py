"""The sweep runner alone, with points whose training is a line of Python."""

import contextlib
import dataclasses
import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from transformer_jax.config import Experiment
from transformer_jax.config.convert import to_json
from transformer_jax.runs.workdir import WorkDir, read_rows
from transformer_jax.sweeps import sweep as sweeps
from transformer_jax.sweeps.points import Point
from transformer_jax.sweeps.sweep import Record, _environment, run

# Stands in for the training program: writes config.json, then runs the given action.
TRAIN = """
import os, pathlib, signal, sys, time
place = pathlib.Path({place!r}); place.mkdir(parents=True, exist_ok=True)
(place / "config.json").write_text({config!r})
(place / "metrics.jsonl").touch()
with open(place / "starts", "a") as file: file.write("x")
{action}
"""


@dataclasses.dataclass(frozen=True)
class Fake(Point):
    action: str = ""

    def train_command(self):
        place = str(self.workdir.path)
        text = TRAIN.format(place=place, config=to_json(self.experiment), action=self.action)
        return [sys.executable, "-c", text]

    def evaluate_command(self, split):
        file = self.workdir.eval / f"{split}.best.json"
        text = f"import pathlib; p = pathlib.Path({str(file)!r}); p.parent.mkdir();"
        text += """p.write_text('{"scores": {}}')"""
        return [sys.executable, "-c", text]

    @property
    def starts(self) -> int:
        return len((self.workdir.path / "starts").read_text())


class Watcher:
    def __init__(self):
        self.shown = []

    def started(self, point, program):
        self.shown.append((point.name, program))

    def waits(self, point):
        self.shown.append((point.name, "waits"))

    def running(self, points):
        pass

    def ended(self, point, code, last_line):
        self.shown.append((point.name, code, last_line))


@pytest.fixture
def sweep(tmp_path):
    """Make points that run these actions, and a function that runs the sweep."""

    def make(*actions, jobs=1, split=None):
        points = [
            Fake("", {"seed": i}, Experiment(seed=i), WorkDir(tmp_path / f"seed={i}"), (), action)
            for i, action in enumerate(actions)
        ]

        def go():
            watcher = Watcher()
            return run(points, tmp_path, jobs, split, watcher), watcher.shown

        return points, go

    return make


def test_points_run_in_order_and_only_once(sweep, tmp_path):
    points, go = sweep("", "", "")
    code, shown = go()
    assert code == 0
    assert shown == [
        item for i in range(3) for item in ((f"seed={i}", "train"), (f"seed={i}", 0, ""))
    ]
    assert go() == (0, [])
    assert [point.starts for point in points] == [1, 1, 1]
    rows = read_rows(tmp_path / "sweep.jsonl", "code")
    assert [(row["point"], row["program"], row["code"]) for row in rows] == [
        (f"seed={i}", "train", 0) for i in range(3)
    ]
    assert all(row["seconds"] > 0 for row in rows)


def test_a_failed_point_does_not_stop_the_others(sweep, tmp_path):
    points, go = sweep(
        "sys.exit('error: no data\\n\\n')", "", "sys.exit(2)", "os.kill(os.getpid(), 9)"
    )
    code, shown = go()
    ends = [item for item in shown if len(item) == 3]
    assert ends == [("seed=0", 1, "error: no data"), ("seed=1", 0, ""), ("seed=2", 2, ""),
                    ("seed=3", 137, "")]  # fmt: skip
    assert code == 137
    assert (tmp_path / "logs" / "seed=0.log").read_text() == "error: no data\n\n\n"
    code, _ = go()  # failed points are restarted, finished ones are not
    assert [point.starts for point in points] == [2, 1, 2, 2]


def test_a_diverged_point_is_neither_retried_nor_scored(sweep):
    points, go = sweep("sys.exit(70)", "", split="test")
    assert [go()[0], go()[0]] == [70, 70]
    assert [point.starts for point in points] == [1, 1]
    assert not points[0].workdir.eval.exists()


def test_a_point_whose_config_changed_is_resumed(sweep):
    points, go = sweep("")
    go()
    other = dataclasses.replace(points[0].experiment, training=dataclasses.replace(
        points[0].experiment.training, steps=7))  # fmt: skip
    points[0] = dataclasses.replace(points[0], experiment=other)
    assert go()[0] == 0
    assert points[0].starts == 2


def test_points_are_scored_once_and_again_after_more_training(sweep):
    points, go = sweep("", split="test")
    assert go()[1] == [("seed=0", "train"), ("seed=0", "evaluate"), ("seed=0", 0, "")]
    assert go()[1] == []
    later = time.time() + 9
    os.utime(points[0].workdir.metrics, (later, later))
    record = Record(points[0].workdir.path.parent)
    assert [name for name, _ in record.due(points[0], "test")] == ["evaluate"]
    assert [name for name, _ in record.due(points[0], "validation")] == ["evaluate"]
    assert record.due(points[0], None) == []


def test_points_run_concurrently_up_to_the_number_of_jobs(sweep, tmp_path):
    """Each of two waits until the other has started; a third has to wait for a free job."""
    meet = (
        "(place.parent / f'here{n}').touch()\n"
        "while not (place.parent / f'here{m}').exists(): time.sleep(0.01)"
    )
    actions = [f"n, m = {n}, {1 - n}\n{meet}" for n in range(2)]
    third = "sys.exit(0 if (place.parent / 'here0').exists() else 3)"
    _, go = sweep(*actions, third, jobs=2)
    assert go()[0] == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_the_running_point_and_starts_no_other(sweep, number):
    wait = (
        "signal.signal(signal.SIGTERM, lambda *_: sys.exit(75))\n"
        "signal.signal(signal.SIGINT, lambda *_: sys.exit(75))\n"
        "if (place / 'starts').read_text() == 'x':\n"
        "    (place / 'ready').touch(); time.sleep(60)"
    )
    points, go = sweep(wait, "")

    def press():
        while not (points[0].workdir.path / "ready").exists():
            time.sleep(0.01)
        os.kill(os.getpid(), number)

    thread = threading.Thread(target=press)
    thread.start()
    before = signal.getsignal(number)
    code, shown = go()
    thread.join()
    assert code == 75
    assert shown == [("seed=0", "train"), ("seed=0", 75, "")]
    assert signal.getsignal(number) is before
    assert go()[0] == 0  # the same command resumes
    assert [point.starts for point in points] == [2, 1]


def test_the_sweep_waits_for_a_trainer_that_outlived_a_killed_sweep(sweep):
    points, go = sweep("")
    lock = points[0].workdir.path / ".lock"
    lock.parent.mkdir()
    hold = f"import fcntl, time; f = open({str(lock)!r}, 'w'); fcntl.flock(f, fcntl.LOCK_EX)"
    outlived = subprocess.Popen(
        [sys.executable, "-c", f"{hold}; print('held', flush=True); time.sleep(1)"],
        stdout=subprocess.PIPE,
    )
    assert outlived.stdout.readline() == b"held\n"
    start = time.monotonic()
    code, shown = go()
    assert (code, shown[0]) == (0, ("seed=0", "waits"))
    assert time.monotonic() - start > 0.8
    outlived.communicate()


LOCK = """
import fcntl
lock = open(place / ".lock", "a")
try:
    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
except OSError:
    print("error: another trainer is running here", file=sys.stderr)
    sys.exit(2)
"""


@pytest.mark.parametrize("outcome", [0, 70])
def test_a_point_that_another_sweep_was_quicker_to_start_is_left_to_it(sweep, tmp_path, outcome):
    """Its trainer ends as refused; what the other one made of the point is its outcome here."""
    points, _ = sweep(
        "if (place / 'starts').read_text() != 'x':\n    sys.exit(1)  # it was started again\n"
        "print('error: another trainer is running here', file=sys.stderr); sys.exit(2)", ""
    )  # fmt: skip
    watcher, record = Watcher(), Record(tmp_path)
    watcher.waits = lambda point: record.add(point, "train", outcome, 1.0)  # by the other sweep
    assert run(points, tmp_path, 1, None, watcher) == outcome
    assert watcher.shown[1] == ("seed=0", outcome, "error: another trainer is running here")
    assert [point.starts for point in points] == [1, 1]


def test_two_sweeps_in_one_directory_share_its_points(sweep, tmp_path):
    """Each point is trained once, by one of them, and both end well."""
    seconds = f"{LOCK}\ntime.sleep(0.3)"
    points, go = sweep(seconds, seconds)
    other = threading.Thread(target=lambda: ended.append(_alone(points, tmp_path)))
    ended: list[int] = []
    other.start()
    ended.append(go()[0])
    other.join()
    assert ended == [0, 0]
    rows = read_rows(tmp_path / "sweep.jsonl", "code")
    assert [row["code"] for row in rows] == [0] * len(rows)
    assert {row["point"] for row in rows} == {"seed=0", "seed=1"}


def _alone(points, directory) -> int:
    """Run a sweep outside the main thread, which alone may handle signals."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sweeps, "_stop_signals", lambda jobs: contextlib.nullcontext([]))
        return run(points, directory, 1, None, Watcher())


def test_a_point_that_was_killed_in_further_training_is_resumed(sweep):
    (point,), go = sweep("")
    go()
    point.workdir.history.write_text(
        '{"step": 0, "event": "start"}\n{"step": 9, "event": "end", "outcome": "finished"}\n'
    )
    assert go()[1] == []
    with point.workdir.history.open("a") as file:
        file.write('{"step": 9, "event": "start"}\n')
    go()
    assert point.starts == 2


@pytest.mark.parametrize(("outcome", "starts"), [("finished", 0), ("interrupted", 1)])
def test_a_point_finished_by_a_cluster_job_is_not_trained_again(sweep, outcome, starts):
    """Its trainer recorded the outcome, in a directory that this sweep has no record of."""
    (point,), go = sweep("")
    with point.workdir.claim(point.experiment):
        point.workdir.history.write_text(
            '{"step": 0, "event": "start"}\n'
            f'{{"step": 9, "event": "end", "outcome": "{outcome}"}}\n'
        )
        (point.workdir.path / "starts").touch()
    assert go()[0] == 0
    assert point.starts == starts


def test_a_point_finished_under_other_settings_is_not_scored(sweep):
    """Its directory keeps its settings, and scores under those are not the requested ones."""
    other = dataclasses.replace(Experiment(), seed=7)
    action = f"(place / 'config.json').write_text({to_json(other)!r}); print('not changed')"
    (point,), go = sweep(action, split="test")
    code, shown = go()
    assert (code, shown[-1]) == (2, ("seed=0", 2, "not changed"))
    assert not point.workdir.eval.exists()


def test_a_truncated_record_does_not_mark_a_point_as_finished(sweep, tmp_path):
    points, go = sweep("", "")
    go()
    path = tmp_path / "sweep.jsonl"
    path.write_text(path.read_text()[:-20])
    assert go()[0] == 0
    assert [point.starts for point in points] == [1, 2]


@pytest.mark.parametrize(
    ("named", "jobs", "expected"),
    [(None, 2, [None, None]), ("0", 2, ["0", "0"]), ("0,1,2,3", 2, ["0,2", "1,3"]),
     ("4,5", 2, ["4", "5"]), ("4,5", 1, ["4,5"])],
)  # fmt: skip
def test_gpus_are_divided_among_jobs(named, jobs, expected, monkeypatch):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if named is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", named)
    found = [_environment(slot, jobs).get("CUDA_VISIBLE_DEVICES") for slot in range(jobs)]
    assert found == expected


# --- real training ------------------------------------------------------------------------------

ROOT = Path(__file__).parents[2]
TINY = {
    "model.d_model": 16, "model.num_heads": 2, "model.num_encoder_layers": 1,
    "model.num_decoder_layers": 1, "data.num_examples": "(300,20,20)", "data.max_number": 1000,
    "tokenizer.vocab_size": 100, "data.max_length": 24, "data.tokens_per_batch": 256,
    "data.num_buckets": 1, "training.steps": 30, "training.log_every": 5,
    "checkpoint.every_steps": 5, "evaluation.every_steps": 15, "evaluation.bleu_sentences": 4,
    "decoding.max_extra_length": 4,
}  # fmt: skip


def command(place: Path) -> list[str]:
    """Return the command for six points; the two with a learning rate of 100 diverge, as weight
    decay makes parameters a hundred times larger in each of the first steps.
    """
    return [
        sys.executable, "-m", "transformer_jax.cli.main", "sweep",
        f"--config={ROOT}/configs/spelled_numbers.py", f"--workdir={place}", "--evaluate=test",
        *(f"--config.{path}={value}" for path, value in TINY.items()),
        "--config.optimizer.weight_decay=10", "--config.optimizer.schedule=paper",
        "--config.optimizer.warmup_steps=1", "--grid=model.d_ff=16,32",
        "--grid=optimizer.learning_rate=0.01,0.02,1e2",
    ]  # fmt: skip


def tree(pid: int) -> list[int]:
    """Return a process and its descendants."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [pid, *(below for child in children for below in tree(int(child)))]


def without_minutes(table: str) -> list[list[str]]:
    head, *rows = [line.split(",") for line in table.splitlines()]
    minutes = head.index("minutes")
    return [row[:minutes] + row[minutes + 1 :] for row in (head, *rows)]


@pytest.mark.e2e
def test_a_killed_and_resumed_sweep_ends_with_the_same_table(tmp_path, monkeypatch):
    monkeypatch.setenv("TRANSFORMER_JAX_CACHE", str(tmp_path / "cache"))
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    uninterrupted = subprocess.run(command(whole), capture_output=True, text=True)
    assert uninterrupted.returncode == 70, uninterrupted.stderr  # two points diverged
    process = subprocess.Popen(command(killed), stderr=subprocess.DEVNULL)
    third = killed / "model.d_ff=32,optimizer.learning_rate=0.01" / "checkpoints"
    while not list(third.glob("[0-9]*")):
        assert process.poll() is None
        time.sleep(0.02)
    for pid in tree(process.pid):
        os.kill(pid, signal.SIGKILL)
    process.wait()
    assert not (killed / "table.csv").exists()
    done = len(read_rows(killed / "sweep.jsonl", "code"))
    resumed = subprocess.run(command(killed), capture_output=True, text=True)
    assert resumed.returncode == 70
    assert f"6 points, {3} already finished" in resumed.stderr
    assert done < len(read_rows(killed / "sweep.jsonl", "code"))
    tables = [(place / "table.csv").read_text() for place in (whole, killed)]
    assert without_minutes(tables[0]) == without_minutes(tables[1])
    assert tables[0].count("diverged") == 2
    for name in ("metrics.jsonl", "eval/test.best.hyp"):
        for one in whole.glob(f"*0.0*/{name}"):
            assert one.read_bytes() == (killed / one.relative_to(whole)).read_bytes()
    assert json.loads((whole / "sweep.jsonl").read_text().splitlines()[0])["code"] == 0
