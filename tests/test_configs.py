"""The files in configs/, and how a command line reads a config file."""

import ast
import importlib.util
import re
import shlex
from pathlib import Path

import pytest

from transformer_jax import door as older
from transformer_jax.base.errors import UserError
from transformer_jax.cli.arguments import Parser, load_config
from transformer_jax.config import Experiment, convert, parts
from transformer_jax.config.convert import differences, own_parts, parse
from transformer_jax.runs.workdir import WorkDir

ROOT = Path(__file__).parents[1]
FILES = sorted(ROOT.glob("configs/*.py"))
DOCS = [ROOT / "README.md", *sorted(ROOT.glob("docs/*.md"))]
PAGES_OF_RESULTS = [ROOT / "results/README.md", *sorted(ROOT.glob("results/notes/*.md"))]
EXPERIMENTS = [path for path in FILES if path.name != "base.py"]  # which has no command of its own


def commands(path: Path) -> list[str]:
    """Return the train.py commands of a config file's docstring."""
    text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    # The explanation beside a command is set off by two spaces.
    return [line.split("  ")[0] for line in re.findall(r"^ *(python train\.py .*)", text, re.M)]


def documented_commands() -> list[str]:
    """Return the train.py commands of README.md and docs/ that name a file, on one line each."""
    texts = (path.read_text(encoding="utf-8").replace("\\\n", " ") for path in DOCS)
    found = (re.findall(r"^ {4}(python train\.py --config=configs/.*)", x, re.M) for x in texts)
    return [command for commands in found for command in commands]


def read(*argv: str) -> tuple[str | None, list[tuple[str, str]]]:
    parser = Parser("a test")
    parser.add_argument("--config")
    parser.add_argument("--workdir")
    known, overrides = parser.read(argv)
    return known.config, overrides


@pytest.fixture
def at_root(monkeypatch):
    monkeypatch.chdir(ROOT)


@pytest.fixture
def config_file(tmp_path):
    """Return a function that writes a config file with the given lines in get_config."""

    def write(*lines: str, signature: str = "get_config()") -> str:
        path = tmp_path / "mine.py"
        body = "".join(f"    {line}\n" for line in ("c = door(Experiment())", *lines, "return c"))
        imports = (
            "from transformer_jax.config import Experiment\n"
            "from transformer_jax.config.convert import door\n"
        )
        path.write_text(f"{imports}\n\ndef {signature}:\n{body}")
        return str(path)

    return write


def test_older_config_files_find_their_door():
    """They import it from where it was; the interface of both is one."""
    assert older.door is convert.door


def refusal(*arguments) -> str:
    with pytest.raises(UserError) as caught:
        load_config(*arguments)
    assert "\n" not in str(caught.value)
    return str(caught.value)


# --- the files ----------------------------------------------------------------------------------


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_every_file_parses(path):
    experiment = parse(load_config(str(path)))
    assert bool(differences(Experiment(), experiment)) == (path.name != "base.py")


@pytest.mark.parametrize("path", EXPERIMENTS, ids=lambda path: path.stem)
def test_every_docstring_gives_commands_for_its_own_file(path):
    assert commands(path)
    for command in commands(path):
        config, _ = read(*shlex.split(command)[2:])
        assert config.partition(":")[0] == f"configs/{path.name}"


def test_the_readme_lists_every_experiment():
    rows = re.findall(r"^\| (`configs/.*?) \|", DOCS[0].read_text(encoding="utf-8"), re.M)
    named = re.findall(r"`configs/(\w+\.py)`", "".join(rows))
    assert sorted(named) == [path.name for path in EXPERIMENTS]


@pytest.mark.parametrize("command", [c for path in FILES for c in commands(path)])
def test_every_command_in_a_docstring_parses(command, at_root):
    parse(load_config(*read(*shlex.split(command)[2:])))


def test_every_documented_command_parses(tmp_path, monkeypatch):
    """In any directory that has the files that the documents show."""
    monkeypatch.chdir(tmp_path)
    for page in DOCS:
        text = page.read_text(encoding="utf-8")
        for code, name in re.findall(r"^```python\n(# (\w+\.py)\b.*?)^```", text, re.M | re.DOTALL):
            Path(name).write_text(code)
    assert any("config.data.test=" in command for command in documented_commands())
    for command in documented_commands():
        experiment = parse(load_config(*read(*shlex.split(command)[2:])))
        for part, field in own_parts(experiment).items():
            parts.resolve(part, field)


