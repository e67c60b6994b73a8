"""Evaluation of chat models: the loss of answers, and how many are written as they are."""

import dataclasses
import math
from typing import Any

from transformer_jax.api import TrainedEnsemble, TrainedModel
from transformer_jax.base.errors import UserError
from transformer_jax.config.choices.searches import GREEDY
from transformer_jax.data.conversations import asked_in
from transformer_jax.data.sources import Corpus
from transformer_jax.decoding.text.score import validation_log_probs
from transformer_jax.evaluation.metrics import interval, same
from transformer_jax.evaluation.rewards import judge_of
from transformer_jax.evaluation.run import Evaluation, described

_MOST_TOKENS = 1024  # of an answer


def evaluate(trained: TrainedModel, corpus: Corpus, split: str, checkpoint: str) -> Evaluation:
    """Return the loss (nats) of the pieces of answers, its perplexity, and the exact match (%) of
    the last answer of each conversation, written greedily after all messages before it. Each row
    has the last message before the answer, the answer written, the one in the data, and the
    log-probability of all answers of the conversation.

    Raises:
      UserError: if the model is an ensemble.
    """
    if isinstance(trained, TrainedEnsemble):
        raise UserError("cannot score an ensemble of chat models: load one checkpoint of one "
                        "--workdir")  # fmt: skip
    log_probs = validation_log_probs(trained.loaded, corpus.tgt)
    tokens = sum(map(len, log_probs))
    loss = -math.fsum(map(math.fsum, log_probs)) / max(tokens, 1)
    decoding = dataclasses.replace(trained.experiment.decoding, **GREEDY)
    generator = trained.generator(decoding)
    asked, wanted, read = [], [], []
    talks = []
    for text in corpus.tgt:
        talk, right = asked_in(text)
        talks.append(talk)
        asked.append(talk.messages[-1]["content"] if talk.messages else "")
        wanted.append(right)
        read.append(generator.reader.asked(*talk) if talk.messages else [generator.special.begin])
    longest = max(map(len, trained.tokenizers.tgt.encode(wanted, eos=False)), default=0)
    most = min(2 * longest + 8, _MOST_TOKENS)
    written = [texts[0] for texts in generator.generate(trained.params, read, most)]
    lowercase = trained.experiment.evaluation.lowercase
    rows: list[dict[str, Any]] = [
        {
            "line": number, "source": question, "reference": right, "hypothesis": said.text,
            "exact_match": same(said.text, right, lowercase),
        }
        for number, (question, right, said) in enumerate(
            zip(asked, wanted, written, strict=True), 1
        )
    ]  # fmt: skip
    # Conversations without an answer in the window have no row of log-probabilities.
    if len(log_probs) == len(rows):
        for row, parts in zip(rows, log_probs, strict=True):
            row |= {"pieces": len(parts), "log_prob": float(parts.sum(dtype=float))}
    exact, total = sum(row["exact_match"] for row in rows), len(rows)
    low, high = (100 * end for end in interval(exact, total))
    perplexity = math.exp(min(loss, 700.0))
    scores: dict[str, dict[str, Any]] = {
        "exact_match": {"value": 100 * exact / total, "signature": "greedy",
                        "interval": [low, high]},
        "loss": {"value": loss, "signature": ""},
        "perplexity": {"value": perplexity, "signature": ""},
    }  # fmt: skip
    if trained.experiment.objective.record.samples:
        judge, _ = judge_of(trained.experiment.objective)
        rewards = judge(talks, [said.text for said in written], wanted)
        scores["reward"] = {"value": float(rewards.mean()), "signature": "greedy"}
        for row, reward in zip(rows, rewards.tolist(), strict=True):
            row["reward"] = reward
    details = [
        f"exact match = {100 * exact / total:.2f} % ({exact} of {total}), 95 % interval "
        f"{low:.1f} to {high:.1f} %",
        f"loss = {loss:.4f}",
        f"perplexity = {perplexity:.4f}",
    ]
    if "reward" in scores:
        details.append(f"reward = {scores['reward']['value']:.4f}")
    result = described(trained, corpus.tgt, split, checkpoint, scores, details)
    result |= {"tokens": tokens, "decoding": dataclasses.asdict(decoding)}
    extent = f"{tokens:,} pieces, {trained.experiment.objective.record.counted}"
    return Evaluation(result, [row["hypothesis"] for row in rows], rows, extent)
