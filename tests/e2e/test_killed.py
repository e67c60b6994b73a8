"""A run that is killed again and again ends like an uninterrupted one."""

import random
import signal
from pathlib import Path

import pytest
from columns import FORMATS, SIDES
from trainer import CACHE, SMALL, assert_same_run, finish, read_steps, start, stop, write_corpus

from transformer_jax.data.sources.files import read_lines
from transformer_jax.runs.workdir import WorkDir, read_rows


class Killed:
    """A run that is stopped at several kinds of moments."""

    def __init__(self, home: Path, cache: Path = CACHE, **changes) -> None:
        self.home, self.cache, self.changes = home, cache, changes
        self.workdir = WorkDir(home / "killed")
        self.codes: list[int] = []

    def newest(self) -> int:
        """Return the newest step, from file names alone."""
        names = [path.name for path in self.workdir.checkpoints.glob("*")]
        return max((int(name) for name in names if name.isdecimal()), default=0)

    def saving(self, least: int) -> bool:
        """Say whether a checkpoint later than `least` is being written right now."""
        partial = self.workdir.checkpoints.glob("*.orbax-checkpoint-tmp*")
        return any(int(path.name.partition(".")[0]) > least for path in partial)

    def building(self) -> bool:
        return any((self.cache / "tokens").glob("*.partial"))

    def stop(self, number: signal.Signals, kind: str, delay: float, saves: int = 0) -> None:
        """Start, and stop at a moment of a kind; earlier saves must stay readable."""
        before = self.newest()
        for left in self.workdir.checkpoints.glob("*.orbax-checkpoint-tmp*"):
            left.rename(left.with_name("0.deleted"))  # else it looks like a save by this process
        least = before + saves * int(SMALL["checkpoint.every_steps"])
        moments = {
            "building": self.building,
            "saving": lambda: self.saving(least),
            "training": lambda: self.newest() > least,
            "anywhere": lambda: True,
        }
        process = start(self.home, "killed", cache=self.cache, **self.changes)
        code = stop(process, number, moments[kind], delay)
        assert code is not None, "it ended before the moment came: give it more steps"
        self.codes.append(code)
        assert max(read_steps(self.workdir), default=0) == self.newest() >= before

    def compare(self) -> None:
        assert finish(self.home, "killed", cache=self.cache, **self.changes) == 0
        assert finish(self.home, "whole", **self.changes) == 0
        assert_same_run(self.workdir, WorkDir(self.home / "whole"))
        rows = read_rows(self.workdir.metrics)
        assert rows[-1]["step"] == self.changes["training.steps"]
        assert not any(self.workdir.checkpoints.glob("*.damaged"))


@pytest.mark.e2e
def test_killed_while_saving(tmp_path):
    """The short case: SIGKILL in the middle of a save. tests/test_damage.py tests what is left."""
    write_corpus(tmp_path / "corpus", 300)
    run = Killed(tmp_path, **{"training.steps": 16})
    run.stop(signal.SIGKILL, "saving", 0.02)
    assert run.codes == [-signal.SIGKILL]
    run.compare()


@pytest.mark.e2e
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_stopped_at_random_moments(tmp_path, number):
    """20 moments: 3 while the cache is being built, 7 in saves, 5 in training, 5 anywhere."""
    write_corpus(tmp_path / "corpus", 20_000)
    generator = random.Random(int(number))
    run = Killed(tmp_path, tmp_path / "cache", **{"training.steps": 2000})
    kinds = ["saving"] * 7 + ["training"] * 5 + ["anywhere"] * 5
    generator.shuffle(kinds)
    for kind in ["building"] * 3 + kinds:
        longest = {"building": 0.3, "saving": 0.2, "training": 3.0, "anywhere": 15.0}[kind]
        run.stop(number, kind, generator.uniform(0, longest), generator.randrange(20))
        print(kind, run.codes[-1], run.newest(), flush=True)
    if number == signal.SIGTERM:
        assert set(run.codes) <= {75, -signal.SIGTERM}  # saved, or before training began
        assert run.codes.count(75) >= 8
    else:
        assert set(run.codes) == {-signal.SIGKILL}
    run.compare()


@pytest.mark.e2e
@pytest.mark.parametrize("form", FORMATS)
def test_killed_with_columns(tmp_path, form):
    """Whatever the format, the run ends like one on files of lines."""
    corpus = tmp_path / "corpus"
    write_corpus(corpus, 300)
    sides = [read_lines(corpus / f"train.{language}") for language in ("de", "en")]
    pairs = [*zip(*sides, strict=True)]
    for number, first in enumerate(range(0, 300, 100)):
        FORMATS[form](corpus / f"part-{number}.{form}", pairs[first : first + 100])
    columns = {"data.train": f"part-*.{form}", "data.columns": ",".join(SIDES)}
    run = Killed(tmp_path, **{"training.steps": 16, **columns})
    run.stop(signal.SIGKILL, "saving", 0.02)
    assert run.codes == [-signal.SIGKILL]
    assert finish(tmp_path, "killed", **run.changes) == 0
    assert finish(tmp_path, "whole", **{"training.steps": 16}) == 0
    assert_same_run(run.workdir, WorkDir(tmp_path / "whole"))
