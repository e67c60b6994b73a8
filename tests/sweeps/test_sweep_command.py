"""transformer-jax sweep: listings, printed commands, rejected arguments, progress and tables."""

import shlex
import sys
from pathlib import Path

import by_formula
import pytest
from written import EXPERIMENT, trained, with_field

from transformer_jax.base.errors import UserError
from transformer_jax.cli import sweep as command
from transformer_jax.cli import sweep_progress, train
from transformer_jax.cli.arguments import Parser, load_config
from transformer_jax.config.convert import parse, to_json
from transformer_jax.data.codecs.pair import expected_sizes
from transformer_jax.sweeps import sweep
from transformer_jax.sweeps.points import Point

ROOT = Path(__file__).parents[2]
CONFIG = f"--config={ROOT}/configs/spelled_numbers.py"
TABLE3 = f"--config={ROOT}/configs/table3.py"


@pytest.fixture
def place(tmp_path) -> Path:
    return tmp_path / "sweep"


def test_a_dry_run_lists_points_parameters_and_time(place, capsys):
    axes = ["--grid=model.d_ff=256,512", "--grid=seed=1,2,3"]
    assert command.main([CONFIG, f"--workdir={place}", *axes, "--dry-run"]) == 0
    *lines, last = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == [
        f"model.d_ff={d_ff},seed={seed}" for d_ff in (256, 512) for seed in (1, 2, 3)
    ]
    counts = [int(line.split()[1].replace(",", "")) for line in lines]
    assert counts[3] - counts[0] == 4 * (2 * 128 * 256 + 256)  # weights and biases of 4 layers
    assert all("step 0 of 320" in line for line in lines)
    assert last.startswith("6 points, about ")
    assert not place.exists()


