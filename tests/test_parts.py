"""User-defined parts: trained, scored and resumed; and code that must not run."""

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from starts import start_at_random

import transformer_jax
from transformer_jax.base.errors import UserError
from transformer_jax.cli import evaluate, inspect, train
from transformer_jax.cli.arguments import load_config
from transformer_jax.config import TAKE_PARTS, Experiment, ModelConfig, parts
from transformer_jax.config.convert import from_json, parse, to_json, value_at
from transformer_jax.data.codecs.pair import TokenizerPair, train_pair
from transformer_jax.export.ctranslate2.settings import refuse, refuse_codecs
from transformer_jax.nn.mixers.ssru import Ssru
from transformer_jax.nn.view import self_view
from transformer_jax.runs.workdir import WorkDir
from transformer_jax.sweeps.points import make_points
from transformer_jax.training import cost

OWN = '''
import pathlib
import flax.linen as nn
import jax.numpy as jnp
import numpy as np
import optax
from transformer_jax.data.objectives import Translate
from transformer_jax.nn.norm import standardised

with open(pathlib.Path(__file__).with_suffix(".ran"), "a") as file:
    file.write("once\\n")

class Centred(nn.Module):
    """A norm with one number for all channels."""
    epsilon: float

    @nn.compact
    def __call__(self, x):
        scale = self.param("scale", nn.initializers.ones, ())
        return (standardised(x, self.epsilon) * scale).astype(x.dtype)

class Beginnings(Translate):
    """The first three pieces alone count."""
    noun = "beginning"

    def examples(self, items, placement, rows, src_length, tgt_length, draw=None):
        batch = super().examples(items, placement, rows, src_length, tgt_length)
        target = batch.targets["tokens"]
        weight = np.where(batch.tgt.pos < 3, target.weight, 0).astype(np.float32)
        return batch._replace(targets={"tokens": target._replace(weight=weight)})

beginnings = Beginnings()

def triangle(peak, warmup, total, d_model):
    return lambda step: peak * (1 - jnp.abs(2 * step / 100 - 1))

def signs(config, roles):
    return optax.scale_by_sign()

def no_norm(x):
    return x

class Unscaled(nn.Module):
    """A norm that takes no epsilon."""

    def __call__(self, x):
        return standardised(x, 0)

class Words:
    """The share of words that are references' in their places."""

    def __init__(self, config):
        pass

    def corpus_score(self, hypotheses, references):
        pairs = [(a.split(), b.split()) for a, b in zip(hypotheses, references[0], strict=True)]
        right = sum(x == y for a, b in pairs for x, y in zip(a, b, strict=False))
        return Found(100 * right / sum(len(b) for _, b in pairs))

    def get_signature(self):
        return "words"

class Found:
    def __init__(self, score):
        self.score = score

    def __str__(self):
        return f"Words = {self.score:.2f}"
'''
CONFIG = """
from transformer_jax.config import Experiment
from transformer_jax.config.convert import door

def get_config():
    c = door(Experiment())
    c.model.d_model, c.model.d_ff, c.model.num_heads = 16, 24, 2
    c.model.num_encoder_layers = c.model.num_decoder_layers = 1
    c.model.norm, c.model.biases, c.model.dropout_rate = "{file}:Centred", (), 0.0
    c.objective.name, c.objective.like = "{file}:beginnings", "translate"
    c.optimizer.schedule, c.optimizer.learning_rate = "{file}:triangle", 1e-2
    c.optimizer.algorithm = "{file}:signs"
    c.tokenizer.vocab_size = 48
    c.data.source, c.data.source_language, c.data.target_language = "spelled_numbers", "de", "en"
    c.data.num_examples, c.data.max_number = (200, 4, 1), 1000
    c.data.max_length, c.data.tokens_per_batch, c.data.num_buckets = 48, 768, 1
    c.training.steps, c.training.log_every = 2, 1
    c.checkpoint.every_steps = c.evaluation.every_steps = 2
    c.checkpoint.best_by, c.evaluation.bleu_sentences = "loss", 0
    c.decoding.beam_size, c.decoding.max_extra_length = 1, 4
    return c
"""


