"""Reports show what the work directories hold, and gathering it changes nothing."""

import dataclasses
import json
import subprocess

import pytest
import sacrebleu
from hypothesis import given
from hypothesis import strategies as st
from written import EXPERIMENT, HOSTILE, PLAIN, START, predicted, scored, trained, with_field

from transformer_jax.base.errors import UserError
from transformer_jax.cli import report as command
from transformer_jax.cli.arguments import Parser, load_config
from transformer_jax.cli.main import dispatch
from transformer_jax.config import (
    EvaluationConfig,
    Experiment,
    ModelConfig,
    SideConfig,
)
from transformer_jax.config.convert import from_json, parse
from transformer_jax.config.metrics import TRANSLATION, VALIDATION, in_nats, validation
from transformer_jax.data.objectives import OBJECTIVES
from transformer_jax.evaluation.sentences import picked, sentence_scores, words
from transformer_jax.plots.page import render, unpack
from transformer_jax.reports import breakdown, runs, sweep_rows
from transformer_jax.reports.compare import against_first
from transformer_jax.reports.curves import curves
from transformer_jax.reports.naming import named
from transformer_jax.reports.report import gather
from transformer_jax.reports.systems import read_scored
from transformer_jax.reports.verdict import verdict
from transformer_jax.runs.workdir import WorkDir, append_row, read_rows
from transformer_jax.sweeps import table
from transformer_jax.sweeps.points import name_of
from transformer_jax.sweeps.sweep import Record
from transformer_jax.training.other_losses import LOSSES

REFERENCES = [*PLAIN, *HOSTILE]
ONE = [line.replace("Hund", "Kater") for line in REFERENCES]
OTHER = [line.replace("und der", "mit einer") for line in REFERENCES]


@pytest.fixture
def run(tmp_path) -> WorkDir:
    place = trained(tmp_path / "one")
    scored(place, HOSTILE + PLAIN, REFERENCES, ONE)
    return place


@pytest.fixture
def other(tmp_path) -> WorkDir:
    place = trained(tmp_path / "other", with_field(EXPERIMENT, "model.d_ff", 64), factor=1.25)
    scored(place, HOSTILE + PLAIN, REFERENCES, OTHER)
    return place


def contents(place: WorkDir) -> dict[str, tuple[bytes, int]]:
    return {
        str(path): (path.read_bytes(), path.stat().st_mtime_ns)
        for path in place.path.rglob("*")
        if path.is_file()
    }


def test_numbers_in_the_page_match_the_files(run):
    page = unpack(render(gather([(run, None)])))
    (printed,) = page["runs"]
    rows = read_rows(run.metrics)
    for group, names in (
        ("train", ("step", "loss", "nll", "accuracy", "grad_norm", "learning_rate")),
        ("validation", ("step", "validation_loss", "validation_bleu")),
    ):
        for name in names:
            of = [row for row in rows if names[1] in row]
            assert printed["curves"][group][name] == pytest.approx([r[name] for r in of], rel=1e-5)
    timings = read_rows(run.timings)
    rates = printed["curves"]["rate"]
    assert rates["target_tokens_per_s"] == [row["target_tokens_per_s"] for row in timings]
    assert rates["minutes"] == pytest.approx([row["step"] / 5.0 / 60 for row in timings], rel=1e-5)
    assert rates["tokens"] == [111 * row["step"] for row in timings]
    written = json.loads((run.eval / "test.best.json").read_text())
    (evaluation,) = printed["evaluations"]
    assert evaluation["scores"] == written["scores"]
    ratio = sacrebleu.BLEU().corpus_score(ONE, [REFERENCES]).ratio
    assert evaluation["length_ratio"] == pytest.approx(ratio, abs=5e-4)
    assert printed["seconds"] == {"step": 84.0, "input": 10.5, "evaluation": 9.0, "checkpoint": 5.2}
    rows = read_rows(run.eval / "test.best.jsonl", "line")
    assert len(page["sentences"]) == len(rows)
    for sentence, row in zip(page["sentences"], rows, strict=True):
        assert (sentence["source"], sentence["reference"]) == (row["source"], row["reference"])
        (system,) = sentence["systems"]
        for key in ("hypothesis", "BLEU", "chrF"):
            assert system[key] == row[key]
        assert system.get("attention") == row.get("attention")


