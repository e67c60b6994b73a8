"""Using a trained language model: generation, scores, and what is rejected."""

import dataclasses
import io
import json
import math
import runpy
import shutil
import sys
from pathlib import Path
from types import SimpleNamespace

import jax
import pytest
from itself import scores_tested
from tiny import random_params

import transformer_jax
from transformer_jax.base.errors import UserError
from transformer_jax.cli import compare, evaluate, generate, score, translate
from transformer_jax.config import Experiment, MeshConfig
from transformer_jax.config.convert import override, parse
from transformer_jax.data import sources
from transformer_jax.data.codecs.pair import train_pair
from transformer_jax.experiments.train import run_experiment
from transformer_jax.models.build import build_for
from transformer_jax.runs.checkpoint import Checkpoints
from transformer_jax.runs.workdir import WorkDir

ROOT = Path(__file__).parents[1]
TEXT = "To be, or not to be,\nthat is the question:\n" * 3
TINY = {
    "model.num_decoder_layers": 1, "model.num_heads": 2, "model.d_model": 16, "model.d_ff": 16,
    "model.max_positions": 16, "objective.window": 16, "data.max_length": 16,
}  # fmt: skip


def untrained(directory: Path) -> Experiment:
    """Make a work directory of configs/shakespeare.py for TEXT, with random parameters."""
    (directory / "train.txt").write_text(TEXT)
    (directory / "validation.txt").write_text(TEXT[5:50])
    config = runpy.run_path(str(ROOT / "configs/shakespeare.py"))["get_config"]()
    for field, value in {**TINY, "data.directory": directory}.items():
        override(config, field, str(value))
    experiment = parse(config)
    workdir = WorkDir(directory / "run")
    codecs = train_pair(experiment.tokenizer, [], [TEXT], experiment.codecs)
    model = build_for(experiment, codecs.src.size, codecs.tgt.size)
    with workdir.claim(experiment):
        codecs.save(workdir.path)
        checkpoints = Checkpoints(workdir.checkpoints, experiment.checkpoint)
        checkpoints.save(1, random_params(model), {}, {}, {"loss": 1.0})
        checkpoints.close()
    return experiment


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> str:
    directory = tmp_path_factory.mktemp("shakespeare")
    untrained(directory)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("transformer_jax.experiments.process.use_compilation_cache", lambda: None)
        one = jax.devices()[:1]  # generation uses one device
        patch.setattr(jax, "local_devices", lambda *_: one)
        yield str(directory / "run")


