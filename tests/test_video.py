"""Clips from data to predictions, and from noise to animations, as users run them."""

import csv
import dataclasses
import io
import json

import numpy as np
import pytest
from PIL import Image
from test_inputs import trained
from test_predict import saved
from tiny import RUN

import transformer_jax
from transformer_jax.base.errors import UserError
from transformer_jax.cli import evaluate
from transformer_jax.cli.main import dispatch
from transformer_jax.config import (
    DataConfig,
    DecodingConfig,
    EvaluationConfig,
    ModelConfig,
    ObjectiveConfig,
    SideConfig,
    SourceConfig,
    TokenizerConfig,
)
from transformer_jax.data import sources
from transformer_jax.data.codecs import classes, tubelets
from transformer_jax.data.codecs.pair import TokenizerPair
from transformer_jax.data.sources.moving_digits import DIRECTIONS
from transformer_jax.experiments import train
from transformer_jax.reports.report import gather
from transformer_jax.runs.workdir import WorkDir

DATA = DataConfig(
    source="moving_digits", target_language="direction", num_examples=(40, 8, 12), num_frames=4,
    image_size=(16, 16), max_length=9, tokens_per_batch=72, num_buckets=1,
)  # fmt: skip
SOURCE = SourceConfig("tubelets", patch_size=8, tubelet_frames=2)
MODEL = ModelConfig(
    architecture="encoder", stem="linear", d_model=16, d_ff=12, num_heads=2, num_encoder_layers=1,
    dropout_rate=0.0, positions="none", grid=(2, 2, 2), grid_positions="sinusoidal",
    residual="pre_norm", embedding_scale=False,
)  # fmt: skip
CLASSIFIER = dataclasses.replace(
    RUN, model=dataclasses.replace(MODEL, encoder_pattern=("divided",)), data=DATA, src=SOURCE,
    tgt=SideConfig("classes"), objective=ObjectiveConfig("classify", window=9),
    tokenizer=TokenizerConfig(joint=False),
    training=dataclasses.replace(RUN.training, steps=2, label_smoothing=0.0),
    checkpoint=dataclasses.replace(RUN.checkpoint, every_steps=2),
    evaluation=dataclasses.replace(RUN.evaluation, every_steps=2),
)  # fmt: skip