def test_facts_are_those_of_the_last_start(run):
    (printed,) = gather([(run, None)])["runs"]
    facts = printed["facts"]
    for key in ("command", "commit", "parameters", "pairs"):
        assert facts[key] == START[key]
    assert facts["machine"] == "1 cpu; a processor, 2 cores, 8 GiB; Linux"
    assert (facts["steps"], facts["tokens"], facts["state"]) == (200, 22200, "finished")
    assert facts["minutes"] == pytest.approx(200 / 5 / 60)
    assert facts["validation"]["BLEU"] == 22.0
    append_row(run.history, {"step": 200, "event": "start", "time": 1.0, **START, "pairs": 1})
    assert runs.facts(runs.read(run))["pairs"] == 1


def test_the_tokenizer_is_described_by_the_codecs(run):
    def printed(joint, *codecs):
        sides = dict(zip(("src", "tgt"), map(SideConfig, codecs), strict=True))
        tokenizer = dataclasses.replace(Experiment().tokenizer, joint=joint)
        model = ModelConfig(tied_embeddings="none")
        experiment = Experiment(model=model, tokenizer=tokenizer, **sides)
        return runs.facts(dataclasses.replace(runs.read(run), experiment=experiment))["tokenizer"]

    subwords = "bpe, at most 32,000 pieces"
    assert printed(True, "subwords", "subwords") == f"{subwords}, one vocabulary"
    assert printed(True, "bytes", "bytes") == "bytes, one vocabulary"
    assert printed(False, "characters", "characters") == "characters, two vocabularies"
    assert printed(False, "bytes", "subwords") == f"source bytes; target {subwords}"


def test_half_written_lines_are_ignored_and_no_file_changes(run):
    whole = gather([(run, None)])
    for path in (run.metrics, run.timings, run.history):
        with open(path, "a") as file:
            file.write('{"step": 210, "lo')
    before = contents(run)
    assert gather([(run, None)])["runs"] == whole["runs"]
    assert contents(run) == before


def test_a_running_run_has_a_report(tmp_path):
    place = trained(tmp_path / "going", steps=70)
    (printed,) = gather([(place, None)])["runs"]
    assert printed["facts"]["steps"] == 70
    assert printed["facts"]["state"].startswith("running or interrupted; last row ")
    assert printed["evaluate"].endswith("--checkpoint=best --split=test")


def test_without_history_the_command_is_one_that_repeats_the_run(run):
    run.history.unlink()
    facts = runs.facts(runs.read(run))
    assert not facts["recorded"]
    assert facts["machine"] is None
    parser = Parser("")
    parser.add_argument("--config")
    parser.add_argument("--workdir")
    words_ = subprocess.run(["sh", "-c", f"printf '%s\\n' {facts['command']}"],
                            capture_output=True, text=True).stdout.split("\n")[2:-1]  # fmt: skip
    known, overrides = parser.read(words_)
    assert parse(load_config(known.config, overrides)) == EXPERIMENT


def test_a_language_model_has_windows_and_no_translations(run, tmp_path):
    facts = [
        gather([(place, None)])["runs"][0]["facts"] for place in (run, predicted(tmp_path / "lm"))
    ]
    assert [fact["translates"] for fact in facts] == [True, False]
    assert facts[1]["items"] == "windows of 16 pieces"