def test_generate_prints_each_prompt_and_its_continuation(run, capsys, monkeypatch):
    """Line ends are part of the text; a seed gives the same texts here and from Python."""
    options = [f"--workdir={run}", "--max-tokens=9", "--seed=4"]
    assert generate.main([*options, "--prompt=be,\nth", "--prompt=question"]) == 0
    printed = capsys.readouterr()
    assert "18 tokens in" in printed.err
    settings = {"search": "sample", "temperature": 0.8, "seed": 4}
    expected = transformer_jax.load(run).generate(["be,\nth", "question"], 9, **settings)
    assert printed.out == "".join(f"{text}\n" for text in expected)
    assert [len(text) for text in expected] == [6 + 9, 8 + 9]
    assert expected[0].startswith("be,\nth")
    stdin = SimpleNamespace(buffer=io.BytesIO(b"or\nquestion"), isatty=lambda: False)
    monkeypatch.setattr(sys, "stdin", stdin)
    assert generate.main([*options, "--json"]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [row["prompt"] for row in rows] == ["or", "question"]
    assert rows[1]["texts"][0]["text"] == expected[1]
    assert "".join(rows[1]["texts"][0]["pieces"]) == expected[1][8:]
    # The first prompt's text, streamed, up to a stop string that occurs in it.
    end = expected[0][9:11]
    assert generate.main([*options, "--prompt=be,\nth", "--stream", f"--stop={end}"]) == 0
    short = capsys.readouterr()
    assert short.out == expected[0][: expected[0].index(end, 6)] + "\n"
    assert "tokens/s" in short.err
    fields = [f"--config.decoding.{name}={value}" for name, value in settings.items()]
    assert generate.main([*options[:2], *fields, "--prompt=be,\nth", "--stream"]) == 0
    assert capsys.readouterr().out == f"{expected[0]}\n"
    assert generate.main([*options, "--prompt=be,\nth", "--prompt=question", f"--stop={end}"]) == 0
    other = expected[1][:8] + expected[1][8:].partition(end)[0]
    assert capsys.readouterr().out == f"{short.out}{other}\n"


def test_eval_counts_each_character_once(run, capsys):
    """What it prints and writes agrees with `score` for the whole text."""
    assert evaluate.main([f"--workdir={run}", "--split=validation"]) == 0
    printed = capsys.readouterr().out
    files = sorted(Path(run, "eval").glob("validation.*"))
    assert [file.name for file in files] == ["validation.best.json", "validation.best.jsonl"]
    tested = scores_tested(run, "validation")
    written = json.loads(files[0].read_text())
    text = transformer_jax.load(run).score(TEXT[5:50])
    assert written["tokens"] == written["characters"] == len(text.ids) == 45
    found = {name: entry["value"] for name, entry in written["scores"].items()}
    assert tested == found.keys()
    assert found == pytest.approx({
        "loss": -text.total / 45, "perplexity": text.perplexity,
        "bits_per_character": text.bits_per_character, "bits_per_byte": text.bits_per_byte,
    })  # fmt: skip
    assert f"perplexity = {text.perplexity:.4f}\n" in printed
    file = Path(run).parent / "validation.txt"
    assert score.main([f"--workdir={run}", f"--target={file}"]) == 0
    printed = capsys.readouterr()
    assert float(printed.out) == pytest.approx(text.total)
    assert printed.err.splitlines()[-1] == (
        f"45 pieces: perplexity {text.perplexity:.4f}, {-text.total / math.log(2):.4f} bits per "
        "text; 45 bytes, line ends included: "
        f"{text.bits_per_byte:.4f} bits per byte"
    )


def test_eval_scores_other_ways_beside(run, tmp_path):
    """Overlapping windows and dynamic evaluation have every score of a text, and their tests."""
    place = shutil.copytree(run, tmp_path / "run")
    ways = ["evaluation.stride=2", "evaluation.dynamic_rate=0.5"]
    options = [f"--workdir={place}", "--split=validation", *(f"--config.{way}" for way in ways)]
    assert evaluate.main(options) == 0
    name = ",".join(["best", *ways])
    written = json.loads((place / f"eval/validation.{name}.json").read_text())
    found = {score: entry["value"] for score, entry in written["scores"].items()}
    assert scores_tested(place, "validation", name) == found.keys()
    plain = [name for name in found if "_" not in name or name.startswith("bits")]
    assert len(found) == 3 * len(plain) == 12
    for name in plain:
        for way in ("sliding_", "dynamic_"):
            assert found[way + name] != found[name]
            bits = found[f"{way}loss"] / found["loss"] * found["bits_per_byte"]
            assert found[f"{way}bits_per_byte"] == pytest.approx(bits)


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (translate.main, "such a model has no source to translate; to continue a prompt, use"),
        (lambda a: translate.main([*a, "--json"]), "such a model has no source to translate"),
        (lambda a: score.main([*a, "--source=x", "--target=x"]), "no source; give only --target"),
        (lambda a: evaluate.main([*a, "--source=x", "--reference=x"]), "has no source; name the"),
        (lambda a: evaluate.main([*a, "--checkpoint=best,1"]), "an ensemble of language models"),
        (lambda a: compare.main([a[0].partition("=")[2]] * 2), "test.best.json: no such scores"),
        (lambda a: generate.main([*a, "--prompt=x", "--input=x"]), "give one of them"),
        (lambda a: generate.main([*a, "--config.decoding.max_extra_length=9"]), "use --max-tokens"),
        (lambda a: generate.main([*a, "--stop="]), "--stop: must not be empty"),
        (lambda a: generate.main([*a, "--stream"]), "--stream: shows the text of one --prompt"),
        (lambda a: generate.main([*a, "--beam-size=2", "--top-k=3"]), "without sampling; leave"),
        (
            lambda a: generate.main([*a, "--prompt=To", "--max-tokens=20", "--beam-size=2"]),
            "leaves room for 15;",
        ),
    ],
)
def test_unsupported_options_are_rejected(run, command, message):
    """In one line, before anything is computed."""
    with pytest.raises(UserError, match=message):
        command([f"--workdir={run}"])


def test_python_rejects_the_same(run):
    model = transformer_jax.load(run)
    assert f"<TrainedModel language model of txt from {run}, step 1" in repr(model)
    for refused in (lambda: model.translate("To be"), lambda: model.attention("To be")):
        with pytest.raises(UserError, match="has no source to translate"):
            refused()
    with pytest.raises(UserError, match="a language model has no source; give only texts"):
        model.score("To be", "or not")


def test_training_reads_its_text_once(tmp_path, monkeypatch):
    """The text read for the codec also gives the number of characters; a mesh that does not divide
    it is rejected only then."""
    experiment = untrained(tmp_path)
    data = dataclasses.replace(experiment.data, rows_divisible_by=8)
    experiment = dataclasses.replace(experiment, data=data)
    monkeypatch.setenv("TRANSFORMER_JAX_CACHE", str(tmp_path / "cache"))
    read, load = [], sources.load
    for module in (sources, sources.corpus):
        monkeypatch.setattr(module, "load", lambda *a: (read.append(a[1]), load(*a))[1])
    monkeypatch.setattr(WorkDir, "claim", lambda *_: pytest.fail("prepared"))
    with pytest.raises(pytest.fail.Exception, match="prepared"):
        run_experiment(experiment, WorkDir(tmp_path / "new"))
    assert read == ["train", "validation"]
    divided = dataclasses.replace(experiment, mesh=MeshConfig(data=4, tensor=2))
    with pytest.raises(UserError, match=r"^config\.tgt\.codec='characters': 21 .* 2 devices of"):
        run_experiment(divided, WorkDir(tmp_path / "new"))
