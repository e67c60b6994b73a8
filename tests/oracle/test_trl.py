"""Losses of preferences and of a model's own answers beside TRL's, on the same logits."""

from collections import defaultdict
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from trl import DPOTrainer, GRPOTrainer, KTOTrainer

from transformer_jax.config import ObjectiveConfig
from transformer_jax.data.batches.batch import Ragged, one_per_row
from transformer_jax.data.objectives import objective_named, reinforcing
from transformer_jax.data.store.token_store import TokenStore
from transformer_jax.nn.embedding import Head
from transformer_jax.training.policy_losses import policy_sums
from transformer_jax.training.preference_losses import preference_sums

pytestmark = pytest.mark.oracle

PIECES, MOST, KL, BELOW, ABOVE = 11, 7, 0.3, 0.1, 0.25
LENGTHS = (7, 2, 4, 1, 5, 3)  # of answers to two prompts, three each
GROUPS = np.array([[0.0, 1.0, 0.5], [2.0, 2.0, -1.0]])
RANDOM = np.random.default_rng(0)
LOGITS = RANDOM.normal(size=(len(LENGTHS), MOST, PIECES))
SAID = [RANDOM.integers(1, PIECES, n) for n in LENGTHS]
OTHERS = RANDOM.normal(-2.4, 0.5, size=(2, len(LENGTHS), MOST)).astype(np.float32)

ALONE = SimpleNamespace(
    gather=lambda x: x, gather_for_metrics=lambda x: x, reduce=lambda x, reduction: x,
    num_processes=1, sync_gradients=False, device="cpu",
)  # fmt: skip


def theirs(word: str) -> tuple[float, np.ndarray]:
    """TRL's loss and its gradient by the logits."""
    logits = torch.tensor(LOGITS, requires_grad=True)
    said = torch.zeros(len(LENGTHS), MOST, dtype=torch.long)
    mask = torch.zeros(len(LENGTHS), MOST, dtype=torch.float64)
    for row, ids in enumerate(SAID):
        said[row, : len(ids)], mask[row, : len(ids)] = torch.tensor(ids), 1
    each = logits.log_softmax(-1).gather(2, said[..., None])[..., 0]
    trainer: Any = SimpleNamespace(
        _get_per_token_logps_and_entropies=lambda *_, **__: (each, torch.zeros_like(each), None),
        aux_loss_enabled=False, top_entropy_quantile=1.0, off_policy_mask_threshold=None,
        importance_sampling_level="token", beta=KL, loss_type=word, epsilon_low=BELOW,
        epsilon_high=ABOVE, use_vllm=False, _entropy_bonus_enabled=False, accelerator=ALONE,
        max_completion_length=MOST, current_gradient_accumulation_steps=1,
        model=SimpleNamespace(training=True), _metrics=defaultdict(lambda: defaultdict(list)),
        args=SimpleNamespace(use_bias_correction_kl=False, delta=None, steps_per_generation=1),
    )  # fmt: skip
    gain = torch.tensor(GROUPS) - torch.tensor(GROUPS).mean(1, keepdim=True)
    if word != "dr_grpo":
        gain = gain / (torch.tensor(GROUPS).std(1, keepdim=True) + 1e-4)
    prompts = torch.ones(len(LENGTHS), 1, dtype=torch.long)
    inputs = {
        "prompt_ids": prompts, "prompt_mask": prompts, "completion_ids": said,
        "completion_mask": mask, "advantages": gain.ravel(),
        "old_per_token_logps": torch.tensor(OTHERS[0], dtype=torch.float64),
        "ref_per_token_logps": torch.tensor(OTHERS[1], dtype=torch.float64),
        "num_items_in_batch": mask.sum(),
    }  # fmt: skip
    loss = GRPOTrainer._compute_loss(trainer, None, inputs)
    loss.backward()
    assert logits.grad is not None
    return loss.item(), logits.grad.numpy()


def ours(word: str) -> tuple[float, np.ndarray]:
    """The same here: hidden states are the logits, and the head changes nothing."""
    config = ObjectiveConfig(
        name="reinforce", policy_loss=word, kl_weight=KL, clip_below=BELOW, clip_above=ABOVE,
        answer_length=MOST,
    )  # fmt: skip
    old, reference = ([row[:n] for row, n in zip(part, LENGTHS, strict=True)] for part in OTHERS)
    gain = reinforcing.advantages(GROUPS, config).ravel()
    answers = reinforcing.answers([[1]] * len(SAID), SAID, gain, old, reference, config)
    batch = objective_named("reinforce").examples(
        answers, one_per_row(np.arange(len(SAID))), len(SAID), 0, MOST
    )
    labels, weight = map(jnp.asarray, batch.targets["policy"])

    def loss(logits):
        sums = policy_sums(logits, Head(jnp.eye(PIECES)), labels, weight)
        return sums.loss / sums.weight

    value, slope = jax.value_and_grad(loss)(jnp.asarray(LOGITS))
    return float(value), np.asarray(slope)


