"""Diffusion in the latents of an autoencoder: encoded to files, drawn, and made into pictures."""

import dataclasses
import json

import jax
import numpy as np
import pytest
from test_diffusion import DATA, DIFFUSION, LABELS, PICTURES, trained

import transformer_jax
from transformer_jax.base.errors import UserError
from transformer_jax.cli import evaluate
from transformer_jax.cli.main import dispatch
from transformer_jax.config import (
    DecodingConfig,
    ObjectiveConfig,
    SideConfig,
    SourceConfig,
    TokenizerConfig,
)
from transformer_jax.data.codecs.latents import Latents, train
from transformer_jax.data.random import Draw
from transformer_jax.experiments.prepare import prepare
from transformer_jax.runs.workdir import WorkDir

pytestmark = pytest.mark.thorough
RNG = np.random.default_rng(1)
LATENTS = [RNG.normal(3, [1, 9], (2, 3, 2)).astype(np.float32) for _ in range(50)]
AUTOENCODER = dataclasses.replace(
    DIFFUSION, objective=ObjectiveConfig("reconstruct"), decoding=DecodingConfig(),
    model=dataclasses.replace(
        DIFFUSION.model, architecture="variational_autoencoder", residual="pre_norm",
        condition="class", grid_positions="none", grid=(), encoder_pattern=("full",),
        num_decoder_layers=1, code_width=3, positions="learned", max_positions=4,
    ),
    src=SourceConfig("patches"), tgt=SideConfig("patches"), tokenizer=TokenizerConfig(),
    data=dataclasses.replace(DATA, target_language="images", label_texts=()),
    training=dataclasses.replace(DIFFUSION.training, steps=2),
    evaluation=dataclasses.replace(DIFFUSION.evaluation, every_steps=2),
)  # fmt: skip


def in_latents(autoencoder):
    """Return a diffusion model of these latents, by class."""
    model = dataclasses.replace(DIFFUSION.model, condition="class", encoder_pattern=("full",))
    decoding = dataclasses.replace(DIFFUSION.decoding, autoencoder=str(autoencoder))
    return dataclasses.replace(
        DIFFUSION, model=model, src=SourceConfig("latents"), tgt=SideConfig("classes"),
        tokenizer=TokenizerConfig(joint=False),
        data=dataclasses.replace(DATA, label_texts=()), decoding=decoding,
        training=dataclasses.replace(DIFFUSION.training, steps=2),
        evaluation=dataclasses.replace(DIFFUSION.evaluation, every_steps=2),
    )  # fmt: skip


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """Return a folder with pictures, an autoencoder of them, its latents in a folder of theirs, and
    a diffusion model of these.
    """
    place = tmp_path_factory.mktemp("latents")
    np.savez(place / "train.npz", images=PICTURES, labels=LABELS)
    autoencoder = trained(place, "autoencoder", AUTOENCODER).path
    (place / "latents").mkdir()
    encode = ["pictures", "encode", str(place / "train.npz"), f"--codebook={autoencoder}"]
    assert dispatch([*encode, f"--output={place / 'latents/train.npz'}"]) == 0
    trained(place / "latents", "run", in_latents(autoencoder))
    return place


def test_latents_are_read_with_unit_variance_and_written_back():
    codec = train(SourceConfig("latents"), LATENTS)
    vectors = np.stack(codec.encode(LATENTS))
    seen = codec.reader()(vectors, np.full(50, 6), np.arange(50), Draw())
    assert np.allclose(seen.mean((0, 1)), 0, atol=1e-5)
    assert np.allclose(seen.std((0, 1)), 1, atol=1e-5)
    assert np.allclose(codec.values(seen), np.stack(LATENTS), atol=1e-5)
    assert Latents(codec.made_by("one").model).autoencoder == "one"
    with pytest.raises(ValueError, match="not the form of latents"):
        Latents(codec.model.replace(b'"rows": 2', b'"rows": 0'))


@pytest.mark.parametrize(
    ("values", "message"),
    [([PICTURES[0]], "picture 1: is no array .* of latents"),
     ([LATENTS[0], LATENTS[0][:1]], r"picture 2 has latents of shape \(1, 3, 2\), but the first"),
     ([np.full((2, 2, 1), np.nan)], "picture 1: has latents that are not finite")],
)  # fmt: skip
def test_what_is_no_latent_is_refused(values, message):
    with pytest.raises(UserError, match=message):
        train(SourceConfig("latents"), values)


