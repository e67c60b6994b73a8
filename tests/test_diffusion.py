"""A diffusion model of pictures, from its data to drawn ones and their scores."""

import dataclasses
import json

import numpy as np
import pytest
from itself import scores_tested
from PIL import Image
from starts import start_at_random
from tiny import RUN

import transformer_jax
from transformer_jax.base.errors import UserError
from transformer_jax.cli import evaluate
from transformer_jax.cli.main import dispatch
from transformer_jax.config import (
    DataConfig,
    DecodingConfig,
    ModelConfig,
    ObjectiveConfig,
    SideConfig,
    SourceConfig,
    TokenizerConfig,
)
from transformer_jax.data.batches.batch import Placement, Ragged, one_per_row
from transformer_jax.data.diffusion import schedule_of
from transformer_jax.data.objectives import OBJECTIVES
from transformer_jax.data.random import Draw
from transformer_jax.data.store.token_store import TokenStore
from transformer_jax.decoding import draw
from transformer_jax.evaluation.drawn import frechet_distance
from transformer_jax.experiments import train
from transformer_jax.reports.report import gather
from transformer_jax.runs.workdir import WorkDir

RNG = np.random.default_rng(0)
LABELS = RNG.integers(0, 2, 40)
PICTURES = np.where(LABELS, 255, 0).astype(np.uint8).reshape(-1, 1, 1) * np.ones(
    (1, 8, 8), np.uint8
)
MODEL = ModelConfig(
    architecture="diffusion_transformer", stem="linear", d_model=8, d_ff=12, num_heads=2,
    num_encoder_layers=1, dropout_rate=0.0, positions="none", grid=(2, 2),
    grid_positions="sinusoidal", residual="adaptive_norm", condition="text",
    encoder_pattern=("joint_last",), embedding_scale=False,
)  # fmt: skip
DATA = DataConfig(
    source="arrays", source_language="images", target_language="labels", max_length=4,
    tokens_per_batch=64, num_buckets=1, label_texts=("0=a dark one", "1=a bright one"),
    validation=("train",), test=("train",),
)  # fmt: skip
TRAINING = dataclasses.replace(RUN.training, steps=4, label_smoothing=0.0, ema_decay=0.9)
DIFFUSION = dataclasses.replace(
    RUN, model=MODEL, objective=ObjectiveConfig("diffusion"), tgt=SideConfig("words"),
    src=SourceConfig("patches", pixel_scale="symmetric"), data=DATA, training=TRAINING,
    tokenizer=TokenizerConfig(vocab_size=8, joint=False),
    checkpoint=dataclasses.replace(RUN.checkpoint, every_steps=2),
    evaluation=dataclasses.replace(RUN.evaluation, every_steps=4, drawn=6),
    decoding=DecodingConfig(search="euler", sampling_steps=3),
)  # fmt: skip
CLASSIFIER = dataclasses.replace(
    DIFFUSION, objective=ObjectiveConfig("classify", window=5), tgt=SideConfig("classes"),
    model=dataclasses.replace(
        MODEL, architecture="encoder", residual="pre_norm", condition="class", grid=(),
        grid_positions="none", encoder_pattern=("full",),
    ),
    data=dataclasses.replace(DATA, label_texts=(), max_length=5),
    src=SourceConfig("patches"), decoding=DecodingConfig(),
    tokenizer=TokenizerConfig(joint=False), training=dataclasses.replace(TRAINING, steps=2),
    evaluation=dataclasses.replace(RUN.evaluation, every_steps=2),
)  # fmt: skip


def trained(home, name, experiment):
    data = dataclasses.replace(experiment.data, directory=str(home))
    workdir = WorkDir(home / name)
    train.run_experiment(dataclasses.replace(experiment, data=data), workdir)
    return workdir


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """Return a folder with pictures, and work directories trained on them: a diffusion model, for
    four steps, and a classifier that scores it.
    """
    place = tmp_path_factory.mktemp("diffusion")
    np.savez(place / "train.npz", images=PICTURES, labels=LABELS)
    with pytest.MonkeyPatch.context() as patch:
        start_at_random(patch)
        apart = trained(place, "classifier", CLASSIFIER).path
        trained(place, "run", scored(apart))
    return place


def scored(classifier):
    evaluation = dataclasses.replace(DIFFUSION.evaluation, classifier=str(classifier))
    return dataclasses.replace(DIFFUSION, evaluation=evaluation)