@pytest.mark.parametrize(
    "path",
    [*DOCS, ROOT / "CONTRIBUTING.md", *PAGES_OF_RESULTS],
    ids=lambda path: str(path.relative_to(ROOT)),
)
def test_documentation_links_resolve(path):
    for link in re.findall(r"\]\(([^)\s]+)\)", path.read_text(encoding="utf-8")):
        place, _, heading = link.partition("#")
        if place.startswith("https:"):
            continue
        target = (path.parent / place).resolve() if place else path
        assert target.exists(), link
        if heading:
            titles = re.findall(r"^#+ (.*)", target.read_text(encoding="utf-8"), re.M)
            assert heading in {re.sub(r"[^\w -]", "", x).lower().replace(" ", "-") for x in titles}


def test_pages_of_experiments_link_to_what_there_is():
    """Links of the results are written from another place than these pages."""
    spec = importlib.util.spec_from_file_location("gallery", ROOT / "docs/site/gallery.py")
    assert spec is not None
    assert spec.loader is not None
    gallery = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(gallery)
    pages = gallery.pages(ROOT)
    links = [
        (ROOT / page).parent / link
        for page, text in pages.items()
        for link in re.findall(r"\]\(([\w./-]+\.(?:md|svg|png))", text)
    ]
    assert any("results/notes" in str(link) for link in links)
    known = {(ROOT / page).resolve() for page in pages}
    assert [x for x in links if not x.resolve().exists() and x.resolve() not in known] == []


def test_results_lead_to_every_note_and_figure():
    """And from each note back to the scores that it is about."""
    scores, *notes = PAGES_OF_RESULTS
    text = scores.read_text(encoding="utf-8")
    files = [*notes, *scores.parent.glob("*.svg"), *scores.parent.glob("*.png")]
    assert [p for p in files if f"]({p.relative_to(scores.parent)}" not in text] == []
    assert [p for p in notes if "](../README.md#" not in p.read_text(encoding="utf-8")] == []


@pytest.mark.parametrize("path", EXPERIMENTS, ids=lambda path: path.stem)
def test_variants_differ(path, at_root):
    specs = {read(*shlex.split(command)[2:])[0] for command in commands(path)}
    found = [parse(load_config(spec)) for spec in sorted(specs)]
    assert all(one != other for i, one in enumerate(found) for other in found[:i])


LISTED = [path for path in FILES if path.name != "spelled_numbers.py"]  # which takes any language


@pytest.mark.parametrize("path", LISTED, ids=lambda path: path.stem)
def test_the_error_for_an_unknown_variant_lists_valid_ones(path, at_root):
    message = refusal(f"configs/{path.name}:xx")
    opening, _, names = message.partition("; there are ")
    if not names:
        assert message.endswith("has no variants; leave out :xx")
        return
    assert opening == f"--config=configs/{path.name}:xx: no variant 'xx'"
    for name in re.findall(r"[\w.-]+", names.replace(" and ", ", ")):
        if not name.endswith("NAME"):
            parse(load_config(f"configs/{path.name}:{name}"))


# --- command lines ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("argv", "overrides"),
    [
        (["--config.a.b=3"], [("a.b", "3")]),
        (["--config.a.b", "3"], [("a.b", "3")]),
        (["--config.a=-1", "--config.b", "-1"], [("a", "-1"), ("b", "-1")]),
        (["--config.flag"], [("flag", "True")]),
        (["--config.flag", "--config.a", "3"], [("flag", "True"), ("a", "3")]),
        (["--noconfig.flag"], [("flag", "False")]),
        (["--config.a=x=y z"], [("a", "x=y z")]),
        (["--config.a="], [("a", "")]),
        (["--config.a=1", "--config.a=2"], [("a", "1"), ("a", "2")]),
    ],
)
def test_override_syntax(argv, overrides):
    assert read("--config=x.py", *argv) == ("x.py", overrides)
    assert read(*argv, "--config", "x.py") == ("x.py", overrides)


def test_the_last_override_wins(config_file):
    path = config_file("c.model.d_ff = 64")
    assert parse(load_config(path)).model.d_ff == 64
    overrides = [("model.d_ff", "32"), ("model.d_ff", "16")]
    assert parse(load_config(path, overrides)).model.d_ff == 16


@pytest.mark.parametrize(
    ("argument", "message"),
    [
        ("--cofnig=3", "--cofnig=3: unknown argument (did you mean '--config'?)"),
        ("stray", "stray: unknown argument"),
        ("--conf=3", "--conf=3: unknown argument (did you mean '--config'?)"),  # no abbreviations
        ("--config", "argument --config: expected one argument; see --help"),
    ],
)
def test_invalid_arguments_are_rejected(argument, message):
    with pytest.raises(UserError) as caught:
        read(argument)
    assert str(caught.value) == message


# --- config files -------------------------------------------------------------------------------