@pytest.fixture(scope="module", autouse=True)
def settings(tmp_path_factory):
    """A separate cache of texts, the common cache of programs; runs start from random values."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRANSFORMER_JAX_CACHE", str(tmp_path_factory.mktemp("cache")))
        patch.setattr("transformer_jax.experiments.process.use_compilation_cache", lambda: None)
        start_at_random(patch)
        yield


@pytest.fixture(scope="module")
def trained(tmp_path_factory) -> Path:
    """A folder with a file of parts, a config that names them, and a run with it: read-only."""
    folder = tmp_path_factory.mktemp("parts")
    (folder / "own.py").write_text(OWN)
    (folder / "config.py").write_text(CONFIG.format(file=folder / "own.py"))
    assert train.main(_command(folder)) == 0
    return folder


@pytest.fixture
def folder(trained, tmp_path, monkeypatch) -> Path:
    """A copy of `trained`, in a process that has admitted and run nothing."""
    shutil.copytree(trained, tmp_path, dirs_exist_ok=True)
    (tmp_path / "own.ran").unlink()
    (tmp_path / "config.py").write_text(CONFIG.format(file=tmp_path / "own.py"))
    monkeypatch.setattr(parts, "_now", {})
    monkeypatch.setattr(parts, "_ever", {})
    return tmp_path


def _command(folder: Path, *more: str) -> list[str]:
    return [f"--config={folder}/config.py", f"--workdir={folder}/run", *more]


def test_config_json_records_the_file_and_its_digest(trained):
    model = WorkDir(trained / "run").experiment().model
    assert model.norm.startswith(f"{trained}/own.py:Centred@sha256:")
    (copy,) = (trained / "run" / "parts").iterdir()
    assert copy.read_text() == OWN
    assert (trained / "own.ran").read_text() == "once\n"


def test_runs_are_evaluated_and_resumed(folder, capsys):
    """The file may have moved, and a run may resume with it at its new place."""
    metrics = f"--config.evaluation.metrics=TER,{folder}/own.py:Words"
    assert evaluate.main([f"--workdir={folder}/run", f"--parts={folder}/own.py", metrics]) == 0
    assert re.search(r"TER = .*\n.*\nWords = \d", capsys.readouterr().out)
    written = json.loads((folder / "run" / "eval" / "test.best.json").read_text())
    assert [*written["scores"]] == ["TER", "Words"]
    assert "interval" not in written["scores"]["Words"]
    assert train.main(_command(folder, "--config.training.steps=4")) == 0
    metrics = (folder / "run" / "metrics.jsonl").read_text()
    assert '"step": 4' in metrics
    assert json.loads(metrics.splitlines()[-2])["learning_rate"] == pytest.approx(0.0008)
    model = transformer_jax.load(folder / "run", 4, parts=[folder / "own.py"])
    assert (
        model.params["encoder"]["layer_0"]["self_attention_residual"]["norm"]["scale"].shape == ()
    )


def test_config_json_alone_runs_no_code(folder, capsys):
    run = f"--workdir={folder}/run"
    for refused in (lambda: evaluate.main([run]), lambda: transformer_jax.load(folder / "run")):
        with pytest.raises(UserError, match=r"if you trust it, add --parts=\S*own.py"):
            refused()
    assert inspect.main([run]) == 0  # needs none of the parts
    assert "own.py:Centred" in capsys.readouterr().out
    text = (folder / "run" / "config.json").read_text()
    bare = text.replace(text.split("Centred")[1].split('"')[0], "")
    with pytest.raises(UserError, match="if you trust it"):
        from_json(bare)
    assert not (folder / "own.ran").exists()


def test_an_edited_file_is_another_experiment(folder):
    (folder / "own.py").write_text(OWN + "\n# edited\n")
    with pytest.raises(UserError, match=r"model.norm: .*, the file has changed"):
        train.main(_command(folder))
    with pytest.raises(UserError, match="not the file that the run was trained with: SHA-256"):
        evaluate.main([f"--workdir={folder}/run", f"--parts={folder}/own.py"])
    (folder / "own.py").unlink()
    with pytest.raises(UserError, match=r"own.py: cannot be read"):
        train.main(_command(folder))
    (copy,) = (folder / "run" / "parts").iterdir()
    transformer_jax.load(folder / "run", parts=[copy])
    assert not (folder / "own.ran").exists()


def test_the_file_may_change_before_the_first_checkpoint(folder):
    """After a failed first start, the work directory accepts the corrected file."""
    shutil.rmtree(folder / "run" / "checkpoints")
    (folder / "own.py").write_text(OWN + "\n# mended\n")
    experiment = parse(load_config(str(folder / "config.py")))
    assert "own.py" in WorkDir(folder / "run").check(experiment)[0]


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("model.norm", "own.py:Cantred", "own.py defines no Cantred; name one of Centred, "),
        ("model.norm", "other.py:Centred", "other.py: cannot be read"),
        ("model.norm", "package:Centred", "no installed package package has such an entry point"),
        ("model.attention", "own.py:Centred", "must be one of 'dense', 'fused'"),
        ("objective.like", "None", "must say which objective"),
        ("objective.name", "translate", "is for user-defined parts"),
    ],
)
def test_invalid_references_are_rejected_when_parsed(folder, monkeypatch, field, value, message):
    monkeypatch.chdir(folder)
    with pytest.raises(UserError, match=message):
        parse(load_config("config.py", [(field, value)]))
    assert not (folder / "own.ran").exists()


@pytest.mark.parametrize(
    ("field", "name", "message"),
    [
        ("model.norm", "no_norm", "has no apply, bind, clone, ...; write it like LayerNorm of"),
        ("model.activation", "no_norm", "has no function, gated; write it like Activation of"),
        ("objective.name", "Beginnings", "is a class, but an instance is expected"),
        ("optimizer.schedule", "beginnings", r"is not a function; write one of \(factor, wa"),
        ("model.norm", "Unscaled", r"does not take \(epsilon\), as LayerNorm of .* does; change"),
        ("optimizer.schedule", "no_norm", r"does not take \(factor, .*\); change its par"),
    ],
)  # fmt: skip
def test_objects_of_the_wrong_kind_are_rejected(folder, field, name, message):
    command = _command(folder, f"--config.{field}={folder}/own.py:{name}")
    with pytest.raises(UserError, match=message):
        train.main([*command, f"--workdir={folder}/other"])


def test_errors_in_the_file_name_its_line(folder):
    (folder / "own.py").write_text(OWN + "\n1 / 0\n")
    with pytest.raises(UserError, match=r"own.py:\d+: 1 / 0: ZeroDivisionError"):
        train.main([*_command(folder), f"--workdir={folder}/other"])
    assert not (folder / "other").exists()


OTHERS = '''
from transformer_jax.data.codecs.pair import Kind
from transformer_jax.data.codecs.utf8 import Bytes, train
from transformer_jax.nn.feedforward import Activation
from transformer_jax.nn.mixers.attention import Attention
from transformer_jax.nn.relative_fixed import NoRelativePositions
import dataclasses, jax, jax.numpy as jnp

class Mixer(Attention):
    """Attention on two positions."""

    def _view(self, view):
        return super()._view(view.within(2))

class Distances(NoRelativePositions):
    def __call__(self, view):
        return dataclasses.replace(view, rotate=lambda x: x * 0.5)

class Upper(Bytes):
    def encode(self, texts, bos=False, eos=True):
        return super().encode([text.upper() for text in texts], bos, eos)

upper = Kind(Upper, lambda *given: Upper(train(*given).model), "a byte codec")
soft = Activation(jax.nn.softplus, gated=True)
'''


def test_parts_of_every_other_kind(tmp_path, monkeypatch):
    """A mixer, distances, an activation and a codec: costs are counted, export is rejected."""
    monkeypatch.chdir(tmp_path)
    Path("others.py").write_text(OTHERS)
    named = {
        "model.encoder_pattern": "full,others.py:Mixer", "model.num_encoder_layers": "2",
        "model.relative_positions": "others.py:Distances", "model.activation": "others.py:soft",
        "src.codec": "others.py:upper", "tgt.codec": "others.py:upper",
        "model.d_model": "16", "model.num_heads": "2", "tokenizer.vocab_size": "32000",
    }  # fmt: skip
    experiment = parse(load_config("base", list(named.items())))
    assert experiment.model.encoder_pattern[0] == "full"
    pair = train_pair(experiment.tokenizer, ["a"], ["b"], experiment.codecs)
    assert pair.src.encode(["ab"]) == pair.src.encode(["AB"])
    pair.save(tmp_path)
    assert TokenizerPair.load(tmp_path, True, experiment.codecs).digest == pair.digest
    assert pair.sizes == (260, 260)
    model, known = experiment.model, {"activation": "swiglu", "relative_positions": "none"}
    same = replace(model, **known, encoder_pattern=("full",))
    assert cost.parameters(model, pair.sizes) == cost.parameters(same, pair.sizes)
    with pytest.raises(UserError, match=r"others.py:(Mixer|soft|Distances)"):
        refuse(model)
    with pytest.raises(UserError, match=r"(src|tgt).codec='others.py:upper'"):
        refuse_codecs(experiment.codecs)


DECLARED = """
from transformer_jax.config.choices.mixers import Mixer
from transformer_jax.config.choices.record import Need
from transformer_jax.nn.mixers.recurrence import Recurrence
from transformer_jax.nn.mixers.ssru import Ssru