def generator(classifier):
    """Return a diffusion model with random parameters."""
    corpus = sources.load(DATA, "train")
    source = dataclasses.replace(SOURCE, pixel_scale="symmetric")
    pair = TokenizerPair(
        tubelets.train(source, corpus.src), classes.train(TokenizerConfig(), corpus.tgt, ())
    )
    made = trained(
        pair, data=DATA, src=source, tgt=SideConfig("classes"),
        objective=ObjectiveConfig("diffusion"), tokenizer=TokenizerConfig(joint=False),
        model=dataclasses.replace(
            MODEL, architecture="diffusion_transformer", residual="adaptive_norm",
            encoder_pattern=("space",),
        ),
        decoding=DecodingConfig(search="euler", sampling_steps=2),
    )  # fmt: skip
    evaluation = EvaluationConfig(bleu_sentences=0, drawn=6, classifier=str(classifier))
    made.experiment = dataclasses.replace(made.experiment, evaluation=evaluation)
    return made


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A folder with the work directories of a classifier and of a diffusion model."""
    place = tmp_path_factory.mktemp("video")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("transformer_jax.experiments.process.use_compilation_cache", lambda: None)
        train.run_experiment(CLASSIFIER, WorkDir(place / "classifier"))
        saved(generator(place / "classifier"), place / "generator")
        yield place


@pytest.mark.thorough
def test_clips_are_classified_whatever_file_they_are_in(home, tmp_path, capsys):
    """As arrays in Python, and as files on the command line; a report shows their frames."""
    run = home / "classifier"
    model = transformer_jax.load(run)
    clips = np.stack(sources.load(DATA, "test").src)
    expected = model.classify(clips)
    assert len(expected) == 12
    assert {*expected[0]} <= {*DIRECTIONS}
    frames = [Image.fromarray(frame) for frame in clips[0]]
    frames[0].save(tmp_path / "a.gif", save_all=True, append_images=frames[1:], duration=40)
    np.save(tmp_path / "b.npy", clips[1])
    (tmp_path / "c").mkdir()
    for number, frame in enumerate(clips[2]):
        Image.fromarray(frame).save(tmp_path / "c" / f"{number}.png")
    assert dispatch(["predict", f"--workdir={run}", "--format=csv", str(tmp_path)]) == 0
    rows = [*csv.DictReader(io.StringIO(capsys.readouterr().out))]
    assert [row["file"] for row in rows] == [
        str(tmp_path / name) for name in ("a.gif", "b.npy", "c")
    ]
    for row, one in zip(rows, expected, strict=False):
        assert row["class"] == next(iter(one))
        assert float(row["probability"]) == pytest.approx(one[row["class"]], rel=1e-4)
    assert evaluate.main([f"--workdir={run}"]) == 0
    assert "accuracy" in capsys.readouterr().out
    assert model.inside(clips[0])["encoder"].attention is None  # none is between all tubelets
    (shown,) = gather([(WorkDir(run), None)], "test")["gallery"]
    assert all(example["picture"].startswith("data:image/png") for example in shown["examples"])
    longer = np.concatenate([clips[0], clips[0]])
    with pytest.raises(UserError, match=r"clip 1: has shape \(8, 16, 16\); .* 4 frames of 16 rows"):
        model.classify(longer)


def test_a_factorised_encoder_shows_no_layers():
    """They see frames one by one, so that none of their weights is between tubelets of a clip."""
    corpus = sources.load(DATA, "train")
    codec = tubelets.train(SOURCE, corpus.src)
    model = trained(
        TokenizerPair(codec, classes.train(TokenizerConfig(), ["up", "left"], ())), data=DATA,
        model=dataclasses.replace(MODEL, architecture="factorised_encoder"), src=SOURCE,
        tgt=SideConfig("classes"), objective=ObjectiveConfig("classify", window=9),
        tokenizer=TokenizerConfig(joint=False),
    )  # fmt: skip
    with pytest.raises(UserError, match=r"inside: .* frames one by one"):
        model.inside(corpus.src[0])


@pytest.mark.thorough
def test_drawn_clips_move(home, tmp_path, capsys):
    """In a .gif; in a .png, frames stand in a row; in .npz they are arrays."""
    run = f"--workdir={home / 'generator'}"
    files = [tmp_path / name for name in ("some.gif", "some.png", "some.npz")]
    for file in files:
        assert dispatch(["draw", run, "--text=up", "--text=left", f"--output={file}"]) == 0
        assert "2 clips" in capsys.readouterr().out
    with Image.open(files[0]) as moving, Image.open(files[1]) as still:
        assert moving.n_frames == 4
        assert moving.size == (2 * 17 * 4, 17 * 4)
        assert still.size == (4 * 17 * 4, 2 * 17 * 4)
    with np.load(files[2]) as file:
        assert file["images"].shape == (2, 4, 16, 16, 1)
        assert file["labels"].tolist() == ["up", "left"]
    with pytest.raises(UserError, match=r"must end with \.png, \.gif or \.npz"):
        dispatch(["draw", run, "--output=some.jpg"])


def test_drawn_clips_are_scored_by_a_classifier(home, capsys):
    assert evaluate.main([f"--workdir={home / 'generator'}"]) == 0
    assert "of real pictures" in capsys.readouterr().out
    (path,) = (home / "generator" / "eval").glob("test.*.json")
    scores = json.loads(path.read_text())["scores"]
    assert scores.keys() >= {"accuracy", "real_accuracy", "frechet_distance"}
