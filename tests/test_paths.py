"""Paths and lists as users write them: ~ is the home directory, and names may contain : @ , too."""

import ast
import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import transformer_jax
from transformer_jax.api import load
from transformer_jax.base.command_text import as_text, listed, unwrapped
from transformer_jax.base.disk import cache_dir, user_path
from transformer_jax.base.errors import UserError
from transformer_jax.cli.arguments import Parser, load_config
from transformer_jax.cli.compare import place_of
from transformer_jax.config import DataConfig, Experiment, TokenizerConfig, parts
from transformer_jax.config.convert import door, override, parse
from transformer_jax.data import sources
from transformer_jax.data.codecs.pair import train_pair
from transformer_jax.runs.workdir import WorkDir, config_file, default_workdir, run_and_checkpoint

CONFIG = """
from transformer_jax.config import Experiment
from transformer_jax.config.convert import door
def get_config(word=""):
    config = door(Experiment())
    config.seed = 7 if word == "seven" else 3
    return config
"""


@pytest.fixture
def home(tmp_path, monkeypatch) -> Path:
    """A home directory, and another working directory, in which nothing may appear."""
    (tmp_path / "home").mkdir()
    (tmp_path / "here").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path / "here")
    yield tmp_path / "home"
    assert list((tmp_path / "here").iterdir()) == []


# --- ~ ------------------------------------------------------------------------------------------


def test_the_home_directory_of_a_path(home):
    assert user_path("~") == home
    assert user_path("~/a/~") == home / "a/~"
    for same in ("./~", "a/~/b", "/~", "~nobody-of-this-name/x"):
        assert str(user_path(same)) == str(Path(same))


def test_work_directories_and_configs_at_home(home, monkeypatch):
    with WorkDir("~/run").claim(Experiment()):
        pass
    assert (home / "run/config.json").is_file()
    assert load_config("~/run").seed == Experiment().seed
    assert place_of("~/run@best")[0].path == home / "run"
    with pytest.raises(UserError, match=f"^{home}/run/tokenizer.model: no tokenizer here"):
        load("~/run")
    (home / "mine.py").write_text(CONFIG)
    assert load_config("~/mine.py:seven").seed == 7
    assert default_workdir("~/mine.py:seven") == "runs/mine-seven"
    with pytest.raises(UserError, match="is a run"):
        default_workdir("~/run")
    monkeypatch.setenv("TRANSFORMER_JAX_CACHE", "~/cache")
    assert cache_dir() == home / "cache"


@pytest.mark.parametrize("source", ["text", "arrays", "folders", "series", "wavs", "tfds"])
def test_every_source_looks_for_its_files_at_home(home, source):
    config = DataConfig(source=source, directory="~/data", name="wmt14_translate/de-en")
    with pytest.raises(UserError, match=str(home / "data")):
        sources.load(config, "train")


def test_models_of_pieces_and_parts_at_home(home):
    with pytest.raises(UserError, match=f"{home}/own.model"):
        train_pair(TokenizerConfig(model="~/own.model"), ["a"], ["b"])
    (home / "own.py").write_text("def mine(): pass")
    parts.admit("~/own.py")
    assert parts.resolve("~/own.py:mine", "model.norm").__name__ == "mine"
    assert parts.resolve(f"{home}/own.py:mine", "model.norm").__name__ == "mine"


def test_every_path_of_a_command_line_may_be_at_home(home):
    parser = Parser("A program.")
    parser.add_argument("run", nargs="*")
    parser.add_argument("--workdir", action="append")
    parser.add_argument("--any-name", type=Path)
    parser.add_argument("--prompt")
    read, _ = parser.read(["~/a", "b@best", "--workdir=~/c", "--any-name=~/d", "--prompt=~/e"])
    assert (read.run, read.workdir) == ([f"{home}/a", "b@best"], [f"{home}/c"])
    assert (read.any_name, read.prompt) == (home / "d", "~/e")


def test_the_fields_that_name_files_are_read_in_one_way():
    """No other code makes a path of what a config names."""
    for path in sorted(Path(transformer_jax.__file__).parent.rglob("*.py")):
        for call in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(call, ast.Call) and getattr(call.func, "id", "") in ("Path", "open"):
                read = ast.unparse(call)
                assert "config.directory" not in read, path
                assert "config.model)" not in read, path


