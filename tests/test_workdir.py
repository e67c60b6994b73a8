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

from transformer_jax.base.disk import cache_dir, write_text
from transformer_jax.base.errors import UserError
from transformer_jax.cli.arguments import program
from transformer_jax.config import Experiment, TokenizerConfig
from transformer_jax.config.convert import from_json, to_json
from transformer_jax.data.codecs.pair import train_pair
from transformer_jax.runs.workdir import (
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
def existing(tmp_path) -> WorkDir:
    workdir = WorkDir(tmp_path / "run")
    with workdir.claim(Experiment()):
        pass
    return workdir


def refusal(call, *arguments) -> str:
    with pytest.raises(UserError) as caught:
        call(*arguments)
    assert "\n" not in str(caught.value)
    return str(caught.value)


# --- ownership ----------------------------------------------------------------------------------


def test_nothing_is_created_before_the_claim(tmp_path):
    workdir = WorkDir(tmp_path / "deep" / "run")
    assert workdir.check(Experiment()) == []
    assert list(tmp_path.iterdir()) == []
    with workdir.claim(Experiment()):
        assert workdir.experiment() == Experiment()
    assert from_json(workdir.config.read_text()) == Experiment()


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("runs/a\\b", r"a path with a backslash; name another directory, or a symbolic link"),
        ("a\\b/run", "a path with a backslash"),
        ("runs/\udcff", "a path that is not UTF-8"),
        ("/s3/run", "a path that begins like one of cloud storage"),
        ("runs/gs:/run", "a path that begins like one of cloud storage"),
    ],
)
def test_paths_below_which_checkpoints_would_be_lost_are_refused(path, reason):
    message = refusal(WorkDir, path)
    assert message.startswith("--workdir=/")
    assert f"cannot be stored below {reason}" in message
    message.encode()


def test_a_symbolic_link_makes_any_directory_fit(tmp_path):
    (tmp_path / "a\\b").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "a\\b")
    assert WorkDir(tmp_path / "link").path == tmp_path / "link"


