"""`transformer-jax translate` and `plot attention` as users run them, on an untrained model."""

import gzip
import io
import json
import logging
import lzma
import os
import random
import re
import resource
import select
import subprocess
import sys
import threading
import time
from pathlib import Path

import jax
import numpy as np
import pytest
from tiny import random_params

import transformer_jax
from transformer_jax.api import load_ensemble
from transformer_jax.base import progress
from transformer_jax.base.errors import UserError
from transformer_jax.cli import evaluate, lines
from transformer_jax.cli.main import dispatch
from transformer_jax.config import (
    DataConfig,
    DecodingConfig,
    Experiment,
    ModelConfig,
    TokenizerConfig,
)
from transformer_jax.data.codecs.pair import TokenizerPair, train_pair
from transformer_jax.data.codecs.utf8 import Bytes
from transformer_jax.decoding.text.translate import Translator
from transformer_jax.models.build import build
from transformer_jax.runs.checkpoint import Checkpoints
from transformer_jax.runs.workdir import WorkDir

WORDS = ["the", "cat", "sat", "on", "a", "mat", "and", "saw", "two", "small", "dogs"]
LINES = [f"{a} {b}" for a in WORDS for b in WORDS]
EXPERIMENT = Experiment(
    model=ModelConfig(
        d_model=16, d_ff=16, num_heads=2, num_encoder_layers=1, num_decoder_layers=1,
        positions="learned", max_positions=32, biases=(),
    ),
    tokenizer=TokenizerConfig(vocab_size=60),
    data=DataConfig(max_length=32),
    decoding=DecodingConfig(beam_size=2, max_extra_length=3),
)  # fmt: skip


def make(place: Path, corpus: list[str] = LINES) -> str:
    """Write a work directory with checkpoints of steps 1 (the best) and 2; return its name."""
    workdir = WorkDir(place)
    tokenizers = train_pair(EXPERIMENT.tokenizer, corpus, corpus)
    model = build(EXPERIMENT.model, tokenizers.src.size, tokenizers.tgt.size)
    with workdir.claim(EXPERIMENT):
        tokenizers.save(workdir.path)
        checkpoints = Checkpoints(workdir.checkpoints, EXPERIMENT.checkpoint)
        for step in (1, 2):
            scores = {"bleu": 3.0 - step, "loss": float(step)}
            checkpoints.save(step, random_params(model, step), {}, {}, scores)
        checkpoints.close()
    return str(workdir.path)


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> str:
    return make(tmp_path_factory.mktemp("runs") / "one")


@pytest.fixture(autouse=True)
def settings(monkeypatch):
    """Use one device, which compiles faster than eight, and the tests' own compilation cache."""
    monkeypatch.setattr("transformer_jax.experiments.process.use_compilation_cache", lambda: None)
    one = jax.devices()[:1]
    monkeypatch.setattr("transformer_jax.decoding.text.translate.jax.local_devices", lambda: one)


def translate(run, *options, text="", monkeypatch, capsys) -> list[str]:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
    assert dispatch(["translate", f"--workdir={run}", *options]) == 0
    out = capsys.readouterr().out
    assert not out or out.endswith("\n")
    return out.split("\n")[:-1]


# Three sentences: a different number, or longer ones, would mean more programs to compile. So would
# a different search, which is why tests of one sentence use that of the experiment, and SAMPLE
# holds the settings for one sample per sentence.
TEXT = "the cat\n\na mat and two dogs\ntwo small dogs"
SAMPLE = ["--config.decoding.search=sample", "--config.decoding.forbidden=▁the,s"]


@pytest.mark.thorough
def test_files_and_pipes_give_the_same_output(run, tmp_path, monkeypatch, capsys):
    """--input and --output, plain or .gz, with or without a byte order mark, work like pipes."""
    expected = translate(run, text=TEXT, monkeypatch=monkeypatch, capsys=capsys)
    assert len(expected) == 4
    assert expected[1] == ""
    (tmp_path / "in.txt").write_bytes(b"\xef\xbb\xbf" + TEXT.encode())
    (tmp_path / "in.gz").write_bytes(gzip.compress(TEXT.encode()))
    for name, out in (("in.txt", "out.txt"), ("in.gz", "out.gz")):
        argv = [f"--input={tmp_path}/{name}", f"--output={tmp_path}/{out}"]
        assert translate(run, *argv, monkeypatch=monkeypatch, capsys=capsys) == []
    plain = (tmp_path / "out.txt").read_bytes()
    assert plain.decode().split("\n") == [*expected, ""]
    assert gzip.decompress((tmp_path / "out.gz").read_bytes()) == plain


