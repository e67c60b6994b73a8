"""The allowed versions of JAX, and the script that tries the lowest and the newest of them."""

import re
import tomllib
from importlib.metadata import version
from pathlib import Path

from packaging.requirements import Requirement

HERE = Path(__file__).parents[1]
PROJECT = tomllib.loads((HERE / "pyproject.toml").read_text())["project"]
ALLOWED = {r.name: r.specifier for r in map(Requirement, PROJECT["dependencies"])}
JAX = ALLOWED["jax"]


def test_only_releases_that_work_are_allowed():
    """jaxlib 0.11.2 ends in a segmentation fault while it compiles a search for two devices, also
    under jax 0.12.0, which does not ask for a newer one.
    """
    compiler = ALLOWED["jaxlib"]
    assert not compiler.contains("0.11.2")
    for other in ("0.10.2", "0.11.0", "0.11.1", "0.12.0", version("jaxlib")):
        assert compiler.contains(other), other
    assert JAX.contains(version("jax"))


def test_the_script_finds_the_lowest_version_and_its_tests():
    script = (HERE / ".ci/versions").read_text()
    pattern = re.search(r"sed -n 's/(.*?)/", script)[1].replace(r"\(", "(").replace(r"\)", ")")
    lowest = re.search(pattern, (HERE / "pyproject.toml").read_text(), re.MULTILINE)[1]
    assert JAX.contains(lowest)
    assert f">={lowest}" in str(JAX).split(",")
    places = re.search(r"TESTS='(.*?)'", script, re.DOTALL)[1].split()
    assert [place for place in places if not (HERE / place).exists()] == []
