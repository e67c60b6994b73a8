"""Pictures of sweeps: every format, every kind of row, and the same bytes twice."""

import re
from pathlib import Path

import pytest

from transformer_jax.base.errors import UserError
from transformer_jax.cli.arguments import load_variants
from transformer_jax.config.metrics import Metric
from transformer_jax.plots.picture import SUFFIXES
from transformer_jax.plots.sweep import TITLES, draw_rows
from transformer_jax.sweeps.table import Row

ROOT = Path(__file__).parents[2]
SWEPT = [
    Row({"optimizer.learning_rate": rate, "model.residual": norm},
        {"validation BLEU": scores, "validation perplexity": [9.0]})
    for rate, norm, scores in (("0.001", "pre_norm", [20.0, 21.0]), ("0.1", "post_norm", [3.0]))
]  # fmt: skip
PUBLISHED = [
    Row({"variant": name}, {"validation BLEU": [10.0 + i], "validation perplexity": [9.0],
                            "validation BLEU, beam": [12.0 + i]},
        {f"published {k}": v for k, v in figures.items() if v is not None})
    for i, (name, figures) in enumerate(load_variants(f"{ROOT}/configs/table3.py").items())
]  # fmt: skip


@pytest.mark.one_in(2)
@pytest.mark.parametrize("rows", [SWEPT, PUBLISHED], ids=["swept", "published"])
@pytest.mark.parametrize("suffix", SUFFIXES)
def test_every_format_is_valid_and_reproducible(suffix, rows, tmp_path):
    """A file has the format of its suffix, and the same table gives the same file."""
    files = [tmp_path / f"new{i}" / f"x{suffix}" for i in range(2)]
    for file in files:
        draw_rows(rows, file)
    one, other = (file.read_bytes() for file in files)
    assert one == other
    assert one.lstrip().startswith({".svg": b"<?xml", ".pdf": b"%PDF", ".png": b"\x89PNG"}[suffix])


def test_published_figures_are_drawn_next_to_every_row(tmp_path):
    draw_rows(PUBLISHED, tmp_path / "x.svg")
    text = (tmp_path / "x.svg").read_text()
    for row in PUBLISHED:
        assert f">{row.settings['variant']}</text>" in text
    assert ">measured: validation BLEU, beam</text>" in text
    assert len(re.findall("<use ", text)) >= 4 * len(PUBLISHED)  # two marks in each of two panels


def test_each_swept_field_has_a_panel(tmp_path):
    draw_rows(SWEPT, tmp_path / "x.svg")
    text = (tmp_path / "x.svg").read_text()
    for shown in ("optimizer.learning_rate", "model.residual", "pre_norm", "validation BLEU"):
        assert f">{shown}</text>" in text


def test_integers_have_integer_ticks(tmp_path):
    """There are no 2.5 heads."""
    rows = [Row({"model.num_heads": str(n)}, {"validation BLEU": [20.0 + n]}) for n in (2, 3)]
    draw_rows(rows, tmp_path / "x.svg")
    axis = (tmp_path / "x.svg").read_text().split('id="matplotlib.axis_1"')[1]
    ticks = re.findall(r">([\d.]+)</text>", axis.split('id="matplotlib.axis_2"')[0])
    assert {"2", "3"} <= set(ticks)
    assert all(tick.isdigit() for tick in ticks)


def test_a_score_says_if_lower_is_better(tmp_path, monkeypatch):
    """Whatever its name: a new score is one line in a table."""
    monkeypatch.setitem(TITLES, "bits", Metric("bits", greater_is_better=False))
    rows = [Row({"variant": v}, {"validation bits": [x]}, {"published bits": x})
            for v, x in (("a", 1.5), ("b", 1.75))]  # fmt: skip
    draw_rows(rows, tmp_path / "x.svg")
    assert ">bits, difference from a (lower is better)</text>" in (tmp_path / "x.svg").read_text()
    draw_rows([Row({"seed": "1"}, {"validation bits": [1.5]})], tmp_path / "y.svg")
    assert ">validation bits</text>" in (tmp_path / "y.svg").read_text()


def test_rows_without_scores_are_rejected(tmp_path):
    for published in ({}, {"published BLEU": 3.0}):
        rows = [Row({"seed": "1"}, {"parameters": [1]}, published)]
        with pytest.raises(UserError, match="--plot: no point has a score yet"):
            draw_rows(rows, tmp_path / "x.svg")
