"""The code in the documents runs as written; the tour prints the output shown."""

import contextlib
import io
import re
from pathlib import Path

import jax
import numpy as np

from transformer_jax.cli.arguments import load_config, load_variants
from transformer_jax.config.convert import parse
from transformer_jax.config.parts import admit
from transformer_jax.data.batches.batch import Ragged, one_per_row
from transformer_jax.data.objectives import objective_named
from transformer_jax.data.store.token_store import TokenStore
from transformer_jax.sweeps.points import make_points

ROOT = Path(__file__).parents[1]
TOUR = ROOT / "docs" / "tour.md"
_BLOCK = re.compile(r"```python\n(.*?)```\n\n```text\n(.*?)```", re.DOTALL)


def test_every_block_prints_the_output_shown_below_it():
    text = TOUR.read_text(encoding="utf-8")
    blocks = _BLOCK.findall(text)
    assert len(blocks) == text.count("```python") == text.count("```text")
    names: dict = {}
    for source, expected in blocks:
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(source, "docs/tour.md", "exec"), names)
        assert printed.getvalue() == expected, source


def code_of(page: str, name: str) -> str:
    """Return the file called `name` that a page shows."""
    text = (TOUR.parent / page).read_text(encoding="utf-8")
    (found,) = (code for code in re.findall(r"```python\n(.*?)```", text, re.DOTALL)
                if code.startswith(f"# {name}"))  # fmt: skip
    return found


def test_the_objective_shown_changes_only_weights(tmp_path):
    """Inputs, labels and places are those of translation; the first pieces count twice."""
    path = tmp_path / "weighted.py"
    path.write_text(code_of("own_parts.md", "weighted.py"))
    admit(path)
    ids = [[5, 6, 7, 8, 2], [9, 2], [4] * 7 + [2]]
    store = TokenStore(Ragged.from_lists(ids), Ragged.from_lists(ids))
    given = store, one_per_row(np.arange(3)), 3, 12, 12
    found, plain = (
        objective_named(name).examples(*given) for name in (f"{path}:first_twice", "translate")
    )
    for one, other in zip(jax.tree.leaves((found.src, found.tgt)),
                          jax.tree.leaves((plain.src, plain.tgt)), strict=True):  # fmt: skip
        assert np.array_equal(one, other)
    (ours, theirs) = (batch.targets["tokens"] for batch in (found, plain))
    assert np.array_equal(ours.labels, theirs.labels)
    assert ours.weight.dtype == theirs.weight.dtype
    assert np.array_equal(ours.weight, np.where(plain.tgt.pos < 3, 2, 1) * theirs.weight)
    assert ours.weight.sum() > theirs.weight.sum()


def test_the_variants_shown_are_points_of_a_sweep(tmp_path):
    """Their fields change together."""
    path = tmp_path / "widths.py"
    path.write_text(code_of("comparing.md", "widths.py"))
    points = make_points(
        str(path), [*load_variants(str(path))], [], [{"seed": "1"}, {"seed": "2"}],
        tmp_path / "sweep", lambda *given: parse(load_config(*given)),
    )  # fmt: skip
    assert [point.name for point in points] == [
        "narrow,seed=1", "narrow,seed=2", "wide,seed=1", "wide,seed=2",
    ]  # fmt: skip
    sizes = {(x.experiment.model.d_model, x.experiment.model.d_ff) for x in points}
    assert sizes == {(128, 512), (256, 1024)}


def test_this_package_is_installed_from_a_checkout():
    """No index has it, so neither a page nor an error says to get it from one."""
    shown = [*ROOT.rglob("transformer_jax/**/*.py"), *ROOT.glob("configs/*.py"),
             *ROOT.glob("*.md"), *ROOT.glob("docs/**/*")]  # fmt: skip
    for path in filter(Path.is_file, shown):
        if path.suffix == ".pyc":  # `make site` runs what is in docs/site
            continue
        text = path.read_text(encoding="utf-8")
        assert not re.search(r"pip install [^\n`]*[ '\"]transformer[-_]jax", text), path