def test_two_runs_are_tested_and_shown_side_by_side(run, other):
    report = gather([(run, None), (other, None)])
    assert report["title"] == "Runs one and other compared"
    drawn = ["paired bootstrap", "approximate randomisation"]
    known = {"BLEU": drawn, "chrF": drawn, "exact_match": ["McNemar's exact test"]}
    assert {test["metric"]: [name for name, _ in test["p"]] for test in report["tests"]} == known
    for test in report["tests"]:
        assert (test["one"], test["other"]) == ("one", "other")
        assert test["difference"][1] <= test["difference"][0] <= test["difference"][2]
        assert test["different"] == all(p < 0.05 for _, p in test["p"])
    for sentence, one, two in zip(report["sentences"], ONE, OTHER, strict=True):
        assert [system["hypothesis"] for system in sentence["systems"]] == [one, two]
    assert ["model.d_ff", "64", "2048"] in report["runs"][1]["settings"]


def test_runs_with_other_references_are_not_shown_side_by_side(run, tmp_path):
    place = trained(tmp_path / "else")
    scored(place, PLAIN, PLAIN, PLAIN)
    report = gather([(run, None), (place, None)])
    assert [system["run"] for system in report["systems"]] == [0]


def test_checkpoint_and_split_can_be_chosen(run):
    scored(run, PLAIN, PLAIN, PLAIN, checkpoint="average:5")
    scored(run, PLAIN, PLAIN, ONE[: len(PLAIN)], split="validation")
    report = gather([(run, None), (run, "average:5")], "test")
    assert report["title"] == "Runs one and one@average:5 compared"
    assert len(gather([(run, None)], "validation")["sentences"]) == len(PLAIN)


def test_search_settings_are_those_stored_with_the_scores(tmp_path):
    """config.json is the same in both; the settings used for the search are not."""
    places = [trained(tmp_path / name) for name in ("one", "two")]
    for place, beam_size in zip(places, (4, 2), strict=True):
        scored(place, PLAIN, PLAIN, ONE[: len(PLAIN)], beam_size=beam_size)
    report = gather([(place, None) for place in places])
    first, second = ({path: v for path, v, _ in run["settings"]} for run in report["runs"])
    assert second.pop("decoding.beam_size") == "2"
    assert first == second
    assert [row["search"] for row in report["scores"]] == [{"beam_size": "4"}, {"beam_size": "2"}]


def test_checkpoints_of_one_run_share_its_training(run):
    """Each score is listed once, and what they have in common is shown once."""
    scored(run, PLAIN, PLAIN, PLAIN, checkpoint="average:5")
    report = gather([(run, None), (run, "average:5"), (run, "best")])
    rows = [(row["run"], row["split"], row["checkpoint"]) for row in report["scores"]]
    assert rows == [("one", "test", "average:5"), ("one", "test", "best")]
    assert [bool(r["curves"] and r["seconds"]) for r in report["runs"]] == [True, False, False]
    assert [r["again"] for r in report["runs"]] == [False, True, True]


def test_scores_of_any_name_are_reported(run):
    """Accuracy alone, without BLEU, chrF, counts or an exact match."""
    file = run.eval / "test.best.json"
    printed = json.loads(file.read_text())
    printed |= {"scores": {"accuracy": {"value": 87.5, "signature": "top 1"}}, "details": []}
    del printed["exact_match"], printed["decoding"]
    file.write_text(json.dumps(printed))
    run.eval.joinpath("test.best.jsonl").unlink()
    (row,) = gather([(run, None)])["scores"]
    assert row["scores"] == {"accuracy": {"value": 87.5, "signature": "top 1"}}
    assert row["length_ratio"] is row["exact_match"] is None
    assert row["search"] == {}


# --- breakdowns -----------------------------------------------------------------------------------


def rows_of(hypotheses) -> list[dict]:
    scores = sentence_scores(hypotheses, REFERENCES, EvaluationConfig())
    return [
        {"line": i, "reference": r, "hypothesis": h, "seen": [len(w) for w in words(r)], **s}
        for i, (r, h, s) in enumerate(zip(REFERENCES, hypotheses, scores, strict=True), 1)
    ]


