"""An autoencoder of pictures, from its data to codes on the command line and back."""

import dataclasses
import json

import numpy as np
import pytest
import tiny
from itself import scores_tested
from tiny import RUN

import transformer_jax
from transformer_jax.base.errors import UserError
from transformer_jax.cli import evaluate
from transformer_jax.cli.main import dispatch
from transformer_jax.config import ModelConfig, ObjectiveConfig, SideConfig, SourceConfig
from transformer_jax.data import sources
from transformer_jax.experiments import train
from transformer_jax.models.build import build
from transformer_jax.reports.report import gather
from transformer_jax.runs.workdir import WorkDir

RNG = np.random.default_rng(0)
PICTURES = (RNG.integers(0, 2, (40, 2, 2)) * 255).astype(np.uint8).repeat(4, 1).repeat(4, 2)
MODEL = ModelConfig(
    architecture="autoencoder", stem="linear", d_model=8, d_ff=12, num_heads=2,
    num_encoder_layers=1, num_decoder_layers=1, dropout_rate=0.0, num_codes=5, code_width=3,
    positions="learned", max_positions=4, residual="pre_norm",
)  # fmt: skip


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Return a work directory trained for two steps, next to the pictures it was trained on."""
    home = tmp_path_factory.mktemp("pictures")
    for part in ("train", "validation"):
        np.savez(home / f"{part}.npz", images=PICTURES)
    experiment = dataclasses.replace(
        RUN, model=MODEL, objective=ObjectiveConfig("reconstruct"), tgt=SideConfig("patches"),
        src=SourceConfig("patches"),
        data=dataclasses.replace(
            RUN.data, source="arrays", source_language="none", target_language="images",
            directory=str(home), train=("train",), validation=("validation",),
            test=("validation",), max_length=4, tokens_per_batch=64, augment=("flip",),
            num_examples=type(RUN.data)().num_examples, max_number=type(RUN.data)().max_number,
        ),
        tokenizer=dataclasses.replace(RUN.tokenizer, vocab_size=32_000),
        training=dataclasses.replace(RUN.training, steps=2, label_smoothing=0.0),
        checkpoint=dataclasses.replace(RUN.checkpoint, every_steps=2),
        evaluation=dataclasses.replace(RUN.evaluation, every_steps=2),
    )  # fmt: skip
    train.run_experiment(experiment, WorkDir(home / "run"))
    return home / "run"


@pytest.mark.thorough
def test_scores_match_the_decoded_pictures_and_a_report_shows_them(run, capsys):
    assert evaluate.main([f"--workdir={run}"]) == 0
    printed = capsys.readouterr().out
    assert "40 pictures" in printed
    scores = json.loads((run / "eval/test.best.json").read_text())["scores"]
    coded = transformer_jax.load(run).picture_codes
    codes = coded.encode(PICTURES)
    assert codes.shape == (40, 4)
    off = coded.decode(codes)[..., 0].astype(float) - PICTURES
    assert scores["pixel_error"]["value"] == pytest.approx(np.square(off).mean() ** 0.5, rel=1e-4)
    assert scores["codes_used"]["value"] == len(np.unique(codes))
    assert 1 <= scores["code_perplexity"]["value"] <= len(np.unique(codes)) + 1e-6
    assert scores_tested(run, "test") == {"pixel_error"}
    (shown,) = gather([(WorkDir(run), None)], "test")["gallery"]
    assert all(example["picture"].startswith("data:image/png") for example in shown["examples"])


def test_encoding_and_decoding_on_the_command_line(run, tmp_path, capsys):
    """`--codebook` accepts a work directory."""
    book, place = f"--codebook={run}", str(run.parent / "train.npz")
    assert dispatch(["pictures", "encode", place, book]) == 0
    lines = capsys.readouterr().out
    coded = transformer_jax.load(run).picture_codes
    assert [list(map(int, line.split())) for line in lines.splitlines()] == coded.encode(
        PICTURES
    ).tolist()
    (tmp_path / "made.codes").write_text(lines + "1 2 3\n1 2 3 5\n")
    made = ["pictures", "decode", str(tmp_path / "made.codes"), book]
    assert dispatch([*made, f"--output={tmp_path / 'made.npz'}"]) == 0
    assert "42 pictures, 2 of them broken lines" in capsys.readouterr().out
    with pytest.raises(UserError, match="has codes, not latents; give lines of them"):
        dispatch(["pictures", "decode", place, book, f"--output={tmp_path / 'made.npz'}"])
    with pytest.raises(UserError, match="has codes, which are written to standard output"):
        dispatch(["pictures", "encode", place, book, f"--output={tmp_path / 'made.npz'}"])
    with np.load(tmp_path / "made.npz") as file:
        assert np.array_equal(file["images"][:40], coded.decode(coded.encode(PICTURES)))


def test_other_picture_shapes_and_models_are_rejected(run):
    trained = transformer_jax.load(run)
    with pytest.raises(UserError, match="picture 1: has shape"):
        trained.picture_codes.encode(PICTURES[:, :4])
    trained.model = build(tiny.MODEL, 5, 5)
    with pytest.raises(UserError, match=r"'encoder_decoder'.*no codes of pictures"):
        trained.picture_codes  # noqa: B018


def test_pictures_load_with_or_without_labels(run, tmp_path):
    """Only the images of a file are read; labels of folders are ignored."""
    from PIL import Image

    for number, picture in enumerate(PICTURES[:3]):
        place = tmp_path / "train" / f"label{number}"
        place.mkdir(parents=True)
        Image.fromarray(picture).save(place / "one.png")
    experiment = WorkDir(run).experiment()
    data = dataclasses.replace(experiment.data, source="folders", directory=str(tmp_path))
    folders = sources.load(data, "train", experiment.objective)
    arrays = sources.load(experiment.data, "train", experiment.objective)
    assert len(arrays) == 40
    assert not len(folders.src)
    assert np.array_equal(np.stack(folders.tgt)[..., 0], np.stack(arrays.tgt)[:3])