def test_json_lines_with_alignments(run, monkeypatch, capsys):
    """--alignments gives pairs of words; --prefix begins each non-empty translation."""
    rows = [
        json.loads(line)
        for line in translate(
            run, "--alignments", "--n-best=2", "--prefix=two", text=TEXT,
            monkeypatch=monkeypatch, capsys=capsys,
        )
    ]  # fmt: skip
    assert [row["source"] for row in rows] == TEXT.split("\n")
    assert [len(row["translations"]) for row in rows] == [2, 1, 2, 2]
    empty = {"text": "", "score": 0.0, "pieces": [], "alignments": []}
    assert rows[1]["translations"] == [empty]
    for row in rows[:1] + rows[2:]:
        for found in row["translations"]:
            assert found["text"].startswith("two")
            assert found["alignments"]
            for source, target in found["alignments"]:
                assert 0 <= source < len(row["source"].split())
                assert 0 <= target < len(found["text"].split())


@pytest.mark.thorough
def test_samples_do_not_depend_on_the_block_size(run, monkeypatch, capsys):
    """Random numbers are the same for any block size, and differ between lines and samples."""
    # Batches of two sentences, whatever the block size.
    argv = ["--sample=3", "--config.decoding.top_k=9", "--config.decoding.tokens_per_batch=96"]
    given = {"text": "the cat\n\nthe cat\na mat\nthe cat", "monkeypatch": monkeypatch}
    whole = translate(run, *argv, **given, capsys=capsys)
    monkeypatch.setattr("transformer_jax.cli.translate._BLOCK", 3)  # two sentences per block
    assert translate(run, *argv, **given, capsys=capsys) == whole
    rows = [[x["text"] for x in json.loads(line)["translations"]] for line in whole]
    assert list(map(len, rows)) == [3, 1, 3, 3, 3]
    assert rows[0] != rows[2] != rows[4]
    assert len(set(rows[0] + rows[2] + rows[4])) > 3


@pytest.mark.thorough
def test_one_sample_or_a_reranked_one_is_plain_text(run, monkeypatch, capsys):
    several = ["--sample=3", "--config.decoding.top_k=9", "--config.decoding.rerank=chrf"]
    for argv, text in (([*SAMPLE, "--sample=1"], f"{TEXT}\n"), (several, "the cat\na mat\n")):
        found = translate(run, *argv, text=text, monkeypatch=monkeypatch, capsys=capsys)
        assert len(found) == text.count("\n")
        assert not found[0].startswith("{")


def texts(rows: list[dict]) -> list[list[str]]:
    return [[found["text"] for found in row["translations"]] for row in rows]


@pytest.mark.thorough
def test_ensembles_of_checkpoints_and_of_runs(run, tmp_path, monkeypatch, capsys):
    """Several checkpoints, or runs with the same tokenizer; a model taken twice changes nothing."""
    given = {"text": TEXT, "monkeypatch": monkeypatch, "capsys": capsys}

    def found(*argv):
        return [json.loads(line) for line in translate(run, *argv, *SAMPLE, "--json", **given)]

    names = ("best", "last", "best,last", "1,best")
    best, last, both, twice = (found(f"--checkpoint={name}") for name in names)
    assert best != both != last
    assert texts(twice) == texts(best)
    other = make(tmp_path / "other")
    of_two = found(f"--workdir={other}", "--checkpoint=last")
    assert texts(of_two) == texts(last)
    trained = load_ensemble([run, other], "1,2")
    assert trained.steps == [1, 2, 1, 2]
    for name in ("attention", "inside", "score", "classify", "tag", "value", "answer", "follows"):
        with pytest.raises(UserError, match=f"{name} needs a single model"):
            getattr(trained, name)("the cat", "die Katze")