@pytest.mark.parametrize("by", [breakdown.by_length, breakdown.by_rarest_word])
def test_scores_of_groups_match_sacrebleu(by):
    systems = [rows_of(ONE), rows_of(OTHER)]
    found = by(systems)
    for number in (0, 1):
        groups = [row for row in found if row["system"] == number]
        known = [row for row in systems[0] if by is breakdown.by_length or row["seen"]]
        assert sum(row["count"] for row in groups) == len(known)
    row = next(row for row in found if row["label"] == "6–10" or row["label"] == "2–10")
    lengths = by is breakdown.by_length
    members = [
        r for r in systems[0]
        if (6 <= len(r["seen"]) <= 10 if lengths else 2 <= min(r["seen"], default=0) <= 10)
    ]  # fmt: skip
    expected = sacrebleu.corpus_bleu([r["hypothesis"] for r in members],
                                     [[r["reference"] for r in members]])  # fmt: skip
    assert (row["count"], row["BLEU"]) == (len(members), pytest.approx(expected.score, abs=0.01))
    assert row["length ratio"] == pytest.approx(expected.ratio, abs=1e-3)
    assert row["chrF"] == pytest.approx(sum(r["chrF"] for r in members) / len(members), abs=0.01)


def test_words_found_match_a_count_by_hand():
    row = {"reference": "a b b c", "hypothesis": "b x a, b b", "seen": [0, 3, 3, 5000]}
    assert [(r["label"], r["count"], r["found"]) for r in breakdown.words_found([[row]])] == [
        ("0", 1, 100.0), ("2–10", 2, 100.0), (">1000", 1, 0.0)
    ]  # fmt: skip


@given(
    st.lists(st.sampled_from("abcd"), max_size=12), st.lists(st.sampled_from("abcd"), max_size=12)
)
def test_unmarked_words_are_common_to_both(one, other):
    missing, extra = breakdown.marks(" ".join(one), " ".join(other))
    kept = [word for i, word in enumerate(one) if i not in missing]
    assert kept == [word for i, word in enumerate(other) if i not in extra]
    if one == other:
        assert missing == extra == []


def test_the_best_the_worst_and_random_sentences_are_picked():
    rows = rows_of(ONE)
    found = picked(rows)
    scores = [row["chrF"] for row in rows]
    assert {scores[i] for i in found["best"]} == set(sorted(scores, reverse=True)[:8])
    assert sorted(scores[i] for i in found["worst"]) == sorted(scores)[:8]
    assert len(set(found["random"])) == 8
    assert found["random"] == picked(rows_of(OTHER))["random"]
    assert [len(kind) for kind in picked(rows[:3]).values()] == [3, 3, 3]


# --- sweeps ---------------------------------------------------------------------------------------


def test_the_points_of_a_sweep_are_gathered(tmp_path):
    for d_ff, factor in ((32, 1.5), (64, 1.0)):
        for seed in (1, 2):
            experiment = with_field(with_field(EXPERIMENT, "model.d_ff", d_ff), "seed", seed)
            trained(tmp_path / f"s/model.d_ff={d_ff},seed={seed}", experiment, factor=factor)
    report = gather([(WorkDir(tmp_path / "s"), None)])
    sweep = report["sweep"]
    assert (sweep["fields"], sweep["by"]) == (["model.d_ff", "seed"], "validation BLEU")
    best, *_, last = sweep["rows"]
    assert (best["settings"]["model.d_ff"], last["settings"]["model.d_ff"]) == (64, 32)
    assert best["measured"]["validation BLEU"] == 22.0
    assert [run["whole"] for run in report["runs"]] == [True, False, False, False]
    rows = sweep_rows.tabulated(tmp_path / "s", "test")
    assert [row.settings for row in rows] == [{"model.d_ff": "64"}, {"model.d_ff": "32"}]
    assert rows[0].measured["validation BLEU"] == [22.0, 22.0]


