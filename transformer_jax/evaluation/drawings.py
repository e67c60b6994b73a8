"""Drawings of examples for reports: sounds, trees, forecasts, reconstructed pictures."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from transformer_jax.data.codecs.log_mel import LogMel
from transformer_jax.data.codecs.trees import WORD
from transformer_jax.data.scripts import words_in
from transformer_jax.data.sources.series_files import Rows
from transformer_jax.evaluation.pixels import as_uri
from transformer_jax.evaluation.trees import Bracket, brackets
from transformer_jax.plots import forecast, tree
from transformer_jax.plots import picture as pictures

_EACH = 4  # examples from the worst, the middle and the best
_SIDE = 160  # pixels of a matrix of distances
_WORDS = 24  # the longest sentence whose tree is drawn


def spectrogram(sound: np.ndarray, codec: LogMel) -> str:
    """Return the data URI of a sound's spectrogram: time from left to right, pitch upwards."""
    (frames,) = codec.encode([sound])
    low, high = float(frames.min(initial=0)), float(frames.max(initial=1e-6))
    bright = np.round(255 * (frames.T[::-1] - low) / (high - low)).astype(np.uint8)
    return as_uri(bright if bright.size else np.zeros((1, 1), np.uint8))


def spread(scores: Sequence[float]) -> list[int]:
    """Return the indices of the lowest scores, some middle ones and the highest."""
    order = sorted(range(len(scores)), key=lambda i: (scores[i], i))
    middle = max(0, len(order) // 2 - _EACH // 2)
    chosen = [*order[:_EACH], *order[middle : middle + _EACH], *order[-_EACH:]]
    return list(dict.fromkeys(chosen))


def trees(rows: Sequence[dict[str, Any]]) -> dict[int, dict[str, str]]:
    """Return {index: {"picture": data URI, "caption": text}} for some sentences, with their
    predicted trees beside the reference trees.
    """
    short = [i for i, row in enumerate(rows) if len(words_in(row["source"])) <= _WORDS]
    shares = {i: _agreement(rows[i]) for i in short}
    drawings = {}
    for i in (short[place] for place in spread([shares[i] for i in short])):
        words = words_in(rows[i]["source"])
        drawn = tree.draw(words, [(title, _brackets(rows[i][key], len(words)))
                                  for key, title in (("hypothesis", "said"),
                                                     ("reference", "reference"))])  # fmt: skip
        caption = f"line {rows[i]['line']}: F1 {100 * shares[i]:.1f}"
        drawings[i] = {"picture": pictures.as_uri(drawn), "caption": caption}
    return drawings


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
    rows: Rows,
    point: np.ndarray,
    deciles: np.ndarray | None,
    window: int,
    errors: np.ndarray,
) -> dict[int, dict[str, str]]:
    """Return {window: {"picture", "caption"}} for some windows of a split [N C], chosen by their
    errors [windows]; `point` is [windows T C], deciles are [windows T C 9], in the rows' unit.
    """
    horizon = point.shape[1]
    order = np.argsort(errors, kind="stable")
    places = {"smallest error": 0, "median error": len(order) // 2, "largest error": -1}
    drawings = {}
    for title, place in places.items():
        i = int(order[place])
        shown = rows.between(i, i + window + horizon)
        figure = forecast.draw(
            shown, point[i], None if deciles is None else deciles[i], min(window, 2 * horizon),
            shown.columns, shown.dates,
        )  # fmt: skip
        begin = f", from {shown.dates[window]}" if shown.dates else ""
        caption = f"window {i}{begin}, {title} of {len(order):,}: MSE {errors[i]:.3f}, standardised"
        drawings[i] = {"picture": pictures.as_uri(figure), "caption": caption}
    return drawings


def reconstructions(
    pictures: np.ndarray, made: np.ndarray, errors: np.ndarray
) -> dict[int, dict[str, str]]:
    """Return {index: {"picture", "caption"}} for some pictures [n H W C] beside their
    reconstructions, those with the largest errors [n] last.
    """
    drawings = {}
    for i in spread(errors.tolist()):
        both = np.concatenate([pictures[i], made[i]], axis=1)
        caption = f"picture {i + 1}: {errors[i] ** 0.5:.1f} of 255"
        drawings[i] = {"picture": as_uri(both), "caption": caption}
    return drawings


def distances(
    known: Sequence[np.ndarray],
    said: Sequence[np.ndarray],
    true: Sequence[np.ndarray],
    scores: np.ndarray,
) -> dict[int, dict[str, str]]:
    """Return {index: {"picture", "caption"}} for some chains: the known distances [T T], NaN
    elsewhere, the predicted ones and the true ones, side by side, near points dark.
    """
    drawings = {}
    for i in spread(scores.tolist()):
        farthest = max(float(true[i].max()), 1e-6)
        each = [np.nan_to_num(x / farthest, nan=1.0) for x in (known[i], said[i], true[i])]
        gap = np.ones((len(true[i]), 1))
        row = np.concatenate([each[0], gap, each[1], gap, each[2]], axis=1)
        bright = np.round(255 * row.clip(0, 1)).astype(np.uint8)
        scale = max(1, _SIDE // len(bright))
        caption = f"chain {i + 1}: lDDT {scores[i]:.3f}; known, predicted and true distances"
        drawings[i] = {"picture": as_uri(np.kron(bright, np.ones((scale, scale), np.uint8))),
                       "caption": caption}  # fmt: skip
    return drawings