def test_a_missing_file_gets_suggestions(at_root):
    message = refusal("configs/spelled_number.py:de")
    assert message.startswith(
        "--config=configs/spelled_number.py:de: no file configs/spelled_number.py "
        "(did you mean 'configs/spelled_numbers.py'?); there are configs/an4.py, "
    )


def test_suggestions_from_elsewhere_are_the_files_of_the_project(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert refusal("x.py").startswith("--config=x.py: no file x.py; there are configs/an4.py, ")


@pytest.mark.parametrize("spec", ["multi30k:lc", "multi30k.py:lc", "configs/multi30k.py:lc"])
def test_files_of_the_project_are_found_by_name_from_anywhere(spec, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert parse(load_config(spec)).data.train == ("train.lc.norm.tok",)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("c.model.d_modle = 3", "unknown field (did you mean 'd_model'?)"),
        ("c.modle.d_model = 3", "unknown field (did you mean 'model'?)"),
        ("c.model.d_model = '3'", "Could not override field 'd_model'"),
        ("c.model.d_model = 0.5", "Could not override field 'd_model'"),
        ("c.model = 3", "Could not override field 'model'"),
        ("c.model.d_model = width", "NameError: name 'width' is not defined"),
        ("import nowhere", "ModuleNotFoundError: No module named 'nowhere'"),
        ("c.seed = {}['seed']", "KeyError: 'seed'"),
    ],
)
def test_a_mistake_in_a_file_is_reported_with_its_line(config_file, line, message):
    path = config_file(line)
    number = Path(path).read_text().splitlines().index(f"    {line}") + 1
    assert refusal(path).startswith(f"{path}:{number}: {line}: ")
    assert message in refusal(path)


def test_a_file_with_a_syntax_error_is_rejected(config_file):
    path = config_file("x = (")
    assert refusal(path).startswith(f"{path}: SyntaxError: '(' was never closed")


def test_a_file_without_get_config_is_rejected(tmp_path):
    path = tmp_path / "x.py"
    path.write_text("x = 1\n")
    assert refusal(str(path)) == f"--config={path}: defines no get_config; see configs/base.py"


def test_get_config_must_return_a_config_dict(config_file):
    path = config_file("return Experiment()")
    assert refusal(path, [("seed", "3")]).startswith(f"--config={path}: get_config must return")


def test_a_variant_is_passed_to_get_config(config_file):
    path = config_file("c.data.name = variant", signature="get_config(variant='plain')")
    assert parse(load_config(path)).data.name == "plain"
    assert parse(load_config(f"{path}:odd:ly")).data.name == "odd:ly"


def test_a_file_without_variants_rejects_one(at_root):
    assert (
        refusal("configs/base.py:x") == "--config=configs/base.py:x: has no variants; leave out :x"
    )


def test_a_value_error_raised_by_a_file_is_reported_unchanged(config_file):
    path = config_file("raise ValueError('choose a language')")
    assert refusal(path) == f"--config={path}: choose a language"


def test_an_invalid_value_set_by_a_file_is_rejected(config_file):
    with pytest.raises(UserError, match=r"^config\.model\.norm='layernorm': must be one of"):
        parse(load_config(config_file("c.model.norm = 'layernorm'")))


def test_a_work_directory_can_be_given_as_config(tmp_path):
    """Overrides work as with a config file."""
    workdir = WorkDir(tmp_path / "run")
    with workdir.claim(parse(load_config("multi30k:lc", [("model.dropout_rate", "0.25")]))):
        found = parse(load_config(str(workdir.path), [("seed", "3")]))
    wanted = load_config("multi30k:lc", [("model.dropout_rate", "0.25"), ("seed", "3")])
    assert found == parse(wanted)
    assert refusal(str(tmp_path)).startswith(f"{tmp_path}: no config.json here")


def test_the_config_of_a_run_admits_no_custom_part(tmp_path, monkeypatch):
    """Code does not run merely because a config.json names it."""
    file = tmp_path / "mine.py"
    file.write_text("from transformer_jax.nn.norm import LayerNorm as Mine\n")
    given = [("model.norm", f"{file}:Mine")]
    workdir = WorkDir(tmp_path / "run")
    with workdir.claim(parse(load_config("base", given))):
        pass
    for admitted in ("_now", "_ever"):  # as in a new process
        monkeypatch.setattr(parts, admitted, {})
    experiment = parse(load_config(str(workdir.path)))
    with pytest.raises(UserError, match="--parts"):
        parts.resolve(*next(iter(own_parts(experiment).items())))
    again = parse(load_config(str(workdir.path), given))
    assert parts.resolve(*next(iter(own_parts(again).items()))).__name__ == "LayerNorm"