def test_printed_commands_train_and_evaluate_one_point_per_line(place, capsys, monkeypatch):
    axes = ["--grid=model.dropout_rate=0.1,0.2", "--evaluate=test", "--config.data.name=it's; a, b"]
    assert command.main([CONFIG, f"--workdir={place}", *axes, "--print-commands"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 2
    for line, rate in zip(lines, (0.1, 0.2), strict=True):
        words = shlex.split(line)
        train_words, evaluate_words = words[: words.index("&&")], words[words.index("&&") + 1 :]
        assert train_words[:3] == [sys.executable, "-m", "transformer_jax.cli.train"]
        workdir = f"--workdir={place}/model.dropout_rate={rate}"
        assert evaluate_words[1:] == ["-m", "transformer_jax.cli.evaluate", workdir, "--split=test"]
        seen = []
        monkeypatch.setattr(
            "transformer_jax.experiments.train.run_experiment",
            lambda experiment, workdir, _, seen=seen: seen.append((experiment, workdir)) or 0,
        )
        assert train.main(train_words[3:]) == 0
        ((experiment, found),) = seen
        assert experiment.model.dropout_rate == rate
        assert experiment.data.name == "it's; a, b"
        assert f"--workdir={found.path}" == workdir


def test_variants_all_lists_every_row_of_table_3(place, capsys, monkeypatch):
    for what in ("estimate.operations", "table.parameters"):  # takes a second of tracing per row
        monkeypatch.setattr(f"transformer_jax.sweeps.{what}", lambda point: 1)
    argv = [TABLE3, f"--workdir={place}", "--variants=all", "--dry-run"]
    assert command.main(argv) == 0
    rows = [line.split()[0] for line in capsys.readouterr().out.splitlines()[:-1]]
    assert len(rows) == 20
    assert (rows[0], rows[-1]) == ("base", "big")
    assert {row[0] for row in rows[1:-1]} == set("ABCDE")


def test_variants_by_pattern(place, capsys, monkeypatch):
    """In file order, each once; names without wildcards are taken literally."""
    for what in ("estimate.operations", "table.parameters"):
        monkeypatch.setattr(f"transformer_jax.sweeps.{what}", lambda point: 1)
    argv = [TABLE3, f"--workdir={place}", "--variants=D-*,B-*,B-dk16,big", "--dry-run"]
    assert command.main(argv) == 0
    rows = [line.split()[0] for line in capsys.readouterr().out.splitlines()[:-1]]
    assert rows == ["D-drop0.0", "D-drop0.2", "D-ls0.0", "D-ls0.2", "B-dk16", "B-dk32", "big"]
    with pytest.raises(UserError, match=r"--variants=F-\*: .* no VARIANTS like that: base, A-h1,"):
        command.main([*argv[:2], "--variants=F-*", "--dry-run"])


# Millions of parameters, by arithmetic, with 37,000 pieces; the paper has 65, 58, 60, 36 ...
WITH_37000 = {
    "base": 63.08, "A-h1": 63.08, "A-h32": 63.08, "B-dk16": 55.99, "B-dk32": 58.35, "C-N2": 33.66,
    "C-N4": 48.37, "C-N8": 77.80, "C-dmodel256": 26.83, "C-dmodel1024": 163.89, "C-dff1024": 50.49,
    "C-dff4096": 88.27, "D-drop0.0": 63.08, "D-ls0.2": 63.08, "big": 214.25,
}  # fmt: skip


@pytest.mark.parametrize("row", WITH_37000)
def test_parameters_of_table_3_with_the_papers_vocabulary(row):
    """Counts follow the formula, which models match: tests/models/test_counts.py."""
    experiment = parse(load_config(f"{ROOT}/configs/table3.py:wmt_base:{row}"))
    assert expected_sizes(experiment) == (37_000, 37_000)
    count = by_formula.parameters(experiment.model, 37_000, 37_000)
    assert count / 1e6 == pytest.approx(WITH_37000[row], abs=0.005)


def test_a_dry_run_lists_parameters_with_the_papers_vocabulary(place, capsys):
    argv = [f"{TABLE3}:wmt_base", f"--workdir={place}", "--variants=base", "--dry-run"]
    assert command.main(argv) == 0
    count = int(capsys.readouterr().out.split()[1].replace(",", ""))
    assert count / 1e6 == pytest.approx(WITH_37000["base"], abs=0.005)


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        ("A-h1", {"num_heads": 1, "key_size": 512}), ("A-h4", {"num_heads": 4, "key_size": 128}),
        ("A-h16", {"num_heads": 16, "key_size": 32}), ("A-h32", {"num_heads": 32, "key_size": 16}),
        ("B-dk16", {"key_size": 16, "value_size": 64, "num_heads": 8}),
        ("C-dmodel256", {"d_model": 256, "key_size": 32, "value_size": 32, "d_ff": 2048}),
        ("D-drop0.2", {"dropout_rate": 0.2}), ("E-learned", {"positions": "learned"}),
        ("big", {"d_model": 1024, "d_ff": 4096, "num_heads": 16, "dropout_rate": 0.3}),
    ],
)  # fmt: skip
def test_settings_of_table_3(row, expected):
    """The paper's own numbers, Table 3."""
    model = parse(load_config(f"{ROOT}/configs/table3.py:wmt_base:{row}")).model
    assert {name: getattr(model, name) for name in expected} == expected


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "nothing to sweep over; give --grid FIELD=VALUES or --variants=A,B"),
        (["--grid=seed=1", "--jobs=0"], "--jobs=0: must be at least 1"),
        (["--grid=seed=1", "--random=0"], "--random=0: must be at least 1"),
        (["--grid=seed=1,2", "--random=2", "--random-seed=-1"],
         "--random-seed=-1: must be at least 0"),
        (["--grid=seed=1", "--plot=x.gif"], "--plot=x.gif: must end in .svg, .pdf, .png"),
        (["--variants=all"], "--variants=all: the config file names no VARIANTS; list yours"),
        (["--grid=seed=1", "--grd=2"], "--grd=2: unknown argument (did you mean '--grid'?)"),
        (["--grid=seed=1", "--dry-run", "--table"], "argument --table: not allowed with argument"),
        (["--grid=sed=1"], "config.sed: unknown field (did you mean 'seed'?)"),
        (["--grid=seed=1", "--config.seed=3"], "config.seed: is both fixed and swept"),
        (["--grid=model.num_heads=4,3"], "config.model.d_model=128 is not a multiple of num_heads"),
    ],
)  # fmt: skip
def test_invalid_arguments_are_rejected_before_the_first_point(arguments, message, place):
    with pytest.raises(UserError) as caught:
        command.main([CONFIG, f"--workdir={place}", *arguments])
    assert str(caught.value).startswith(message)
    assert not place.exists()


def test_unsuitable_directories_are_rejected(tmp_path):
    (tmp_path / "file").write_text("")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "config.json").write_text("{}")
    for name, message in (("file", "cannot be created"), ("run", "holds a run; name another")):
        with pytest.raises(UserError, match=message):
            command.main([CONFIG, f"--workdir={tmp_path / name}", "--grid=seed=1", "--table"])


