"""A work directory belongs to one experiment and one trainer at a time."""

import dataclasses
import json
import math
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from transformer_jax.cli.arguments import program
from transformer_jax.config import Experiment, TokenizerConfig
from transformer_jax.data.codecs.pair import train_pair
from transformer_jax.disk import cache_dir, write_text
from transformer_jax.door import from_json, to_json
from transformer_jax.errors import UserError
from transformer_jax.workdir import (
    WorkDir,
    WorkDirGone,
    append_row,
    default_workdir,
    read_rows,
    write_rows,
)


def changed(group: str, **values) -> Experiment:
    if not group:
        return dataclasses.replace(Experiment(), **values)
    part = dataclasses.replace(getattr(Experiment(), group), **values)
    return dataclasses.replace(Experiment(), **{group: part})


@pytest.fixture
def lived_in(tmp_path) -> WorkDir:
    workdir = WorkDir(tmp_path / "run")
    with workdir.claim(Experiment()):
        pass
    return workdir


def refusal(call, *arguments) -> str:
    with pytest.raises(UserError) as caught:
        call(*arguments)
    assert "\n" not in str(caught.value)
    return str(caught.value)


# --- whose it is --------------------------------------------------------------------------------


def test_nothing_is_created_before_the_claim(tmp_path):
    workdir = WorkDir(tmp_path / "deep" / "run")
    assert workdir.check(Experiment()) == []
    assert list(tmp_path.iterdir()) == []
    with workdir.claim(Experiment()):
        assert workdir.experiment() == Experiment()
    assert from_json(workdir.config.read_text()) == Experiment()