@pytest.mark.parametrize("name", ["data.directory=_{}", "seed={}"])
def test_directories_are_settings_if_they_were_swept(name, tmp_path):
    """Else one may have moved."""
    for i in (1, 2):
        experiment = with_field(with_field(EXPERIMENT, "data.directory", f"/{i}"), "seed", i)
        trained(tmp_path / name.format(i), experiment)
    (*rows,) = sweep_rows.tabulated(tmp_path, "test")
    assert len(rows) == 1 + name.startswith("data")


def points_of(place, scores, seeds=(0,)) -> dict:
    """Return the sweep of points with these validation BLEUs, each with every seed."""
    for d_ff, bleu in zip((32, 64, 128), scores, strict=False):
        for seed in seeds:
            experiment = with_field(with_field(EXPERIMENT, "model.d_ff", d_ff), "seed", seed)
            point = trained(place / f"model.d_ff={d_ff},seed={seed}", experiment)
            point.metrics.write_text("")
            append_row(point.metrics, {"step": 9, "validation_bleu": bleu + seed / 100})
    return gather([(WorkDir(place), None)])["sweep"]


@pytest.mark.parametrize(
    ("scores", "seeds", "best", "why"),
    [
        ((20.0, 25.0), (0,), "model.d_ff=64,seed=0", "Best by validation BLEU: model.d_ff=64"),
        ((0.05, 0.08), (0,), None, "no validation BLEU is above 0.08, near zero"),
        ((25.1, 25.0), (0,), None, "the first two settings differ by 0.1 validation BLEU, and"),
        ((25.8, 25.0), (0,), None, "another seed alone may change it by 1."),
        ((25.1, 25.0), (1, 2), "model.d_ff=32,seed=2", "Best by"),  # seeds differ by 0.01
        # 4.3 standard errors of means of two each.
        ((25.02, 25.0), (1, 2), None, "another seed alone may change it by 0.03"),
    ],
)
def test_a_best_point_is_named_only_if_it_is_clear(scores, seeds, best, why, tmp_path):
    verdict = points_of(tmp_path / "s", scores, seeds)["verdict"]
    assert verdict["best"] == best
    assert why in verdict["why"]


@pytest.mark.parametrize(
    ("config", "kind", "items"),
    [
        ("pictures", "A classifier of pictures", "pictures"),
        ("etth1", "A forecaster of time series", "windows of 336 rows"),
        ("picture_codes", "An autoencoder of pictures", "pictures"),
        ("movie_reviews", "A classifier of texts", "texts, at most 512 pieces of each,"),
        ("bert_brown", "A masked language model", "windows of 128 pieces"),
        ("shakespeare", "A language model", "windows of 64 pieces"),
    ],
)
def test_names_of_kinds_of_models(config, kind, items):
    found = named(parse(load_config(f"configs/{config}.py")))
    assert (found["kind"], found["items"]) == (kind, items)


@pytest.mark.parametrize(
    ("config", "scored"),
    [("pictures", "pictures"), ("etth1", "windows"), ("movie_reviews", "texts"),
     ("spoken_digits", "sentences"), ("multi30k", "sentences"), ("shakespeare", "texts")],
)  # fmt: skip
def test_what_was_scored_is_called_by_its_name(config, scored):
    assert named(parse(load_config(f"configs/{config}.py")))["scored"] == scored


def test_a_sentence_names_few_parts():
    """Of many files the first and the last; the settings list all."""
    assert runs._listed(("train", "more")) == "train+more"
    assert runs._listed([f"f{i:02}" for i in range(91)]) == "f00 to f90, 91 parts"


def test_word_error_rates_are_percentages():
    """A hundredth of 2.3 is less than one of 300 words."""
    rows = [{"name": f"x={x}", "measured": {"WER": score}, "settings": {"x": x}, "trained": True}
            for x, score in ((1, 2.33), (2, 2.67))]  # fmt: skip
    assert verdict(rows, "WER", VALIDATION["wer"])["best"] is None


