"""Mistakes in the input: a one-line error, exit code 2, and no partial output left behind."""

import sys
from pathlib import Path

import jax.numpy as jnp
import pytest

from transformer_jax.cli import arguments, evaluate, main, train
from transformer_jax.config import Experiment, TokenizerConfig
from transformer_jax.config.convert import door, override, parse
from transformer_jax.data.codecs.pair import train_pair
from transformer_jax.runs.checkpoint import Checkpoints
from transformer_jax.runs.workdir import WorkDir

ROOT = Path(__file__).parents[1]
WORDS = ["the", "cat", "sat", "on", "a", "mat", "and", "saw", "two", "small", "dogs"]
LINES = [f"{a} {b}" for a in WORDS for b in WORDS]
SMALL = {
    "model.d_model": 16, "model.d_ff": 16, "model.num_heads": 2, "tokenizer.vocab_size": 40,
    "model.num_encoder_layers": 1, "model.num_decoder_layers": 1,
    "data.max_length": 24, "data.tokens_per_batch": 384,
}  # fmt: skip


@pytest.fixture(autouse=True)
def cache(monkeypatch, tmp_path_factory):
    monkeypatch.setenv("TRANSFORMER_JAX_CACHE", str(tmp_path_factory.mktemp("cache")))
    monkeypatch.setattr("transformer_jax.experiments.process.use_compilation_cache", lambda: None)


@pytest.fixture
def place(tmp_path) -> Path:
    """A folder with a valid corpus in data/."""
    (tmp_path / "data").mkdir()
    for part in ("train", "validation", "test"):
        for language in ("en", "de"):
            write(tmp_path / f"data/{part}.{language}", LINES)
    return tmp_path


def write(path: Path, lines: list[str]) -> None:
    path.write_text("".join(f"{line}\n" for line in lines))


def train_argv(place: Path, **changes) -> list[str]:
    values = {**SMALL, "data.directory": place / "data", **changes}
    overrides = [f"--config.{path}={value}" for path, value in values.items()]
    return [f"--config={ROOT}/configs/base.py", f"--workdir={place}/run", *overrides]


def contents(place: Path) -> dict[str, bytes | None]:
    """Return every file and folder."""
    return {str(p): p.read_bytes() if p.is_file() else None for p in place.rglob("*")}


def refusal(program_main, argv, place: Path, monkeypatch, capsys) -> str:
    """Return the one-line error of a program, which exits with 2 and changes no file."""
    before = contents(place)
    monkeypatch.setattr(sys, "argv", ["program", *map(str, argv)])
    with pytest.raises(SystemExit) as caught:
        arguments.program(program_main)()
    shown = capsys.readouterr()
    assert caught.value.code == 2
    assert shown.out == ""
    assert shown.err.startswith("error: ")
    assert shown.err.count("\n") == 1
    assert contents(place) == before
    return shown.err


# --- train --------------------------------------------------------------------------------------


def break_lines(place: Path) -> None:
    write(place / "data/train.de", LINES[1:])


def break_encoding(place: Path) -> None:
    (place / "data/train.de").write_bytes(b"gut\nschl\xf6cht\n")


def break_validation(place: Path) -> None:
    (place / "data/validation.en").unlink()


def no_lines(place: Path) -> None:
    for language in ("en", "de"):
        write(place / f"data/train.{language}", [])


def empty_lines(place: Path) -> None:
    for language in ("en", "de"):
        write(place / f"data/train.{language}", [""] * 5)


def one_side_empty(place: Path) -> None:
    write(place / "data/train.de", [""] * len(LINES))


def nothing(place: Path) -> None:
    pass


@pytest.mark.parametrize(
    ("breaks", "changes", "shown"),
    [
        (nothing, {"data.directory": "/no/such/place", "data.how_to_get": "make data"},
         ["found neither train.en nor train.en.gz in /no/such/place", "Get it with: make data"]),
        (break_validation, {}, ["neither validation.en", "--config.data.directory"]),
        (break_lines, {}, ["train.en has 121 lines", "train.de has 120"]),
        (break_encoding, {}, ["data/train.de:2: not UTF-8 (byte 0xf6 at column 5)"]),
        (no_lines, {}, ["config.data.train=('train',): contains no pairs"]),
        (empty_lines, {}, ["config.data.train: all lines are empty"]),
        (one_side_empty, {}, ["no training pair is left of 121: dropped 121 empty, 0 longer"]),
        (nothing, {"tokenizer.vocab_size": 5000},
         ["config.tokenizer.vocab_size=5000", "allows at most", "lower it"]),
        (nothing, {"tokenizer.vocab_size": 9},
         ["config.tokenizer.vocab_size=9", "needs at least", "raise it"]),
        (nothing, {"model.num_heads": 3},
         ["config.model.d_model=16 is not a multiple of num_heads=3", "set head_dim"]),
        (nothing, {"model.num_haeds": 2}, ["config.model.num_haeds: unknown field", "num_heads"]),
        (nothing, {"data.max_length": "long"}, ["config.data.max_length='long'", "whole number"]),
        (nothing, {"data.max_length": 2}, ["no training pair is left", " longer than 2 pieces"]),
        (nothing, {"data.rows_divisible_by": 4},
         ["config.data.rows_divisible_by=4", "8 devices", "set it to 8"]),
        (nothing, {"mesh.data": 3}, ["config.mesh.data=3", "8 devices", "-1"]),
        (nothing, {"optimizer.frozen": "encoder"},
         ["config.optimizer.frozen: 'encoder' matches no parameter"]),
        (nothing, {"data.source": "tfds", "data.name": "no_such_set"},
         ["config.data.name='no_such_set'"]),
        (nothing, {"data.source": "spelled_numbers", "data.source_language": "xx"},
         ["num2words has no language 'xx'"]),
    ],
)  # fmt: skip
def test_an_invalid_config_or_corpus_leaves_no_files(
    place, breaks, changes, shown, monkeypatch, capsys
):
    breaks(place)
    error = refusal(train.main, train_argv(place, **changes), place, monkeypatch, capsys)
    assert [part for part in shown if part not in error] == []
    assert not (place / "run").exists()


