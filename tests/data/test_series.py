"""Time series: rows of files, windows of channels, forecasts, and which input is rejected."""

import dataclasses
import datetime as dt
import io
import json

import flax.linen as nn
import numpy as np
import pytest
from itself import scores_tested
from scipy import stats
from tiny import RUN, random_params

import transformer_jax
from transformer_jax.base.errors import UserError
from transformer_jax.cli import evaluate
from transformer_jax.cli.main import dispatch
from transformer_jax.config import (
    DataConfig,
    ModelConfig,
    ObjectiveConfig,
    SideConfig,
    SourceConfig,
)
from transformer_jax.data import sources
from transformer_jax.data.batches.batch import Ragged, one_per_row
from transformer_jax.data.codecs import series
from transformer_jax.data.codecs.pair import TokenizerPair
from transformer_jax.data.objectives.forecasting import Forecast
from transformer_jax.data.store.token_store import TokenStore, open_store
from transformer_jax.decoding.loaded import Loaded
from transformer_jax.decoding.series import forecasts
from transformer_jax.evaluation.naive import Ridge, seasonal, windows
from transformer_jax.experiments import train
from transformer_jax.models.build import abstract_params, build
from transformer_jax.nn.distributions import DISTRIBUTIONS
from transformer_jax.plots.forecast import draw
from transformer_jax.reports.report import gather
from transformer_jax.runs.workdir import WorkDir

ROWS, CHANNELS = 120, 3
RNG = np.random.default_rng(0)
VALUES = np.round(RNG.normal(size=(ROWS, CHANNELS)).cumsum(0) + np.array([3, -5, 40]), 3)
CONFIG = DataConfig(
    source="series", train=("hours[0:70]",), validation=("hours[70:95]",), test=("hours[95:]",)
)
OBJECTIVE = ObjectiveConfig("forecast", window=12, horizon=4)
NOTHING = Ragged.from_lists([[]])


def text(values) -> str:
    lines = [f"day {i}," + ",".join(map(str, row)) for i, row in enumerate(values.tolist())]
    return "\n".join(["date,a,b,c", *lines]) + "\n"


@pytest.fixture
def config(tmp_path) -> DataConfig:
    (tmp_path / "hours.csv").write_text(text(VALUES))
    return dataclasses.replace(CONFIG, directory=str(tmp_path))


def items_of(values, objective=OBJECTIVE) -> TokenStore:
    return Forecast().items(TokenStore(NOTHING, Ragged.from_lists([values])), objective)


def test_splits_include_the_context_rows_before_them(config):
    found = [sources.load(config, split, OBJECTIVE) for split in ("train", "validation", "test")]
    for corpus, rows in zip(found, (slice(0, 70), slice(58, 95), slice(83, 120)), strict=True):
        assert np.array_equal(corpus.tgt[0], VALUES[rows])
    assert len({corpus.fingerprint for corpus in found}) == 3
    counts = [len(items_of(corpus.tgt[0])) for corpus in found]
    assert counts == [3 * (70 - 15), 3 * (25 - 3), 3 * (25 - 3)]


def test_rows_know_their_columns_and_dates(config):
    """Those of the rows that a part selects; what is computed from them has no dates."""
    (rows,) = sources.load(config, "test", OBJECTIVE).tgt
    assert rows.columns == ("a", "b", "c")
    assert rows.dates == tuple(f"day {i}" for i in range(83, 120))
    assert rows.between(2, 4).dates == ("day 85", "day 86")
    assert rows[2:4].dates == (rows * 2).dates == ()


@pytest.mark.parametrize("by", ["hour", "day", "year", "name", "none"])
def test_the_plot_of_a_forecast_shows_names_and_dates(by):
    """Dates on a scale of time if they are all dates, else the first and the last as they are."""
    days = [dt.datetime(2024, 2, 28) + dt.timedelta(hours=i) for i in range(20)]
    dates = {
        "hour": [str(day) for day in days], "none": [],
        "day": [f"2024-02-{i + 1:02}" for i in range(20)],
        "year": [f"{1990 + i}-01-01" for i in range(20)],
        "name": [f"week {i}" for i in range(20)],
    }[by]  # fmt: skip
    names = ["load", "price_$x$"] if dates else []
    figure = draw(np.arange(40.0).reshape(20, 2), np.zeros((5, 2)), None, 10, names, dates)
    figure.savefig(io.BytesIO())
    panels = figure.axes
    titles = [panel.get_title(loc="left") for panel in panels[:2]]
    assert titles == (names or ["channel 1", "channel 2"])
    shown = " ".join(
        [label.get_text() for label in panels[1].get_xticklabels()]
        + [panels[1].xaxis.get_offset_text().get_text()]
    )
    expected = {"hour": "2024-Feb", "day": "2024-Feb", "year": "2008", "name": "week 5 week 19"}
    assert expected.get(by, "") in shown
    if by == "none":
        assert panels[0].get_xlabel() == "rows from the end of the input"


