"""A run that is killed again and again ends as one that nothing ever stopped."""

import random
import signal
import time
from pathlib import Path

import pytest
from trainer import CACHE, assert_same_run, finish, read_steps, start, stop, write_corpus

from transformer_jax.workdir import WorkDir, read_rows


def until(seconds: float):
    end = time.monotonic() + seconds
    return lambda: time.monotonic() > end


class Killed:
    """A run that is stopped at moments of several kinds."""

    def __init__(self, home: Path, cache: Path = CACHE, **changes) -> None:
        self.home, self.cache, self.changes = home, cache, changes
        self.workdir = WorkDir(home / "killed")
        self.codes: list[int] = []

    def saving(self) -> bool:
        return any(self.workdir.checkpoints.glob("*.orbax-checkpoint-tmp*"))

    def building(self) -> bool:
        return any((self.cache / "tokens").glob("*.partial"))

    def stop(self, number: signal.Signals, kind: str, delay: float) -> None:
        """Start, and stop at a moment of a kind; what was saved before stays readable."""
        before = set(read_steps(self.workdir))
        process = start(self.home, "killed", cache=self.cache, **self.changes)
        moment = {"saving": self.saving, "building": self.building}.get(kind) or until(delay)
        if kind == "saving":  # what the last one left is no sign of this one
            for left in self.workdir.checkpoints.glob("*.orbax-checkpoint-tmp*"):
                left.rename(left.with_name("0.deleted"))
        if kind == "anywhere":
            delay = 0.0
        code = stop(process, number, moment, delay)
        assert code is not None, "it ended before the moment came: give it more steps"
        self.codes.append(code)
        after = set(read_steps(self.workdir))
        assert max(after, default=0) >= max(before, default=0)

    def compare(self) -> None:
        assert finish(self.home, "killed", cache=self.cache, **self.changes) == 0
        assert finish(self.home, "whole", **self.changes) == 0
        assert_same_run(self.workdir, WorkDir(self.home / "whole"))
        rows = read_rows(self.workdir.metrics)
        assert rows[-1]["step"] == self.changes["training.steps"]
        assert not any(self.workdir.checkpoints.glob("*.damaged"))


def test_killed_in_a_save(tmp_path):
    """The short case: SIGKILL in the middle of a save."""
    write_corpus(tmp_path / "corpus", 300)
    run = Killed(tmp_path, **{"training.steps": 16})
    run.stop(signal.SIGKILL, "saving", 0.02)
    assert run.codes == [-signal.SIGKILL]
    run.compare()


@pytest.mark.e2e
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_stopped_at_random_moments(tmp_path, number):
    """20 moments: 3 while the cache is being built, 8 while saving, 9 anywhere."""
    write_corpus(tmp_path / "corpus", 20_000)
    generator = random.Random(int(number))
    run = Killed(tmp_path, tmp_path / "cache", **{"training.steps": 2000})
    kinds = ["saving"] * 8 + ["anywhere"] * 9
    generator.shuffle(kinds)
    for kind in ["building"] * 3 + kinds:
        longest = {"saving": 0.15, "building": 0.3, "anywhere": 15.0}[kind]
        run.stop(number, kind, generator.uniform(0, longest))
        print(kind, run.codes[-1], max(read_steps(run.workdir), default=0), flush=True)
    if number == signal.SIGTERM:
        assert set(run.codes) <= {75, -signal.SIGTERM}  # saved, or before training began
        assert run.codes.count(75) >= 8
    else:
        assert set(run.codes) == {-signal.SIGKILL}
    run.compare()