@pytest.mark.parametrize("word", reinforcing.SHARES)
def test_policy_losses_are_those_of_trl(word):
    with jax.enable_x64(True):
        (found, slope), (wanted, by_torch) = ours(word), theirs(word)
    assert found == pytest.approx(wanted, rel=1e-6)  # facts are stored in single precision
    np.testing.assert_allclose(slope, by_torch, rtol=1e-5, atol=1e-9)


# --- preferences --------------------------------------------------------------------------------

BETA, LONGEST = 0.4, 12
ANSWERS = [((2, 3), (1, 4)), ((1, 1), (3, 2)), ((3, 4), (2, 5))]  # pieces read and said, of both
DESIRABLE = [True, False, True]
REFERENCE = RANDOM.normal(-6, 2, size=(len(ANSWERS), 2)).astype(np.float32)
OF_PAIRS = RANDOM.normal(size=(len(ANSWERS), LONGEST, PIECES))


def pairs(word: str):
    """The labels and weights of a batch of pairs."""
    rows = []
    for number, both in enumerate(ANSWERS):
        talks = [
            [*RANDOM.integers(1, PIECES, read), *(~RANDOM.integers(1, PIECES, said))]
            for read, said in both
        ]
        known = REFERENCE[number].view(np.int32).tolist()
        good = 1 if word != "kto" or DESIRABLE[number] else -1
        rows.append([len(talks[0]), *known, good, *talks[0], *talks[1]])
    texts, prefer = Ragged.from_lists(rows), objective_named("prefer")
    config = ObjectiveConfig(name="prefer", preference_loss=word, preference_beta=BETA)
    items = prefer.items(TokenStore(texts.emptied(), texts), config)
    batch = prefer.examples(items, one_per_row(np.arange(len(rows))), len(rows), 0, LONGEST)
    return tuple(map(jnp.asarray, batch.targets["preference"]))


def by_trl(word: str, labels: np.ndarray) -> tuple[float, np.ndarray]:
    """TRL's loss and its gradient by the logits."""
    logits = torch.tensor(OF_PAIRS, requires_grad=True)
    pieces, sides = torch.tensor(labels[..., 0]).long(), torch.tensor(labels[..., 1])
    each = logits.log_softmax(-1).gather(2, pieces[..., None])[..., 0]
    parts = [each * (sides == sign) for sign in (1, -1)]
    masks = [torch.cat([torch.zeros(len(sides), 1), (sides == sign) * 1.0], 1) for sign in (1, -1)]
    one = word == "kto"  # its second answers are other prompts'
    said = parts[0] if one else torch.cat(parts)
    outputs = SimpleNamespace(
        log_probs=said, entropy=torch.zeros_like(said), mean_logits=torch.zeros_like(said),
        is_top1=torch.zeros_like(said, dtype=torch.bool),
    )  # fmt: skip
    trainer: Any = SimpleNamespace(
        model=SimpleNamespace(training=False), accelerator=ALONE, aux_loss_enabled=False,
        precompute_ref_logps=True, f_divergence_type="reverse_kl", ld_alpha=None, beta=BETA,
        loss_types=["sigmoid" if word == "dpo" else word], loss_weights=[1.0], use_weighting=False,
        _metrics=defaultdict(lambda: defaultdict(list)), _total_train_tokens=0, loss_type=word,
        calculate_KL=True, desirable_weight=1.0, undesirable_weight=1.0,
        _compute_kl_logps=lambda *_: parts[1].sum(1).detach(), label_smoothing=0.0,
    )  # fmt: skip
    reference = torch.tensor(REFERENCE, dtype=torch.float64)
    mask = masks[0] if one else torch.cat(masks)
    inputs = {
        "input_ids": mask.long(), "attention_mask": mask.long(), "completion_mask": mask,
        "ref_chosen_logps": reference[:, 0], "ref_rejected_logps": reference[:, 1],
    }  # fmt: skip
    if one:
        inputs |= {"label": torch.tensor(DESIRABLE), "ref_logps": reference[:, 0],
                   "ref_KL_logps": reference[:, 1]}  # fmt: skip
    compute = KTOTrainer._compute_loss if one else DPOTrainer._compute_loss
    loss = compute(trainer, lambda **_: outputs, inputs, False)
    loss.backward()
    assert logits.grad is not None
    return loss.item(), logits.grad.numpy()


@pytest.mark.parametrize("word", ["dpo", "ipo", "kto"])
def test_preference_losses_are_those_of_trl(word):
    with jax.enable_x64(True):
        labels, weight = pairs(word)

        def loss(logits):
            sums = preference_sums(logits, Head(jnp.eye(PIECES)), labels, weight)
            return sums.loss / sums.weight

        found, slope = jax.value_and_grad(loss)(jnp.asarray(OF_PAIRS))
        wanted, by_torch = by_trl(word, np.asarray(labels))
    assert float(found) == pytest.approx(wanted, rel=1e-6)
    np.testing.assert_allclose(slope, by_torch, rtol=1e-5, atol=1e-8)
