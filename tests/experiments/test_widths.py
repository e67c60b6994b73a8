"""The coordinate check: what grows with the width is named, and a planted mistake shows."""

import dataclasses

import pytest
from tiny import RUN, VOCAB, alone, random_store

from transformer_jax.base.errors import UserError
from transformer_jax.cli.main import dispatch
from transformer_jax.config import ModelConfig, ObjectiveConfig, OptimizerConfig
from transformer_jax.experiments import widths
from transformer_jax.models import core, parametrization

MODEL = ModelConfig(
    architecture="decoder", d_model=32, d_ff=64, num_heads=4, num_decoder_layers=2,
    residual="pre_norm", dropout_rate=0.0,
)  # fmt: skip
WIDER = dataclasses.replace(MODEL, parametrization="mup", base_width=32)
EXPERIMENT = dataclasses.replace(
    RUN, model=MODEL, objective=ObjectiveConfig("language_model", window=48),
    optimizer=OptimizerConfig(schedule="constant", learning_rate=1e-2, warmup_steps=1),
)  # fmt: skip
BATCHES = widths.Batches(
    alone(random_store([(6, 7)] * 16), 16, 8, 8)._replace(src=None), (VOCAB, VOCAB)
)
MAPS = ("feed_forward/up", "feed_forward/down", "self_attention/output")
STREAM = "stream after feed_forward"


def slopes(model: ModelConfig, axis: str = "width", sizes=(32, 128), rate=1e-2):
    """Return by what power of the size the changes grow, as the command prints them."""
    optimizer = dataclasses.replace(EXPERIMENT.optimizer, learning_rate=rate)
    found = {}
    for size in sizes:
        resized = widths.resized(model, axis, size)
        experiment = dataclasses.replace(EXPERIMENT, model=resized, optimizer=optimizer)
        found[size] = widths.changes(experiment, BATCHES, 4)
    text = [*widths.lines(axis, found)]
    grown = widths.slopes(found)
    assert ["grows" in line for line in text[1:-1]] == [x > 0.25 for x in grown.values()]
    return grown


def test_changes_do_not_grow_with_the_width_with_mup():
    found = slopes(WIDER)
    assert found.keys() == {*MAPS, STREAM, "stream after self_attention", "logits of tokens"}
    assert max(found.values()) < 0.25


@pytest.mark.thorough
def test_changes_grow_with_the_width_as_usual():
    found = slopes(MODEL)
    assert min(found[STREAM], found[MAPS[1]]) > 0.4


@pytest.mark.thorough
@pytest.mark.parametrize("missing", ["rate", "start", "logits"])
def test_a_planted_mistake_shows(missing, monkeypatch):
    """One factor of muP left out: the learning rate of maps, their initial values, the logits."""
    if missing == "logits":
        monkeypatch.setattr(core, "logits_factor", lambda config: 1.0)
        shows = "logits of tokens"
    else:
        known = parametrization._of

        def without(config, name, leaf):
            factors = known(config, name, leaf)
            left_out = {"rate": 1.0, "start": config.widths * factors.start}[missing]
            inside = name.endswith(("down/kernel", "up/kernel"))
            return factors._replace(**{missing: left_out}) if inside else factors

        monkeypatch.setattr(parametrization, "_of", without)
        shows = MAPS[1]
    assert slopes(WIDER)[shows] > 0.25


@pytest.mark.thorough
def test_changes_do_not_grow_with_the_depth_with_completep():
    """Where muP's do; at a rate at which the changes are small beside what they change."""
    wide = dataclasses.replace(MODEL, parametrization="mup", base_width=32)
    deep = dataclasses.replace(wide, parametrization="completep", base_depth=2)
    found, others = (slopes(model, "depth", (2, 8), 1e-3) for model in (deep, wide))
    assert max(found.values()) < 0.25
    assert others[STREAM] > 0.5


def test_sizes_that_heads_do_not_divide_are_refused():
    assert widths.resized(MODEL, "width", 16).num_heads == 2
    with pytest.raises(UserError, match=r"--widths=12: model.num_heads=4 of d_model=32 .* 1\.5"):
        widths.resized(MODEL, "width", 12)


@pytest.mark.thorough
def test_the_command_prints_and_draws(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("TRANSFORMER_JAX_CACHE", str(tmp_path / "cache"))
    (tmp_path / "config.py").write_text(
        "from transformer_jax.config.convert import door\n"
        "from transformer_jax.config import Experiment\n"
        "def get_config():\n"
        "    c = door(Experiment())\n"
        "    c.model.d_ff, c.model.d_model, c.model.num_heads = 32, 16, 2\n"
        "    c.model.num_encoder_layers = c.model.num_decoder_layers = 1\n"
        "    c.data.source, c.data.source_language = 'spelled_numbers', 'de'\n"
        "    c.data.target_language, c.data.num_examples = 'en', (50, 4, 4)\n"
        "    c.tokenizer.vocab_size, c.data.max_length, c.data.tokens_per_batch = 48, 48, 480\n"
        "    c.optimizer.schedule, c.optimizer.learning_rate = 'constant', 1e-3\n"
        "    return c\n"
    )
    command = ["widths", f"--config={tmp_path}/config.py", "--steps=1"]
    assert dispatch([*command, "--widths=16,32", f"--plot={tmp_path}/x.svg"]) == 0
    printed = capsys.readouterr().out
    assert "feed_forward/up" in printed
    assert "logits of tokens" in printed
    assert (tmp_path / "x.svg").read_text().startswith("<?xml")
    for bad, message in (
        ("--widths=16", "two or more sizes"), ("--widths=a,b", "two or more"),
    ):  # fmt: skip
        with pytest.raises(UserError, match=message):
            dispatch([*command, bad])
