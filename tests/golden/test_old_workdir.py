"""A work directory from when there was one model: it loads, translates and resumes as it did then.

workdir.tar.xz was left by the code of commit 288fd50 after 6 steps of

    python train.py --config=configs/spelled_numbers.py --config.training.steps=6 ...

whose full command is in its history.jsonl; continuation.json holds that code's translations with
it, and the rows of metrics.jsonl for 3 more steps. Neither is ever recorded again.
"""

import dataclasses
import json
import re
import tarfile
from pathlib import Path

import jax
import pytest
from starts import start_at_random

from transformer_jax.api import load
from transformer_jax.cli import inspect
from transformer_jax.config import Experiment
from transformer_jax.config.convert import from_json, to_json
from transformer_jax.experiments import train as runs
from transformer_jax.runs.workdir import WorkDir, read_rows
from transformer_jax.sharding.mesh import make_mesh
from transformer_jax.training.loop import Outcome

HERE = Path(__file__).parent / "old_workdir"
THEN = json.loads((HERE / "continuation.json").read_text())


@pytest.fixture
def old(tmp_path) -> WorkDir:
    with tarfile.open(HERE / "workdir.tar.xz") as archive:
        archive.extractall(tmp_path / "old", filter="data")
    return WorkDir(tmp_path / "old")


def on_one_device(config):
    return make_mesh(config, jax.devices()[:1])


@pytest.mark.thorough
def test_loads_translates_and_resumes(old, monkeypatch, capsys):
    """The texts are the same; losses and validation agree within 1e-6."""
    assert load(old.path).translate(THEN["lines"]) == THEN["translations"]["6"]
    assert inspect.main([f"--workdir={old.path}"]) == 0
    assert re.search(r"^  6  best  .*loss 3\.225", capsys.readouterr().out, re.M)

    monkeypatch.setenv("TRANSFORMER_JAX_CACHE", str(old.path.parent / "cache"))
    monkeypatch.setattr(runs.process, "use_compilation_cache", lambda: None)
    monkeypatch.setattr(runs, "make_mesh", on_one_device)
    start_at_random(monkeypatch)  # replaced entirely: the run resumes
    before = old.experiment()
    longer = dataclasses.replace(before, training=dataclasses.replace(before.training, steps=9))
    assert runs.run_experiment(longer, old) == Outcome.FINISHED
    rows = [row for row in read_rows(old.metrics) if row["step"] > 6]
    for row, expected in zip(rows, THEN["rows"], strict=True):
        assert row == pytest.approx(expected, rel=1e-6)
    assert load(old.path).translate(THEN["lines"]) == THEN["translations"]["9"]


# One config.json of each past format, named after the last commit that wrote it.
PAST = sorted(HERE.glob("config.*.json"))


@pytest.mark.parametrize("path", PAST, ids=lambda path: path.name)
def test_config_of_a_past_format(path, caplog):
    """Its values are kept, missing fields get defaults, and a warning names some of them."""
    text = path.read_text()
    from_json.cache_clear()
    now, default = json.loads(to_json(from_json(text))), json.loads(to_json(Experiment()))
    lacking = []

    def check(then, now, default, path):
        for key, value in now.items():
            if key not in then:
                assert value == default[key]
                lacking.append(f"{path}.{key}")
            elif isinstance(value, dict):
                check(then[key], value, default[key], f"{path}.{key}")
            else:
                assert value == then[key]
        assert then.keys() <= now.keys()

    check(json.loads(text), now, default, "config")
    more = f" and {len(lacking) - 5} more" if len(lacking) > 5 else ""
    assert f"lacks {', '.join(lacking[:5])}{more}: using the defaults" in caplog.text