class Runs(Ssru):
    record = Mixer(
        reads=("num_features",), heads=False, stacks=("decoder",),
        needs=(Need("residual", ("pre_norm",), "{has} reads what a norm has passed on"),),
    )

class Silent(Ssru):
    pass

class Older(Ssru):
    # From before `step` was called so.
    step = Recurrence.step

    def turn(self):
        return Ssru.step(self)

class Odd(Ssru):
    record = "a mixer"
"""


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"encoder_pattern": "Runs"}, "runs left to right; an encoder reads the whole text"),
        ({"decoder_pattern": "Runs"}, "reads what a norm has passed on; choose 'pre_norm'"),
        ({"decoder_pattern": "Runs", "residual": "pre_norm", "hash_rounds": "3"},
         "hash_rounds=3: neither encoder_pattern nor decoder_pattern has a layer of 'lsh'"),
        ({"decoder_pattern": "Odd"}, "its record is 'a mixer'; make it a Mixer of "
         "transformer_jax.config.choices.mixers"),
    ],
)  # fmt: skip
def test_a_part_may_declare_a_record(tmp_path, monkeypatch, overrides, message):
    """It is then checked as a built-in word is; without one, it may read and need everything."""
    monkeypatch.chdir(tmp_path)
    Path("declared.py").write_text(DECLARED)

    def experiment(changes, **names):
        named = {
            f"model.{field}": f"declared.py:{names.get(value, value)}"
            if value[0].isupper()
            else value
            for field, value in changes.items()
        }
        return parse(load_config("base", list(named.items())))

    with pytest.raises(UserError, match=re.escape(message)):
        experiment(overrides)
    experiment(overrides, Runs="Silent", Odd="Silent")
    reads = {"decoder_pattern": "Runs", "residual": "pre_norm", "num_features": "64"}
    written = to_json(experiment(reads))
    assert from_json(written).model.num_features == 64


def test_recurrences_that_define_a_turn_go_on(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("declared.py").write_text(DECLARED)
    parts.admit("declared.py")
    older = parts.resolve("declared.py:Older", "model.decoder_pattern")
    x = jax.random.normal(jax.random.key(1), (2, 3, 8))
    outputs = []
    for kind in (older, Ssru):
        module = kind(ModelConfig(d_model=8), jnp.dtype("float32"))
        view = self_view(jnp.arange(3)[None].repeat(2, 0), jnp.ones((2, 3), jnp.int32), "causal")
        params = module.init(jax.random.key(0), x, view, False, method="mix")
        outputs.append(module.apply(params, x, view, False, method="mix")[0])
    np.testing.assert_array_equal(*outputs)


def test_sweep_points_omit_digests_and_pass_the_file(folder):
    """Points are named without digests, and scored with the file that they were trained with."""
    value = f"{folder}/own.py:Centred"
    points = make_points(
        str(folder / "config.py"), [""], [], [{"model.norm": x} for x in ("rms_norm", value)],
        folder / "sweep", lambda *given: parse(load_config(*given)),
    )  # fmt: skip
    assert not any("sha256" in point.name for point in points)
    assert f"--config.model.norm={value}" in points[1].train_command()
    assert f"--parts={folder}/own.py" in points[1].evaluate_command("test")


def test_entry_points_of_installed_packages_are_pinned(tmp_path, monkeypatch):
    (tmp_path / "norms_of_mine.py").write_text("class Mine:\n    pass\n")
    info = tmp_path / "my_norms-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: my_norms\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[transformer_jax]\nMine = norms_of_mine:Mine\n")
    monkeypatch.syspath_prepend(tmp_path)
    value = parts.pinned("my-norms:Mine", "config.model.norm")
    assert parts.resolve(value, "config.model.norm").__name__ == "Mine"
    (tmp_path / "norms_of_mine.py").write_text("class Mine:\n    x = 1\n")
    with pytest.raises(UserError, match="install that version"):
        parts.resolve(value, "config.model.norm")


@pytest.mark.parametrize("package", ["absent", "my-mixers"])
def test_a_run_with_a_part_of_another_package_can_be_inspected(tmp_path, monkeypatch, package):
    """Its config is read, although what the part needs is not known."""
    (tmp_path / "mixers_of_mine.py").write_text("class Mine:\n    record = None\n")
    info = tmp_path / "my_mixers-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: my_mixers\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[transformer_jax]\nMine = mixers_of_mine:Mine\n")
    monkeypatch.syspath_prepend(tmp_path)
    named = f"{package}:Mine@sha256:{64 * '0'}"
    settings = json.loads(to_json(Experiment()))
    settings["model"]["decoder_pattern"] = [named]
    assert from_json(json.dumps(settings)).model.decoder_pattern == (named,)


def test_config_round_trips_through_json(folder):
    experiment = parse(load_config(str(folder / "config.py")))
    assert from_json(to_json(experiment)) == experiment
    named = [path for path in TAKE_PARTS if ":" in str(value_at(experiment, path))]
    assert named == ["model.norm", "objective.name", "optimizer.algorithm", "optimizer.schedule"]
