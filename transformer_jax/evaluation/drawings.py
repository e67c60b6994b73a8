"""What a report draws of examples: sounds, trees, forecasts."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from transformer_jax.data.codecs.log_mel import LogMel
from transformer_jax.data.codecs.trees import WORD
from transformer_jax.evaluation.pixels import as_uri
from transformer_jax.evaluation.trees import Bracket, brackets
from transformer_jax.plots import forecast, tree
from transformer_jax.plots import picture as pictures

_EACH = 4  # of the worst, of those in the middle and of the best
_WORDS = 24  # of a sentence whose tree is drawn, at most


def spectrogram(sound: np.ndarray, codec: LogMel) -> str:
    """Return the address of a picture of what a model hears: time across, pitch upwards."""
    (frames,) = codec.encode([sound])
    low, high = float(frames.min(initial=0)), float(frames.max(initial=1e-6))
    bright = np.round(255 * (frames.T[::-1] - low) / (high - low)).astype(np.uint8)
    return as_uri(bright if bright.size else np.zeros((1, 1), np.uint8))


def spread(scores: Sequence[float]) -> list[int]:
    """Return the places of the lowest scores, of some in the middle and of the highest ones."""
    order = sorted(range(len(scores)), key=lambda i: (scores[i], i))
    middle = max(0, len(order) // 2 - _EACH // 2)
    chosen = [*order[:_EACH], *order[middle : middle + _EACH], *order[-_EACH:]]
    return list(dict.fromkeys(chosen))


def trees(rows: Sequence[dict[str, Any]]) -> dict[int, dict[str, str]]:
    """Return {place: {"picture": address, "caption": text}} of some sentences with their trees,
    beside those of the reference.
    """
    short = [i for i, row in enumerate(rows) if len(row["source"].split()) <= _WORDS]
    shares = {i: _agreement(rows[i]) for i in short}
    found = {}
    for i in (short[place] for place in spread([shares[i] for i in short])):
        words = rows[i]["source"].split()
        drawn = tree.draw(words, [(title, _brackets(rows[i][key], len(words)))
                                  for key, title in (("hypothesis", "said"),
                                                     ("reference", "reference"))])  # fmt: skip
        caption = f"line {rows[i]['line']}: F1 {100 * shares[i]:.1f}"
        found[i] = {"picture": pictures.as_uri(drawn), "caption": caption}
    return found


def _brackets(text: str, words: int) -> list[Bracket]:
    return brackets(text.split(), words)[0]


def _agreement(row: dict[str, Any]) -> float:
    """Return the F1 of a sentence's brackets."""
    words = row["reference"].split().count(WORD)
    said, true = (_brackets(row[key], words) for key in ("hypothesis", "reference"))
    left = list(true)
    for bracket in said:
        if bracket in left:
            left.remove(bracket)
    return 2 * (len(true) - len(left)) / max(len(said) + len(true), 1)


def forecasts(
    rows: np.ndarray,
    point: np.ndarray,
    deciles: np.ndarray | None,
    window: int,
    errors: np.ndarray,
) -> dict[int, dict[str, str]]:
    """Return {window: {"picture", "caption"}} of some windows of a split [N C], by their
    errors [windows]; `point` is [windows T C], deciles are [windows T C 9], in the rows' unit.
    """
    horizon = point.shape[1]
    order = np.argsort(errors, kind="stable")
    places = {"the nearest": 0, "one in the middle": len(order) // 2, "the farthest": -1}
    found = {}
    for title, place in places.items():
        i = int(order[place])
        figure = forecast.draw(
            rows[i : i + window + horizon], point[i], None if deciles is None else deciles[i],
            min(window, 2 * horizon),
        )  # fmt: skip
        caption = f"window {i}, {title} of {len(order):,}: {errors[i]:.3f} squared deviations"
        found[i] = {"picture": pictures.as_uri(figure), "caption": caption}
    return found


def reconstructions(
    pictures: np.ndarray, made: np.ndarray, errors: np.ndarray
) -> dict[int, dict[str, str]]:
    """Return {place: {"picture", "caption"}} of some pictures [n H W C] beside what was made of
    them, those of the largest errors [n] last.
    """
    found = {}
    for i in spread(errors.tolist()):
        both = np.concatenate([pictures[i], made[i]], axis=1)
        caption = f"picture {i + 1}: {errors[i] ** 0.5:.1f} of 255"
        found[i] = {"picture": as_uri(both), "caption": caption}
    return found
