"""Evaluation of preferences: how much each answer has gained on the reference model, or its reward
under a reward model.
"""

from typing import Any

import numpy as np

from transformer_jax.api import TrainedEnsemble, TrainedModel
from transformer_jax.base.errors import UserError
from transformer_jax.data.conversations import Compared
from transformer_jax.data.sources import Corpus
from transformer_jax.decoding.text.preferences import compared_log_probs
from transformer_jax.decoding.text.rewards import rewards
from transformer_jax.evaluation.metrics import interval
from transformer_jax.evaluation.run import Evaluation, described


def evaluate(trained: TrainedModel, corpus: Corpus, split: str, checkpoint: str) -> Evaluation:
    """Return the share (%) of pairs in which the better answer has gained more on the reference, or
    of labelled answers that have gained if desirable and lost if not; and the mean reward, beta
    times the gain (nats), of both: of the better and the worse, or the desirable and the other
    answers. Both may fall while their difference grows. Of a reward model, the rewards are its own.

    Raises:
      UserError: if the model is an ensemble, or rows have no log-probabilities of the reference.
    """
    if isinstance(trained, TrainedEnsemble):
        raise UserError("cannot compare answers by an ensemble: load one checkpoint of one "
                        "--workdir")  # fmt: skip
    pairs = [Compared.of(text) for text in corpus.tgt]
    if "reward" in trained.loaded.task.predicts:
        talks = [talk for pair in pairs for talk in pair[:2]]
        both = rewards(trained.loaded, talks).reshape(-1, 2)
        return _described(trained, corpus, split, checkpoint, pairs, both, "")
    if any(pair.reference is None for pair in pairs):
        raise UserError(
            f"config.data.{split}: rows have no 'reference'; add it with: transformer-jax score "
            "--workdir=WORKDIR --preferences=FILE"
        )
    beta = trained.experiment.objective.preference_beta
    reference = np.array([pair.reference for pair in pairs])
    both = beta * (compared_log_probs(trained.loaded, pairs) - reference)
    return _described(trained, corpus, split, checkpoint, pairs, both, f"beta {beta:g}")


def _described(
    trained: TrainedModel, corpus: Corpus, split: str, checkpoint: str, pairs: list[Compared],
    both: np.ndarray, signature: str,
) -> Evaluation:  # fmt: skip
    """Return the scores of rewards [n 2]."""
    labelled = [pair.desirable for pair in pairs if pair.desirable is not None]
    if labelled:
        wanted = np.array(labelled)
        right = (both[:, 0] > 0) == wanted
        one, other = both[wanted, 0], both[~wanted, 0]
    else:
        right = both[:, 0] > both[:, 1]
        one, other = both.T
    rows: list[dict[str, Any]] = [
        {
            "line": number, "source": pair.one.messages[-2]["content"],
            "chosen": pair.one.messages[-1]["content"], "right": bool(good),
            "rejected": pair.other.messages[-1]["content"], "rewards": [float(x), float(y)],
        }
        for number, (pair, good, (x, y)) in enumerate(zip(pairs, right, both, strict=True), 1)
    ]  # fmt: skip
    count, total = int(right.sum()), len(right)
    low, high = (100 * end for end in interval(count, total))
    means = [float(x.mean()) if len(x) else 0.0 for x in (one, other)]
    values = {
        "accuracy": 100 * count / total, "margin": means[0] - means[1],
        "reward_chosen": means[0], "reward_rejected": means[1],
    }  # fmt: skip
    scores: dict[str, dict[str, Any]] = {
        name: {"value": value, "signature": signature} for name, value in values.items()
    }
    scores["accuracy"]["interval"] = [low, high]
    details = [
        f"accuracy = {values['accuracy']:.2f} % ({count} of {total}), 95 % interval {low:.1f} to "
        f"{high:.1f} %",
        f"margin = {values['margin']:.4f}: rewards {means[0]:.4f} and {means[1]:.4f}",
    ]
    result = described(trained, corpus.tgt, split, checkpoint, scores, details)
    return Evaluation(result, None, rows)
