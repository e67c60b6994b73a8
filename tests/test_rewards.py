"""Reward models: pairs of answers, their loss by hand, and the number of an answer."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from talks import CODEC, TEMPLATE, loaded, parts, talk

from transformer_jax.base.errors import UserError
from transformer_jax.config import ObjectiveConfig, TrainingConfig
from transformer_jax.data.batches.batch import Ragged, one_per_row
from transformer_jax.data.batches.packing import first_fit
from transformer_jax.data.codecs import preferences
from transformer_jax.data.conversations import Compared
from transformer_jax.data.objectives import objective_named
from transformer_jax.data.sources.corpus import LINES
from transformer_jax.data.store.token_store import TokenStore
from transformer_jax.decoding.predict import predictions
from transformer_jax.decoding.text.rewards import rewards
from transformer_jax.training.step import target_sums

REWARD, OF_REWARDS = objective_named("reward"), ("reward",)
PAIRS = [("ab", "cde", "f"), ("x", "y", "zwv"), ("hello", "b", "bb")]


@pytest.fixture(scope="module", autouse=True)
def float64():
    with jax.enable_x64(True):
        yield


def model():
    return loaded("reward", OF_REWARDS)


def items_of(rows):
    pairs = [Compared(talk(prompt, one), talk(prompt, other)) for prompt, one, other in rows]
    encoded = preferences.encoded(TEMPLATE, CODEC, [pair.as_json() for pair in pairs])
    texts = Ragged.from_lists(encoded)
    return REWARD.items(
        TokenStore(texts.emptied(), texts), ObjectiveConfig(name="reward", window=20)
    )


def batch_of(rows, size=None, length=40):
    items = items_of(rows)
    return REWARD.examples(items, one_per_row(np.arange(len(rows))), size or len(rows), length, 2)


def sums_of(batch):
    return _sums(parts(OF_REWARDS)[1], jax.tree.map(jnp.asarray, batch))


@jax.jit
def _sums(params, batch):
    return target_sums(parts(OF_REWARDS)[0], TrainingConfig(), params, batch, None)["reward"]


def of_each(rows) -> np.ndarray:
    """The rewards of both answers of each pair, each conversation alone."""
    talks = [talk(prompt, answer) for prompt, *both in rows for answer in both]
    return rewards(model(), talks).reshape(-1, 2)


def test_the_loss_is_bradley_and_terrys():
    both = of_each(PAIRS)
    assert np.ptp(both) > 0.01
    sums = sums_of(batch_of(PAIRS, size=5))
    better = np.exp(both[:, 0]) / np.exp(both).sum(axis=1)  # odds of two strengths
    np.testing.assert_allclose(sums.loss / sums.weight, -np.log(better).mean(), rtol=1e-9)
    assert sums.correct == (both[:, 0] > both[:, 1]).sum()


def test_swapped_answers_are_the_other_way_round():
    swapped = [(prompt, other, one) for prompt, one, other in PAIRS]
    assert sums_of(batch_of(PAIRS)).correct + sums_of(batch_of(swapped)).correct == len(PAIRS)
    np.testing.assert_allclose(of_each(swapped), of_each(PAIRS)[:, ::-1], rtol=1e-12)


def test_several_pairs_in_a_row_do_not_see_one_another():
    items = items_of(PAIRS)
    src, tgt = items.lengths
    rows = first_fit(np.arange(len(PAIRS)), src, tgt, 64)
    placement = rows.placed(np.arange(1), src, tgt)
    packed = REWARD.examples(items, placement, 1, 64, 6)
    assert packed.src.seg.max() == 6
    logits = np.asarray(
        parts(OF_REWARDS)[0].outputs(
            parts(OF_REWARDS)[1], jax.tree.map(jnp.asarray, packed), None
        )["reward"].logits()
    )[0, :, 0]  # fmt: skip
    order = placement.pairs[np.argsort(placement.tgt_offset)]
    np.testing.assert_allclose(logits.reshape(-1, 2), of_each(PAIRS)[order], rtol=1e-9)


def test_padding_and_empty_rows_change_nothing():
    wanted = sums_of(batch_of(PAIRS))
    for found in (sums_of(batch_of(PAIRS, size=7)), sums_of(batch_of(PAIRS, length=61))):
        np.testing.assert_allclose(found, wanted, rtol=1e-12)


def test_only_what_is_read_moves_a_reward():
    """The answer's end counts, and nothing behind it."""
    one, other = of_each([("ab", "cd", "cde")])[0]
    assert one != other
    talks = [
        talk("ab", "cd")._replace(
            messages=[*talk("ab", "cd").messages, *talk("e", "f").messages[:1]]
        )
    ]
    assert rewards(model(), talks)[0] == pytest.approx(one, rel=1e-12)


def test_lines_are_conversations():
    texts = [json.dumps({"prompt": prompt, "completion": one}) for prompt, one, _ in PAIRS]
    found = predictions(model(), "reward", texts)
    assert [row["reward"] for row in found] == pytest.approx(of_each(PAIRS)[:, 0])


def test_refusals():
    with pytest.raises(UserError, match="gives no rewards"):
        rewards(loaded("chat"), [talk("a", "b")])
    row = json.dumps({"prompt": "a", "completion": "b", "label": True})
    with pytest.raises(UserError, match="row 1: has a label, and no answer that is better"):
        LINES["pairs"]([], [row], lambda number, source: f"row {number}")
