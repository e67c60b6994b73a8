"""Comparisons of classifiers: McNemar's test against SciPy's binomial test, and the output."""

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import binomtest

from transformer_jax.base.errors import UserError
from transformer_jax.cli import compare
from transformer_jax.config import (
    CheckpointConfig,
    EvaluationConfig,
    Experiment,
    ModelConfig,
    ObjectiveConfig,
    SideConfig,
    TokenizerConfig,
)
from transformer_jax.config.convert import to_json
from transformer_jax.evaluation.run import digest
from transformer_jax.reports.compare import shown_p
from transformer_jax.reports.mcnemar import of_shares, p_value
from transformer_jax.reports.report import gather
from transformer_jax.runs.workdir import WorkDir

LABELS = [("pos", "neg")[i % 2] for i in range(200)]


@pytest.mark.parametrize("better", [0, 1, 5, 12, 30, 700])
@pytest.mark.parametrize("worse", [0, 2, 5, 13, 600])
def test_p_value_is_that_of_the_binomial_test(better, worse):
    expected = binomtest(better, better + worse).pvalue if better + worse else 1.0
    assert p_value(better, worse) == pytest.approx(expected, rel=1e-9)
    assert p_value(better, worse) == p_value(worse, better)


def test_intervals_of_differences_have_their_nominal_coverage():
    """About 95 % of 4,000 draws of 60 pairs; no bound lies beyond 100 points."""
    generator = np.random.default_rng(0)
    drawn = generator.multinomial(60, [0.2, 0.1, 0.7], 4000)
    found = [of_shares(int(b), int(c), 60) for b, c, _ in drawn]
    covered = np.mean([low <= 10 <= high for _, low, high in found])
    assert abs(covered - 0.95) < 0.015
    assert of_shares(60, 0, 60)[2] == pytest.approx(100, abs=1)
    assert of_shares(0, 60, 60)[0] == -100


def classified(place: WorkDir, data, wrong: range) -> str:
    """Write a work directory as eval.py leaves it, with the texts in a range misclassified."""
    said = [("neg" if x == "pos" else "pos") if i in wrong else x for i, x in enumerate(LABELS)]
    place.eval.mkdir(parents=True)
    experiment = Experiment(
        model=ModelConfig(architecture="encoder"), objective=ObjectiveConfig("classify"),
        tgt=SideConfig("classes"), tokenizer=TokenizerConfig(joint=False),
        checkpoint=CheckpointConfig(best_by="accuracy"),
        evaluation=EvaluationConfig(bleu_sentences=0),
    )  # fmt: skip
    data = dataclasses.replace(
        experiment.data, directory=str(data), source_language="text", target_language="label"
    )
    place.config.write_text(to_json(dataclasses.replace(experiment, data=data)))
    (place.eval / "test.best.hyp").write_text("".join(f"{x}\n" for x in said))
    rows = [{"line": i, "reference": x, "hypothesis": y,
             "probability_of_reference": 0.8 * (x == y) + 0.1}
            for i, (x, y) in enumerate(zip(LABELS, said, strict=True), 1)]  # fmt: skip
    (place.eval / "test.best.jsonl").write_text("".join(f"{json.dumps(x)}\n" for x in rows))
    result = {
        "sentences": len(said), "references": digest(LABELS),
        "scores": {name: {"value": 1.0, "signature": ""} for name in ("accuracy", "loss")},
        "split": "test", "checkpoint": "best", "steps": [1], "details": [],
        "evaluation": dataclasses.asdict(experiment.evaluation), "decoding": None,
    }  # fmt: skip
    (place.eval / "test.best.json").write_text(json.dumps(result))
    return str(place.path)


@pytest.fixture
def two(tmp_path) -> list[str]:
    """Return a run with 30 of 200 texts wrong, and one with 14 of these and 4 others wrong."""
    for ending, lines in (("text", ["a text"] * 200), ("label", LABELS)):
        for part in ("train", "test"):
            text = "".join(f"{line}\n" for line in lines)
            (tmp_path / f"{part}.{ending}").write_text(text)
    places = (("one", range(30)), ("other", range(16, 34)))
    return [classified(WorkDir(tmp_path / name), tmp_path, wrong) for name, wrong in places]


def test_printed_and_json_output(two, capsys):
    assert compare.main([*two, "--show=1"]) == 0
    first, second, _, loss, *rest = capsys.readouterr().out.splitlines()
    assert first.startswith("accuracy  85.00 ± 4.9")
    p = binomtest(4, 20).pvalue
    assert second.startswith("accuracy  91.00 ± 4.0")
    assert (
        f"McNemar's exact test p = {p:.4f}  difference +6.00, 95 % interval +1.46 to +10.42"
        in second
    )
    assert second.endswith("  different")
    assert "sentence accuracy: 16 better, 4 worse, 180 the same" in rest[1]
    assert "line 1  +100.0" in rest
    # For a loss with two values, the exchanges are those of McNemar's test.
    drawn = float(loss.partition("approximate randomisation p = ")[2].split()[0])
    assert drawn == pytest.approx(p, abs=4 * (p / 10_000) ** 0.5)
    assert compare.main([*two, "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert rows[1]["p_values"] == {"mcnemar": pytest.approx(p)}
    assert rows[1]["difference"][0] == pytest.approx(6)
    assert rows[0]["difference"] is None


def test_reports_test_classifiers_against_each_other(two):
    tests = gather([(WorkDir(place), None) for place in two], "test")["tests"]
    assert [(test["one"], test["other"]) for test in tests] == [("one", "other")] * 2
    accuracy, loss = tests
    assert (accuracy["metric"], accuracy["different"]) == ("accuracy", True)
    assert accuracy["p"] == [["McNemar's exact test", pytest.approx(binomtest(4, 20).pvalue)]]
    assert accuracy["shown_p"] == [f"p = {binomtest(4, 20).pvalue:.4f}"]
    assert accuracy["difference"][0] == pytest.approx(6)
    assert loss["difference"][2] < 0


def test_meaningless_options_are_rejected(two):
    with pytest.raises(UserError, match=r"^--metric: unknown choice 'BLEU'"):
        compare.main([*two, "--metric=BLEU"])
    for option in ("--test=ar", "--samples=9"):
        match = rf"^{option.partition('=')[0]}: accuracy: compared by McNemar's exact test, which"
        with pytest.raises(UserError, match=match):
            compare.main([*two, "--metric=accuracy", option])
    with pytest.raises(UserError, match=r"^--reference: eval.py stores the references"):
        compare.main([*two, "--reference=x"])
    rows = Path(two[1], "eval/test.best.jsonl")
    rows.write_text(rows.read_text().replace("probability_of_reference", "p"))
    with pytest.raises(UserError, match="older version, which did not store probability_of_ref"):
        compare.main(two)


@pytest.mark.parametrize(
    ("p", "shown"),
    [(1.0, "p = 1.0000"), (0.0001, "p = 0.0001"), (6e-5, "p = 0.0001"), (4e-5, "p < 0.0001"),
     (0.0, "p < 0.0001")],
)  # fmt: skip
def test_no_p_value_is_shown_as_zero(p, shown):
    assert shown_p(p) == shown