def test_progress_and_tables_tell_failed_from_finished_points(place, capsys, monkeypatch):

    def stand_in(self):
        arguments = Parser("train")
        arguments.add_argument("--workdir")
        arguments.add_argument("--config")
        text = "import sys; sys.exit('error: on purpose')"
        if self.settings["seed"] == 2:
            text = (
                "import pathlib, sys; p = pathlib.Path(sys.argv[1]); p.mkdir();"
                "(p / 'config.json').write_text(sys.argv[2]);"
                "(p / 'metrics.jsonl').write_text('{\"step\": 9, \"validation_bleu\": 7.5}\\n')"
            )
        return [sys.executable, "-c", text, str(self.workdir.path), to_json(self.experiment)]

    monkeypatch.setattr(Point, "train_command", stand_in)
    argv = [CONFIG, f"--workdir={place}", "--grid=seed=1,2", "--grid=model.d_ff=8,16"]
    argv[2:] = ["--grid=model.d_ff=8", "--grid=seed=1,2", f"--plot={place}/table.svg"]
    assert command.main(argv) == 1
    shown = capsys.readouterr()
    assert "0/2  model.d_ff=8,seed=1  failed, exit code 1: error: on purpose; see " in shown.err
    assert "1/2  model.d_ff=8,seed=2  finished  validation bleu 7.5" in shown.err
    assert "step 0 of 320, exit code 1" in shown.out
    assert shown.out == (place / "table.txt").read_text()
    assert {path.name for path in place.iterdir()} >= {"table.csv", "table.md", "table.svg"}
    assert command.main([*argv, "--table"]) == 0
    assert capsys.readouterr().out == shown.out


def test_a_training_point_prints_progress_periodically(place, capsys, monkeypatch):
    """This replaces progress bars where there is no terminal."""
    monkeypatch.setattr(sweep_progress, "_EVERY", 0.0)
    monkeypatch.setattr(sweep, "_TICK", 0.01)

    def stand_in(self):
        text = (
            "import pathlib, sys, time; p = pathlib.Path(sys.argv[1]); p.mkdir();"
            "(p / 'config.json').write_text(sys.argv[2]);"
            "(p / 'timings.jsonl').write_text('{\"step\": 80, \"steps_per_s\": 4.0}\\n');"
            "time.sleep(1)"
        )
        return [sys.executable, "-c", text, str(self.workdir.path), to_json(self.experiment)]

    monkeypatch.setattr(Point, "train_command", stand_in)
    command.main([CONFIG, f"--workdir={place}", "--grid=model.d_ff=8"])
    assert "model.d_ff=8  step 80 of 320  4 steps/s  60 s left" in capsys.readouterr().err


def test_a_point_that_waits_is_said_to_wait(place, capsys, monkeypatch):
    """For a trainer that outlived a killed sweep: nothing has started here yet."""
    monkeypatch.setattr(sweep_progress, "_EVERY", 0.0)
    monkeypatch.setattr(sweep, "_TICK", 0.01)
    looks = iter([True] * 5)
    monkeypatch.setattr(Point, "busy", lambda self: next(looks, False))
    monkeypatch.setattr(Point, "train_command", lambda self: [sys.executable, "-c", ""])
    command.main([CONFIG, f"--workdir={place}", "--grid=model.d_ff=8"])
    shown = capsys.readouterr().err
    assert shown.count("waits    model.d_ff=8: another trainer is running here\n") == 1
    assert shown.index("waits    ") < shown.index("train  model.d_ff=8")


def test_a_table_needs_no_config(tmp_path, capsys):
    for d_ff, factor in ((32, 1.5), (64, 1.0)):
        trained(tmp_path / f"s/model.d_ff={d_ff}", with_field(EXPERIMENT, "model.d_ff", d_ff),
                factor=factor)  # fmt: skip
    assert command.main([f"--workdir={tmp_path}/s", "--table"]) == 0
    shown = capsys.readouterr().out
    assert [line.split()[0] for line in shown.splitlines()] == ["model.d_ff", "64", "32"]
    assert shown == (tmp_path / "s/table.txt").read_text()
    for argv, message in (
        (["--table", "--grid=seed=1"], "--config: missing; only --table, by itself, works without"),
        (["--dry-run"], "--config: missing; only --table"),
        ([f"--workdir={tmp_path}/x", "--table"], "/x: holds no work directories of a sweep"),
    ):
        with pytest.raises(UserError, match=message):
            command.main([f"--workdir={tmp_path}/s", *argv])