@pytest.mark.parametrize(
    ("argv", "shown"),
    [
        ([], "--config"),
        (["--config=nothing.py"], "--config=nothing.py: no file nothing.py"),
        (["--config=configs/spelled_number.py"], "did you mean 'configs/spelled_numbers.py'?"),
        (["--config=configs/base.py", "--wrokdir=x"], "did you mean '--workdir'?"),
        (["--config=configs/wmt_base.py:xx"], "no variant 'xx'; there are "),
    ],
)
def test_invalid_train_arguments_are_rejected(argv, shown, place, monkeypatch, capsys):
    monkeypatch.chdir(ROOT)
    assert shown in refusal(train.main, argv, place, monkeypatch, capsys)


@pytest.mark.parametrize("code", ["0", "'no corpus here'", ""])
def test_a_config_file_that_exits_is_an_error(code, place, monkeypatch, capsys):
    """Whatever the exit code, the program does not end as if it had succeeded."""
    (place / "mine.py").write_text(f"import sys\n\nsys.exit({code})\n")
    monkeypatch.chdir(place)
    for command in (train.main, main_of("sweep")):
        argv = [
            "--config=mine.py",
            "--workdir=run",
            *(["--variants=all"] * (command != train.main)),
        ]
        error = refusal(command, argv, place, monkeypatch, capsys)
        assert f"error: mine.py:3: sys.exit({code}): SystemExit" in error


@pytest.mark.parametrize("option", ["config", "workdir"])
def test_overlong_file_names_are_rejected(option, place, monkeypatch, capsys):
    argv = [*train_argv(place), f"--{option}={place / ('x' * 300)}"]
    assert "File name too long" in refusal(train.main, argv, place, monkeypatch, capsys)


def test_a_work_directory_of_another_experiment_is_rejected(place, monkeypatch, capsys):
    with WorkDir(place / "run").claim(Experiment()):
        pass
    error = refusal(train.main, train_argv(place), place, monkeypatch, capsys)
    assert f"{place}/run: holds another experiment; use another --workdir, or undo: " in error
    for change in ("model.d_model: 512 -> 16", "tokenizer.vocab_size: 32000 -> 40"):
        assert change in error
    assert "data.directory" not in error  # which may change


def test_a_work_directory_in_use_is_rejected(place, monkeypatch, capsys):
    config = door(Experiment())
    for path, value in {**SMALL, "data.directory": place / "data"}.items():
        override(config, path, str(value))
    workdir, experiment = WorkDir(place / "run"), parse(config)
    with workdir.claim(experiment):
        train_pair(experiment.tokenizer, LINES, LINES).save(workdir.path)
        error = refusal(train.main, train_argv(place), place, monkeypatch, capsys)
    assert "another trainer is running here" in error


@pytest.mark.parametrize("inside", ["", "/inside"])
def test_a_file_as_work_directory_is_rejected(place, inside, monkeypatch, capsys):
    (place / "run").write_text("mine")
    argv = [*train_argv(place), f"--workdir={place}/run{inside}"]
    error = refusal(train.main, argv, place, monkeypatch, capsys)
    assert f"{place}/run{inside}: " in error


# --- evaluate, translate, average, inspect ------------------------------------------------------


@pytest.fixture
def trained(place) -> WorkDir:
    """A work directory just complete enough for tests of rejection: two dummy checkpoints."""
    config = door(Experiment())
    for path, value in {**SMALL, "data.directory": place / "data"}.items():
        override(config, path, str(value))
    workdir = WorkDir(place / "run")
    with workdir.claim(parse(config)):
        train_pair(TokenizerConfig(vocab_size=40), LINES, LINES).save(workdir.path)
        checkpoints = Checkpoints(workdir.checkpoints, Experiment().checkpoint)
        for step in (10, 20):
            checkpoints.save(step, {"w": jnp.ones(3)}, {}, {}, None)
        checkpoints.close()
    return workdir


