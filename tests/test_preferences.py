"""Preferences: pairs of answers, their losses by hand, and what moves what."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from talks import CODEC, TEMPLATE, each_log_prob, loaded, parts, talk

from transformer_jax.base.errors import UserError
from transformer_jax.config import DataConfig, ObjectiveConfig, TrainingConfig
from transformer_jax.config.choices.conversations import PREFERENCE_LOSSES
from transformer_jax.data.batches.batch import Ragged, one_per_row
from transformer_jax.data.codecs import preferences
from transformer_jax.data.codecs.pair import TokenizerPair
from transformer_jax.data.conversations import Compared, Conversation, compared
from transformer_jax.data.objectives import objective_named
from transformer_jax.data.store.token_store import TokenStore
from transformer_jax.decoding.text.preferences import answer_log_probs, compared_log_probs
from transformer_jax.training.preference_losses import LOSSES
from transformer_jax.training.step import target_sums

PREFER = objective_named("prefer")
BETA = 0.3
PAIRS = [("ab", "cde", "f"), ("x", "y", "zwv"), ("hello", "b", "bb")]
TOTALS = TrainingConfig(label_smoothing=0.0)


@pytest.fixture(scope="module", autouse=True)
def float64():
    with jax.enable_x64(True):
        yield


def pairs_of(rows, labels=None) -> list[Compared]:
    """Rows with log-probabilities under a reference that is a fixed function of the text."""
    return [
        Compared(
            talk(prompt, one), talk(prompt, other), (-1.5 * len(one) - i, -2.0 * len(other)),
            None if labels is None else labels[i],
        )
        for i, (prompt, one, other) in enumerate(rows)
    ]  # fmt: skip


def batch_of(pairs, loss="dpo", length=40, rows=None):
    encoded = preferences.encoded(TEMPLATE, CODEC, [pair.as_json() for pair in pairs])
    texts = Ragged.from_lists(encoded)
    config = ObjectiveConfig(
        name="prefer", window=20, preference_loss=loss, preference_beta=BETA
    )  # fmt: skip
    special = TokenizerPair(CODEC, CODEC, TEMPLATE).special(True)
    items = PREFER.items(TokenStore(texts.emptied(), texts, special), config)
    return PREFER.examples(items, one_per_row(np.arange(len(pairs))), rows or len(pairs), 0, length)


def log_prob(conversation: Conversation, params=None) -> jax.Array:
    return each_log_prob(conversation, params).sum()


def by_hand(params, pairs, loss) -> jax.Array:
    """The mean loss, from the formulas of the papers (IPO: means over pieces)."""
    gains = [
        [log_prob(x, params) - ref for x, ref in zip(pair[:2], pair.reference, strict=True)]
        for pair in pairs
    ]
    one, other = (jnp.stack(x) for x in zip(*gains, strict=True))
    sizes = np.array([[len(x.messages[-1]["content"]) + 1 for x in pair[:2]] for pair in pairs])
    if loss == "dpo":
        return (-jnp.log(1 / (1 + jnp.exp(-BETA * (one - other))))).mean()
    if loss == "ipo":
        return ((one / sizes[:, 0] - other / sizes[:, 1] - 1 / (2 * BETA)) ** 2).mean()
    z = jax.lax.stop_gradient(jnp.maximum(other.mean(), 0))
    desirable = np.array([pair.desirable for pair in pairs])
    sigmoid = jax.nn.sigmoid(BETA * jnp.where(desirable, one - z, z - one))
    return (1 - sigmoid).mean()


def sums_of(params, batch):
    return _sums(params, jax.tree.map(jnp.asarray, batch))


@jax.jit
def _sums(params, batch):
    return target_sums(parts()[0], TOTALS, params, batch, None)["preference"]


def ours(params, batch) -> jax.Array:
    sums = sums_of(params, batch)
    return sums.loss / sums.weight


# --- losses -------------------------------------------------------------------------------------


@pytest.mark.parametrize("loss", PREFERENCE_LOSSES)
def test_losses_and_gradients_are_those_by_hand(loss):
    """Both conversations share a row, and neither sees the other."""
    labels = [True, False, True] if loss == "kto" else None
    pairs = pairs_of(PAIRS, labels)
    batch, (_, params) = batch_of(pairs, loss, rows=4), parts()  # one row is empty
    found, slope = jax.jit(jax.value_and_grad(ours))(params, batch)
    wanted, by_formula = jax.jit(jax.value_and_grad(lambda x: by_hand(x, pairs, loss)))(params)
    # The reference's log-probabilities are stored in single precision.
    np.testing.assert_allclose(found, wanted, rtol=1e-6)
    jax.tree.map(
        lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-5, atol=1e-8), slope, by_formula
    )
    assert [*LOSSES] == [*PREFERENCE_LOSSES]


def test_a_model_that_is_its_own_reference_has_a_loss_of_ln_2():
    plain = pairs_of(PAIRS)
    known = compared_log_probs(loaded(), plain)
    pairs = [pair._replace(reference=tuple(x)) for pair, x in zip(plain, known, strict=True)]
    assert ours(parts()[1], batch_of(pairs)) == pytest.approx(np.log(2), rel=1e-6)


def test_swapped_answers_flip_the_sign_of_the_margin():
    _, params = parts()
    pairs = pairs_of(PAIRS)
    swapped = [Compared(p.other, p.one, p.reference[::-1]) for p in pairs]
    loss = [float(ours(params, batch_of(x, rows=1, length=40))) for p in (pairs, swapped)
            for x in ([p[0]],)]  # fmt: skip
    margins = [-np.log(np.exp(x) - 1) for x in loss]  # of -log sigmoid(margin)
    assert margins[0] == pytest.approx(-margins[1], rel=1e-5)
    right, left = (sums_of(params, batch_of(x)).correct for x in (pairs, swapped))
    assert right + left == len(pairs)


def test_prompts_and_padding_have_no_part_in_the_loss():
    """Neither more padding nor empty rows change it, nor what labels stand at unread places."""
    _, params = parts()
    pairs = pairs_of(PAIRS)
    wanted = float(ours(params, batch_of(pairs)))
    assert ours(params, batch_of(pairs, length=52, rows=5)) == pytest.approx(wanted, rel=1e-12)
    batch = batch_of(pairs)
    labels = batch.targets["preference"].labels.copy()
    read = labels[..., 1] == 0
    labels[read, 0] = 7
    changed = batch._replace(
        targets={"preference": batch.targets["preference"]._replace(labels=labels)}
    )
    assert ours(params, changed) == wanted


def test_a_row_holds_both_conversations():
    (pair,) = pairs_of(PAIRS[:1])
    batch = batch_of([pair], length=20)
    side, (labels, weight) = batch.tgt, batch.targets["preference"]
    assert "".join(CODEC.pieces(side.inputs[0, :17])) == "uab</s>acdeuab</s>af<pad><pad><pad>"
    assert side.seg[0, :17].tolist() == [1] * 8 + [2] * 6 + [0] * 3
    assert side.pos[0, :14].tolist() == [*range(8), *range(6)]
    signs = [0, 0, 0, 0, 1, 1, 1, 1, 0, 0, 0, 0, -1, -1]
    assert labels[0, :14, 1].tolist() == signs
    said = [int(x) for x in labels[0, :14, 0] if x]
    assert "".join(CODEC.pieces(said)) == "cde</s>f</s>"
    assert labels[0, :, 2].sum() == pytest.approx(sum(pair.reference))
    assert weight.sum() == weight[0, 4] == 1


# --- scores -------------------------------------------------------------------------------------


def test_scores_of_answers_are_those_of_conversations_alone():
    talks = [talk("ab", "cde"), talk("x", ""), talk("abcdef", "ghij")]
    found = answer_log_probs(loaded("chat"), talks)
    np.testing.assert_allclose(found, [log_prob(x) for x in talks], rtol=1e-6)


def test_only_the_last_answer_is_compared():
    long = Conversation(talk("a", "b").messages + talk("c", "d").messages)
    whole = log_prob(long)
    assert answer_log_probs(loaded(), [long])[0] > whole
    (ids,) = TEMPLATE.encoded(CODEC, [long])
    assert sum(i < 0 for i in ids) == 4
    last = preferences.last_answer(ids)
    assert [i < 0 for i in last] == [False] * 10 + [True] * 2


# --- data ---------------------------------------------------------------------------------------

WRONG = {
    "has 'prompt'": {"prompt": "a"},
    "chosen: must be an answer of the assistant": {
        "prompt": "a", "chosen": [{"role": "user", "content": "a"}], "rejected": "c",
    },
    "chosen: begins with 'user' and has not the prompt": {
        "prompt": "a", "chosen": talk("b", "c").messages, "rejected": "c",
    },
    "label: is 1; must be true or false": {"prompt": "a", "completion": "b", "label": 1},
    "reference: is": {"prompt": "a", "chosen": "b", "rejected": "c", "reference": [1]},
}  # fmt: skip


@pytest.mark.parametrize("message", WRONG)
def test_malformed_rows_are_refused(message):
    rows = [json.dumps({"prompt": "a", "chosen": "b", "rejected": "c"}), json.dumps(WRONG[message])]
    with pytest.raises(UserError, match=f"row 2: {message}"):
        compared(rows, lambda number: f"row {number}")


def test_forms_of_preferences():
    messages = talk("a", "b").messages
    rows = [
        {"prompt": "a", "chosen": "b", "rejected": "c"},
        {"prompt": messages[:1], "chosen": messages[1:], "rejected": "c"},
        {"chosen": messages, "rejected": talk("a", "c").messages},
        {"prompt": "a", "chosen": messages, "rejected": talk("a", "c").messages},
        {"conversations": [{"from": "human", "value": "a"}], "rejected": "c",
         "chosen": {"from": "gpt", "value": "b"}},
        {"instruction": "a", "input": "", "chosen": "b", "rejected": "c"},
    ]  # fmt: skip
    found = compared([json.dumps(row) for row in rows], str)
    assert len({pair.as_json() for pair in found}) == 1
    assert Compared.of(found[0].as_json()) == found[0]
    (more,) = compared([json.dumps(rows[0] | {"tools": [{}], "chat_template_kwargs": {"x": 1}})],
                       str)  # fmt: skip
    assert [more.one.tools, more.other.options] == [[{}], {"x": 1}]
    assert Compared.of(more.as_json()) == more
    labelled = [{"prompt": x, "completion": x.upper(), "label": x == "a"} for x in "abc"]
    one, two, three = compared([json.dumps(row) for row in labelled], str)
    assert [x.other.messages[1]["content"] for x in (one, two, three)] == ["B", "C", "A"]
    assert [x.other.messages[0]["content"] for x in (one, two, three)] == ["a", "b", "c"]
    assert [one.desirable, two.desirable] == [True, False]
    mixed = [json.dumps(rows[0]), json.dumps(labelled[0])]
    with pytest.raises(UserError, match="2: has a label, and other rows"):
        compared(mixed, str)


def test_rows_without_a_reference_are_refused_with_the_command():
    plain = Compared(talk("a", "b"), talk("a", "c"))
    with pytest.raises(UserError, match="transformer-jax score --workdir=WORKDIR --preferences"):
        batch_of([plain])


def test_long_pairs_are_dropped_and_counted():
    pairs = pairs_of([*PAIRS, ("a" * 30, "b", "c")])
    encoded = preferences.encoded(TEMPLATE, CODEC, [pair.as_json() for pair in pairs])
    texts = Ragged.from_lists(encoded)
    items = PREFER.items(TokenStore(texts.emptied(), texts), ObjectiveConfig("prefer", window=20))
    selection = PREFER.select(items, DataConfig())
    assert selection.pairs.tolist() == [0, 1, 2]
    assert selection.dropped == {"longer than 20 pieces": 1}
