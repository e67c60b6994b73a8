"""Predictions for new input as plain data: rows of what JSON can hold, the same from the command
line, a server and Python, whatever the model does.
"""

import math
from collections.abc import Callable, Sequence
from itertools import islice
from typing import Any

import numpy as np

from transformer_jax.base.errors import UserError
from transformer_jax.config import ObjectiveConfig
from transformer_jax.data.codecs.actions import Actions
from transformer_jax.data.conversations import conversation_of
from transformer_jax.data.scripts import words_in
from transformer_jax.data.sources.series_files import Rows, following
from transformer_jax.decoding.acting import action_logits
from transformer_jax.decoding.distances import completed
from transformer_jax.decoding.loaded import Loaded
from transformer_jax.decoding.series import ahead
from transformer_jax.decoding.text.answer import answers
from transformer_jax.decoding.text.classify import classify
from transformer_jax.decoding.text.rewards import rewards
from transformer_jax.decoding.text.tag import tag
from transformer_jax.decoding.text.values import values as numbers

Row = dict[str, Any]
Written = Callable[[Sequence], Sequence[Sequence[Any]]]  # hypotheses for each input, best first

TOKENS = 4096  # positions computed at a time


def _classes(loaded: Loaded, values: Sequence, top: int, tokens: int) -> list[Row]:
    rows = []
    for probabilities in classify(loaded, values, tokens):
        best, probability = next(iter(probabilities.items()))
        likeliest = dict(islice(probabilities.items(), top))
        rows.append({"class": best, "probability": probability, "probabilities": likeliest})
    return rows


def _labels(loaded: Loaded, values: Sequence, top: int, tokens: int) -> list[Row]:
    return [
        {"words": words_in(text), "labels": said.labels,
         "probabilities": said.probabilities.tolist()}
        for text, said in zip(values, tag(loaded, values, tokens_per_batch=tokens), strict=True)
    ]  # fmt: skip


def _answers(loaded: Loaded, values: Sequence, top: int, tokens: int) -> list[Row]:
    return [
        {"answer": answer.text, "begin": answer.begin, "probability": math.exp(answer.log_prob)}
        for answer in answers(loaded, values, tokens)
    ]


def _numbers(loaded: Loaded, values: Sequence, top: int, tokens: int) -> list[Row]:
    return [{"value": number} for number in numbers(loaded, values, tokens)]


def _rewards(loaded: Loaded, values: Sequence, top: int, tokens: int) -> list[Row]:
    talks = [conversation_of(text) for text in values]
    return [{"reward": number} for number in rewards(loaded, talks, tokens).tolist()]


def _actions(loaded: Loaded, values: Sequence, top: int, tokens: int) -> list[Row]:
    logits = [row.tolist() for one in values for row in action_logits(loaded, [one])]
    codec = loaded.codecs.tgt
    if isinstance(codec, Actions):
        return [{"action": row} for row in logits]
    rows, names = [], [int(name) for name in codec.pieces(range(codec.size))]
    for row in logits:
        powers = np.exp(np.array(row) - max(row))
        shares = dict(zip(names, (powers / powers.sum()).tolist(), strict=True))
        best = max(shares, key=lambda name: shares[name])
        rows.append({"action": best, "probability": shares[best]})
    return rows


def _series(loaded: Loaded, values: Sequence, top: int, tokens: int) -> list[Row]:
    return [
        _ahead(rows, *forecast)
        for rows, forecast in zip(values, ahead(loaded, values), strict=True)
    ]


def _distances(loaded: Loaded, values: Sequence, top: int, tokens: int) -> list[Row]:
    return [{"distances": matrix.tolist()} for matrix in completed(loaded, values)]


def _ahead(rows: np.ndarray, point: np.ndarray, deciles: np.ndarray | None) -> Row:
    horizon, channels = point.shape
    columns = rows.columns if isinstance(rows, Rows) else ()
    if len(columns) != channels:
        columns = tuple(f"channel {number}" for number in range(1, channels + 1))
    dates = following(rows.dates, horizon) if isinstance(rows, Rows) else ()
    row = {"columns": list(columns), "dates": list(dates), "forecast": point.tolist()}
    return row if deciles is None else row | {"deciles": deciles.tolist()}


# What reads its input and says something of it, by the verb of the objective's record.
READERS: dict[str, Callable[[Loaded, Sequence, int, int], list[Row]]] = {
    "classify": _classes, "tag": _labels, "answer": _answers, "value": _numbers,
    "reward": _rewards, "forecast": _series, "act": _actions, "distances": _distances,
}  # fmt: skip
WRITERS = ("translate", "transcribe", "generate")
VERBS = (*READERS, *WRITERS)


def check_verb(objective: ObjectiveConfig, verb: str | None) -> str:
    """Return the verb of a model.

    Raises:
      UserError: if it has none that predicts something of one new input; says what it is for.
    """
    if verb in VERBS:
        return verb
    why = f"has no prediction for one input; see {verb}"  # pictures as codes
    if verb is None:
        why = f"{objective.record.predicts}, which says nothing of a new one; start a run that "
        why += "does from it, with init.source"
    raise UserError(f"config.objective.name={objective.name!r}: such a model {why}")


def predictions(
    loaded: Loaded,
    verb: str,
    values: Sequence,
    top: int = 3,
    write: Written | None = None,
    tokens: int = TOKENS,
) -> list[Row]:
    """Return a row for each value that the source side's codec encodes:

    classify               class, its probability, and probabilities {class: p} of the `top`
                           likeliest, most likely first
    tag                    words, labels, and probabilities of these labels
    answer                 answer, begin (characters of the context before it), probability of its
                           first and last place
    value                  value
    reward                 reward, of the conversation that a JSON text holds
    act                    action, a number and its probability, or a list of numbers
    forecast               columns, dates (none if those given have no constant step), forecast
                           [T C] and, if the model has them, deciles [T C 9], in the given unit
    translate, transcribe  text, score, log_prob (nats; null if the search has none)
    generate               the same

    `write` returns the hypotheses of the last three; `tokens` are the positions computed at a time.

    Raises:
      UserError: if a value is malformed, or too long.
    """
    if top < 1:
        raise UserError(f"top={top}: must be at least 1")
    if verb in READERS:
        return READERS[verb](loaded, values, top, tokens)
    assert write is not None
    return [
        {"text": best.text, "score": best.score, "log_prob": best.log_prob}
        for best, *_ in write(values)
    ]