@pytest.fixture(scope="module")
def model(home):
    return transformer_jax.load(home / "run")


def params_of(workdir):
    return transformer_jax.load(workdir.path, "last").params


@pytest.mark.thorough
def test_a_resumed_run_equals_an_uninterrupted_one(home, monkeypatch):
    """Noise, times and what is left out are drawn again as they were."""
    import jax

    half = dataclasses.replace(DIFFUSION, training=dataclasses.replace(TRAINING, steps=2))
    start_at_random(monkeypatch)
    trained(home, "resumed", half)
    resumed = trained(home, "resumed", DIFFUSION)
    ours, theirs = params_of(resumed), params_of(WorkDir(home / "run"))
    jax.tree.map(np.testing.assert_array_equal, ours, theirs)
    assert resumed.metrics.read_bytes() == WorkDir(home / "run").metrics.read_bytes()


@pytest.mark.thorough
def test_pictures_depend_on_their_number_seed_and_text_alone(model, monkeypatch):
    """Not on how many are drawn at a time."""
    texts = ["a dark one", "", "a bright one"]
    found = model.draw(texts, num_samples=2, guidance=2.0)
    assert found.shape == (6, 8, 8, 1)
    assert found.dtype == np.uint8
    assert len({picture.tobytes() for picture in found}) == 6
    monkeypatch.setattr(draw, "ROWS", 4)
    again = model.draw(texts, num_samples=2, guidance=2.0)
    assert np.abs(again.astype(int) - found).max() <= 1  # a byte is rounded
    assert np.array_equal(model.draw("a dark one", num_samples=2, guidance=2.0), found[:2])
    other = model.draw(texts, num_samples=2, guidance=2.0, seed=1)
    assert np.abs(other.astype(int) - found).max() > 9


@pytest.mark.parametrize("search", ["heun", "ancestral"])
def test_other_searches_draw_too(model, search):
    assert model.draw("a dark one", search=search).shape == (1, 8, 8, 1)


def test_drawing_on_the_command_line(home, model, tmp_path, capsys):
    run, sheet = f"--workdir={home / 'run'}", tmp_path / "some.png"
    assert dispatch(["draw", run, "--text=a dark one", "--text=a bright one", "--num-samples=3",
                     "--steps=2", f"--output={sheet}"]) == 0  # fmt: skip
    assert "6 pictures" in capsys.readouterr().out
    with Image.open(sheet) as image:
        assert image.height > 16
        assert image.width > 24
    arrays = tmp_path / "some.npz"
    assert dispatch(["draw", run, "--text=a dark one", f"--output={arrays}", "--guidance=4"]) == 0
    with np.load(arrays) as file:
        assert file["labels"].tolist() == ["a dark one"]
        assert np.array_equal(file["images"], model.draw("a dark one", guidance=4.0))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [(["--text=a green one"], "'a green one'.*captions of training never had"),
     ([], "--text: is missing"),
     (["--text=a dark one", "--steps=0"], "config.decoding.sampling_steps=0: must be at least 1"),
     (["--text=a dark one", "--search=beam"], "config.decoding.search='beam'.*choose 'euler'"),
     (["--text=a dark one", "--output=x.gif"], "--output=x.gif: must end with .png or .npz"),
     (["--text=a dark one", "--columns=0"], "--columns=0: must be at least 1")],
)  # fmt: skip
def test_mistakes_in_drawing_name_the_remedy(home, arguments, message):
    with pytest.raises(UserError, match=message):
        dispatch(["draw", f"--workdir={home / 'run'}", *arguments])


def test_a_model_without_omissions_is_not_guided(model):
    objective = dataclasses.replace(model.experiment.objective, condition_dropout=0.0)
    sure = transformer_jax.api.TrainedModel(
        dataclasses.replace(model.experiment, objective=objective), model.model, model.params,
        model.tokenizers, model.steps,
    )  # fmt: skip
    with pytest.raises(UserError, match=r"guidance=2.0.*condition_dropout=0.*set it to 1"):
        sure.draw("a dark one", guidance=2.0)
    with pytest.raises(UserError, match=r"text ''.*condition_dropout=0.*give a text"):
        sure.draw("")