@pytest.mark.thorough
def test_an_ensemble_is_scored_like_a_model(run, tmp_path, capsys):
    """eval.py takes the same checkpoint names, and its files record what was scored."""
    for name in ("src", "ref"):
        (tmp_path / name).write_text(f"{TEXT}\n")
    files = [f"--source={tmp_path}/src", f"--reference={tmp_path}/ref"]
    argv = [f"--workdir={run}", "--checkpoint=best,last", *files, *SAMPLE]
    assert evaluate.main(argv) == 0
    (file,) = WorkDir(run).eval.glob("src.*.json")
    result = json.loads(file.read_text())
    assert file.name.startswith("src.best,last,decoding.search=sample,decoding.forbidden=_the+s-")
    assert file.name == f"src.{result['checkpoint']}.json"
    assert result["steps"] == [1, 2]
    assert result["decoding"]["forbidden"] == ["▁the", "s"]
    assert result["decoding"]["search"] == "sample"
    same = Experiment()
    assert evaluate.label(["runs/a", "runs/b"], "best", same, same) == "a+b.best"


def test_a_pipe_is_read_once(run, tmp_path, monkeypatch, capsys):
    """Such as --input=<(zcat FILE): its lines cannot be counted first."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=pipe.write_text, args=(f"{TEXT}\n",))
    writer.start()
    found = translate(run, f"--input={pipe}", monkeypatch=monkeypatch, capsys=capsys)
    writer.join()
    expected = translate(run, text=TEXT, monkeypatch=monkeypatch, capsys=capsys)
    assert found == expected
    assert len(found) == 4


def test_lines_typed_at_a_terminal_are_answered_one_by_one(run, monkeypatch, capsys):
    """Each line is answered before the next is read; there is a prompt, and no progress bar."""
    printed = []

    class Terminal(io.TextIOWrapper):
        def isatty(self) -> bool:
            return True

    def answer(prompt: str) -> str:
        printed.append((prompt, capsys.readouterr().out.count("\n")))
        if len(printed) == 3:
            raise EOFError
        return "the cat"

    monkeypatch.setattr(sys, "stdin", Terminal(io.BytesIO()))
    monkeypatch.setattr("builtins.input", answer)
    assert dispatch(["translate", f"--workdir={run}"]) == 0
    assert printed == [("", 0), ("", 1), ("", 1)]  # no prompt: the output is not a terminal
    monkeypatch.setattr(sys, "stdout", Terminal(io.BytesIO()))
    assert next(lines.typed()) == "the cat"
    assert printed[-1][0] == "> "


def test_the_progress_bar_counts_lines(monkeypatch):
    """It shows lines done, their total and rate, on standard error, only at a terminal."""
    stderr = io.StringIO()
    monkeypatch.setattr(sys, "stderr", stderr)
    monkeypatch.setattr(stderr, "isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "100")
    with progress.LineProgress(20) as bar:
        assert list(bar.watch(range(7))) == list(range(7))
        bar.reached(12)
    assert "12/20" in re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", stderr.getvalue())
    silent = io.StringIO()
    monkeypatch.setattr(sys, "stderr", silent)
    with progress.LineProgress(2) as bar:
        list(bar.watch("ab"))
    assert silent.getvalue() == ""


def test_progress_is_printed_as_lines_without_a_terminal(monkeypatch):
    """Lines done, rate and time left; for a pipe, whose length is unknown, only new progress."""
    monkeypatch.setattr(progress, "_FIRST", 0.01)
    monkeypatch.setattr(progress, "_EVERY", 0.01)

    def printed(total: int | None, done: int, hidden: bool = False) -> list[str]:
        stderr = io.StringIO()
        monkeypatch.setattr(sys, "stderr", stderr)
        with progress.LineProgress(total, hidden) as shown:
            time.sleep(0.05)
            shown.reached(done)
            time.sleep(0.05)
        return stderr.getvalue().splitlines()

    first, last = printed(2000, 1200)
    assert first == "0 of 2,000 lines"
    assert re.fullmatch(r"1,200 of 2,000 lines, [\d,.]+ lines/s, \d+ s left", last)
    (line,) = printed(None, 7)
    assert re.fullmatch(r"7 lines, [\d,.]+ lines/s", line)
    assert printed(None, 0) == printed(2000, 9, hidden=True) == []
    assert [progress._duration(s) for s in (9.4, 600, 9000)] == ["9 s", "10 min", "2.5 h"]


def test_blocks_hold_a_limited_number_of_characters(monkeypatch):
    monkeypatch.setattr(lines, "_CHARACTERS", 4)
    read = lines.Input(io.BytesIO(b"ab\nc\n\nd\n"), "text")
    assert list(read.blocks(9)) == [["ab", "c"], ["", "d"]]


def test_a_coprocess_is_answered_before_the_end_of_input(run, monkeypatch):
    """Through a pipe, lines are answered once no more arrive, not only at the end of input."""
    (source, given), (found, target) = os.pipe(), os.pipe()
    answers = []

    def ask() -> None:
        with open(given, "w") as to, open(found) as back:
            for line in ("the cat", "\nthe cat"):
                print(line, file=to, flush=True)
                if not select.select([back], [], [], 120)[0]:
                    return
                answers.append([back.readline() for _ in line.split("\n")])

    asker = threading.Thread(target=ask)
    asker.start()
    monkeypatch.setattr(sys, "stdin", os.fdopen(source))
    monkeypatch.setattr(sys, "stdout", os.fdopen(target, "w"))
    assert dispatch(["translate", f"--workdir={run}"]) == 0
    asker.join()
    (first,), (empty, again) = answers
    assert first == again != empty == "\n"
    assert first.endswith("\n")


def test_a_line_end_inside_a_translation_becomes_a_space():
    """Where pieces can spell one; the pieces themselves do not change."""
    codec, text = Bytes(), "two\nsmall\r\ndogs"
    model = build(EXPERIMENT.model, codec.size, codec.size)
    translator = Translator(model, TokenizerPair(codec, codec), DecodingConfig())
    (found,) = translator.translations(np.array(codec.encode([text])), np.zeros(1))
    assert found.text == "two small  dogs"
    assert codec.decode(found.ids) == text


def test_lines_that_trickle_in_do_not_wait_for_ever(monkeypatch):
    """However many still come, a line waits for others only for a limited time."""
    monkeypatch.setattr(lines, "_PATIENCE", 0.0)
    read = lines.Input(io.BytesIO(b"a\nb\n"), "text")
    assert list(read.blocks(9)) == [["a"], ["b"]]


@pytest.mark.parametrize("end", ["\n", ""])
def test_lines_that_are_too_long_are_rejected(run, end, monkeypatch, capsys):
    """The error gives the line's number, after the lines before it are answered."""
    text = "the cat\n" + "x" * 300_000 + end
    with pytest.raises(UserError, match=r"^standard input, line 2: longer than 262,144 bytes; if"):
        translate(run, text=text, monkeypatch=monkeypatch, capsys=capsys)
    assert capsys.readouterr().out.count("\n") == 1


