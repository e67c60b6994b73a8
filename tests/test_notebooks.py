"""The notebooks of docs/notebooks run as written, in a folder of their own, and what they say of
their models is so. `make site` runs them in Jupyter, and shows what they print.
"""

import ast
import re
from pathlib import Path

import matplotlib.pyplot as plt
import pytest

PLACE = Path(__file__).parents[1] / "docs" / "notebooks"
pytestmark = pytest.mark.thorough


def run(name: str) -> dict:
    """Run the cells of a notebook, with assertions on, and return its names."""
    names: dict = {}
    text = (PLACE / f"{name}.md").read_text(encoding="utf-8")
    for cell in re.findall(r"^```python\n(.*?)^```", text, re.M | re.DOTALL):
        exec(compile(ast.parse(cell), f"docs/notebooks/{name}.md", "exec"), names)
    plt.close("all")
    return names


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(plt, "show", lambda: None)
    plt.switch_backend("Agg")


def test_the_translator_puts_tens_before_units():
    model = run("translator")["model"]
    number = "achthundertneunundsiebzig"
    assert model.translate(number) == "eight hundred and seventy-nine"


def test_the_gpt_repeats_words_that_it_has_never_seen():
    names = run("gpt")
    assert names["model"].generate("hallo ha", beam_size=1, max_tokens=12) == "hallo hallo"
    # In the second layer, letters look at the place after their first occurrence.
    seen = names["seen"].attention[1]
    assert max(sum(head[i, i - 8] for i in range(10, 18)) / 8 for head in seen) > 0.5


def test_attention_over_averages_copies_and_averages_alone_do_not():
    names = run("mixer")
    word = "golfclop"
    written = {name: names[name].generate(f"{word} go", beam_size=1, max_tokens=10)
               for name in ("averages", "mixed")}  # fmt: skip
    assert written["mixed"] == f"{word} {word}"
    assert written["averages"] != f"{word} {word}"
