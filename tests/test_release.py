"""A release: one version everywhere, and a wheel that runs the main job without a checkout."""

import json
import re
import tomllib
import zipfile
from pathlib import Path
from types import SimpleNamespace

import pytest

import transformer_jax
from transformer_jax.cli import demo
from transformer_jax.cli.main import dispatch

HERE = Path(__file__).parents[1]
VERSION = transformer_jax.__version__
KINDS = ("Added", "Changed", "Deprecated", "Removed", "Fixed", "Security")  # Keep a Changelog's


def test_the_version_is_the_same_everywhere(capsys):
    assert re.search(r"^version: (.*)$", (HERE / "CITATION.cff").read_text(), re.M)[1] == VERSION
    project = tomllib.loads((HERE / "pyproject.toml").read_text())
    assert "version" in project["project"]["dynamic"]
    assert project["tool"]["hatch"]["version"]["path"] == "transformer_jax/__init__.py"
    assert dispatch(["--version"]) == 0
    assert capsys.readouterr().out == f"transformer-jax {VERSION}\n"


def test_the_changelog_is_by_version():
    """The newest is this one, and only it may have no date yet."""
    text = (HERE / "CHANGELOG.md").read_text(encoding="utf-8")
    headings = re.findall(r"^## (.*)$", text, re.M)
    versions = [re.fullmatch(r"\[(\d+\.\d+\.\d+)\] - (\d{4}-\d\d-\d\d|Unreleased)", x).groups()
                for x in headings]  # fmt: skip
    assert versions[0][0] == VERSION
    assert all(date != "Unreleased" for _, date in versions[1:])
    numbers = [tuple(map(int, version.split("."))) for version, _ in versions]
    assert numbers == sorted(set(numbers), reverse=True)
    assert {*re.findall(r"^### (.*)$", text, re.M)} <= {*KINDS}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> zipfile.ZipFile:
    builder = pytest.importorskip("hatchling.builders.wheel").WheelBuilder(str(HERE))
    (path,) = builder.build(directory=str(tmp_path_factory.mktemp("wheel")), versions=["standard"])
    assert Path(path).name == f"transformer_jax-{VERSION}-py3-none-any.whl"
    return zipfile.ZipFile(path)


def test_the_wheel_has_all_that_runs(wheel):
    """Modules, configs and data files, and nothing of the checkout besides."""
    package = HERE / "transformer_jax"
    found = {name for name in wheel.namelist() if ".dist-info/" not in name}
    files = {path.relative_to(HERE).as_posix() for path in package.rglob("*")
             if path.is_file() and "__pycache__" not in path.parts}  # fmt: skip
    configs = {f"transformer_jax/configs/{path.name}" for path in (HERE / "configs").glob("*.py")}
    assert found == files | configs
    assert f"transformer_jax/configs/{demo.CONFIG}.py" in found
    (metadata,) = (name for name in wheel.namelist() if name.endswith(".dist-info/METADATA"))
    assert f"\nVersion: {VERSION}\n" in wheel.read(metadata).decode()


def test_the_demo_trains_scores_and_translates(tmp_path, monkeypatch):
    """The commands, each in a process of its own, and the exit code of the first that fails."""
    called = []

    def run(program):
        called.append(program[2:])
        return SimpleNamespace(returncode=75 if "evaluate" in program[2] else 0)

    monkeypatch.setattr(demo.subprocess, "run", run)
    assert dispatch(["demo", f"--workdir={tmp_path}", "--config.training.steps=2"]) == 75
    place, config = f"--workdir={tmp_path}", f"--config={demo.CONFIG}"
    train = ["transformer_jax.cli.train", config, "--config.training.steps=2", place]
    assert called == [train, ["transformer_jax.cli.evaluate", place]]
    assert "transformer-jax demo" in (HERE / "Makefile").read_text()


def test_the_container_has_what_the_wheel_is_built_from():
    """It copies every file that pyproject.toml names, and its extras exist."""
    text = (HERE / "docs/serve/Containerfile").read_text()
    copied = {name for line in re.findall(r"^COPY (.*)$", text, re.M) for name in line.split()[:-1]}
    project = tomllib.loads((HERE / "pyproject.toml").read_text())
    needed = {project["project"]["readme"], *project["project"]["license-files"]}
    needed |= {*project["tool"]["hatch"]["build"]["targets"]["wheel"]["only-include"]}
    assert copied == needed | {"pyproject.toml", "constraints.txt"}
    named = re.findall(r"EXTRAS=([\w,]+)", text)
    assert len(named) == 2  # the example for CUDA, and the default
    extras = {extra for one in named for extra in one.split(",")}
    assert extras <= project["project"]["optional-dependencies"].keys()
    entry, command = re.findall(r"^(?:ENTRYPOINT|CMD) (\[.*\])$", text, re.M)
    assert [*json.loads(entry), json.loads(command)[0]] == ["transformer-jax", "serve"]