def test_an_endless_line_is_rejected(run):
    """Such as binary data: rejected as soon as it is too long, however much there is."""
    with lines.read_from(Path("/dev/zero")) as endless:
        with pytest.raises(UserError, match=r"^--input=/dev/zero, line 1: longer than"):
            list(endless.blocks(9))


def test_invalid_utf8_is_warned_about_once(caplog):
    read = lines.Input(io.BytesIO(b"a\nb\xff\n\xffc\n"), "--input=x")
    with caplog.at_level(logging.WARNING, "transformer_jax"):
        assert list(read.blocks(9)) == [["a", "b\ufffd", "\ufffdc"]]
    (printed,) = caplog.messages
    assert printed.startswith("--input=x, line 2: not UTF-8; wrong bytes are read as U+FFFD")


def test_a_full_disk_is_reported():
    with pytest.raises(UserError, match=r"^--output=/dev/full cannot be written: No space left"):
        with lines.write_to(Path("/dev/full")) as file:
            print("text", file=file)


# --- arbitrary text -----------------------------------------------------------------------------


def mixed(count: int) -> list[str]:
    """Return odd lines in random order."""
    rng = random.Random(0)
    kinds = [
        lambda: "",
        lambda: rng.choice("aé犬\u200b\ufeff~"),
        lambda: " ".join(rng.choices(WORDS, k=rng.randint(2, 30))),
        lambda: "".join(chr(rng.choice([0x1F600, 0x1F469, 0x200D, 0xFE0F])) for _ in range(9)),
        lambda: "مرحبا بالعالم שלום " * rng.randint(1, 3),
        lambda: "".join(map(chr, rng.sample([*range(10), *range(11, 32), 127, 0x85, 0x2028], 9))),
        lambda: rng.choice(["<s>", "</s>", "<pad>", "<unk>", "▁", "<0x0A>"]) * rng.randint(1, 3),
    ]
    made = [rng.choice(kinds)() for _ in range(count)]
    for place in range(5, count, 100):  # 2,000 tokens or more
        made[place] = " ".join(rng.choices(WORDS, k=2000)) if place % 200 == 5 else "dogs" * 500
    return made