def test_paths_are_those_of_the_contract(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    workdir = WorkDir("run")
    paths = dict(vars(workdir))
    paths |= paths.pop("reports")
    names = {name: str(path.relative_to(tmp_path)) for name, path in paths.items()}
    assert names == {
        "path": "run", "config": "run/config.json", "parts": "run/parts",
        "checkpoints": "run/checkpoints", "metrics": "run/metrics.jsonl",
        "trackers": "run/trackers",
        "timings": "run/timings.jsonl", "history": "run/history.jsonl",
        "answers": "run/answers.jsonl", "log": "run/train.log",
        "tensorboard": "run/tensorboard", "eval": "run/eval",
        "busiest_expert": "run/expert_loads.jsonl",
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


def test_the_claim_of_another_process_ends_with_the_process(tmp_path):
    program = (
        "import sys; from transformer_jax.runs.workdir import WorkDir, Experiment\n"
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


def test_a_claim_repeats_the_check(tmp_path):
    """Another experiment may have claimed the directory between the check and the claim."""
    workdir = WorkDir(tmp_path / "run")
    assert workdir.check(changed("", seed=1)) == []
    with WorkDir(tmp_path / "run").claim(Experiment()):
        pass
    before = workdir.config.read_bytes()
    message = refusal(workdir.claim(changed("", seed=1)).__enter__)
    assert message.endswith("undo: seed: 0 -> 1")
    assert workdir.config.read_bytes() == before


@pytest.mark.parametrize("change", ["deleted", "moved", "replaced"])
def test_loss_of_a_claimed_directory_is_detected(existing, change):
    with existing.claim(Experiment()):
        existing.check_claim()
        existing.path.rename(existing.path.with_name("moved"))
        if change == "deleted":
            shutil.rmtree(existing.path.with_name("moved"))
        if change == "replaced":
            existing.path.mkdir()
        with pytest.raises(WorkDirGone, match="was deleted or moved while a run was training"):
            existing.check_claim()
    existing.check_claim()  # nothing is claimed any more


@pytest.mark.parametrize("name", ["x" * 300, "/".join(["x" * 200] * 30)])
def test_names_too_long_for_the_file_system_are_rejected(tmp_path, name):
    message = refusal(WorkDir, tmp_path / name)
    assert message.endswith("...: File name too long; name another")


def test_a_disk_failure_at_the_start_has_its_own_exit_code(tmp_path, monkeypatch, capsys):
    """74 and not 2, from creating the directory onwards."""
    for name in ("mkdir", "fsync"):
        with monkeypatch.context() as patch:
            patch.setattr(Path if name == "mkdir" else os, name, fail)
            workdir = WorkDir(tmp_path / name)
            with pytest.raises(SystemExit) as caught:
                program(lambda _, place=workdir: place.claim(Experiment()).__enter__())()
        assert caught.value.code == 74
        assert capsys.readouterr().err.startswith(f"error: {workdir.path}")


def test_the_same_experiment_may_resume(existing):
    assert existing.check(Experiment()) == []


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
def test_allowed_changes_are_listed(existing, group, values):
    ((name, value),) = values.items()
    old = getattr(getattr(Experiment(), group), name)
    assert existing.check(changed(group, **values)) == [f"{group}.{name}: {old!r} -> {value!r}"]


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
        # The best checkpoint would be chosen by scores of two kinds.
        ("data", {"validation": ("dev",)}),
        ("checkpoint", {"best_by": "loss"}),
        ("evaluation", {"bleu_sentences": 7}),
        ("evaluation", {"bleu_tokenize": "intl"}),
        ("evaluation", {"lowercase": True}),
    ],
)
def test_other_changes_are_rejected(existing, group, values):
    ((name, value),) = values.items()
    path = f"{group}.{name}".removeprefix(".")
    message = refusal(existing.check, changed(group, **values))
    assert message.startswith(f"{existing.path}: holds another experiment; use another --workdir")
    assert message.endswith(f"{path}: {_default(path)!r} -> {value!r}")


def _default(path: str):
    value = Experiment()
    for name in path.split("."):
        value = getattr(value, name)
    return value


def test_the_error_names_all_rejected_fields_and_no_allowed_ones(existing):
    other = dataclasses.replace(
        changed("model", d_ff=7), seed=1, training=changed("training", steps=7).training
    )
    message = refusal(existing.check, other)
    assert message.endswith("undo: seed: 0 -> 1; model.d_ff: 2048 -> 7")


def test_checking_and_claiming_do_not_change_the_config(existing):
    before = existing.config.read_bytes()
    existing.check(changed("training", steps=7))
    refusal(existing.check, changed("", seed=1))
    assert existing.config.read_bytes() == before
    with existing.claim(changed("training", steps=7)) as stored:
        assert stored == Experiment()
        assert existing.config.read_bytes() == before  # only a run that resumes updates it
        existing.write_config(changed("training", steps=7))
    assert existing.experiment().training.steps == 7


def test_a_file_is_rejected_as_a_work_directory(tmp_path):
    path = tmp_path / "run"
    path.write_text("mine")
    message = f"--workdir={path}: is a file; name a directory"
    assert refusal(WorkDir(path).check, Experiment()) == message
    below = WorkDir(path / "run")
    assert "cannot be created (" in refusal(below.claim(Experiment()).__enter__)
    assert path.read_text() == "mine"


def test_a_directory_with_checkpoints_but_no_config_is_rejected(tmp_path):
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
def test_an_unreadable_config_is_rejected(tmp_path, raw, message):
    workdir = WorkDir(tmp_path)
    if raw is not None:
        workdir.config.write_bytes(raw)
    assert message in refusal(workdir.experiment)


def test_a_config_of_another_version_is_rejected(existing):
    values = json.loads(existing.config.read_text())
    values["model"]["old_field"] = values["model"].pop("d_ff")
    existing.config.write_text(json.dumps(values))
    assert refusal(existing.experiment) == (
        f"{existing.config}: config.model.old_field: unknown field"
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


def test_a_truncated_last_line_is_ignored(tmp_path):
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


def test_a_missing_file_has_no_rows(tmp_path):
    assert read_rows(tmp_path / "none") == []
    assert list(tmp_path.iterdir()) == []


# --- paths and files ----------------------------------------------------------------------------


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


def test_a_run_given_as_config_has_no_default_workdir(tmp_path):
    with pytest.raises(UserError, match=f"--config={tmp_path}: is a run; name a new directory"):
        default_workdir(str(tmp_path))


def test_cache_dir(monkeypatch):
    monkeypatch.setenv("TRANSFORMER_JAX_CACHE", "/some/where")
    assert cache_dir() == Path("/some/where")
    monkeypatch.delenv("TRANSFORMER_JAX_CACHE")
    monkeypatch.setenv("HOME", "/home/somebody")
    assert cache_dir() == Path("/home/somebody/.cache/transformer_jax")


def test_two_processes_may_write_a_file_at_a_time(tmp_path, monkeypatch):
    """Neither fails, and the file is whole: what the last one wrote."""
    path, flush = tmp_path / "x", os.fsync

    def other(file) -> None:
        monkeypatch.setattr(os, "fsync", flush)
        write_text(path, "of the other")
        flush(file)

    monkeypatch.setattr(os, "fsync", other)
    write_text(path, "mine")
    assert path.read_text() == "mine"
    assert [x.name for x in tmp_path.iterdir()] == ["x"]


def fail(*_, **__) -> None:
    raise OSError(28, "full")


def test_unchanged_files_are_not_rewritten(tmp_path, monkeypatch):
    """A resumed run rewrites its tokenizer and its rows only where they changed."""
    tokenizers = train_pair(TokenizerConfig(vocab_size=8), ["ab ab b"], ["ab a"])
    append_row(tmp_path / "rows", {"step": 1, "loss": 0.1 + 0.2})
    tokenizers.save(tmp_path)
    monkeypatch.setattr(os, "fsync", fail)
    tokenizers.save(tmp_path)
    write_rows(tmp_path / "rows", read_rows(tmp_path / "rows"))


def test_files_are_written_atomically(tmp_path, monkeypatch):
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