def test_the_page_shows_the_point_that_is_named_the_best(tmp_path):
    for d_ff, seed, bleu in ((64, 1, 40.0), (32, 1, 37.0), (64, 2, 30.0)):
        experiment = with_field(with_field(EXPERIMENT, "model.d_ff", d_ff), "seed", seed)
        point = trained(tmp_path / f"s/model.d_ff={d_ff},seed={seed}", experiment)
        point.metrics.write_text("")
        append_row(point.metrics, {"step": 9, "validation_bleu": bleu})
    report = gather([(WorkDir(tmp_path / "s"), None)])
    assert report["sweep"]["verdict"]["best"] == "model.d_ff=32,seed=1"
    assert [run["name"] for run in report["runs"] if run["whole"]] == ["model.d_ff=32,seed=1"]


def test_curves_reach_the_end_of_a_run_between_two_rows():
    metrics = [{"step": 50, "loss": 3.0, "target_tokens": 1000},
               {"step": 100, "loss": 2.0, "target_tokens": 2000},
               {"step": 120, "validation_loss": 1.5, "validation_accuracy": 0.5}]  # fmt: skip
    timings = [{"step": 50, "steps_per_s": 1.0}, {"step": 100, "steps_per_s": 0.5}]
    found = curves(metrics, timings)["validation"]
    assert found["tokens"] == [2400]
    assert found["minutes"] == pytest.approx([(50 + 100 + 40) / 60], rel=1e-5)
    assert found["validation_accuracy"] == [50]
    assert curves(metrics[2:], [])["validation"]["minutes"] == [0]


def test_losses_on_numbers_have_no_perplexity():
    assert validation("loss", "forecast").title == "loss"
    assert validation("loss", "translate").title == "perplexity"
    assert validation("loss", "reconstruct").shown(0.38) == 0.38


def test_losses_are_in_nats_unless_numbers_are_predicted():
    """What each objective predicts decides, not a list that a new one could be missing from."""
    numbers = {"value", "forecast", "pixels", "diffusion"}
    numbers |= {"action", "cloned_action"}  # which may be numbers
    others = {
        "span",
        "move",
        "ctc",
        "distances",
        "preference",
        "reward",
        "policy",
    }  # the rest are cross-entropies
    assert LOSSES.keys() == numbers | others
    for kind, objective in OBJECTIVES.items():
        assert in_nats(kind) == numbers.isdisjoint(objective.predicts), kind


def test_the_best_point_belongs_to_the_best_setting():
    """Not to the one with a single lucky seed: 40 and 30 against 37."""
    scores = ((64, 1, 40.0), (32, 1, 37.0), (64, 2, 30.0))
    rows = [
        {"name": f"model.d_ff={d_ff},seed={seed}", "measured": {"BLEU": score},
         "settings": {"model.d_ff": d_ff, "seed": seed}, "trained": True}
        for d_ff, seed, score in scores
    ]  # fmt: skip
    assert verdict(rows, "BLEU", TRANSLATION["BLEU"])["best"] == "model.d_ff=32,seed=1"
    rows[-1]["trained"] = False  # 30 after half of its steps says nothing about the setting
    assert verdict(rows, "BLEU", TRANSLATION["BLEU"])["best"] == "model.d_ff=64,seed=1"
    rows[0]["trained"] = False  # it has no other point
    assert verdict(rows, "BLEU", TRANSLATION["BLEU"])["best"] == "model.d_ff=32,seed=1"


def test_runs_scored_alike_are_tested_though_other_fields_differ(tmp_path):
    """How often a run validates has nothing to do with how its test text was scored."""
    other = with_field(EXPERIMENT, "evaluation.every_steps", 2 * EXPERIMENT.checkpoint.every_steps)
    places = []
    for name, experiment in (("one", EXPERIMENT), ("other", other)):
        places.append(trained(tmp_path / name, experiment))
        scored(places[-1], PLAIN, PLAIN, PLAIN)
    assert len(gather([(place, None) for place in places])["systems"]) == 2