def check_mixed(source: list[str], out: str, alone: dict[int, str]) -> None:
    """Line count and order are kept: each line is translated as when alone; none is dropped."""
    found = out.split("\n")
    assert found.pop() == ""
    assert len(found) == len(source)
    assert all(text == "" for text, line in zip(found, source, strict=True) if line == "")
    assert {place: found[place] for place in alone} == alone
    assert all(found[place] for place, line in enumerate(source) if "cat" in line)


@pytest.mark.thorough
def test_mixed_lines_are_translated_as_when_alone(run, tmp_path, monkeypatch, capsys):
    source = mixed(26)  # few per length, and few at a time: few shapes to compile
    (tmp_path / "in").write_bytes("\n".join(source).encode())
    few = {"beam_size": 1, "tokens_per_batch": 256}
    argv = [f"--input={tmp_path}/in", "--beam-size=1", "--config.decoding.tokens_per_batch=256"]
    found = translate(run, *argv, monkeypatch=monkeypatch, capsys=capsys)
    places = [1, 5, 7, 20, 25]  # number 5 is in many parts; here the others share its batches
    model = transformer_jax.load(run)
    beside = model.translate([source[i] for i in places], **few)
    alone = dict(zip(places, beside, strict=True))
    check_mixed(source, "".join(f"{line}\n" for line in found), alone)


@pytest.mark.e2e
def test_ten_thousand_mixed_lines(run, tmp_path):
    """In a separate process: memory grows little from 2,500 lines to 10,000."""
    source = mixed(10_000)
    peaks = []
    for count in (2_500, 10_000):
        (tmp_path / "in").write_bytes("".join(f"{line}\n" for line in source[:count]).encode())
        argv = ["translate", f"--workdir={run}", f"--input={tmp_path}/in", "--beam-size=1",
                f"--output={tmp_path}/out"]  # fmt: skip
        program = "from transformer_jax.cli.main import main; main()"
        before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
        subprocess.run([sys.executable, "-c", program, *argv], check=True, capture_output=True)
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        peaks.append(used.ru_maxrss / 1024)
        print(f"{count} lines: {used.ru_utime - before:.0f} s of CPU, {peaks[-1]:.0f} MiB at most")
        check_mixed(source[:count], (tmp_path / "out").read_text(encoding="utf-8"), {})
    assert peaks[1] < 1.5 * peaks[0]


