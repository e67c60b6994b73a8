"""Comparisons of runs, checked against sacrebleu's own command line on the same files."""

import dataclasses
import json
import random
import re
import shutil
import subprocess
import sys

import pytest

from transformer_jax.base.errors import UserError
from transformer_jax.cli import compare as command
from transformer_jax.cli import inspect
from transformer_jax.config import EvaluationConfig, Experiment
from transformer_jax.config.convert import to_json
from transformer_jax.evaluation.run import digest
from transformer_jax.reports.compare import differences, paired_tests
from transformer_jax.reports.systems import read_system
from transformer_jax.runs.workdir import WorkDir

WORDS = [
    "the",
    "a",
    "dog",
    "cat",
    "man",
    "woman",
    "runs",
    "sits",
    "sleeps",
    "in",
    "on",
    "under",
    "big",
    "small",
    "red",
    "house",
    "street",
]
COUNT = 60


def sentences(seed: int) -> list[str]:
    choose = random.Random(seed)
    return [" ".join(choose.choices(WORDS, k=choose.randint(3, 12))) + "." for _ in range(COUNT)]


REFERENCES = sentences(0)


def spoiled(share: float, seed: int) -> list[str]:
    """Return the references with a share of the words replaced."""
    choose = random.Random(seed)
    return [
        " ".join(choose.choice(WORDS) if choose.random() < share else word for word in line.split())
        for line in REFERENCES
    ]


@pytest.fixture
def run(tmp_path):
    """Make a work directory as eval.py would leave it."""
    data = tmp_path / "data"
    data.mkdir(exist_ok=True)
    for language in ("en", "de"):
        (data / f"test.{language}").write_text("".join(f"{line}\n" for line in REFERENCES))

    def make(
        name, hypotheses, references=REFERENCES, checkpoint="best", beam_size=4, **evaluation
    ) -> WorkDir:
        place = WorkDir(tmp_path / name)
        place.eval.mkdir(parents=True, exist_ok=True)
        experiment = Experiment()
        experiment = dataclasses.replace(
            experiment, data=dataclasses.replace(experiment.data, directory=str(data))
        )
        place.config.write_text(to_json(experiment))
        stem = place.eval / f"test.{checkpoint.replace(':', '-')}"
        stem.with_suffix(stem.suffix + ".hyp").write_text("".join(f"{h}\n" for h in hypotheses))
        output = {
            "sentences": len(hypotheses),
            "references": digest(references),
            "evaluation": dataclasses.asdict(EvaluationConfig(**evaluation)),
            "split": "test",
            "checkpoint": checkpoint,
            "steps": [1],
            "scores": {"chrF": {"value": 50.0}, "BLEU": {"value": 40.0}},
            "details": [],
            "exact_match": 0.0,
            "decoding": {"beam_size": beam_size},
        }
        stem.with_suffix(stem.suffix + ".json").write_text(json.dumps(output))
        return place

    return make