def test_drawn_pictures_are_scored_by_a_classifier(home, capsys):
    """Beside real ones, and a report shows what was drawn."""
    run, apart = home / "run", home / "classifier"
    assert evaluate.main([f"--workdir={run}"]) == 0
    printed = capsys.readouterr().out
    assert "of real pictures" in printed
    assert "euler, 3 steps, guidance 1, 6 pictures" in printed
    (path,) = (run / "eval").glob("test.*.json")
    scores = json.loads(path.read_text())["scores"]
    assert scores.keys() == {"loss", "accuracy", "real_accuracy", "frechet_distance",
                             "real_frechet_distance"}  # fmt: skip
    rows = [json.loads(line) for line in path.with_suffix(".jsonl").read_text().splitlines()]
    assert len(rows) == 6
    assert scores["accuracy"]["value"] == pytest.approx(100 * np.mean([x["right"] for x in rows]))
    assert scores_tested(run, "test") <= {"accuracy", "loss"}
    with pytest.raises(UserError, match=r"draw: .*'classify'.*name a diffusion model"):
        dispatch(["draw", f"--workdir={apart}"])
    with pytest.raises(UserError, match="draws no pictures"):
        transformer_jax.load(apart).draw("0")
    (shown,) = gather([(WorkDir(run), None)], "test")["gallery"]
    assert len(shown["examples"]) == 6
    assert all(example["picture"].startswith("data:image/png") for example in shown["examples"])


def test_frechet_distance_of_known_distributions():
    """Of normal vectors; half of D^2 / n is the floor of a finite number."""
    one, other = np.random.default_rng(0).normal(size=(2, 4000, 3))
    assert frechet_distance(one, one) == pytest.approx(0, abs=1e-6)
    assert frechet_distance(one, other) < 0.01
    assert frechet_distance(one, 2 * other + 3) == pytest.approx(3 * 9 + 3, rel=0.05)


VECTORS = RNG.normal(size=(200 * 4, 2)).astype(np.float32)
ITEMS = TokenStore(
    Ragged(VECTORS, 4 * np.arange(200), np.full(200, 4), lambda x, *_: x),
    Ragged.from_lists([[5, 2]] * 200),
)
DIFFUSE = OBJECTIVES["diffusion"]


def noised(config: ObjectiveConfig, numbers, draw=Draw(3, 1)):  # noqa: B008 (immutable)
    items = DIFFUSE.items(ITEMS, config)
    return DIFFUSE.examples(items, one_per_row(np.asarray(numbers)), len(numbers), 4, 2, draw)


@pytest.mark.parametrize("schedule", ["rectified_flow", "linear"])
def test_picture_and_noise_are_mixed_by_time(schedule):
    """Two predictions together give both back; the noise is normal."""
    config = ObjectiveConfig("diffusion", noise_schedule=schedule, prediction="sample")
    batch = noised(config, range(200))
    value = batch.targets["diffusion"].labels
    assert np.array_equal(value.reshape(-1, 2), VECTORS)
    mixture = schedule_of(config).at(batch.time.astype(np.float64))
    signal, level = (x[:, None, None] for x in mixture[:2])
    noise = (batch.src.inputs - signal * value) / level
    sure = batch.time > 0.1  # elsewhere, rounding is divided by little noise
    assert noise[sure].mean() == pytest.approx(0, abs=0.1)
    assert noise[sure].std() == pytest.approx(1, abs=0.1)


def test_what_is_drawn_for_a_picture_depends_on_seed_epoch_and_number():
    config = ObjectiveConfig("diffusion", condition_dropout=0.3)
    batch, some = noised(config, range(200)), noised(config, [7, 3])
    assert np.array_equal(some.src.inputs, batch.src.inputs[[7, 3]])
    assert np.array_equal(some.time, batch.time[[7, 3]])
    assert np.array_equal(some.tgt.seg, batch.tgt.seg[[7, 3]])
    for other in (Draw(3, 2), Draw(4, 1)):
        assert not np.array_equal(noised(config, [7], other).time, batch.time[[7]])
    left = (batch.tgt.seg == 0).all(1).mean()
    assert 0.2 < left < 0.4
    assert noised(ObjectiveConfig("diffusion", condition_dropout=0.0), range(200)).tgt.seg.all()


def test_empty_rows_have_no_weight():
    placement = Placement(*(np.array([x]) for x in (5, 1, 0, 0, 1)))
    items = DIFFUSE.items(ITEMS, ObjectiveConfig("diffusion"))
    batch = DIFFUSE.examples(items, placement, 3, 4, 2, Draw(0, 0))
    assert batch.targets["diffusion"].weight.sum(1).tolist() == [0, 4, 0]
    assert np.isfinite(batch.src.inputs).all()