def test_drawings_are_decoded_by_the_autoencoder(home):
    """What is drawn are the pictures of latents; scores compare them with those of real ones."""
    model = transformer_jax.load(home / "latents/run")
    drawn = model.draw(["0", "1"], num_samples=2)
    assert (drawn.shape, drawn.dtype) == ((4, 8, 8, 1), np.uint8)
    with np.load(home / "latents/train.npz") as file:
        latents, digest = file["images"], str(file["autoencoder"][0])
        assert file["labels"].tolist() == LABELS.tolist()
    assert model.tokenizers.src.autoencoder == digest
    made = transformer_jax.load(home / "autoencoder").picture_codes
    assert made.digest == digest
    assert np.array_equal(latents, made.encode(PICTURES))
    assert np.array_equal(model.pictures(latents[:3]), made.decode(latents[:3]))
    assert evaluate.main([f"--workdir={home / 'latents/run'}", "--split=validation"]) == 0


@pytest.mark.thorough
def test_a_resumed_autoencoder_has_the_same_noise(home):
    """Latents of training are random: one step, and then another, are as two at once."""
    for steps in (1, 2):
        training = dataclasses.replace(AUTOENCODER.training, steps=steps)
        trained(home, "resumed", dataclasses.replace(AUTOENCODER, training=training))
    one, other = (transformer_jax.load(home / x, "last").params for x in ("autoencoder", "resumed"))
    assert jax.tree.all(jax.tree.map(np.array_equal, one, other))


def test_another_autoencoder_is_refused(home, tmp_path):
    """When latents are read, when pictures are drawn, and where there are no latents."""
    run = home / "latents/run"
    model = transformer_jax.load(run)
    with pytest.raises(UserError, match=r"config\.decoding\.autoencoder=.*no codes of pictures"):
        model.draw("0", autoencoder=str(run))
    codec = model.tokenizers.src.made_by("another")
    pair = dataclasses.replace(model.tokenizers, src=codec)
    model = type(model)(model.experiment, model.model, model.params, pair, model.steps, model.path)
    with pytest.raises(UserError, match="is not the autoencoder that made the latents of training"):
        model.draw("0")
    with np.load(home / "latents/train.npz") as file:
        arrays = dict(file)
    np.savez(tmp_path / "train.npz", **arrays)
    np.savez(tmp_path / "other.npz", **arrays | {"autoencoder": np.array(["another"])})
    experiment = WorkDir(run).experiment()
    data = dataclasses.replace(experiment.data, directory=str(tmp_path), validation=("other",))
    with pytest.raises(UserError, match=r"config\.data\.validation: has latents of another"):
        prepare(dataclasses.replace(experiment, data=data), WorkDir(tmp_path / "run"))
    data = dataclasses.replace(data, train=("train", "other"))
    with pytest.raises(UserError, match="have latents of different autoencoders"):
        prepare(dataclasses.replace(experiment, data=data), WorkDir(tmp_path / "run"))


def test_latents_on_the_command_line(home, capsys, tmp_path):
    """They are files, not lines; scores say how they are spread."""
    book, latents = f"--codebook={home / 'autoencoder'}", str(home / "latents/train.npz")
    with pytest.raises(UserError, match="has latents; give a file that ends"):
        dispatch(["pictures", "encode", str(home / "train.npz"), book])
    output = tmp_path / "made.npz"
    assert dispatch(["pictures", "decode", latents, book, f"--output={output}"]) == 0
    assert "40 pictures, 0 of them broken" in capsys.readouterr().out
    assert evaluate.main([f"--workdir={home / 'autoencoder'}", "--split=validation"]) == 0
    assert "latents: mean" in capsys.readouterr().out
    (path,) = (home / "autoencoder/eval").glob("validation.*.json")
    scores = json.loads(path.read_text())["scores"]
    with np.load(latents) as file:
        spread = file["images"].std(dtype=np.float64)
    assert scores["latent_deviation"]["value"] == pytest.approx(spread, rel=1e-6)
    with np.load(output) as file:
        off = file["images"][..., 0].astype(float) - PICTURES
    assert scores["pixel_error"]["value"] == pytest.approx(np.square(off).mean() ** 0.5, rel=1e-4)
