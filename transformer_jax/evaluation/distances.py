"""Evaluation of completed distances, with what triangles and averages say without a model."""

from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
from scipy.sparse.csgraph import shortest_path

from transformer_jax.api import TrainedEnsemble, TrainedModel
from transformer_jax.base.errors import UserError
from transformer_jax.data import sources
from transformer_jax.data.batches.batch import Ragged, one_per_row
from transformer_jax.data.codecs.codec import encoded
from transformer_jax.data.objectives.distances import UNKNOWN, distances_of
from transformer_jax.data.sources import Corpus
from transformer_jax.decoding.distances import completed
from transformer_jax.evaluation import drawings
from transformer_jax.evaluation.run import Evaluation, origin

_NEIGHBOURS = 3.8  # angstroms between the residues of a protein
_RADIUS, _WITHIN = 15.0, (0.5, 1.0, 2.0, 4.0)  # angstroms, of lDDT
_COUNTED = 10_000  # chains that averages are taken of

Matrix = np.ndarray  # [T T]


def evaluate(trained: TrainedModel, corpus: Corpus, split: str, checkpoint: str) -> Evaluation:
    """Return "lddt", the share of the distances below 15 angstroms that are right to within 0.5, 1,
    2 and 4, on average (Mariani et al. 2013, https://doi.org/10.1093/bioinformatics/btt473), and
    "mae", the mean absolute error of those that were not read, in the unit of the data. For lDDT
    the unit is such that neighbours in the chain are 3.8 angstroms apart.

    Under names of their own, the same of simpler methods: shortest paths over the known distances
    and between neighbours ("shortest_paths"), the distances of the points in space that these fit
    best ("scaling"), the middle of the triangles' bounds ("bounds"), and the mean distance of
    points as far apart in the chains of training ("separation").

    Raises:
      UserError: if the model is an ensemble.
    """
    if isinstance(trained, TrainedEnsemble):
        raise UserError("cannot score an ensemble: load one checkpoint of one --workdir")
    known, true = _chains(trained, corpus)
    train = sources.load(trained.experiment.data, "train", trained.experiment.objective)
    means = by_separation([*map(np.asarray, train.tgt[:_COUNTED])], max(map(len, true)))
    controls: dict[str, Callable[[Matrix], Matrix]] = {
        "shortest_paths": lambda x: shortest_paths(x, means[1]),
        "scaling": lambda x: scaled(shortest_paths(x, means[1])),
        "bounds": lambda x: middle(x, means[1]),
        "separation": lambda x: separated(x, means),
    }
    said = {"": completed(trained.loaded, known)}
    said |= {f"{name}_": [*map(method, known)] for name, method in controls.items()}
    parts = {
        f"{name}{score}": np.array([of(*row) for row in zip(made, true, known, strict=True)])
        for name, made in said.items()
        for score, of in (("lddt", lddt), ("mae", unseen_error))
    }
    scores = {name: float(part.mean()) for name, part in parts.items()}
    result = {
        "split": split, "checkpoint": checkpoint, "steps": trained.steps, "sentences": len(true),
        "scores": {name: {"value": value, "signature": ""} for name, value in scores.items()},
        "details": _details(scores), "decoding": None,
        "evaluation": asdict(trained.experiment.evaluation), "references": corpus.fingerprint,
    }  # fmt: skip
    rows: list[dict[str, Any]] = [
        {"line": number, **origin(value), "lddt": one, "mae": other}
        for number, (value, one, other) in enumerate(
            zip(corpus.tgt, parts["lddt"].tolist(), parts["mae"].tolist(), strict=True), 1
        )
    ]
    for place, drawn in drawings.distances(known, said[""], true, parts["lddt"]).items():
        rows[place] |= drawn
    return Evaluation(result, None, rows, f"{len(true):,} chains")


