"""Pictures of non-text examples for reports, with maps of where the model looked."""

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from transformer_jax.api import TrainedModel
from transformer_jax.base.errors import UserError
from transformer_jax.data.codecs.codebook import Codebook
from transformer_jax.data.codecs.log_mel import LogMel
from transformer_jax.data.codecs.pixels import Pixels
from transformer_jax.data.codecs.trees import Trees
from transformer_jax.decoding.pictures import PictureCodes
from transformer_jax.evaluation import drawings
from transformer_jax.evaluation.metrics import is_right
from transformer_jax.evaluation.pixels import as_uri, beside

_WRONG, _RIGHT = 24, 12  # the numbers of wrong and right predictions shown


def rollout(attention: np.ndarray) -> np.ndarray:
    """Return how much each position draws from each other one [T T], given attention [L N T T]: the
    product over layers of head-averaged attention, mixed half and half with the identity for the
    residual connection (attention rollout; Abnar and Zuidema 2020, arXiv:2005.00928, section 3).
    """
    mixed = np.eye(attention.shape[-1])
    for layer in attention.mean(1, dtype=np.float64):
        mixed = (0.5 * layer + 0.5 * np.eye(len(layer))) @ mixed
    return mixed


def attention_over(picture: np.ndarray, codec: Pixels, weights: np.ndarray) -> np.ndarray:
    """Return a picture or clip [N H W C] with the brightness of each patch scaled by its weight
    [L]: bytes [H N*W 3], reddest where the weight is greatest.
    """
    form = codec.form
    grey = picture.reshape(form.shape).mean(-1, keepdims=True)
    share = np.clip(weights / max(float(weights.max()), 1e-12), 0, 1)
    patches = np.repeat(share[:, None], form.pixels, axis=1)
    heat = form._replace(channels=1).joined(patches).reshape(grey.shape)
    bright = 0.25 * grey + 0.75 * grey * heat
    red = np.concatenate([bright + 90 * heat, bright, bright], axis=-1)
    return beside(np.clip(red, 0, 255).astype(np.uint8))


def shown(
    trained: TrainedModel, values: Sequence[Any], rows: Sequence[dict[str, Any]]
) -> dict[int, dict[str, str]]:
    """Return {index: what a report draws} for some rows: {"picture": data URI}, optionally with
    "looked", the data URI of a map of where the model looked, and "caption", the text below it.

    For pictures and sounds these are wrong predictions, the most confident first, and some right
    ones; for trees the worst, the best and some in between.
    """
    source, target = trained.tokenizers.src, trained.tokenizers.tgt
    if isinstance(target, Trees):
        return drawings.trees(rows)
    if isinstance(source, LogMel):
        return {i: {"picture": drawings.spectrogram(values[i], source)} for i in _chosen(rows)}
    if isinstance(source, Pixels):
        return {i: _picture(trained, source, values[i]) for i in _chosen(rows)}
    return {}


def drawn(
    book: Codebook | PictureCodes, rows: Sequence[dict[str, Any]]
) -> dict[int, dict[str, str]]:
    """Return the same for evenly spread rows whose hypotheses are codes of pictures: the decoded
    picture, with its source as the caption. Lines that are not a complete picture are left out.
    """
    every = max(1, -(-len(rows) // (_WRONG + _RIGHT)))
    codes = {i: book.read(rows[i]["hypothesis"]) for i in range(0, len(rows), every)}
    whole = {i: line for i, line in codes.items() if line is not None}
    pictures = book.decode(np.stack([*whole.values()])) if whole else ()
    return {
        i: {"picture": as_uri(picture), "caption": str(rows[i]["source"])}
        for i, picture in zip(whole, pictures, strict=True)
    }


def _chosen(rows: Sequence[dict[str, Any]]) -> list[int]:
    right = [*map(is_right, rows)]
    wrong = [i for i, good in enumerate(right) if not good]
    wrong.sort(key=lambda i: -rows[i].get("probability", 0.0))
    return [*wrong[:_WRONG], *_mixed([i for i, good in enumerate(right) if good], rows)[:_RIGHT]]


def _mixed(places: Sequence[int], rows: Sequence[dict[str, Any]]) -> list[int]:
    """Return rows with their labels in turn: files are often sorted by label."""
    of_label: dict[str, list[int]] = {}
    for place in places:
        of_label.setdefault(str(rows[place].get("reference", "")), []).append(place)
    turns = itertools.zip_longest(*of_label.values())
    return [place for turn in turns for place in turn if place is not None]


def _picture(trained: TrainedModel, codec: Pixels, value: np.ndarray) -> dict[str, str]:
    picture = value.reshape(codec.form.shape)
    drawing = {"picture": as_uri(beside(picture))}
    weights = _weights(trained, value)
    return (
        drawing
        if weights is None
        else drawing | {"looked": as_uri(attention_over(picture, codec, weights))}
    )


def _weights(trained: TrainedModel, value: np.ndarray) -> np.ndarray | None:
    """Return how much the prediction for a picture draws from each of its patches."""
    if trained.experiment.model.architecture != "encoder":
        return None
    try:
        attention = trained.inside([value])[0]["encoder"].attention
    except UserError:
        return None
    config = trained.experiment.model
    if attention is None or len(attention) < config.num_encoder_layers:
        return None  # some layer has no attention weights
    from_each = rollout(attention)
    return from_each[0, 1:] if config.pooling == "first" else from_each.mean(0)[1:]