def test_the_number_of_windows_matches_the_literature():
    """ETTh1, four months after a year: none of the last windows is dropped."""
    objective = ObjectiveConfig("forecast", window=336, horizon=96)
    assert len(items_of(np.zeros((336 + 2880, 7), np.float32), objective)) == 7 * 2785


def test_windows_by_hand(config, tmp_path):
    """The context and the horizon of each channel, standardised by the training rows."""
    corpus = sources.load(config, "train", OBJECTIVE)
    codec = series.train(SourceConfig(), corpus.tgt)
    assert series.Series(codec.model).digest == codec.digest
    pair = TokenizerPair(codec, codec)
    for _ in range(2):  # written, read
        store = open_store(corpus, pair, tmp_path / "cache", frame=Forecast().frame(OBJECTIVE))
        items = Forecast().items(store, OBJECTIVE, codec)
    scaled = (VALUES[:70] - VALUES[:70].mean(0)) / VALUES[:70].std(0)
    chosen = np.array([0, 1, 5, 50, len(items) - 1])
    batch = Forecast().examples(items, one_per_row(chosen), 8, 12, 4)
    labels, weight = batch.targets["forecast"]
    for row, item in enumerate(chosen):
        window, channel = divmod(item, CHANNELS)
        expected = scaled[window : window + 16, channel]
        assert np.allclose(batch.src.inputs[row, :, 0], expected[:12], atol=1e-6)
        assert np.allclose(labels[row], expected[12:], atol=1e-6)
    assert weight.sum() == 5 * 4
    assert not weight[5:].any()
    assert np.allclose(codec.unscaled(codec.scaled(VALUES)), VALUES)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({(5, 1): "nan"}, ["hours.csv:7", "b is 'nan'", "fill in"]),
        ({(5, 1): ""}, ["hours.csv:7", "b is ''"]),
        ({(0, 0): "1,2"}, ["hours.csv:2", "has 5 columns", "header 4"]),
    ],
)
def test_missing_numbers_are_rejected(config, change, words):
    values = VALUES.astype(object)
    for place, value in change.items():
        values[place] = value
    with open(f"{config.directory}/hours.csv", "w") as file:
        file.write(text(values))
    with pytest.raises(UserError) as caught:
        sources.load(config, "train", OBJECTIVE)
    assert all(word in str(caught.value) for word in words), caught.value


def test_rows_count_from_the_end_too(config):
    (last,) = sources.load(dataclasses.replace(config, train=("hours[-20:]",)), "train",
                           OBJECTIVE).tgt  # fmt: skip
    assert np.array_equal(last, VALUES[-20:])


def test_unsuitable_series_are_rejected(config, tmp_path):
    for part, words in (
        ("other", "there is no .*other.csv; set --config.data.directory"),
        ("hours[50:500]", "has rows 0 to 119; choose among them, as in hours.0:120."),
        ("hours[-3:2]", "has rows 0 to 119; choose among them, as in hours.0:120."),
        ("hours[10:100:2]", "rows of a series must follow each other, as in hours.10:100."),
        ("hours[!10:100]", "rows of a series must follow each other, as in hours.10:100."),
        ("hours[a:9]", "rows are chosen by whole numbers"),
    ):
        with pytest.raises(UserError, match=words):
            sources.load(dataclasses.replace(config, train=(part,)), "train", OBJECTIVE)
    (tmp_path / "empty.csv").write_text("date\n")
    with pytest.raises(UserError, match=r"empty\.csv: contains no series"):
        sources.load(dataclasses.replace(config, train=("empty",)), "train", OBJECTIVE)
    for value in (0, 0.1):  # whose mean over 120 rows is not 0.1 to the last bit
        with pytest.raises(UserError, match=f"channel 2 is {value} in all 120 rows"):
            series.train(SourceConfig(), [VALUES * [1, 0, 1] + [0, value, 0]])
    (tmp_path / "flat.csv").write_text(text(VALUES * [1, 1, 0] + [0, 0, 2]))
    (flat,) = sources.load(dataclasses.replace(config, train=("flat[3:50]",)), "train",
                            OBJECTIVE).tgt  # fmt: skip
    with pytest.raises(UserError, match=r"train: column 'c' of \S*flat\.csv is 2 in all 47 rows"):
        series.train(SourceConfig(), [flat])
    with pytest.raises(UserError, match="part 2 has 2 channels, but the first has 3"):
        series.train(SourceConfig(), [VALUES, VALUES[:, :2]])
    with pytest.raises(UserError, match=r"series 1: has shape \(120, 2\)"):
        series.train(SourceConfig(), [VALUES]).encode([VALUES[:, :2]])
    with pytest.raises(ValueError, match="not the scale of series"):
        series.Series(b'{"mean": [1], "deviation": [0]}')
    with pytest.raises(UserError, match=r"window=12, horizon=4: .* the longest has 15 rows"):
        items_of(VALUES[:15])


