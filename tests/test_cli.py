"""Whole programs on a tiny corpus: train, evaluate, translate, average, inspect."""

import dataclasses
import errno
import inspect
import io
import json
import logging
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import pytest
import sacrebleu

import transformer_jax
from transformer_jax import config
from transformer_jax.base.disk import DiskError
from transformer_jax.base.errors import UserError
from transformer_jax.cli import evaluate, train, translate
from transformer_jax.cli.arguments import program
from transformer_jax.cli.config import comments
from transformer_jax.cli.lines import Input, read_from, write_to
from transformer_jax.cli.main import COMMANDS, dispatch
from transformer_jax.cli.pictures import COMMANDS as CODES
from transformer_jax.cli.plot import PICTURES
from transformer_jax.config import DataConfig, Experiment
from transformer_jax.data.sources import spelled_numbers
from transformer_jax.data.sources.files import read_lines
from transformer_jax.evaluation.run import Evaluation, digest
from transformer_jax.experiments.process import use_compilation_cache
from transformer_jax.runs.workdir import WorkDir, read_rows

ROOT = Path(__file__).parents[1]
# With few short numbers and many pieces, no sentence is longer than 8: one shape to compile.
# Five to eight sentences, a longer one among them, share one search shape.
SIZES = {"train": 200, "validation": 7, "test": 6}
TINY = {
    "model.d_model": 16, "model.d_ff": 32, "model.num_heads": 2,
    "model.dropout_rate": 0.0, "model.biases": "feed_forward",
    "model.num_encoder_layers": 1, "model.num_decoder_layers": 1,
    "tokenizer.vocab_size": 150, "data.source_language": "de", "data.target_language": "en",
    "data.max_length": 8, "data.tokens_per_batch": 256, "data.num_buckets": 1,
    "optimizer.warmup_steps": 5, "training.steps": 4, "training.log_every": 1,
    "checkpoint.every_steps": 1, "checkpoint.keep_last": 2, "evaluation.every_steps": 2,
    "evaluation.bleu_sentences": 5, "decoding.beam_size": 2, "decoding.max_extra_length": 4,
}  # fmt: skip


@pytest.fixture(scope="module")
def corpus(tmp_path_factory) -> Path:
    """Spelled-out numbers below 300, as a user's own text files."""
    place = tmp_path_factory.mktemp("corpus")
    config = DataConfig(
        source="spelled_numbers", source_language="de", target_language="en",
        num_examples=tuple(SIZES.values()), max_number=300,
    )  # fmt: skip
    for split in SIZES:
        for language, lines in zip(("de", "en"), spelled_numbers.load(config, split), strict=True):
            (place / f"{split}.{language}").write_text("".join(f"{line}\n" for line in lines))
    return place


