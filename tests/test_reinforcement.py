"""Reinforcement: answers of the model's own, their loss by hand, and what moves what."""

import dataclasses
import json
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from talks import CODEC, TEMPLATE, each_log_prob, parts, talk
from tiny import RUN, VARIANTS

from transformer_jax.base.errors import UserError
from transformer_jax.config import (
    DataConfig,
    ObjectiveConfig,
    SideConfig,
    TokenizerConfig,
    TrainingConfig,
)
from transformer_jax.data.batches.batch import Ragged, one_per_row
from transformer_jax.data.objectives import objective_named, reinforcing
from transformer_jax.data.rewards import REWARDS
from transformer_jax.data.store.token_store import TokenStore
from transformer_jax.evaluation.rewards import judge_of
from transformer_jax.experiments import rollouts
from transformer_jax.experiments.train import run_experiment
from transformer_jax.runs.workdir import WorkDir, read_rows
from transformer_jax.training.step import target_sums

REINFORCE = objective_named("reinforce")
CONFIG = ObjectiveConfig(
    name="reinforce", window=20, answer_length=6, group_size=2, kl_weight=0.3, clip_below=0.1,
    clip_above=0.2,
)  # fmt: skip
SAID = [("ab", "cde"), ("ab", "f"), ("x", "y"), ("x", "zwvu")]  # two groups of two
EARNED = np.array([[1.0, 0.25], [0.0, 2.0]])


@pytest.fixture(scope="module", autouse=True)
def float64():
    with jax.enable_x64(True):
        yield


def encoded(said=SAID):
    return TEMPLATE.encoded(CODEC, [talk(*pair) for pair in said])


def known(shift: float, said=SAID) -> list[np.ndarray]:
    """Log-probabilities of another model: those of this one, and a fixed difference."""
    each = [np.asarray(each_log_prob(talk(*pair))) for pair in said]
    return [row + shift * np.cos(np.arange(len(row)) + i) for i, row in enumerate(each)]


def batch_of(config=CONFIG, old=0.4, reference=0.6, rows=5, length=16, earned=EARNED):
    texts = encoded()
    prompts = [[i for i in ids if i >= 0] for ids in texts]
    said = [[~i for i in ids if i < 0] for ids in texts]
    answers = reinforcing.answers(
        prompts, said, reinforcing.advantages(earned, config).ravel(), known(old),
        known(reference), config,
    )  # fmt: skip
    return REINFORCE.examples(answers, one_per_row(np.arange(len(said))), rows, 0, length)


@jax.jit
def sums_of(params, batch):
    return target_sums(parts()[0], TrainingConfig(), params, batch, None)["policy"]


def ours(params, batch) -> jax.Array:
    sums = sums_of(params, batch)
    return sums.loss / sums.weight


SLOPE = jax.jit(jax.value_and_grad(ours))


def by_hand(params, config, others) -> jax.Array:
    """The loss from the formulas of the papers; `others` are the log-probabilities of before and of
    the reference.
    """
    gain = EARNED - EARNED.mean(1, keepdims=True)
    if config.policy_loss != "dr_grpo":
        spread = np.abs(EARNED[:, :1] - EARNED[:, 1:]) / np.sqrt(2)  # of two numbers
        gain = gain / (spread + 1e-4)
    losses = []
    for pair, advantage, old, reference in zip(SAID, gain.ravel(), *others, strict=True):
        each = each_log_prob(talk(*pair), params)
        ratio, u = jnp.exp(each - old), reference - each
        clipped = jnp.where(ratio < 0.9, 0.9, jnp.where(ratio > 1.2, 1.2, ratio))
        worse = jnp.where(ratio * advantage < clipped * advantage, ratio, clipped)
        losses.append(-worse * advantage + 0.3 * (jnp.exp(u) - u - 1))
    if config.policy_loss == "grpo":
        return jnp.stack([one.mean() for one in losses]).mean()
    total = jnp.stack([one.sum() for one in losses]).sum()
    return total / (len(SAID) * 6 if config.policy_loss == "dr_grpo" else sum(map(len, losses)))


