"""Evaluation of drawn pictures, by a classifier that was trained apart."""

import dataclasses
from typing import Any

import numpy as np

from transformer_jax.api import TrainedEnsemble, TrainedModel, load
from transformer_jax.base.arrays import Float
from transformer_jax.base.errors import UserError
from transformer_jax.data.codecs.codec import encoded
from transformer_jax.data.codecs.latents import Latents
from transformer_jax.data.codecs.pixels import Pixels
from transformer_jax.data.sources import Corpus
from transformer_jax.data.texts import spread
from transformer_jax.decoding.draw import losses
from transformer_jax.decoding.text.classify import features
from transformer_jax.evaluation.metrics import interval
from transformer_jax.evaluation.pixels import as_uri, beside
from transformer_jax.evaluation.run import Evaluation, described

_SHOWN = 60  # pictures in a report


def evaluate(trained: TrainedModel, corpus: Corpus, split: str, checkpoint: str) -> Evaluation:
    """Return the loss on `evaluation.drawn` evenly spread pictures of a split, and scores of as
    many that are drawn of what it says of these.

    With a classifier (`evaluation.classifier`): "accuracy", the share (%) in which it sees what was
    asked for, beside "real_accuracy", that of the split's own pictures; and "frechet_distance" of
    its features of both (see `frechet_distance`), beside "real_frechet_distance", that between two
    equally large parts of the split: distances shrink with the number of pictures. Of a model that
    draws in latents, the split's own pictures are what the autoencoder makes of them.

    Raises:
      UserError: if the model is an ensemble, the split has fewer than two pictures, or a class is
        not one of the classifier's.
    """
    if isinstance(trained, TrainedEnsemble):
        raise UserError("an ensemble draws no pictures: load one checkpoint of one --workdir")
    experiment, codec = trained.experiment, trained.tokenizers.src
    assert isinstance(codec, Pixels | Latents)
    count = min(experiment.evaluation.drawn, len(corpus) // 2)
    if not count:
        raise UserError(f"{split}: has {len(corpus)} pictures; give at least two to compare with")
    # Two parts without a picture in common: the first is compared with what is drawn of it.
    both = spread(len(corpus), 2 * count)
    chosen, others = both[::2], both[1::2]
    said = [corpus.tgt[i] for i in chosen]
    decoding = dataclasses.replace(experiment.decoding, num_samples=1)
    pictures = trained.draw(said, decoding)
    real = [[corpus.src[i] for i in part] for part in (chosen, others)]
    loss = losses(trained.loaded, encoded(codec, real[0]), said)
    if isinstance(codec, Latents):  # real pictures are made of theirs, as those drawn are
        real = [list(trained.pictures(np.stack(part), decoding)) for part in real]
    scores: dict[str, dict[str, Any]] = {
        "loss": {"value": float(loss.mean()), "signature": f"{count} pictures"}
    }
    details = [f"loss = {loss.mean():.4f}"]
    rows: list[dict[str, Any]] = [
        {"line": place + 1, "reference": text, "mse": float(error)}
        for place, text, error in zip(chosen, said, loss, strict=True)
    ]
    drawn = (f"{decoding.search}, {decoding.sampling_steps} steps, guidance {decoding.guidance:g}, "
             f"{count} pictures")  # fmt: skip
    if experiment.evaluation.classifier is None:
        details.append("set --config.evaluation.classifier to the work directory of a classifier "
                       "of such pictures to have those that are drawn scored")  # fmt: skip
    else:
        labels = _labels(experiment.data.named("label_texts"), said)
        judgement, lines, rights = judged(
            load(experiment.evaluation.classifier), pictures, real, labels, drawn
        )
        scores, details = scores | judgement, details + lines
        rows = [row | right for row, right in zip(rows, rights, strict=True)]
    for place in spread(count, _SHOWN):
        read = rows[place].get("hypothesis")
        right = rows[place].get("right", True)
        caption = rows[place]["reference"] + ("" if right else f" (seen as {read})")
        picture = pictures[place]
        picture = beside(picture) if picture.ndim == 4 else picture  # the frames of a clip
        rows[place] |= {"picture": as_uri(picture), "caption": caption}
    result = described(trained, corpus.tgt, split, checkpoint, scores, details)
    result |= {"sentences": count, "decoding": dataclasses.asdict(decoding)}
    return Evaluation(result, None, rows, drawn)


def _labels(texts: dict[str, str], said: list[str]) -> list[str]:
    """Return the labels that captions stand for, as a classifier says them."""
    of_text = {text: label for label, text in texts.items()}
    return [of_text.get(text, text) for text in said]


def judged(
    classifier: TrainedModel,
    pictures: np.ndarray,
    real: list[list[np.ndarray]],
    labels: list[str],
    drawn: str,
) -> tuple[dict[str, dict[str, Any]], list[str], list[dict[str, Any]]]:
    """Return scores of pictures [n H W C] or clips, and of two lists of n real ones, the first of
    the same labels, as a classifier sees them; lines that say them; and what it sees in each
    picture.
    """
    codec = classifier.tokenizers.tgt
    names = codec.pieces(range(codec.size))
    for label in dict.fromkeys(labels):
        if label not in names:
            raise UserError(
                f"config.evaluation.classifier: knows no class {label!r}; it has "
                f"{', '.join(map(repr, names[:20]))}"
            )
    grey = [x[..., 0] if x.shape[-1] == 1 else x for x in pictures]
    shares = classifier.classify(grey)
    seen = [next(iter(one)) for one in shares]
    each = [x == y for x, y in zip(seen, labels, strict=True)]
    rows = [
        {"hypothesis": said, "right": right, "probability": one[said]}
        for said, right, one in zip(seen, each, shares, strict=True)
    ]
    real = [[x[..., 0] if x.shape[-1] == 1 else x for x in part] for part in real]
    true = [next(iter(one)) == label
            for one, label in zip(classifier.classify(real[0]), labels, strict=True)]  # fmt: skip
    count = len(each)
    ends = [100 * end for end in interval(sum(each), count)]
    ours, first, second = (features(classifier.loaded, x) for x in (grey, *real))
    values = {
        "accuracy": 100 * sum(each) / count,
        "real_accuracy": 100 * sum(true) / count,
        "frechet_distance": frechet_distance(ours, first),
        "real_frechet_distance": frechet_distance(second, first),
    }
    scores: dict[str, dict[str, Any]] = {
        name: {"value": value, "signature": drawn} for name, value in values.items()
    }
    scores["accuracy"]["interval"] = ends
    lines = [
        f"accuracy = {values['accuracy']:.2f} % ({sum(each)} of {count}), 95 % interval "
        f"{ends[0]:.1f} to {ends[1]:.1f} %; of real pictures {values['real_accuracy']:.2f} %",
        f"Frechet distance = {values['frechet_distance']:.3f}; between real pictures "
        f"{values['real_frechet_distance']:.3f}",
    ]
    return scores, lines, rows


def frechet_distance(
    one: Float[np.ndarray, "n D"], other: Float[np.ndarray, "m D"]
) -> float:  # fmt: skip
    """Return |a - b|^2 + tr(A + B - 2 (A B)^(1/2)), from means a, b and covariances A, B (Heusel et
    al. 2017, arXiv:1706.08500). It is about D^2 / 2n too large for n vectors of one distribution.
    """
    one, other = (np.asarray(x, np.float64) for x in (one, other))
    apart = np.square(one.mean(0) - other.mean(0)).sum()
    first, second = (np.atleast_2d(np.cov(x, rowvar=False)) for x in (one, other))
    values, vectors = np.linalg.eigh(first)
    root = (vectors * np.sqrt(np.maximum(values, 0))) @ vectors.T
    shared = np.linalg.eigvalsh(root @ second @ root)
    both = np.sqrt(np.maximum(shared, 0)).sum()
    return float(apart + np.trace(first) + np.trace(second) - 2 * both)