# --- invalid arguments --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("argv", "printed"),
    [
        (["--input=gone"], "--input=gone: cannot be opened (No such file or directory)"),
        (["--input=gone", "--output=in"], "--input=gone: cannot be opened (No such file"),
        ([f"--input={'x' * 300}"], ": cannot be opened (File name too long)"),
        (["--input=cut.gz"], "--input=cut.gz: cannot be read ("),
        (["--input=."], "--input=.: cannot be opened (Is a directory)"),
        (["--input=in.xz"], "--input=in.xz: is compressed (xz); unpack it first, with `xz -dk`"),
        (["--output=out.zst"], "--output=out.zst: only .gz is written compressed; leave out .zst"),
        (["--output=gone/out"], "--output=gone/out: must be a file in a directory that exists"),
        (["--input=in", "--output=in"], "--output=in: is the input; name another file"),
        (["--beam-size=0"], "config.decoding.beam_size=0: must be at least 1 and at most 1000"),
        (["--beam-size=x"], "config.decoding.beam_size='x': must be a whole number"),
        (["--sample=0"], "config.decoding.num_samples=0: must be at least 1 and at most 1000"),
        (["--sample=2", "--beam-size=3"], "not allowed with argument"),
        (["--n-best=3"],
         "--n-best=3: must lie between 1 and decoding.beam_size=2; add --beam-size=3"),
        (["--n-best=0"], "--n-best=0: must lie between 1 and decoding.beam_size=2"),
        (["--sample=2", "--n-best=3"],
         "--n-best=3: must lie between 1 and decoding.num_samples=2; add --sample=3"),
        (["--config.decoding.top_k=5"],
         "--config.decoding.top_k=5: has no effect with decoding.search='beam'; leave it out, or "
         "add --config.decoding.search=sample"),
        (["--checkpoint=best,newest"], "checkpoint='newest': must be best, last, a step"),
        (["--checkpoint=1,7"], "checkpoint=7: not saved; the saved steps are [1, 2]"),
        (["--workdir=gone"], "gone: no config.json here"),
        (["--workdir=strange"], "--workdir=strange: its tokenizer differs from that of "),
        (["--config.decoding.forbidden=zebra"], "'zebra' is not a piece of the tokenizer"),
    ],
)  # fmt: skip
def test_invalid_arguments_are_rejected(run, argv, printed, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "in").write_text("the cat\n")
    (tmp_path / "in.xz").write_bytes(lzma.compress(b"the cat\n"))
    (tmp_path / "cut.gz").write_bytes(gzip.compress(b"the cat\n" * 99)[:-9])
    if "--workdir=strange" in argv:
        make(tmp_path / "strange", [f"{word}s" for word in LINES])
    with pytest.raises(UserError) as caught:
        translate(run, *argv, text="the cat\n", monkeypatch=monkeypatch, capsys=capsys)
    assert printed in str(caught.value)
    assert (tmp_path / "in").read_text() == "the cat\n"


# --- attention ----------------------------------------------------------------------------------


def test_attention_of_given_and_found_translations(run):
    """Without a target, it is the attention of the best translation."""
    model = transformer_jax.load(run)
    found = model.attention("the cat")
    (text,) = model.translate(["the cat"])
    assert model.tokenizers.tgt.decode(map(model.tokenizers.tgt.piece_id, found.target)) == text
    given = model.attention("the cat", "two dogs")
    assert given.weights.shape == (1, 2, len(given.target), len(given.source))
    np.testing.assert_allclose(given.weights.sum(-1), 1, rtol=1e-5)
    for pair, printed in (
        (("  ",), "source='  ': holds no words"),
        (("the cat " * 300,), r"source: \d+ pieces, at most 32 allowed; give less"),
        (("the cat", "dogs " * 300), r"target: \d+ pieces, at most 32 allowed; give less"),
    ):
        with pytest.raises(UserError, match=printed):
            model.attention(*pair)


def test_plot_attention(run, tmp_path, capsys):
    argv = ["plot", "attention", f"--workdir={run}", "--source=the cat", "--target=two dogs"]
    assert dispatch([*argv, "--head=1", f"--output={tmp_path}/x.svg"]) == 0
    assert capsys.readouterr().out == f"written to {tmp_path}/x.svg\n"
    text = (tmp_path / "x.svg").read_text()
    assert ">source; layer 0, head 1</text>" in text
    with pytest.raises(UserError, match="must end in"):
        dispatch([*argv, f"--output={tmp_path}/x.gif"])
    with pytest.raises(UserError, match="unknown choice 'atention'"):
        dispatch(["plot", "atention"])