def test_paths_are_those_of_the_contract(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    workdir = WorkDir("run")
    names = {name: str(path.relative_to(tmp_path)) for name, path in vars(workdir).items()}
    assert names == {
        "path": "run", "config": "run/config.json", "parts": "run/parts",
        "checkpoints": "run/checkpoints", "metrics": "run/metrics.jsonl",
        "timings": "run/timings.jsonl", "history": "run/history.jsonl", "log": "run/train.log",
        "tensorboard": "run/tensorboard", "eval": "run/eval",
    }  # fmt: skip


def test_a_second_claim_is_refused_while_the_first_lasts(tmp_path):
    workdir = WorkDir(tmp_path)
    with workdir.claim(Experiment()):
        text = workdir.config.read_text()
        with pytest.raises(UserError, match=r"another trainer is running here$"):
            WorkDir(tmp_path).claim(changed("", seed=1)).__enter__()
        assert workdir.config.read_text() == text
    with WorkDir(tmp_path).claim(Experiment()):
        pass


def test_the_claim_of_another_process_ends_with_it(tmp_path):
    program = (
        "import sys; from transformer_jax.workdir import WorkDir, Experiment\n"
        "with WorkDir(sys.argv[1]).claim(Experiment()): print('claimed', flush=True); input()"
    )
    command = [sys.executable, "-c", program, str(tmp_path)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as other:
        assert other.stdout.readline() == b"claimed\n"
        with pytest.raises(UserError, match=r"another trainer is running here$"):
            WorkDir(tmp_path).claim(Experiment()).__enter__()
        other.kill()
        other.wait()
        with WorkDir(tmp_path).claim(Experiment()):
            pass


def test_a_claim_checks_again(tmp_path):
    """Whoever was held up between the check and the claim finds another experiment there."""
    workdir = WorkDir(tmp_path / "run")
    assert workdir.check(changed("", seed=1)) == []
    with WorkDir(tmp_path / "run").claim(Experiment()):
        pass
    before = workdir.config.read_bytes()
    message = refusal(workdir.claim(changed("", seed=1)).__enter__)
    assert message.endswith("undo: seed: 0 -> 1")
    assert workdir.config.read_bytes() == before


@pytest.mark.parametrize("change", ["deleted", "moved", "replaced"])
def test_what_was_claimed_is_noticed_to_be_gone(lived_in, change):
    with lived_in.claim(Experiment()):
        lived_in.check_claim()
        lived_in.path.rename(lived_in.path.with_name("moved"))
        if change == "deleted":
            shutil.rmtree(lived_in.path.with_name("moved"))
        if change == "replaced":
            lived_in.path.mkdir()
        with pytest.raises(WorkDirGone, match="was deleted or moved while a run was training"):
            lived_in.check_claim()
    lived_in.check_claim()  # claims nothing any more


@pytest.mark.parametrize("name", ["x" * 300, "/".join(["x" * 200] * 30)])
def test_a_name_that_the_file_system_does_not_take(tmp_path, name):
    message = refusal(WorkDir, tmp_path / name)
    assert message.endswith("...: File name too long; name another")


def test_a_disk_that_fails_at_the_start_has_its_own_code(tmp_path, monkeypatch, capsys):
    """74 and not 2, from making the directory on."""
    for name in ("mkdir", "fsync"):
        with monkeypatch.context() as patch:
            patch.setattr(Path if name == "mkdir" else os, name, fail)
            workdir = WorkDir(tmp_path / name)
            with pytest.raises(SystemExit) as caught:
                program(lambda _, place=workdir: place.claim(Experiment()).__enter__())()
        assert caught.value.code == 74
        assert capsys.readouterr().err.startswith(f"error: {workdir.path}")


def test_the_same_experiment_may_go_on(lived_in):
    assert lived_in.check(Experiment()) == []


@pytest.mark.parametrize(
    ("group", "values"),
    [
        ("training", {"steps": 7}),
        ("training", {"max_minutes": 1.0}),
        ("training", {"early_stopping": 3}),
        ("training", {"log_every": 7}),
        ("training", {"max_bad_steps": 7}),
        ("checkpoint", {"keep_last": 7}),
        ("checkpoint", {"every_steps": 500}),
        ("evaluation", {"checkpoint": "last"}),
        ("decoding", {"beam_size": 7}),
        ("mesh", {"data": 1}),
        ("profile", {"steps": (10, 15)}),
        ("model", {"layer_loop": "scan"}),
        ("model", {"remat": "full"}),
        ("model", {"attention": "fused"}),
        ("data", {"directory": "elsewhere"}),
        ("data", {"how_to_get": "ask"}),
        ("data", {"test": ("dev",)}),
    ],
)
def test_what_a_continued_run_may_change(lived_in, group, values):
    ((name, value),) = values.items()
    old = getattr(getattr(Experiment(), group), name)
    assert lived_in.check(changed(group, **values)) == [f"{group}.{name}: {old!r} -> {value!r}"]


@pytest.mark.parametrize(
    ("group", "values"),
    [
        ("", {"seed": 1}),
        ("model", {"d_ff": 7}),
        ("model", {"dropout_rate": 0.2}),
        ("tokenizer", {"vocab_size": 777}),
        ("data", {"train": ("other",)}),
        ("data", {"tokens_per_batch": 30_000}),
        ("data", {"source": "tfds"}),
        ("optimizer", {"warmup_steps": 7}),
        ("training", {"label_smoothing": 0.2}),
        ("training", {"smoothing": "uniform"}),
        ("training", {"accumulation_steps": 2}),
        # The best checkpoint would be chosen among scores of two kinds.
        ("data", {"validation": ("dev",)}),
        ("checkpoint", {"best_by": "loss"}),
        ("evaluation", {"bleu_sentences": 7}),
        ("evaluation", {"bleu_tokenize": "intl"}),
        ("evaluation", {"lowercase": True}),
    ],
)
def test_what_it_may_not(lived_in, group, values):
    ((name, value),) = values.items()
    path = f"{group}.{name}".removeprefix(".")
    message = refusal(lived_in.check, changed(group, **values))
    assert message.startswith(f"{lived_in.path}: holds another experiment; use another --workdir")
    assert message.endswith(f"{path}: {_default(path)!r} -> {value!r}")


def _default(path: str):
    value = Experiment()
    for name in path.split("."):
        value = getattr(value, name)
    return value


def test_all_refused_fields_are_named_at_once_and_allowed_ones_are_not(lived_in):
    other = dataclasses.replace(
        changed("model", d_ff=7), seed=1, training=changed("training", steps=7).training
    )
    message = refusal(lived_in.check, other)
    assert message.endswith("undo: seed: 0 -> 1; model.d_ff: 2048 -> 7")


def test_checking_changes_nothing(lived_in):
    before = lived_in.config.read_bytes()
    lived_in.check(changed("training", steps=7))
    refusal(lived_in.check, changed("", seed=1))
    assert lived_in.config.read_bytes() == before
    with lived_in.claim(changed("training", steps=7)) as lives_here:
        assert lives_here == Experiment()
        assert lived_in.config.read_bytes() == before  # only a run that goes on takes it over
        lived_in.write_config(changed("training", steps=7))
    assert lived_in.experiment().training.steps == 7


def test_a_file_is_no_work_directory(tmp_path):
    path = tmp_path / "run"
    path.write_text("mine")
    message = f"--workdir={path}: is a file; name a directory"
    assert refusal(WorkDir(path).check, Experiment()) == message
    below = WorkDir(path / "run")
    assert "cannot be created (" in refusal(below.claim(Experiment()).__enter__)
    assert path.read_text() == "mine"


def test_checkpoints_without_a_config_are_left_alone(tmp_path):
    (tmp_path / "checkpoints").mkdir()
    message = refusal(WorkDir(tmp_path).check, Experiment())
    assert message == f"{tmp_path}: has checkpoints but no config.json; use another"


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (None, "no config.json here; train first, or check the path"),
        (b"", "config.json: Expecting value: line 1 column 1 (char 0)"),
        (b'{"seeds": 1}', "config.json: config.seeds: unknown field (did you mean 'seed'?)"),
        (b"3", "config.json: config=3: must be a group of fields"),
        (b'{"model": ' + 100_000 * b"[", "config.json: config: nested too deeply; groups of"),
        (b"\xff", "config.json: 'utf-8' codec can't decode byte 0xff in position 0"),
    ],
)
def test_a_config_that_cannot_be_read(tmp_path, raw, message):
    workdir = WorkDir(tmp_path)
    if raw is not None:
        workdir.config.write_bytes(raw)
    assert message in refusal(workdir.experiment)