def test_a_point_whose_evaluation_failed_is_not_finished(tmp_path):
    place = tmp_path / "s"
    for d_ff in (32, 64):
        point = trained(place / f"model.d_ff={d_ff}", with_field(EXPERIMENT, "model.d_ff", d_ff))
    scored(point, PLAIN, PLAIN, PLAIN)
    for point in sweep_rows.points(place):
        Record(place).add(point, "train", 0, 1.0)
        Record(place).add(point, "evaluate", 0 if point.settings["model.d_ff"] == 64 else 1, 1.0)
    rows = gather([(WorkDir(place), None)])["sweep"]["rows"]
    states = {row["settings"]["model.d_ff"]: row["state"] for row in rows}
    assert states == {32: "evaluation failed, exit code 1", 64: "finished"}
    for split in ("test", None):
        found = {r.settings["model.d_ff"]: r.states for r in sweep_rows.tabulated(place, split)}
        assert found == {"32": ["evaluation failed, exit code 1"], "64": []}


def test_every_point_reports_its_time(tmp_path):
    points_of(tmp_path / "s", (20.0, 25.0))
    report = gather([(WorkDir(tmp_path / "s"), None)])
    assert [sum(run["seconds"].values()) > 0 for run in report["runs"]] == [True, True]


@pytest.fixture
def translated(tmp_path) -> WorkDir:
    """Return a sweep of two settings with two seeds; one setting is all right, one all wrong."""
    for d_ff, said in ((32, REFERENCES), (64, [line[::-1] for line in REFERENCES])):
        for seed in (1, 2):
            experiment = with_field(with_field(EXPERIMENT, "model.d_ff", d_ff), "seed", seed)
            point = trained(tmp_path / f"s/model.d_ff={d_ff},seed={seed}", experiment,
                            factor=1 + d_ff / 100)  # fmt: skip
            scored(point, HOSTILE + PLAIN, REFERENCES, said)
    return WorkDir(tmp_path / "s")


def test_rows_of_a_sweep_are_tested_against_the_first(translated):
    """Points of the same seed are compared; the mark means that every test and seed differs."""
    rows = sweep_rows.tabulated(translated.path, "test")
    sweep_rows.compare(rows, "test")
    first, second = rows
    assert first.p_values == {}
    tested = {"test BLEU, beam", "test chrF, beam"}
    assert second.p_values.keys() == tested
    results = against_first([
        read_scored(str(place / "eval/test.best"), "translate", place.name, "")
        for place in (translated.path / f"model.d_ff={d_ff},seed=1" for d_ff in (32, 64))
    ], 1000)  # fmt: skip
    for result in results[:2]:
        p = second.p_values[f"test {result.metric}, beam"]
        assert p == max(result.p_values.values())
        assert p < 0.05
    text = table.as_text(rows)
    lines = text.splitlines()
    assert [line.count("*") for line in lines] == [0, 0, 2, 1]
    assert lines[-1].startswith("* differs from the first row: p < 0.05")
    assert table.as_markdown(rows).endswith(f"\n\\{lines[-1]}\n")
    assert '"test BLEU, beam p"' in table.as_csv(rows).splitlines()[0]
    best, *others = gather([(translated, None)])["sweep"]["rows"]
    assert not any(column.endswith(" p") for column in best["measured"])
    found = {row["settings"]["model.d_ff"]: row["measured"]["test BLEU, beam p"] for row in others}
    assert found[64] < 0.05
    assert found[32] == 1  # another seed with the same output