@pytest.mark.parametrize("word", reinforcing.SHARES)
def test_losses_and_gradients_are_those_by_hand(word):
    config, (_, params) = dataclasses.replace(CONFIG, policy_loss=word), parts()
    found, slope = SLOPE(params, batch_of(config))
    others = known(0.4), known(0.6)
    wanted, by_formula = jax.jit(jax.value_and_grad(lambda x: by_hand(x, config, others)))(params)
    # Log-probabilities of before are stored in single precision.
    np.testing.assert_allclose(found, wanted, rtol=1e-5)
    jax.tree.map(
        lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-4, atol=1e-7), slope, by_formula
    )


def test_on_policy_the_loss_is_nothing_and_its_gradient_is_that_of_the_policy():
    config, (_, params) = dataclasses.replace(CONFIG, kl_weight=0.0), parts()
    loss, slope = SLOPE(params, batch_of(config, old=0.0))
    assert loss == pytest.approx(0, abs=1e-6)
    gain = reinforcing.advantages(EARNED, config).ravel()

    def expected(params):
        each = [each_log_prob(talk(*pair), params).mean() for pair in SAID]
        return -jnp.stack([x * a for x, a in zip(each, gain, strict=True)]).mean()

    jax.tree.map(
        lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-4, atol=1e-7),
        slope, jax.jit(jax.grad(expected))(params),
    )  # fmt: skip


def test_equal_rewards_move_nothing():
    config, (_, params) = dataclasses.replace(CONFIG, kl_weight=0.0), parts()
    _, slope = SLOPE(params, batch_of(config, earned=np.full((2, 2), 0.7)))
    assert all(not x.any() for x in jax.tree.leaves(slope))


def test_prompts_padding_and_empty_rows_have_no_part_in_the_loss():
    _, params = parts()
    wanted = ours(params, batch_of())
    np.testing.assert_allclose(ours(params, batch_of(rows=9, length=23)), wanted, rtol=1e-12)
    batch = batch_of()
    labels, weight = batch.targets["policy"]
    changed = np.where((labels[..., 1] > 0)[..., None], labels, 90.0)
    changed[..., 1] = labels[..., 1]
    changed[..., 0] = np.where(labels[..., 1] > 0, labels[..., 0], 7)
    batch = batch._replace(targets={"policy": type(batch.targets["policy"])(changed, weight)})
    assert ours(params, batch) == wanted


def test_prompts_end_where_the_last_answer_begins():
    long = talk("ab", "cd")._replace(
        messages=[*talk("ab", "cd").messages, *talk("e", "fg").messages]
    )
    texts = Ragged.from_lists(TEMPLATE.encoded(CODEC, [long, talk("h", ""), talk("i" * 15, "j")]))
    items = REINFORCE.items(TokenStore(texts.emptied(), texts), CONFIG)
    assert ["".join(CODEC.pieces(items.prompt(i))) for i in range(2)] == [
        "uab</s>acd</s>ue</s>a",
        "uh</s>a",
    ]
    assert [items.answers(i) for i in range(3)] == [2, 1, 1]
    selected = REINFORCE.select(items, DataConfig())
    assert selected.pairs.tolist() == [0, 1]
    assert selected.dropped == {"whose prompt is longer than 15 pieces": 1}
    for i, asked in enumerate((long.messages[:-1], talk("h", "").messages[:-1])):
        assert items.prompt(i) == TEMPLATE.prompt(CODEC, asked)


def test_rewards_by_rules():
    assert judge_of(CONFIG)[0](
        asked_talks := [talk("a", "b")] * 3, [" b", "c", "b b"], ["b"] * 3
    ).tolist() == [1, 0, 0]
    contains = judge_of(dataclasses.replace(CONFIG, reward="contains"))[0]
    assert contains(asked_talks, ["it is b .", "bb", "b"], ["b"] * 3).tolist() == [1, 0, 1]
    assert [*REWARDS] == ["exact_match", "contains"]


def test_a_reward_that_is_no_number_is_refused(monkeypatch):
    monkeypatch.setitem(REWARDS, "contains", lambda messages, answer, wanted: float("nan"))
    judge, _ = judge_of(dataclasses.replace(CONFIG, reward="contains"))
    with pytest.raises(UserError, match=r"config.objective.reward='contains': returns nan for the"):
        judge([talk("a", "b")], ["c"], ["b"])


