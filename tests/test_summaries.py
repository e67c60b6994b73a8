"""Summaries from files as people have them: read, trained on and scored."""

import json
import re
import runpy
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from test_recipes import DECODER, ENCODER, PIECES, TINY, sentences

from transformer_jax.cli import evaluate, train
from transformer_jax.cli.arguments import load_config
from transformer_jax.config.convert import parse
from transformer_jax.data import sources
from transformer_jax.evaluation.summaries import lead
from transformer_jax.runs.workdir import WorkDir, read_rows

ROOT = Path(__file__).parents[1]
CONFIG = str(ROOT / "configs/summaries.py")
TEXT = (ROOT / "docs/text.md").read_text("utf-8")
SPLITS = {"train": 300, "validation": 12, "test": 12}


def news(count: int, seed: int, ends: str = "\n") -> list[tuple[str, str]]:
    """Return articles with paragraphs, and highlights, one a line, as CNN/DailyMail has them."""
    texts = iter(sentences(4 * count, seed))
    said = [f"{text.capitalize()} ." for text in texts]
    return [
        (f"(CNN) {a}\n\n{b}{ends}", f"{c}\n{d}")
        for a, b, c, d in zip(*(said[i::4] for i in range(4)), strict=True)
    ]


def documented() -> Callable[[dict[str, str]], dict[str, str]]:
    """Return the function that docs/text.md has for line breaks."""
    scope: dict[str, Any] = {}
    exec(textwrap.dedent(re.search(r"( +def marked.*?)\n\n", TEXT, re.S)[1]), scope)
    return scope["marked"]


def trained(*argv: str, workdir: Path) -> tuple[list[dict], dict]:
    """Train a few steps, score the test set; return the rows and the result."""
    own = (*TINY, PIECES, DECODER, f"--workdir={workdir}", "--config.data.max_length=48")
    assert train.main([*argv, *own]) == 0
    assert evaluate.main([f"--workdir={workdir}"]) == 0
    place = WorkDir(workdir).eval / "test.best"
    rows = read_rows(place.with_suffix(".best.jsonl"), "line")
    return rows, json.loads(place.with_suffix(".best.json").read_text())


@pytest.mark.parametrize("broken", [True, False])
def test_line_breaks_become_spaces_or_the_symbol(broken, tmp_path):
    pairs = news(12, 1)
    for split in SPLITS:
        rows = [{"article": x, "highlights": y, "id": "0"} for x, y in pairs]
        rows = [row if broken else row | documented()(row) for row in rows]
        (tmp_path / f"{split}.jsonl").write_text("".join(f"{json.dumps(x)}\n" for x in rows))
    overrides = {"directory": str(tmp_path), "columns": "source=article,target=highlights"}
    config = parse(load_config(CONFIG, [(f"data.{x}", y) for x, y in overrides.items()]))
    corpus = sources.load(config.data, "test")
    between = " " if broken else " <n> "
    assert corpus.tgt[0] == pairs[0][1].replace("\n", between)
    paragraphs = pairs[0][0].split("\n\n")
    if not broken:
        assert lead(corpus.src[0], 2) == f"{paragraphs[0]}\n{paragraphs[1].strip()}"


@pytest.mark.thorough
def test_an_encoder_decoder_trains_on_a_saved_data_set(tmp_path):
    """With CNN/DailyMail's names, saved by `datasets` itself, as docs/text.md says."""
    datasets = pytest.importorskip("datasets")
    parts = {
        split: datasets.Dataset.from_list(
            [{"article": x, "highlights": y, "id": str(i)}
             for i, (x, y) in enumerate(news(count, count))]
        )
        for split, count in SPLITS.items()
    }  # fmt: skip
    datasets.DatasetDict(parts).map(documented()).save_to_disk(str(tmp_path / "cnn_dailymail"))
    rows, result = trained(
        f"--config={CONFIG}", f"--config.data.directory={tmp_path / 'cnn_dailymail'}",
        *(f"--config.data.{split}={split}" for split in SPLITS),
        "--config.data.columns=source=article,target=highlights", ENCODER,
        "--config.evaluation.metrics=ROUGE-1,ROUGE-2,ROUGE-Lsum", workdir=tmp_path / "run",
    )  # fmt: skip
    assert result["scores"].keys() == {"ROUGE-1", "ROUGE-2", "ROUGE-Lsum"}
    assert "stemmer:porter" in result["scores"]["ROUGE-Lsum"]["signature"]
    assert [line.split(" (")[0] for line in result["notes"]] == ["lead-1", "lead-3"]
    assert all(" <n> " in row["reference"] for row in rows)
    assert {"ROUGE-1", "ROUGE-2", "ROUGE-Lsum", "chrF"} <= rows[0].keys()


@pytest.mark.thorough
def test_a_decoder_trains_on_json_lines(tmp_path):
    """With XSum's names: the config's own. Documents longer than the window are cut."""
    for split, count in SPLITS.items():
        rows = [{"document": x, "summary": y.partition("\n")[0]} for x, y in news(count, count)]
        (tmp_path / f"{split}.jsonl").write_text("".join(f"{json.dumps(x)}\n" for x in rows))
    _, result = trained(
        f"--config={CONFIG}:decoder", f"--config.data.directory={tmp_path}",
        "--config.objective.window=16", workdir=tmp_path / "run",
    )  # fmt: skip
    assert result["sentences"] == SPLITS["test"]
    assert len(result["notes"]) == 2


def test_functions_are_documents_without_their_summaries():
    """Nor comments; functions that say nothing of themselves in a sentence are left out."""
    text = textwrap.dedent('''
        def add_one(x):  # a comment
            """Return the next number."""
            return x + 1

        class Kept:
            def both(self):
                """Do this
                and that.

                With care.
                """
                pass

            def left_out(self):
                "no sentence"
    ''')
    script = runpy.run_path(str(ROOT / "benchmarks/studies/docstrings.py"), run_name="script")
    one, other = script["functions"](text)
    assert one == ("def add_one(x): <n> return x + 1", "Return the next number.")
    assert other[1] == "Do this and that."
    assert other[0].startswith("def both(self): <n> ")
    assert "With care." in other[0]
    assert script["named"](one[0]) == "add one"
    assert list(script["functions"]("print 1")) == []


def test_both_variants_are_configs_for_the_same_files():
    for variant in ("", ":encoder_decoder", ":decoder"):
        config = parse(load_config(CONFIG + variant))
        assert config.data.long_sources == "cut"
    with pytest.raises(ValueError, match="no variant 'encoder'"):
        load_config(CONFIG + ":encoder")