def sacrebleu_output(tmp_path, runs, test: str, samples: int, *options: str) -> str:
    (tmp_path / "ref").write_text("".join(f"{line}\n" for line in REFERENCES))
    files = [str(run.eval / "test.best.hyp") for run in runs]
    done = subprocess.run(
        [sys.executable, "-m", "sacrebleu", str(tmp_path / "ref"), "-i", *files, "-m", "bleu",
         "chrf", "ter", f"--paired-{test}", f"--paired-{test}-n", str(samples), "-f", "text",
         "-w", "4", *options],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    return done.stdout


@pytest.mark.parametrize("lowercase", [False, True])
@pytest.mark.parametrize("test", ["bs", "ar"])
def test_p_values_match_sacrebleu(test, lowercase, run, tmp_path):
    runs = [run("a", spoiled(0.3, 1), lowercase=lowercase),
            run("b", [line.upper() for line in spoiled(0.25, 2)], lowercase=lowercase),
            run("c", spoiled(0.3, 3), lowercase=lowercase)]  # fmt: skip
    systems = [read_system(place, None, "test") for place in runs]
    results = paired_tests(systems, REFERENCES, ["BLEU", "chrF", "TER"], [test], 200)
    options = ["-lc", "--chrf-lowercase"] if lowercase else []
    output = sacrebleu_output(tmp_path, runs, test, 200, *options)
    expected = [float(p) for p in re.findall(r"p = (\d+\.\d+)", output)]
    by_system = [[r.p_values.get(test) for r in results if r.system == s.name] for s in systems]
    assert by_system[0] == [None] * 3
    assert len(expected) == 6
    # Edits are whole numbers, so many trials equal the observed value; sacrebleu omits these.
    alike = 2 if test == "ar" else 3
    for row, theirs in zip(by_system[1:], (expected[:3], expected[3:]), strict=True):
        assert row[:alike] == pytest.approx(theirs[:alike], abs=5e-5)
        assert row[2] > theirs[2] - 5e-5
    for result in results:
        assert f"{result.score:.4f}" in output
    if test == "bs":
        for result in results:
            assert f"± {result.interval:.4f}" in output


def test_only_a_much_worse_run_is_called_different(run, capsys):
    good, same, bad = (run(name, spoiled(share, seed)) for name, share, seed in
                       (("good", 0.2, 1), ("same", 0.2, 2), ("bad", 0.5, 3)))  # fmt: skip
    paths = [str(place.path) for place in (good, same, bad)]
    assert command.main([*paths, "--samples=300", "--show=1"]) == 0
    output = capsys.readouterr().out
    bleu = output.splitlines()[:3]
    assert bleu[1].endswith("no difference shown")
    assert bleu[2].endswith("  different")
    assert "paired bootstrap p = " in bleu[1]
    assert "approximate randomisation p = " in bleu[1]
    assert command.main([*paths, "--samples=300", "--json", "--metric=TER", "--test=ar"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [row["metric"] for row in rows] == ["TER"] * 3
    assert [set(row["p_values"]) for row in rows] == [set(), {"ar"}, {"ar"}]
    assert rows[2]["p_values"]["ar"] < 0.05 < rows[1]["p_values"]["ar"]


@pytest.mark.parametrize("metric", ["BLEU", "chrF", "TER"])
def test_sentences_are_sorted_by_gain(metric, run):
    """The corrected line has the largest gain, the spoiled one the largest loss."""
    one = spoiled(0.4, 5)
    other = list(one)
    other[7], other[9] = REFERENCES[7], "nothing of this kind"
    one[7] = "nothing of this kind"
    systems = [read_system(run(n, h), None, "test") for n, h in (("one", one), ("other", other))]
    rows = differences(*systems, REFERENCES, metric)
    assert (rows[0].line, rows[-1].line) == (8, 10)
    assert rows[0].gain > 0 > rows[-1].gain
    assert (rows[0].reference, rows[0].one, rows[0].other) == (REFERENCES[7], one[7], other[7])
    assert sum(row.gain == 0 for row in rows) == COUNT - 2


def test_wins_and_losses_are_shown(run, capsys):
    one, other = spoiled(0.3, 1), spoiled(0.3, 1)
    other[3] = REFERENCES[3] if one[3] != REFERENCES[3] else "x"
    for name, lines in (("one", one), ("two", other)):
        run(name, lines)
    places = [str(run(n, h).path) for n, h in (("one", one), ("two", other))]
    assert command.main([*places, "--samples=10"]) == 0
    output = capsys.readouterr().out
    assert "1 better, 0 worse, 59 the same" in output or "0 better, 1 worse, 59 the same" in output
    assert "line 4  " in output
    assert f"  first      {one[3]}\n  other      {other[3]}\n" in output


def test_two_checkpoints_of_one_run_are_compared(run, capsys):
    place = run("one", spoiled(0.3, 1))
    run("one", spoiled(0.2, 2), checkpoint="average:5")
    assert command.main([str(place.path), f"{place.path}@average:5", "--samples=10"]) == 0
    assert f"{place.path}@average:5  paired" in capsys.readouterr().out


def test_default_metrics_are_those_scored_that_have_a_test(run, capsys):
    places = [run(name, spoiled(0.3, seed)) for name, seed in (("one", 1), ("two", 2))]
    argv = [*(str(place.path) for place in places), "--samples=10", "--test=bs", "--json"]
    for scores, metrics in ((("TER", "accuracy"), {"TER"}), (("accuracy",), None)):
        for place in places:
            file = place.eval / "test.best.json"
            output = json.loads(file.read_text()) | {"scores": {name: {} for name in scores}}
            output.pop("exact_match", None)
            file.write_text(json.dumps(output))
        if metrics is None:
            with pytest.raises(UserError, match="has no score that can be tested; set --metric"):
                command.main(argv)
        else:
            assert command.main(argv) == 0
            assert {row["metric"] for row in json.loads(capsys.readouterr().out)} == metrics


def test_translations_are_compared_without_their_rows(run, capsys):
    """Scores of words need none; an older version did not write them."""
    places = [run("a", spoiled(0.3, 1)), run("b", spoiled(0.3, 2))]
    (places[0].eval / "test.best.jsonl").write_text(
        "".join(f'{{"line": {number}}}\n' for number in range(1, COUNT + 1))
    )
    shown = []
    for first, other in (places, places[::-1]):
        arguments = [str(first.path), str(other.path), "--metric=chrF", "--samples=10", "--show=0"]
        assert command.main(arguments) == 0
        shown.append(capsys.readouterr().out)
    assert all("difference" in text for text in shown)


def test_other_test_data_have_their_own_references(run, capsys):
    lines = sentences(9)
    name = "best,data.test=newer"
    places = [run(x, spoiled(0.3, 1), lines, checkpoint=name) for x in ("a", "b")]
    for language in ("en", "de"):
        file = places[0].path.parent / f"data/newer.{language}"
        file.write_text("".join(f"{line}\n" for line in lines))
    arguments = [f"{place.path}@{name}" for place in places]
    assert command.main([*arguments, "--samples=10", "--test=bs", "--show=0"]) == 0
    assert "no difference shown" in capsys.readouterr().out


def test_differing_search_settings_are_reported(run, capsys):
    """config.json is the same in all; the settings stored with the translations differ."""
    places = [run(f"beam{n}", spoiled(0.3, 1), beam_size=n) for n in (4, 4, 2)]
    paths = [str(place.path) for place in places]
    options = ["--samples=10", "--test=bs", "--metric=TER", "--show=0"]
    assert command.main([*paths, *options]) == 0
    first = capsys.readouterr().out.splitlines()[0]
    assert first == "Differing settings: decoding.beam_size 4, 4, 2"
    assert command.main([*paths, *options, "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [row["differs_in"] for row in rows] == [{"decoding.beam_size": n} for n in "442"]
    assert command.main([*paths[:2], *options]) == 0
    assert "Differing settings" not in capsys.readouterr().out
    for path in paths[1:]:
        assert inspect.main([f"--workdir={path}"]) == 0
    output = capsys.readouterr().out
    assert output.count("test.best: ") == 2
    assert output.count("with decoding.") == 1
    assert "with decoding.beam_size=2, not 4\n" in output


def test_scores_are_found_by_settings_in_any_order_and_form(run, capsys):
    """eval.py names its files by the fields in manual order."""
    place = run("a", spoiled(0.3, 1))
    for path in list(place.eval.iterdir()):
        name = path.name.replace("best", "best,decoding.beam_size=1,decoding.alpha=1.0")
        shutil.copy(path, path.with_name(name))
    other = f"{place.path}@best,decoding.alpha=1,decoding.beam_size=1"
    assert command.main([str(place.path), other, "--samples=10", "--test=bs", "--show=0"]) == 0
    assert f"{place.path}@best,decoding.beam_size=1,decoding.alpha=1.0" in capsys.readouterr().out
    with pytest.raises(UserError, match=r"config\.decoding\.alhpa: unknown field"):
        command.main([str(place.path), f"{place.path}@best,decoding.alhpa=1"])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["a"], r"a: compared with what\? name two work directories"),
        (["a", "nowhere"], "nowhere: no config.json here; train first"),
        (["a", "a@last"], r"test.last.hyp: no such translations; create them with: python eval.py "
                          r"--workdir=.* --checkpoint=last --split=test$"),
        (["a", "a@lst"], "checkpoint='lst': must be best, last, a step, or average:N"),
        (["a", "other"], "other: was scored on other references than .*/a; score both"),
        (["other", "other"], "other: its references have changed since; run eval.py again, or"),
        (["a", "lower"], "lower: was scored with evaluation.lowercase=True, .*/a with False"),
        (["a", "old"], "test.best.json: incomplete or older than this version; run again: python"),
        (["a", "a", "--metric=blue"], r"--metric: unknown choice 'blue'"),
        (["a", "a", "--samples=-1"], r"--samples=-1: must be at least 0"),
        (["a", "a", "--split=mine.de"], "mine.de.best.hyp: no such trans"),
    ],
)  # fmt: skip
def test_invalid_comparisons_are_rejected(arguments, message, run, tmp_path, monkeypatch):
    run("a", spoiled(0.3, 1))
    run("other", spoiled(0.3, 1), references=sentences(9))
    run("lower", spoiled(0.3, 1), lowercase=True)
    old = run("old", spoiled(0.3, 1))
    (old.eval / "test.best.json").write_text('{"sentences": 60}')
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match=message):
        command.main(arguments)