@pytest.fixture(scope="module", autouse=True)
def settings(tmp_path_factory):
    """Give the programs their own cache, and undo what they set for this process."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRANSFORMER_JAX_CACHE", str(tmp_path_factory.mktemp("cache")))
        # The path is part of a compiled program's cache key: a changing path would never hit.
        patch.setattr("transformer_jax.experiments.process.use_compilation_cache", lambda: None)
        yield


def train_argv(corpus: Path, workdir: Path, **changes) -> list[str]:
    values = {**TINY, "data.directory": corpus, **changes}
    overrides = [f"--config.{path}={value}" for path, value in values.items()]
    return ["--config", str(ROOT / "configs/base.py"), f"--workdir={workdir}", *overrides]


@pytest.fixture(scope="module")
def run(corpus, tmp_path_factory) -> WorkDir:
    """A finished run of four steps."""
    workdir = WorkDir(tmp_path_factory.mktemp("runs") / "tiny")
    assert train.main(train_argv(corpus, workdir.path)) == 0
    return workdir


def feed(monkeypatch, text: str) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode())))


def contents(place: Path, *left_out: str) -> dict[str, bytes]:
    """Return every file of a directory."""
    return {
        str(path.relative_to(place)): path.read_bytes()
        for path in place.rglob("*")
        if path.is_file() and path.name not in left_out
    }


# --- train --------------------------------------------------------------------------------------


def test_a_work_directory_holds_the_documented_files(run):
    assert {path.name for path in run.path.iterdir()} == {
        "config.json", "tokenizer.model", "checkpoints", "metrics.jsonl", "timings.jsonl",
        "history.jsonl", "train.log", "tensorboard", ".lock",
    }  # fmt: skip
    steps = {int(path.name) for path in run.checkpoints.iterdir()}
    assert {3, 4} <= steps <= {2, 3, 4}  # the last two and the best
    (events,) = run.tensorboard.iterdir()
    assert events.stat().st_size > 500
    experiment = run.experiment()
    assert experiment.model.d_model == 16
    assert experiment.training.steps == 4


def test_metrics_are_deterministic_and_rates_are_kept_apart(run):
    rows = read_rows(run.metrics)
    assert [(row["step"], "loss" in row) for row in rows] == [
        (1, True), (2, True), (2, False), (3, True), (4, True), (4, False)
    ]  # fmt: skip
    for row in rows:
        assert type(row["step"]) is int
        assert row.keys() == (
            {"step", "loss", "nll", "accuracy", "grad_norm", "learning_rate", "target_tokens",
             "skipped"} if "loss" in row else {"step", "validation_loss", "validation_bleu"}
        )  # fmt: skip
        assert all(np.isfinite(value) for value in row.values())
    losses = [row["loss"] for row in rows if "loss" in row]
    assert losses[3] < losses[0]
    timings = read_rows(run.timings)
    assert [row["step"] for row in timings] == [1, 2, 3, 4]
    rates = {"target_tokens_per_s", "steps_per_s", "processor_seconds"}
    assert timings[0].keys() == {"step", "time", "seconds"} | rates


def test_the_history_records_command_machine_and_outcome(run):
    start, end = read_rows(run.history)
    assert (start["step"], start["event"], end["step"], end["event"]) == (0, "start", 4, "end")
    params = transformer_jax.load(run.path, "last").params
    assert start["parameters"] == sum(leaf.size for leaf in jax.tree.leaves(params))
    assert start["pairs"] <= SIZES["train"]
    assert start["vocabulary"] == [150, 150]
    assert start["command"].endswith(shlex.join(sys.orig_argv[1:]))
    assert start["machine"]["devices"] == "1 cpu"
    assert end["outcome"] == "finished"
    spent = [row["seconds"] for row in (*read_rows(run.timings), end)]
    whole = sum(sum(seconds.values()) for seconds in spent)
    assert 0 < whole < end["time"] - start["time"] + 1
    assert min(sum(part[name] for part in spent) for name in ("step", "evaluation")) > 0


def test_the_log_shows_data_devices_and_the_next_command(run):
    text = run.log.read_text()
    for printed in ("training pairs kept; dropped 0 empty", "7 for validation", "devices: 1 cpu"):
        assert printed in text
    assert "finished at step 4: training.steps=4 reached\n" in text
    assert "unknown pieces: 0.00% of the source side, 0.00% of the target side" in text
    assert f"next: python eval.py --workdir={run.path}" in text


def test_restarting_a_finished_run_says_so_and_changes_nothing(run, corpus, capsys):
    before = contents(run.path, "train.log", "eval")
    assert train.main(train_argv(corpus, run.path)) == 0
    printed = capsys.readouterr()
    assert "already finished at step 4: training.steps=4 reached\n" in printed.err
    assert printed.out == ""
    assert contents(run.path, "train.log", "eval") == before


@pytest.mark.thorough
def test_a_resumed_run_equals_an_uninterrupted_one(run, corpus, tmp_path, capsys):
    place = WorkDir(tmp_path / "run")
    assert train.main(train_argv(corpus, place.path, **{"training.steps": 2})) == 0
    assert train.main(train_argv(corpus, place.path)) == 0
    printed = capsys.readouterr().err
    assert "changed since the last start: training.steps: 2 -> 4" in printed
    assert "resuming at step 2, epoch 0, pair 64" in printed
    assert place.metrics.read_bytes() == run.metrics.read_bytes()
    one, other = (transformer_jax.load(w.path, "last").params for w in (place, run))
    jax.tree.map(np.testing.assert_array_equal, one, other)


# --- evaluate -----------------------------------------------------------------------------------


def test_evaluate_writes_hypotheses_and_scores_with_signatures(run, corpus, capsys):
    assert evaluate.main([f"--workdir={run.path}"]) == 0
    printed = capsys.readouterr().out
    result = json.loads((run.eval / "test.best.json").read_text())
    hypotheses = read_lines(run.eval / "test.best.hyp")
    references = read_lines(corpus / "test.en")
    assert len(hypotheses) == result["sentences"] == SIZES["test"]
    bleu = sacrebleu.BLEU()
    assert result["scores"]["BLEU"]["value"] == bleu.corpus_score(hypotheses, [references]).score
    assert result["scores"]["BLEU"]["signature"] == str(bleu.get_signature())
    for scored in result["scores"].values():
        assert scored["signature"] in printed
        assert "|version:" in scored["signature"]
    assert (result["split"], result["checkpoint"]) == ("test", "best")
    assert result["steps"] == transformer_jax.load(run.path, "best").steps
    assert result["decoding"]["beam_size"] == 2
    for scored in result["scores"].values():
        low, high = scored["interval"]
        assert low <= high
    assert result["evaluation"]["bleu_tokenize"] == "13a"
    assert result["references"] == digest(references)
    rows = read_rows(run.eval / "test.best.jsonl", "line")
    assert [row["hypothesis"] for row in rows] == hypotheses
    assert [row["reference"] for row in rows] == references
    assert [row["source"] for row in rows] == read_lines(corpus / "test.de")
    text = " ".join(read_lines(corpus / "train.en"))
    for row in rows:  # few enough for all to be selected
        words = re.findall(r"\w+", row["reference"])
        assert row["seen"] == [len(re.findall(rf"\b{word}\b", text)) for word in words]
        chrf = sacrebleu.CHRF().sentence_score(row["hypothesis"], [row["reference"]]).score
        assert row["chrF"] == pytest.approx(chrf, abs=0.005)
        if row["hypothesis"]:
            weights = np.array(row["attention"]["weights"])
            sides = len(row["attention"]["target"]), len(row["attention"]["source"])
            assert weights.shape == (1, 2, *sides)
            np.testing.assert_allclose(weights.sum(-1), 1000, atol=sides[1])
    same = sum(h == r for h, r in zip(hypotheses, references, strict=True))
    assert result["exact_match"] == pytest.approx(100 * same / 6)
    assert f"written to {run.eval}/test.best.*" in printed


def test_a_split_given_as_files_has_the_same_scores(run, corpus):
    argv = [f"--workdir={run.path}", "--checkpoint=last"]
    files = [f"--source={corpus}/test.de", f"--reference={corpus}/test.en"]
    assert evaluate.main(argv) == evaluate.main([*argv, *files]) == 0
    one, other = (run.eval / f"{name}.last.hyp" for name in ("test", "test.de"))
    assert one.read_bytes() == other.read_bytes()
    results = [json.loads(path.with_suffix(".json").read_text()) for path in (one, other)]
    assert [r.pop("split") for r in results] == ["test", "test.de"]
    assert results[0] == results[1]


def test_permitted_overrides_are_used_and_recorded(run):
    """Their scores have a file name of their own and leave those of the config untouched."""
    overrides = ["--config.evaluation.checkpoint=average:2", "--config.evaluation.lowercase=True",
                 "--config.decoding.alpha=0.25"]  # fmt: skip
    assert evaluate.main([f"--workdir={run.path}", *overrides]) == 0
    name = "average-2,evaluation.lowercase=True,decoding.alpha=0.25"
    result = json.loads((run.eval / f"test.{name}.json").read_text())
    assert not (run.eval / "test.average-2.json").exists()
    assert result["steps"] == [3, 4]
    assert result["decoding"]["alpha"] == 0.25
    assert "case:lc" in result["scores"]["BLEU"]["signature"]


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("model.d_ff=8", "config.model.d_ff: is part of the trained model and cannot change now"),
        ("seed=8", "config.seed: is part of the trained model and cannot change now"),
        ("decodng.alpha=1", "config.decodng.alpha: unknown field (did you mean 'decoding.alpha'?)"),
        ("decoding.alpha=x", "config.decoding.alpha='x': must be a number"),
        (
            "decoding.beam_size=0",
            "config.decoding.beam_size=0: must be at least 1 and at most 1000",
        ),
    ],
)
def test_invalid_overrides_are_rejected(run, override, message, monkeypatch):
    feed(monkeypatch, "eins\n")
    for main in (evaluate.main, translate.main):
        with pytest.raises(UserError) as caught:
            main([f"--workdir={run.path}", f"--config.{override}"])
        assert str(caught.value) == message


# --- translate, average, inspect ----------------------------------------------------------------


def translated(run: WorkDir, lines: str, monkeypatch, capsys, *argv: str) -> list[str]:
    feed(monkeypatch, lines)
    capsys.readouterr()
    assert dispatch(["translate", f"--workdir={run.path}", *argv]) == 0
    out = capsys.readouterr().out
    assert out.endswith("\n")
    return out[:-1].split("\n")


def test_translate_prints_one_line_per_input_line(run, corpus, monkeypatch, capsys):
    evaluate.main([f"--workdir={run.path}"])
    one, two, three, *_ = read_lines(corpus / "test.de")
    un, deux, trois, *_ = read_lines(run.eval / "test.best.hyp")
    text = f"{three}\n\n{one}\r\n   \n{two}\n\n{one}\n{two}"  # no final newline
    found = translated(run, text, monkeypatch, capsys)
    assert found == [trois, "", un, "", deux, "", un, deux]


def test_translate_accepts_unusual_characters(run, corpus, monkeypatch, capsys):
    odd = "<s> </s>\n🦊\u2028🦊\n\x85\n\x0c\neins\rzwei\n"
    assert len(translated(run, odd, monkeypatch, capsys)) == 5
    lines = (corpus / "test.de").read_bytes() + b"zw\xffei\n"
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(lines)))
    assert dispatch(["translate", f"--workdir={run.path}"]) == 0
    assert capsys.readouterr().out.count("\n") == 7


def test_translate_prints_nothing_for_empty_input(run, monkeypatch, capsys):
    feed(monkeypatch, "")
    assert dispatch(["translate", f"--workdir={run.path}"]) == 0
    assert capsys.readouterr().out == ""


def test_lines_are_read_in_blocks():
    """A block waits for no more lines than it holds; the last line may lack a newline."""
    for text in ("1\n2\r\n3\n4\n5", "\ufeff1\n2\n3\n4\n5\n"):
        read = Input(io.BytesIO(text.encode()), "text")
        assert list(read.blocks(2)) == [["1", "2"], ["3", "4"], ["5"]]
        assert Input(io.BytesIO(text.encode()), "text").count() == 5
    assert list(Input(io.BytesIO(), "text").blocks(2)) == []
    assert Input(io.BytesIO(), "text").count() == 0


def test_n_best_prints_json_lines(run, monkeypatch, capsys):
    """One for each input line, with pieces and scores, best first."""
    feed(monkeypatch, "elf\n\n")
    assert dispatch(["translate", f"--workdir={run.path}", "--n-best=2", "--beam-size=2"]) == 0
    first, empty = map(json.loads, capsys.readouterr().out.splitlines())
    assert (first["source"], empty["source"]) == ("elf", "")
    assert empty["translations"] == [{"text": "", "score": 0.0, "pieces": []}]
    expected = {"length_penalty": "gnmt", "alpha": 0.6, "coverage_penalty": 0.0}
    assert first["normalization"] == empty["normalization"] == expected
    scores = [found["score"] for found in first["translations"]]
    assert len(scores) == 2
    assert scores == sorted(scores, reverse=True)
    assert all(found["pieces"] for found in first["translations"])


def test_score_prints_a_log_probability_per_pair(run, capsys, tmp_path):
    """The values of --per-token add up to it."""
    for name, text in (("src", "elf\nzwei\n"), ("tgt", "eleven\ntwo\n")):
        (tmp_path / name).write_text(text, encoding="utf-8")
    argv = [f"--workdir={run.path}", f"--source={tmp_path}/src", f"--target={tmp_path}/tgt"]
    assert dispatch(["score", *argv]) == 0
    totals = [float(line) for line in capsys.readouterr().out.splitlines()]
    assert len(totals) == 2
    assert max(totals) < 0
    assert dispatch(["score", *argv, "--per-token"]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    np.testing.assert_allclose([sum(row["log_probs"]) for row in rows], totals, atol=1e-4)
    assert [len(row["pieces"]) for row in rows] == [len(row["log_probs"]) for row in rows]
    assert [row["normalization"] for row in rows] == [None, None]


def test_average_creates_an_ordinary_work_directory(run, monkeypatch, capsys, tmp_path):
    place = WorkDir(tmp_path / "mean")
    argv = ["average", f"--workdir={run.path}", f"--output={place.path}"]
    assert dispatch([*argv, "--last=2"]) == 0
    assert capsys.readouterr().out == f"mean of steps 3, 4 in {place.path}\n"
    one = transformer_jax.load(run.path, "average:2").params
    other = transformer_jax.load(place.path)
    jax.tree.map(np.testing.assert_array_equal, one, other.params)
    assert other.steps == [4]
    assert dispatch(["inspect", f"--workdir={place.path}"]) == 0
    with pytest.raises(UserError, match="holds a run already; name a new directory"):
        dispatch([*argv, "--last=1"])


@pytest.mark.thorough
def test_shortlists_are_built_and_used(run, monkeypatch, capsys, tmp_path):
    """They are rejected until the file exists; one of all pieces does not change the texts."""
    place = shutil.copytree(run.path, tmp_path / "run")
    argv = ["translate", f"--workdir={place}", "--beam-size=2", "--n-best=2"]

    def found(size: int) -> list:
        feed(monkeypatch, "zweihundert\ndrei und zwanzig\n")
        assert dispatch([*argv, f"--config.decoding.shortlist={size}"]) == 0
        rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
        return [(x["pieces"], x["score"]) for row in rows for x in row["translations"]]

    with pytest.raises(
        UserError, match=r"^config\.decoding\.shortlist=20: .*no such file; run tran"
    ):
        found(20)
    assert dispatch(["shortlist", f"--workdir={place}"]) == 0
    assert f"written to {place}/shortlist.npz" in capsys.readouterr().out
    expected, listed = found(0), found(1000)
    assert [pieces for pieces, _ in listed] == [pieces for pieces, _ in expected]
    scores = ([score for _, score in one] for one in (listed, expected))
    np.testing.assert_allclose(*scores, rtol=1e-5)
    assert found(20) != expected


def test_inspect_shows_config_checkpoints_metrics_and_scores(run, capsys):
    evaluate.main([f"--workdir={run.path}"])
    capsys.readouterr()
    assert dispatch(["inspect", f"--workdir={run.path}", "--parameters"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "  model.d_model = 16" in lines
    assert not any("model.norm" in line for line in lines)  # which is the default
    assert sum(line.split()[:1] in (["3"], ["4"]) for line in lines) == 2
    assert sum(" best " in line for line in lines) == 1
    assert any(line.startswith('last row of metrics.jsonl: {"step": 4, "loss": ') for line in lines)
    assert any(line.startswith("test.best: BLEU ") for line in lines)
    assert "  embedding/table  (150, 16)" in lines


def test_inspect_reports_a_damaged_checkpoint(run, tmp_path, capsys):
    """The others are shown as usual."""
    workdir = WorkDir(shutil.copytree(run.path, tmp_path / "run"))
    (workdir.checkpoints / "3/record/metadata").write_text("{}")
    capsys.readouterr()
    assert dispatch(["inspect", f"--workdir={workdir.path}"]) == 0
    lines = [line.strip() for line in capsys.readouterr().out.splitlines()]
    (damaged,) = (line for line in lines if line.startswith("3 "))
    assert "damaged" in damaged
    (good,) = (line for line in lines if line.startswith("4 "))
    assert "damaged" not in good
    (best,) = (line for line in lines if line[:1].isdigit() and line.split()[1] == "best")
    assert "damaged" not in best


# --- programs -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "code", "printed"),
    [
        (UserError("config.x=3: must be 4"), 2, "error: config.x=3: must be 4\n"),
        (DiskError("x cannot be written"), 74, "error: x cannot be written\n"),
        (OSError(errno.ENAMETOOLONG, "too long", "xx"), 2, "error: xx: too long\n"),
        (OSError(errno.ENOSPC, "no space"), 74, "error: input or output failed: no space\n"),
        (KeyboardInterrupt(), 130, ""),
        (BrokenPipeError(), 0, ""),
        (None, 75, ""),
    ],
)
def test_exit_codes(error, code, printed, monkeypatch):
    def main(argv):
        assert argv == ["--flag"]
        if error is not None:
            raise error
        return 75

    stderr = io.StringIO()
    monkeypatch.setattr(sys, "argv", ["program", "--flag"])
    monkeypatch.setattr(sys, "stderr", stderr)
    with pytest.raises(SystemExit) as caught:
        program(main)()
    assert caught.value.code == code
    assert stderr.getvalue() == printed


def run_program(main, monkeypatch) -> tuple[int, str]:
    """Return the exit code of a program and what it wrote to standard error."""
    stderr = io.StringIO()
    monkeypatch.setattr(sys, "argv", ["program"])
    monkeypatch.setattr(sys, "stderr", stderr)
    with pytest.raises(SystemExit) as caught:
        program(main)()
    return caught.value.code, stderr.getvalue()


def test_standard_output_to_a_full_disk_is_reported(run, corpus, monkeypatch):
    """A one-line disk error, exit code 74, and nothing for the interpreter to flush on exit."""
    for command in ("translate", "inspect"):
        feed(monkeypatch, (corpus / "test.de").read_text())
        with open("/dev/full", "w") as full:
            monkeypatch.setattr(sys, "stdout", full)
            code, printed = run_program(
                lambda _, command=command: dispatch([command, f"--workdir={run.path}"]),
                monkeypatch,
            )
        assert code == 74
        assert printed.startswith("error: ")
        assert printed.endswith(": No space left on device\n")
        assert printed.count("\n") == 1


@pytest.mark.parametrize(
    ("stream", "code", "printed"),
    [
        ("stdin", 2, "error: standard input: cannot be read (Bad file descriptor)\n"),
        ("stdout", 74, "error: standard output cannot be written: Bad file descriptor\n"),
    ],
)
def test_closed_standard_streams_are_reported(stream, code, printed, monkeypatch):
    """Python replaces them by None, which print accepts silently."""

    def copy(_) -> int:
        with read_from(None) as source, write_to(None) as target:
            for block in source.blocks(9):
                print(*block, file=target)
            target.flush()
        return 0

    feed(monkeypatch, "eins\n")
    monkeypatch.setattr(sys, stream, None)
    assert run_program(copy, monkeypatch) == (code, printed)


ODD = "\u2581straße \u2192 \u5143, \udcff"  # the last as in a file name that is not UTF-8


@pytest.mark.parametrize("name", ["stdout", "stderr"])
@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
def test_every_text_can_be_printed_under_every_locale(name, encoding, monkeypatch):
    """Pipes and files get UTF-8, as `--output` does; a terminal gets escapes for what it lacks."""

    class Terminal(io.BytesIO):
        def isatty(self) -> bool:
            return True

    for buffer in (io.BytesIO(), Terminal()):
        stream = io.TextIOWrapper(buffer, encoding=encoding, errors="strict")
        with monkeypatch.context() as patch:
            patch.setattr(sys, "argv", ["program"])
            patch.setattr(sys, name, stream)
            with pytest.raises(SystemExit) as caught:
                program(lambda _: print(ODD, file=getattr(sys, name)))()
        assert not caught.value.code
        stream.flush()
        shown = "utf-8" if type(buffer) is io.BytesIO else encoding
        assert buffer.getvalue() == f"{ODD}\n".encode(shown, errors="backslashreplace")


def test_scores_are_written_before_they_are_printed(tmp_path, monkeypatch, capsys):
    """A standard output that takes nothing costs no evaluation, nor does a full disk hide one."""
    evaluation = Evaluation({"details": ["BLEU \u2192 1"]}, ["\u5143"], [])
    with monkeypatch.context() as patch:
        patch.setattr(sys, "stdout", io.TextIOWrapper(io.BytesIO(), encoding="ascii"))
        with pytest.raises(UnicodeEncodeError):
            evaluate._report(
                evaluation, str(tmp_path / "test.best"), evaluation.result["details"], "end"
            )
    assert json.loads((tmp_path / "test.best.json").read_text()) == evaluation.result
    assert (tmp_path / "test.best.hyp").read_text(encoding="utf-8") == "\u5143\n"
    with pytest.raises(DiskError):
        evaluate._report(evaluation, str(tmp_path / "no" / "x"), ["BLEU 1"], "end")
    assert capsys.readouterr().out == "BLEU 1\n"


def test_warnings_are_printed_with_a_prefix(monkeypatch):
    def main(_) -> int:
        logging.getLogger("transformer_jax").warning("line %d: odd", 3)
        logging.getLogger("transformer_jax").info("line 4: fine")
        return 0

    assert run_program(main, monkeypatch) == (0, "warning: line 3: odd\n")


@pytest.mark.parametrize(
    ("argv", "printed"),
    [
        (["train.py", "--config=nothing.py"], "error: --config=nothing.py: no file nothing.py"),
        (["eval.py", "--workdir=nowhere"], "nowhere: no config.json here; train first"),
    ],
)
def test_programs_report_bad_arguments_in_one_line_and_exit_with_2(argv, printed):
    done = subprocess.run([sys.executable, *argv], cwd=ROOT, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (2, "")
    assert printed in done.stderr
    assert done.stderr.count("\n") == 1


def test_help_lists_all_commands(capsys):
    assert dispatch(["--help"]) == 0
    printed = capsys.readouterr().out
    assert all(f"  {name} " in printed for name in COMMANDS)
    assert dispatch([]) == 2
    with pytest.raises(
        UserError, match=r"unknown choice 'translat' \(did you mean 'translate'\?\)"
    ):
        dispatch(["translat"])


NAMES = [
    *sorted(COMMANDS.keys() - {"plot", "pictures"}), *(f"plot {x}" for x in PICTURES),
    *(f"pictures {x}" for x in CODES),
]  # fmt: skip
WITH_OVERRIDES = {
    "train", "demo", "evaluate", "generate", "translate", "serve", "plan", "sweep", "predict",
    "answer", "chat", "classify", "forecast", "tag", "transcribe", "draw", "teach",
    "widths",
}  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_every_command_has_help(name, capsys):
    """It names the whole command, and says how to set a field where that is possible."""
    with pytest.raises(SystemExit) as caught:
        dispatch([*name.split(), "--help"])
    assert caught.value.code == 0
    printed = capsys.readouterr().out
    assert printed.startswith(f"usage: transformer-jax {name} [-h]")
    without = name in ("plan", "config", "widths"), name.startswith("pictures")
    assert (
        {(True, False): "--config", (False, True): "codebook"}.get(without, "--workdir")
    ) in printed
    assert ("[--config.FIELD=VALUE ...]" in printed) == (name in WITH_OVERRIDES)
    assert ("transformer-jax config [" in printed) == (name in {*WITH_OVERRIDES, "config"})
    if name not in ("config", "demo"):
        with pytest.raises(UserError, match="the following arguments are required"):
            dispatch(name.split())


@pytest.mark.parametrize(("file", "main"), [("train.py", train.main), ("eval.py", evaluate.main)])
def test_programs_have_help(file, main, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", [f"/some/where/{file}"])
    with pytest.raises(SystemExit):
        main(["--help"])
    printed = capsys.readouterr().out
    assert printed.startswith(f"usage: python {file} [-h]")
    assert "[--config.FIELD=VALUE ...]" in printed


# --- the manual ---------------------------------------------------------------------------------


def test_the_manual_agrees_with_the_source(capsys):
    """It has every field with its default and choices, and every comment on a field."""
    assert dispatch(["config"]) == 0
    text = " ".join(capsys.readouterr().out.split())
    for group, value in dataclasses.asdict(Experiment()).items():
        fields = value.items() if isinstance(value, dict) else [("", value)]
        for name, default in fields:
            assert f"{group}.{name}".rstrip(".") + f" = {default!r} (" in text
    assert "(one of 'beam', 'sample', 'euler', 'heun', 'ancestral')" in text
    for kind in vars(config).values():
        if dataclasses.is_dataclass(kind):
            body = inspect.getsource(kind).partition("\n    def ")[0]
            for comment in re.findall(r"(?:^|  ) *# (.*)", body, re.MULTILINE):
                assert comment == "fmt: skip" or " ".join(comment.split()) in text


def test_every_field_has_a_comment():
    """Its own, or one above that names it."""
    kinds = [kind for kind in vars(config).values() if dataclasses.is_dataclass(kind)]
    found = {f"{kind.__name__}.{name}": text for kind in kinds
             for name, text in comments(kind).items()
             if kind is not Experiment or name == "seed"}  # fmt: skip
    assert [name for name, text in found.items() if not text] == []


def test_the_manual_of_single_fields_and_groups(capsys):
    """A field without its own comment shows the one above that names it."""
    assert dispatch(["config", "decoding.alpha", "config.seed"]) == 0
    alpha, *printed, seed, why = capsys.readouterr().out.splitlines()
    assert (alpha, seed) == ("decoding.alpha = 0.6  (a number)", "seed = 0  (a whole number)")
    assert printed[0].startswith("    score = log-probability / penalty")
    assert why == "    of initialisation, dropout and the order of the data"
    assert dispatch(["config", "mesh"]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith("mesh: Devices along each axis of the mesh")
    assert "\n  mesh.tensor = 1" in printed
    assert "decoding" not in printed
    for wrong, hint in (("decodng", "decoding"), ("alpha", "decoding.alpha"),
                        ("model.nrom", "model.norm")):  # fmt: skip
        with pytest.raises(UserError, match=rf"unknown field \(did you mean '{hint}'\?\)"):
            dispatch(["config", wrong])
    for word, fields in (("experts", "model.num_experts, "), ("rope", "model.rope_theta, "),
                         ("mixture", "model.architecture")):  # fmt: skip
        with pytest.raises(UserError, match=rf"unknown field.*{fields}"):
            dispatch(["config", word])


def test_compiled_programs_are_kept_in_the_cache(monkeypatch, tmp_path):
    before = jax.config.jax_compilation_cache_dir
    monkeypatch.setenv("TRANSFORMER_JAX_CACHE", str(tmp_path))
    try:
        use_compilation_cache()
        assert jax.config.jax_compilation_cache_dir == str(tmp_path / "compiled")
    finally:
        jax.config.update("jax_compilation_cache_dir", before)