def test_a_config_of_another_version(lived_in):
    values = json.loads(lived_in.config.read_text())
    values["model"]["old_field"] = values["model"].pop("d_ff")
    lived_in.config.write_text(json.dumps(values))
    assert refusal(lived_in.experiment) == (
        f"{lived_in.config}: config.model.old_field: unknown field"
    )


# --- rows ---------------------------------------------------------------------------------------


def test_rows_are_json_without_nan(tmp_path):
    path = tmp_path / "rows"
    rows = [
        {"step": 1, "loss": math.nan, "name": "ä"},
        {"step": 2, "loss": math.inf, "low": -math.inf},
        {"step": 3, "loss": 0.1 + 0.2},
    ]
    for row in rows:
        append_row(path, row)
    text = path.read_text()
    assert text.count("\n") == 3
    assert "NaN" not in text
    assert "Infinity" not in text
    assert read_rows(path) == [
        {"step": 1, "loss": None, "name": "ä"},
        {"step": 2, "loss": None, "low": None},
        {"step": 3, "loss": 0.1 + 0.2},
    ]


def test_a_last_line_that_was_cut_is_left_out(tmp_path):
    path = tmp_path / "rows"
    for step in (1, 2, 3):
        append_row(path, {"step": step, "text": "line\u2028end"})
    whole = path.read_bytes()
    for cut in range(1, len(whole) // 3 - 1):
        path.write_bytes(whole[: -1 - cut])
        assert [row["step"] for row in read_rows(path)] == [1, 2]
    write_rows(path, read_rows(path))
    append_row(path, {"step": 3})
    assert [row["step"] for row in read_rows(path)] == [1, 2, 3]


def test_rows_of_no_file(tmp_path):
    assert read_rows(tmp_path / "none") == []
    assert list(tmp_path.iterdir()) == []


# --- places -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("spec", "place"),
    [
        ("configs/multi30k.py", "runs/multi30k"),
        ("configs/multi30k.py:lc", "runs/multi30k-lc"),
        ("/some/where/mine.py", "runs/mine"),
        ("mine.py:", "runs/mine"),
    ],
)
def test_default_workdir(spec, place):
    assert default_workdir(spec) == place


def test_the_config_of_a_run_has_no_workdir_of_its_own(tmp_path):
    with pytest.raises(UserError, match=f"--config={tmp_path}: is a run; name a new directory"):
        default_workdir(str(tmp_path))


def test_cache_dir(monkeypatch):
    monkeypatch.setenv("TRANSFORMER_JAX_CACHE", "/some/where")
    assert cache_dir() == Path("/some/where")
    monkeypatch.delenv("TRANSFORMER_JAX_CACHE")
    monkeypatch.setenv("HOME", "/home/somebody")
    assert cache_dir() == Path("/home/somebody/.cache/transformer_jax")


def fail(*_, **__) -> None:
    raise OSError(28, "full")


def test_what_is_there_already_needs_no_room(tmp_path, monkeypatch):
    """A run that goes on writes its tokenizer and its rows anew only where they changed."""
    tokenizers = train_pair(TokenizerConfig(vocab_size=8), ["ab ab b"], ["ab a"])
    append_row(tmp_path / "rows", {"step": 1, "loss": 0.1 + 0.2})
    tokenizers.save(tmp_path)
    monkeypatch.setattr(os, "fsync", fail)
    tokenizers.save(tmp_path)
    write_rows(tmp_path / "rows", read_rows(tmp_path / "rows"))


def test_a_file_is_written_whole_or_not_at_all(tmp_path, monkeypatch):
    path = tmp_path / "config.json"
    write_text(path, "old")
    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="full"):
        write_text(path, "new")
    monkeypatch.undo()
    assert [entry.name for entry in tmp_path.iterdir()] == ["config.json"]
    assert path.read_text() == "old"
    write_text(path, to_json(Experiment()))
    assert [entry.name for entry in tmp_path.iterdir()] == ["config.json"]