# --- runs ---------------------------------------------------------------------------------------

RUNS = dataclasses.replace(
    RUN,
    model=dataclasses.replace(
        VARIANTS["decoder"], positions="none", relative_positions="rope",
        dropout_rate=0.0,
    ),
    tgt=SideConfig(codec="bytes"),
    tokenizer=TokenizerConfig(),
    data=DataConfig(
        source="number_chats", num_examples=(40, 6, 6), max_number=20, max_length=96,
        tokens_per_batch=96 * 4, rows_divisible_by=1,
    ),
    objective=ObjectiveConfig(
        name="reinforce", window=96, group_size=2, answer_length=8, rollout_updates=2,
        kl_weight=0.1,
    ),
    training=TrainingConfig(steps=4, log_every=1, label_smoothing=0.0),
    checkpoint=dataclasses.replace(RUN.checkpoint, every_steps=1, best_by="reward"),
    evaluation=dataclasses.replace(RUN.evaluation, every_steps=4, bleu_sentences=4),
)  # fmt: skip


@pytest.mark.thorough
def test_a_run_resumed_between_the_updates_of_a_round_is_the_same(tmp_path, monkeypatch):
    """To the digit: parameters, metrics and answers. Rewards differ within groups."""
    monkeypatch.setitem(
        REWARDS, "exact_match", lambda messages, answer, wanted: sum(map(ord, answer)) % 7
    )
    with jax.enable_x64(False):
        whole, parted = WorkDir(tmp_path / "whole"), WorkDir(tmp_path / "parted")
        run_experiment(RUNS, whole)
        for steps in (3, 4):
            training = dataclasses.replace(RUNS.training, steps=steps)
            run_experiment(dataclasses.replace(RUNS, training=training), parted)
    rows = read_rows(whole.metrics)
    assert {"reward", "kl", "answer_length", "equal_groups", "cut_answers"} <= rows[0].keys()
    assert rows[-1].keys() == {"step", "validation_loss", "validation_reward"}
    assert rows[1]["grad_norm"] > 0
    for name in ("metrics", "answers"):
        one, other = (getattr(workdir, name).read_text() for workdir in (whole, parted))
        kept = [line for line in other.splitlines() if '"step": 3, "validation' not in line]
        assert one.splitlines() == kept, name
    said = [json.loads(line) for line in whole.answers.read_text().splitlines()]
    assert [row["step"] for row in said] == [1] * 4 + [2] * 4 + [3] * 4 + [4] * 4
    assert all(a["prompt"] == b["prompt"] for a, b in zip(said[::2], said[1::2], strict=True))
    before = parted.answers.read_bytes()
    monkeypatch.setattr(rollouts, "digest_of", lambda params: "another")
    training = dataclasses.replace(RUNS.training, steps=5)
    refused = pytest.raises(UserError, match=r"config.init.source: not the one that checkpoint")
    with jax.enable_x64(False), refused:
        run_experiment(dataclasses.replace(RUNS, training=training), parted)
    assert parted.answers.read_bytes() == before


REFUSED = {
    "data.batching='pack': a row of": {"data": {"batching": "pack"}},
    "data.tokens_per_batch=100: is less than the": {"data": {"tokens_per_batch": 100}},
    "data.max_length=90: rows of": {"data": {"max_length": 90}},
    "data.rows_divisible_by=4: batches of": {"data": {"rows_divisible_by": 4}},
    "objective.answer_length=96: leaves no room": {"objective": {"answer_length": 96}},
    "objective.reward='contains': objective.reward_model": {
        "objective": {"reward": "contains", "reward_model": "runs/x"},
    },
    "model.dropout_rate=0.1: with it, the probabilities": {"model": {"dropout_rate": 0.1}},
    "training.steps_per_execution=2: what": {"training": {"steps_per_execution": 2}},
    "checkpoint.best_by='bleu'": {"checkpoint": {"best_by": "bleu"}},
}  # fmt: skip


@pytest.mark.parametrize("message", REFUSED)
def test_refusals(message):
    changed = {
        name: dataclasses.replace(getattr(RUNS, name), **fields)
        for name, fields in REFUSED[message].items()
    }
    with pytest.raises(UserError, match=re.escape(message)):
        dataclasses.replace(RUNS, **changed)