def test_without_a_home_directory_the_remedy_is_named(monkeypatch):
    """In containers: HOME is not set, and the user number has no entry."""
    for name in ("HOME", "TRANSFORMER_JAX_CACHE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(os, "getuid", lambda: 4_000_000_000 - 1)
    with pytest.raises(UserError, match="TRANSFORMER_JAX_CACHE: not set, and this user has no"):
        cache_dir()
    for path in ("~", "~/run"):
        with pytest.raises(UserError, match=f"{path}: this user has no home directory"):
            user_path(path)
    assert user_path("run") == Path("run")


# --- : and @ ------------------------------------------------------------------------------------


@pytest.mark.parametrize("folder", ["a:b", "a@b", "c,d", "user@host:3/x,y", "a:b.py:c"])
def test_paths_may_contain_what_separates_other_things(home, folder):
    place = home / folder
    place.mkdir(parents=True)
    (place / "conf.py").write_text(CONFIG)
    assert load_config(f"{place}/conf.py").seed == 3
    assert load_config(f"{place}/conf.py:seven").seed == 7
    assert config_file(f"{place}/conf.py") == (f"{place}/conf.py", None)
    assert default_workdir(f"{place}/conf.py:seven") == "runs/conf-seven"
    with WorkDir(place / "run@1").claim(Experiment()):
        pass
    (place / "run").mkdir()
    settings = "best,decoding.draft=runs/small@last"
    for checkpoint in ("best", "average:3", "1200", "best,decoding.alpha=0.6", settings):
        assert run_and_checkpoint(f"{place}/run@1@{checkpoint}") == (f"{place}/run@1", checkpoint)
    assert run_and_checkpoint(f"{place}/run@1") == (f"{place}/run@1", None)
    assert run_and_checkpoint(f"{place}/run@2") == (f"{place}/run", "2")
    assert run_and_checkpoint(f"{place}/no such run") == (f"{place}/no such run", None)


@pytest.mark.parametrize("folder", ["a:b", "a@b", "c,d", "user@host:3/x,y"])
def test_files_of_parts_may_lie_anywhere(home, folder):
    place = home / folder
    place.mkdir(parents=True)
    (place / "own.py").write_text("def mine(): pass")
    word = f"{place}/own.py:mine"
    for field, text in (("model.norm", word), ("model.decoder_pattern", f'"{word}",full')):
        parts.admit_named(text)
        config = door(Experiment())
        override(config, field, text)
        if field == "model.norm":
            experiment = parse(config)
            assert parts.short(experiment.model.norm) == word
            assert parts.homes([experiment.model.norm]) == [f"{place}/own.py"]
            assert parts.resolve(experiment.model.norm, field).__name__ == "mine"
        else:
            assert [parts.short(x) for x in config.model.decoder_pattern] == [word, "full"]


# --- commas -------------------------------------------------------------------------------------


@settings(deadline=None)  # other processes may hold it up
@given(st.lists(st.text("ab,()[]{}'\". :@\\", min_size=1).filter(lambda x: not {*"'\""} <= {*x})))
def test_a_list_as_text_is_read_back(values):
    text = as_text(values)
    assert (listed(text) if text else []) == values
    config = door(Experiment())
    override(config, "init.take", text)
    assert list(config.init.take) == values


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("a{1,2}b,c", ["a{1,2}b", "c"]),
        ("layer_(0,1),[a,b]x", ["layer_(0,1)", "[a,b]x"]),
        ("(a, b)", ["a", "b"]), ("['a', 'b,c']", ["a", "b,c"]),
        ("(a|b)x,(c)", ["(a|b)x", "(c)"]), ("(a)|(b)", ["(a)|(b)"]),
        ('","', [","]), ("a,", ["a"]), ("", []), ("()", []), ('""', [""]),
        (":(,:-(", [":(", ":-("]),
        ("don't,won't", ["don't", "won't"]), ("'a", ["'a"]),
    ],
)  # fmt: skip
def test_values_on_the_command_line(text, values):
    config = door(Experiment())
    override(config, "tokenizer.symbols", text)
    assert list(config.tokenizer.symbols) == values


@pytest.mark.parametrize("text", [",", "a,,b", ",a", "( , )", "a,,"])
def test_a_comma_without_values_is_refused(text):
    with pytest.raises(UserError, match=r"config.tokenizer.symbols=.*quote a value that has comm"):
        override(door(Experiment()), "tokenizer.symbols", text)


def test_brackets_are_taken_off_only_if_they_enclose_everything():
    assert unwrapped(" [a,b] ") == "a,b"
    for same in ("(a)|(b)", "(a", "{a}", "a", ""):
        assert unwrapped(same) == same
