"""Settings that do not fit are reported with a remedy, and the repository's own ones fit."""

import dataclasses
import re
from types import SimpleNamespace

import numpy as np
import pytest

from transformer_jax.cli.arguments import load_config
from transformer_jax.config import Experiment, SideConfig, SourceConfig
from transformer_jax.config.convert import door, override, parse
from transformer_jax.data.batches.batch import Ragged
from transformer_jax.data.batches.batching import BucketPlan
from transformer_jax.data.store.token_store import TokenStore
from transformer_jax.experiments.fit import misfits


def shown(experiment: Experiment, pairs: int, parameters: int) -> list[str]:
    """Return what is reported for `pairs` pairs of 3 to 15 pieces a side."""
    lengths = np.resize(np.arange(3, 16), pairs)
    offsets = np.append(0, np.cumsum(lengths))
    side = Ragged.from_offsets(np.full(lengths.sum(), 9, np.int32), offsets)
    store, chosen = TokenStore(side, side), np.arange(pairs)
    prepared = SimpleNamespace(
        train=store, items=pairs, selection=SimpleNamespace(pairs=chosen),
        plan=BucketPlan(store, chosen, experiment.data, 0),
    )  # fmt: skip
    return misfits(experiment, prepared, parameters)  # type: ignore[arg-type]


def short(steps: int) -> Experiment:
    training = dataclasses.replace(Experiment().training, steps=steps)
    return dataclasses.replace(Experiment(), training=training)


def test_the_papers_model_does_not_suit_a_small_corpus():
    found = shown(short(500), 10_000, 60_000_000)
    fields = [line.partition("=")[0].partition(":")[0] for line in found]
    assert fields == ["optimizer.warmup_steps", "evaluation.every_steps", "data.tokens_per_batch",
                      "tokenizer.vocab_size", "model"]  # fmt: skip
    assert "try --config.data.tokens_per_batch=2048" in found[2]
    assert "configs/small.py" in found[-1]


@pytest.mark.parametrize("steps", [2, 50, 2000])
def test_a_mean_that_outlives_a_training_is_reported(steps):
    """With a shorter one, for which nothing is; other optimizers have none."""
    config = door(short(steps))
    config.optimizer.algorithm = "ademamix"
    (line,) = (x for x in shown(parse(config), 50_000, 1) if "optimizer.b3" in x)
    assert line.startswith(
        "optimizer.b3=0.9999: the slower mean of gradients forgets half of one in"
    )
    override(config, *re.search(r"--config\.(\S+)=(\S+)$", line).groups())
    assert not any("optimizer.b3" in x for x in shown(parse(config), 50_000, 1))
    assert not any("optimizer.b3" in x for x in shown(short(steps), 50_000, 1))


def test_vocab_size_is_not_mentioned_for_codecs_without_subwords():
    sides = {"src": SourceConfig("bytes"), "tgt": SideConfig("bytes")}
    found = shown(dataclasses.replace(short(500), **sides), 10_000, 60_000_000)
    assert found
    assert "vocab_size" not in " ".join(found)


@pytest.mark.parametrize("pairs", [3000, 10_000, 50_000])
def test_the_remedies_are_accepted_and_leave_nothing_to_report(pairs):
    config = door(short(500))
    for field, value in re.findall(r"--config\.(\S+)=(\d+)", " ".join(shown(short(500), pairs, 1))):
        override(config, field, value)
    assert shown(parse(config), pairs, 1) == []


@pytest.mark.parametrize("pairs", [5000, 200_000])
def test_the_config_for_small_corpora_fits_them(pairs):
    assert shown(parse(load_config("configs/small.py")), pairs, 1_700_000) == []
    assert shown(parse(load_config("configs/small.py")), pairs // 200, 1_700_000)