def test_naive_forecasts():
    """The last season repeated; and least squares, which finds the map that generated a series."""
    x = np.arange(12.0)[None]
    assert seasonal(x, 5, 3).tolist() == [[9, 10, 11, 9, 10]]
    wave = np.zeros(3000)
    wave[:2] = 1, 1.2
    for i in range(2, 3000):
        wave[i] = 1.6 * wave[i - 1] - wave[i - 2]
    items = items_of((100 * wave[:, None]).astype(np.float32))
    ridge = Ridge(items)
    for x, y in windows(items):
        assert np.abs(ridge(x) - y).max() < 0.5 < np.abs(seasonal(x, 4, 4) - y).max()


def test_deciles_match_the_distributions():
    """Against a million draws; predicted deciles, which may be out of order, are sorted."""
    said = np.array([[[1.0, 2.0]]])
    draws = RNG.normal(1, 2, 1_000_000)
    found = DISTRIBUTIONS["normal"].quantiles(said)
    assert np.abs(found[0, 0] - np.quantile(draws, np.arange(1, 10) / 10)).max() < 0.02
    said = np.array([[[1.0, 2.0, 3.0]]])
    draws = stats.t.rvs(3, 1, 2, 1_000_000, random_state=1)
    found = DISTRIBUTIONS["student_t"].quantiles(said)
    assert np.abs(found[0, 0] - np.quantile(draws, np.arange(1, 10) / 10)).max() < 0.02
    crossed = np.array([[[3.0, 1, 2, 4, 5, 6, 7, 9, 8]]])
    assert DISTRIBUTIONS["quantiles"].quantiles(crossed)[0, 0].tolist() == [*range(1, 10)]
    assert DISTRIBUTIONS["quantiles"].point(crossed).item() == 5


MODEL = ModelConfig(
    architecture="encoder", stem="series", patch_length=4, patch_stride=2, d_model=8, d_ff=12,
    num_heads=2, num_encoder_layers=1, dropout_rate=0.0, distribution="normal",
)  # fmt: skip


# Models that read channels one by one, by layers and by two maps, and together.
FORMS = {
    "patches": (MODEL, OBJECTIVE),
    "linear": (
        ModelConfig(
            architecture="dlinear", stem="series", positions="none", distribution="normal",
            series_norm="learned", trend_rows=5,
        ),
        OBJECTIVE,
    ),
    "channels": (
        dataclasses.replace(
            MODEL, stem="variates", positions="none", series_norm="learned",
            **{name: getattr(ModelConfig, name) for name in ("patch_length", "patch_stride")},
        ),
        dataclasses.replace(OBJECTIVE, channels="together"),
    ),
}  # fmt: skip