@pytest.mark.parametrize("d_ff", [32, 64])
@pytest.mark.parametrize("gone", ["eval/test.best.json", "config.json"])
def test_a_row_of_which_a_seed_cannot_be_tested_has_no_mark(translated, d_ff, gone):
    """Its points are not scored, or missing in one of the two rows."""
    (translated.path / f"model.d_ff={d_ff},seed=2" / gone).unlink()
    rows = sweep_rows.tabulated(translated.path, "test")
    sweep_rows.compare(rows, "test")
    assert [row.p_values for row in rows] == [{}, {}]
    assert "*" not in table.as_text(rows)
    assert ' p"' not in table.as_csv(rows).splitlines()[0]


def test_variants_have_their_published_figures(tmp_path):
    for variant, d_ff in (("base", 32), ("C-wide", 64)):
        trained(tmp_path / f"s/{variant}", with_field(EXPERIMENT, "model.d_ff", d_ff))
    (tmp_path / "s/table.csv").write_text(
        "variant,parameters,published BLEU,seeds,state\nC-wide,1,25.7,1,\nbase,1,,1,\n"
    )
    sweep = gather([(WorkDir(tmp_path / "s"), None)])["sweep"]
    assert sweep["fields"] == ["variant", "model.d_ff"]
    figures = {row["settings"]["variant"]: row["published"] for row in sweep["rows"]}
    assert figures == {"base": {}, "C-wide": {"published BLEU": 25.7}}
    rows = sweep_rows.tabulated(tmp_path / "s", "test")
    assert [row.settings for row in rows] == [{"variant": "C-wide"}, {"variant": "base"}]


def test_settings_of_a_variant_may_be_longer_than_a_name(tmp_path):
    """The end of such a name is a hash."""
    cut = dict.fromkeys(("model.attention_dropout_rate", "model.activation_dropout_rate"), 0.125)
    for steps in (10, 20):
        name = name_of(
            "base", cut | {"training.label_smoothing": 0.1, "optimizer.warmup_steps": steps}
        )
        assert "warmup_steps" not in name
        trained(tmp_path / name, with_field(EXPERIMENT, "optimizer.warmup_steps", steps))
    settings = [point.settings for point in sweep_rows.points(tmp_path)]
    assert sorted(x["optimizer.warmup_steps"] for x in settings) == [10, 20]


# --- the command ----------------------------------------------------------------------------------


def test_the_command_writes_a_page(run, tmp_path, capsys):
    output = tmp_path / "new/place/report.html"
    assert dispatch(["report", str(run.path), f"--output={output}"]) == 0
    assert f"written to {output}, " in capsys.readouterr().out
    assert unpack(output.read_text())["title"] == "Run one"


@pytest.mark.parametrize(
    ("argv", "printed"),
    [
        (["nowhere"], "nowhere: no config.json here; train first"),
        (["empty"], "empty: holds neither metrics nor scores yet; wait for the first row"),
        (["one", "--output=one"], "--output=one: is a directory; name a file"),
        (["one", "--output=one/config.json/x.html"], "x.html cannot be written: File exists"),
        (["one", "sweep"], "sweep: is a sweep; give it a report of its own"),
        (["damaged"], r"damaged/metrics.jsonl:2: damaged; repair or delete this line"),
        (["unscored"], r"unscored/eval/test.best.json: damaged; run eval.py again, or delete it"),
    ],
)
def test_directories_without_a_report_are_rejected(argv, printed, run, tmp_path, monkeypatch):
    empty = trained(tmp_path / "empty")
    empty.metrics.unlink()
    trained(tmp_path / "sweep/model.d_ff=1")
    damaged = trained(tmp_path / "damaged")
    damaged.metrics.write_text('{"step": 1}\nnonsense\n{"step": 2}\n')
    unscored = trained(tmp_path / "unscored")
    unscored.eval.mkdir()
    (unscored.eval / "test.best.json").write_text('{"split": "te')
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match=printed):
        command.main(argv)
    assert not list(tmp_path.rglob("*.html"))


def test_config_json_of_the_fixture_is_complete(run):
    assert from_json(run.config.read_text()) == EXPERIMENT