def _chains(trained: TrainedModel, corpus: Corpus) -> tuple[list[Matrix], list[Matrix]]:
    """Return the known distances of each chain, as in validation, NaN elsewhere; and all."""
    nothing = Ragged.from_lists([[]] * len(corpus))
    items = trained.loaded.items(nothing, encoded(trained.tokenizers.tgt, corpus.tgt))
    known, true = [], []
    for i, size in enumerate(items.src.lengths.tolist()):
        batch = trained.loaded.task.examples(items, one_per_row(np.array([i])), 1, size, 0)
        assert batch.src is not None
        read = batch.src.inputs[0].astype(np.float64)
        known.append(np.where(read == UNKNOWN, np.nan, read))
        true.append(distances_of(items.src.sequence(i).astype(np.float64)))
    return known, true


def lddt(said: Matrix, true: Matrix, known: Matrix) -> float:
    """Return the lDDT of predicted distances; see `evaluate`."""
    unit = _NEIGHBOURS / np.diagonal(true, 1).mean()
    near = (true * unit < _RADIUS) & ~np.eye(len(true), dtype=bool)
    off = np.abs(said - true)[near] * unit
    return float(np.mean([(off < within).mean() for within in _WITHIN]))


def unseen_error(said: Matrix, true: Matrix, known: Matrix) -> float:
    """Return the mean absolute error of the distances that are not known; 0 if all are."""
    unseen = np.isnan(known) & ~np.eye(len(true), dtype=bool)
    return float(np.abs(said - true)[unseen].mean()) if unseen.any() else 0.0


def shortest_paths(known: Matrix, neighbours: float) -> Matrix:
    """Return the lengths of the shortest paths along known distances and between neighbours: the
    most that distances can be by the inequality of triangles.
    """
    edges = np.where(np.isnan(known), np.inf, known)
    for offset in (1, -1):
        np.fill_diagonal(edges[max(0, -offset) :, max(0, offset) :], neighbours)
    np.fill_diagonal(edges, 0)
    return shortest_path(edges, method="FW")


def middle(known: Matrix, neighbours: float) -> Matrix:
    """Return the middle between the most and the least that distances can be: where paths end at
    pairs whose distance is known, what remains of that.
    """
    most = shortest_paths(known, neighbours)
    least = np.zeros_like(most)
    for i, j in zip(*np.nonzero(~np.isnan(known)), strict=True):
        least = np.maximum(least, known[i, j] - most[:, [i]] - most[[j]])
    return (most + np.minimum(least, most)) / 2


def scaled(distances: Matrix) -> Matrix:
    """Return the distances between the points in space that fit best (classical scaling:
    Torgerson 1952, https://doi.org/10.1007/BF02288916).
    """
    centre = np.eye(len(distances)) - 1 / len(distances)
    values, vectors = np.linalg.eigh(-centre @ distances**2 @ centre / 2)
    return distances_of(vectors[:, -3:] * np.sqrt(np.maximum(values[-3:], 0)))


def by_separation(chains: Sequence[np.ndarray], longest: int) -> np.ndarray:
    """Return the mean distance of points that are 0, 1, ... apart in the chains."""
    sums, counts = np.zeros(longest), np.zeros(longest)
    for chain in chains:
        apart = distances_of(np.asarray(chain, np.float64))
        for k in range(min(len(chain), longest)):
            sums[k] += np.diagonal(apart, k).sum()
            counts[k] += len(chain) - k
    means = sums / np.maximum(counts, 1)
    return np.where(counts > 0, means, means.max())


def separated(known: Matrix, means: np.ndarray) -> Matrix:
    """Return known distances, and elsewhere the mean of as many positions apart."""
    places = np.arange(len(known))
    mean = means[np.abs(places[:, None] - places)]
    return np.where(np.isnan(known), mean, known)


def _details(scores: dict[str, float]) -> list[str]:
    """Return the printed lines: one per method."""
    titles = {
        "": "model", "shortest_paths_": "shortest paths", "scaling_": "points that fit these",
        "bounds_": "middle of the bounds", "separation_": "mean of the separation",
    }  # fmt: skip
    width = max(map(len, titles.values()))
    return [
        f"{title:<{width}}  lDDT = {scores[name + 'lddt']:.4f}  MAE of unseen = "
        f"{scores[name + 'mae']:.4f}"
        for name, title in titles.items()
    ]