@pytest.mark.parametrize("form", ["patches", "linear", "channels"])
def test_forecasts_follow_the_scale_of_the_series(form):
    """Windows are standardised by their own mean and deviation, as in PatchTST, also before a
    learned scale; forecasts of channels are in their order.
    """
    config, objective = FORMS[form]
    model = build(config, 1, 1, predicts=("forecast",), lengths=objective.lengths)
    codecs = TokenizerPair(*[series.train(SourceConfig(), [VALUES])] * 2)
    loaded = Loaded(model, random_params(model), codecs, objective)
    plain, other = (
        forecasts(loaded, items_of(x.astype(np.float32), objective))
        for x in (100 * VALUES, 300 * VALUES + 700)
    )
    assert plain.shape == (CHANNELS * (ROWS - 15), 4, 2)
    assert np.allclose(3 * plain[..., 0] + 700, other[..., 0], rtol=1e-3, atol=0.5)
    assert np.allclose(3 * plain[..., 1], other[..., 1], rtol=1e-3)
    if form == "channels":
        turned = forecasts(loaded, items_of(100 * VALUES[:, ::-1].astype(np.float32), objective))
        both = (x.reshape(-1, CHANNELS, 4, 2) for x in (plain, turned))
        assert np.allclose(next(both)[:, ::-1], next(both), rtol=1e-3, atol=0.5)
    if form != "patches":
        return
    kernel = nn.unbox(abstract_params(model))["forecast_head"]["output"]["kernel"]
    assert kernel.shape == (5, 8, 4, 2)


@pytest.mark.thorough
@pytest.mark.parametrize("form", ["patches", "channels"])
def test_training_evaluation_and_forecasting(form, config, tmp_path, capsys):
    """Two steps; eval prints the errors of the naive methods next to the model's."""
    model, objective = FORMS[form]
    experiment = dataclasses.replace(
        RUN, model=model, objective=objective, tgt=SideConfig("series"),
        data=dataclasses.replace(config, max_length=12, tokens_per_batch=12 * 64, num_buckets=1),
        tokenizer=dataclasses.replace(RUN.tokenizer, vocab_size=32_000),
        training=dataclasses.replace(RUN.training, steps=2, label_smoothing=0.0),
        checkpoint=dataclasses.replace(RUN.checkpoint, every_steps=2),
        evaluation=dataclasses.replace(RUN.evaluation, every_steps=2, season=6),
    )  # fmt: skip
    run = tmp_path / "run"
    train.run_experiment(experiment, WorkDir(run))
    capsys.readouterr()
    assert evaluate.main([f"--workdir={run}"]) == 0
    printed = capsys.readouterr().out
    for method in ("model", "the last 6 rows repeated", "ridge regression", "crps", "22 windows"):
        assert method in printed
    scores = json.loads((run / "eval/test.best.json").read_text())["scores"]
    of_others = {name for name in scores if name.startswith(("seasonal", "ridge"))}
    assert scores_tested(run, "test") == scores.keys() - of_others
    (shown,) = gather([(WorkDir(run), None)], "test")["gallery"]
    captions = [e["caption"].partition(" of 22")[0].split(", ") for e in shown["examples"]]
    assert [title for *_, title in captions] == ["smallest error", "median error", "largest error"]
    for window, begin, _ in captions:
        assert begin == f"from day {83 + 12 + int(window.removeprefix('window '))}"

    trained = transformer_jax.load(run)
    point, deciles = trained.forecast(VALUES[83 : 83 + 12], deciles=True)
    assert point.shape == (4, CHANNELS)
    assert np.allclose(deciles[..., 4], point)
    assert (np.diff(deciles) > 0).all()
    scale = VALUES[:70].std(0)
    errors = [
        np.square((trained.forecast(VALUES[: i + 12]) - VALUES[i + 12 : i + 16]) / scale)
        for i in range(83, 120 - 15)
    ]
    assert scores["mse"]["value"] == pytest.approx(np.mean(errors), rel=1e-4)
    tiled = [np.resize(VALUES[i + 6 : i + 12], (4, CHANNELS)) for i in range(83, 105)]
    naive = [np.square((x - VALUES[i + 12 : i + 16]) / scale)
             for x, i in zip(tiled, range(83, 105), strict=True)]  # fmt: skip
    assert scores["seasonal_mse"]["value"] == pytest.approx(np.mean(naive), rel=1e-4)
    assert dispatch(["plot", "forecast", f"--workdir={run}", f"--output={run}/x.svg"]) == 0
    drawn = (run / "x.svg").read_text()
    assert all(f">{words}</text>" in drawn for words in ("a", "b", "c", "day 87", "day 98"))
    with pytest.raises(UserError, match="--window=22: the split has 22, from 0 on"):
        dispatch(["plot", "forecast", f"--workdir={run}", "--window=22", f"--output={run}/x.svg"])
    with pytest.raises(UserError, match="series 1: has 5 rows, and such a model reads 12"):
        trained.forecast(VALUES[:5])