def main_of(command: str):
    """Return a program's main function."""
    return evaluate.main if command == "evaluate" else lambda argv: main.dispatch([command, *argv])


NEED_CHECKPOINTS = {"evaluate": [], "translate": [], "average": ["--output=mean"]}


@pytest.mark.parametrize("command", [*NEED_CHECKPOINTS, "inspect"])
@pytest.mark.parametrize("what", ["nowhere", "data", "data/train.en"])
def test_a_directory_without_a_run_is_rejected(place, command, what, monkeypatch, capsys):
    monkeypatch.chdir(place)
    argv = [f"--workdir={what}", *NEED_CHECKPOINTS.get(command, [])]
    error = refusal(main_of(command), argv, place, monkeypatch, capsys)
    assert error == f"error: {place}/{what}: no config.json here; train first, or check the path\n"


@pytest.mark.parametrize("command", NEED_CHECKPOINTS)
def test_a_run_without_checkpoints_is_rejected(trained, place, command, monkeypatch, capsys):
    monkeypatch.chdir(place)
    trained.checkpoints.rename(place / "elsewhere")
    argv = [f"--workdir={trained.path}", *NEED_CHECKPOINTS[command]]
    error = refusal(main_of(command), argv, place, monkeypatch, capsys)
    assert error == f"error: {trained.checkpoints}: no checkpoints here; train first\n"


@pytest.mark.parametrize("command", NEED_CHECKPOINTS)
def test_a_run_without_a_tokenizer_is_rejected(trained, place, command, monkeypatch, capsys):
    monkeypatch.chdir(place)
    (trained.path / "tokenizer.model").unlink()
    argv = [f"--workdir={trained.path}", *NEED_CHECKPOINTS[command]]
    assert "tokenizer.model: no tokenizer here" in refusal(
        main_of(command), argv, place, monkeypatch, capsys
    )


@pytest.mark.parametrize("command", ["evaluate", "translate"])
@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("30", "checkpoint=30: not saved; the saved steps are [10, 20]"),
        ("average:3", "checkpoint=average:3: only 2 are saved, [10, 20]; average fewer"),
        ("newest", "checkpoint='newest': must be best, last, a step, or average:N"),
    ],
)
def test_a_missing_checkpoint_is_rejected(
    trained, place, command, name, shown, monkeypatch, capsys
):
    argv = [f"--workdir={trained.path}", f"--checkpoint={name}"]
    assert refusal(main_of(command), argv, place, monkeypatch, capsys) == f"error: {shown}\n"


@pytest.mark.parametrize(
    ("argv", "shown"),
    [
        (["--source=data/test.en"], "--source and --reference belong together"),
        (["--reference=data/test.de"], "--source and --reference belong together"),
        (["--source=data/x.en", "--reference=data/test.de"], "data/x.en: cannot be read"),
        (["--source=data/empty", "--reference=data/empty"], "data/empty: holds no lines"),
        (["--source=data/short", "--reference=data/test.de"],
         "data/short has 2 lines, data/test.de has 121"),
        (["--split=dev"], "argument --split: invalid choice: 'dev'"),
        (["--split=test", "--config.data.directory=gone"], "found neither test.en"),
        (["--config.model.d_ff=8"], "config.model.d_ff: is part of the trained model"),
        (["--workdri=x"], "--workdri=x: unknown argument (did you mean '--workdir'?)"),
    ],
)  # fmt: skip
def test_invalid_evaluate_arguments_are_rejected(trained, place, argv, shown, monkeypatch, capsys):
    monkeypatch.chdir(place)
    write(place / "data/empty", [])
    write(place / "data/short", LINES[:2])
    argv = [f"--workdir={trained.path}", *argv]
    assert shown in refusal(evaluate.main, argv, place, monkeypatch, capsys)


@pytest.mark.parametrize(
    ("argv", "shown"),
    [
        (
            ["--output=mean", "--last=3"],
            "checkpoint=average:3: only 2 are saved, [10, 20]; average fewer",
        ),
        (["--output=mean", "--last=0"], "checkpoint='average:0': must be"),
        (["--output=mean", "--last=x"], "argument --last: invalid int value: 'x'"),
        (["--output=run", "--last=2"], "/run: holds a run already; name a new directory"),
        (["--last=2"], "--output"),
    ],
)
def test_invalid_average_arguments_are_rejected(trained, place, argv, shown, monkeypatch, capsys):
    monkeypatch.chdir(place)
    argv = [f"--workdir={trained.path}", *argv]
    assert shown in refusal(main_of("average"), argv, place, monkeypatch, capsys)


def test_an_unknown_command_is_rejected(place, monkeypatch, capsys):
    error = refusal(main_of("translat"), [], place, monkeypatch, capsys)
    assert "unknown choice 'translat' (did you mean 'translate'?)" in error
