"""Evaluation of forecasts, with naive baselines for comparison."""

from dataclasses import asdict, replace
from typing import Any

import numpy as np

from transformer_jax.api import TrainedEnsemble, TrainedModel
from transformer_jax.base.errors import UserError
from transformer_jax.data import sources
from transformer_jax.data.batches.batch import Ragged
from transformer_jax.data.codecs.codec import encoded
from transformer_jax.data.codecs.series import Series
from transformer_jax.data.objectives.forecasting import Forecast
from transformer_jax.data.sources import Corpus
from transformer_jax.data.sources.series_files import Rows
from transformer_jax.data.store.token_store import TokenStore
from transformer_jax.decoding.series import forecasts
from transformer_jax.evaluation import drawings
from transformer_jax.evaluation.naive import Ridge, seasonal, windows
from transformer_jax.evaluation.run import Evaluation
from transformer_jax.nn.distributions import DISTRIBUTIONS, LEVELS

_OWN = ("mse", "mae", "crps", "coverage")  # scores of the model itself


def evaluate(trained: TrainedModel, corpus: Corpus, split: str, checkpoint: str) -> Evaluation:
    """Return the mean squared and the mean absolute error over all windows of a split, in standard
    deviations of the training rows, overall and by channel, and under names of their own those of
    two baselines: the last `evaluation.season` rows repeated ("seasonal"), and ridge regression
    ("ridge").

    If the model predicts a distribution, "crps" is its mean quantile loss over deciles, twice the
    pinball loss, and "coverage" the fraction of values between the first and the last decile, which
    should be 0.8. Each window's row has its own scores; some also have what reports draw.

    Raises:
      UserError: if the model is an ensemble.
    """
    if isinstance(trained, TrainedEnsemble):
        raise UserError(
            "cannot score an ensemble of forecasters: load one checkpoint of one --workdir"
        )
    experiment = trained.experiment
    objective, season = experiment.objective, experiment.evaluation.season
    said = forecasts(trained.loaded, items_of(trained, corpus))
    items = _apart(trained, corpus)
    distribution = DISTRIBUTIONS[experiment.model.distribution]
    true = np.concatenate([y for _, y in windows(items)])
    ridge = Ridge(_apart(trained, sources.load(experiment.data, "train", objective)))
    methods = {
        "": distribution.point(said),
        "seasonal_": np.concatenate(
            [seasonal(x, objective.horizon, season) for x, _ in windows(items)]
        ),
        "ridge_": np.concatenate([ridge(x) for x, _ in windows(items)]),
    }
    deciles = distribution.quantiles(said)
    channels = corpus.tgt[0].shape[1]  # type: ignore[attr-defined]
    parts = {
        name: part.reshape(-1, channels, objective.horizon).mean(2)
        for name, part in _parts(methods, true, deciles).items()
    }  # [windows channels]
    scores = {name: float(part.mean()) for name, part in parts.items()}
    by_channel = {
        name: part.mean(0).tolist() for name, part in parts.items() if name.endswith(("mse", "mae"))
    }
    by_window = {name: parts[name].mean(1) for name in _OWN if name in parts}
    result = {
        "split": split, "checkpoint": checkpoint, "steps": trained.steps,
        "sentences": len(items) // channels,  # windows, under the name that reports expect
        "channels": channels, "horizon": objective.horizon,
        "scores": {name: {"value": value, "signature": ""} for name, value in scores.items()},
        "by_channel": by_channel,
        "details": _details(scores, season), "decoding": None,
        "evaluation": asdict(experiment.evaluation), "references": corpus.fingerprint,
    }  # fmt: skip
    rows: list[dict[str, Any]] = [
        {"line": window, **_origin(corpus, window + objective.window)}
        | dict(zip(by_window, values, strict=True))
        for window, values in enumerate(np.stack([*by_window.values()], axis=1).tolist())
    ]
    for window, drawn in _drawn(trained, corpus, methods[""], deciles, by_window["mse"]).items():
        rows[window] |= drawn
    extent = f"{result['sentences']:,} windows x {channels} channels x {objective.horizon} rows"
    return Evaluation(result, None, rows, extent)


def _origin(corpus: Corpus, row: int) -> dict[str, str]:
    """Return the file and the date from which a window is predicted, if there is only one file."""
    rows: Any = corpus.tgt[0]
    if len(corpus.tgt) > 1 or not isinstance(rows, Rows):
        return {}
    return {"file": rows.path} | ({"date": rows.dates[row]} if rows.dates else {})


def _parts(
    methods: dict[str, np.ndarray], true: np.ndarray, deciles: np.ndarray | None
) -> dict[str, np.ndarray]:
    """Return what each number [n T] contributes to each score."""
    parts = {}
    for name, point in methods.items():
        parts[f"{name}mse"], parts[f"{name}mae"] = (point - true) ** 2, np.abs(point - true)
    if deciles is not None:
        off, levels = true[..., None] - deciles, np.array(LEVELS)
        parts["crps"] = 2 * np.maximum(levels * off, (levels - 1) * off).mean(-1)
        parts["coverage"] = (deciles[..., 0] <= true) & (true <= deciles[..., -1])
    return parts


def _details(scores: dict[str, float], season: int) -> list[str]:
    """Return the printed lines: one per method."""
    titles = {
        "": "model",
        "seasonal_": f"the last {season} rows repeated",
        "ridge_": "ridge regression",
    }
    width = max(map(len, titles.values()))
    lines = [
        f"{title:<{width}}  mse = {scores[name + 'mse']:.4f}  mae = {scores[name + 'mae']:.4f}"
        for name, title in titles.items()
    ]
    if "crps" in scores:
        share = LEVELS[-1] - LEVELS[0]
        lines.append(
            f"crps = {scores['crps']:.4f} over deciles; {scores['coverage']:.1%} of values between "
            f"the first and the last, ideally {share:.0%}"
        )
    return lines


def items_of(trained: TrainedModel, corpus: Corpus) -> TokenStore:
    """Return the windows of a corpus."""
    return trained.loaded.items(*_encoded(trained, corpus))


def _apart(trained: TrainedModel, corpus: Corpus) -> TokenStore:
    """Return the windows of each channel, whatever the model reads."""
    config = replace(trained.experiment.objective, channels="apart")
    return Forecast().items(TokenStore(*_encoded(trained, corpus)), config)


def _encoded(trained: TrainedModel, corpus: Corpus) -> tuple[Ragged, Ragged]:
    nothing = Ragged.from_lists([[]] * len(corpus))
    return nothing, encoded(trained.tokenizers.tgt, corpus.tgt)


def _drawn(
    trained: TrainedModel,
    corpus: Corpus,
    point: np.ndarray,
    deciles: np.ndarray | None,
    errors: np.ndarray,
) -> dict[int, dict[str, str]]:
    """Return what reports draw for standardised forecasts [windows x channels T], chosen by their
    errors [windows].
    """
    codec, config = trained.tokenizers.tgt, trained.experiment.objective
    assert isinstance(codec, Series)
    if len(corpus.tgt) > 1:
        return {}
    by_channel = point.reshape(-1, codec.channels, config.horizon)
    said = codec.unscaled(by_channel.swapaxes(1, 2).astype(np.float64))
    if deciles is not None:
        deciles = deciles.reshape(*by_channel.shape, -1)
        deciles = codec.unscaled(deciles.transpose(0, 2, 3, 1)).swapaxes(2, 3)
    rows: Any = corpus.tgt[0]
    return drawings.forecasts(rows, said, deciles, config.window, errors)
