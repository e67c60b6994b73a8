"""What trained models take: files, images, arrays, texts, one or several; and what is refused."""

import dataclasses
import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from tiny import random_params

from transformer_jax.api import TrainedModel
from transformer_jax.base.errors import UserError
from transformer_jax.cli.main import dispatch
from transformer_jax.config import (
    CheckpointConfig,
    DataConfig,
    EvaluationConfig,
    Experiment,
    ModelConfig,
    ObjectiveConfig,
    SideConfig,
    SourceConfig,
    TokenizerConfig,
)
from transformer_jax.data.codecs import characters, classes, log_mel, patches, series
from transformer_jax.data.codecs.pair import TokenizerPair
from transformer_jax.data.sources import image_folders
from transformer_jax.models.build import build_for
from transformer_jax.runs.workdir import WorkDir

RNG = np.random.default_rng(0)
ENCODER = ModelConfig(
    architecture="encoder", d_model=8, d_ff=12, num_heads=2, num_encoder_layers=1,
    dropout_rate=0.0, residual="pre_norm",
)  # fmt: skip
TEXT = characters.train(TokenizerConfig(), ["abcdefghij "], ())
CLASSES = classes.train(TokenizerConfig(), ["left", "right"], ())


def trained(pair: TokenizerPair, **fields: Any) -> TrainedModel:
    experiment = Experiment(
        **fields, evaluation=EvaluationConfig(bleu_sentences=0),
        checkpoint=CheckpointConfig(best_by="loss"),
    )  # fmt: skip
    model = build_for(experiment, pair.src.size, pair.tgt.size)
    return TrainedModel(experiment, model, random_params(model), pair, [1])


def classifier(data: DataConfig, pictures: list[np.ndarray]) -> TrainedModel:
    codec = patches.train(SourceConfig("patches", patch_size=4), pictures)
    return trained(
        TokenizerPair(codec, CLASSES), model=dataclasses.replace(ENCODER, stem="linear"),
        data=data, objective=ObjectiveConfig("classify", window=16), src=SourceConfig("patches"),
        tgt=SideConfig("classes"), tokenizer=TokenizerConfig(joint=False),
    )  # fmt: skip


PICTURES = [RNG.integers(0, 256, (8, 12, 3), np.uint8) for _ in range(3)]
LARGE = RNG.integers(0, 256, (40, 30, 3), np.uint8)
FOLDERS = DataConfig(source="folders", image_size=(8, 12))
PICTURE_MODEL = classifier(FOLDERS, PICTURES)
SIDE = SourceConfig("log_mel", sample_rate=8000, n_fft=32, hop_length=16, num_mels=5)
SOUND = log_mel.train(SIDE, [])
SOUND_MODEL = trained(
    TokenizerPair(SOUND, CLASSES), model=dataclasses.replace(ENCODER, stem="conv1d"),
    data=DataConfig(source="wavs"), objective=ObjectiveConfig("classify", window=16), src=SIDE,
    tgt=SideConfig("classes"), tokenizer=TokenizerConfig(joint=False),
)  # fmt: skip
ROWS = np.round(RNG.normal(size=(40, 3)).cumsum(0), 3)
SERIES = series.train(SourceConfig(), [ROWS])
FORECASTER = trained(
    TokenizerPair(SERIES, SERIES), data=DataConfig(source="series"), tgt=SideConfig("series"),
    objective=ObjectiveConfig("forecast", window=12, horizon=4),
    model=dataclasses.replace(
        ENCODER, stem="series", patch_length=4, patch_stride=2, distribution="normal"
    ),
)  # fmt: skip
TEXT_MODEL = trained(
    TokenizerPair(TEXT, CLASSES), model=ENCODER, objective=ObjectiveConfig("classify", window=16),
    src=SourceConfig("characters"), tgt=SideConfig("classes"),
    tokenizer=TokenizerConfig(joint=False),
)  # fmt: skip
WRITER = trained(
    TokenizerPair(TEXT, TEXT), tgt=SideConfig("characters"),
    objective=ObjectiveConfig("language_model", document="file"),
    model=dataclasses.replace(ENCODER, architecture="decoder", num_encoder_layers=6,
                              num_decoder_layers=1),
)  # fmt: skip


@pytest.fixture
def files(tmp_path) -> dict[str, Path]:
    """Return pictures as files: of training's size, larger, greyscale, transparent, turned."""
    turned = Image.Exif()
    turned[0x0112] = 6
    images = {
        "equal": Image.fromarray(PICTURES[0]), "large": Image.fromarray(LARGE),
        "grey": Image.fromarray(LARGE[..., 0]), "clear": Image.fromarray(LARGE).convert("RGBA"),
    }  # fmt: skip
    folder = tmp_path / "train" / "left"
    folder.mkdir(parents=True)
    for name, image in images.items():
        image.save(folder / f"{name}.png")
    images["large"].save(folder / "turned.png", exif=turned)
    return {path.stem: path for path in sorted(folder.iterdir())}


def test_new_pictures_are_prepared_as_those_of_training(files, tmp_path):
    """Files, images and arrays, whatever their size and mode, give what training reads of them."""
    config = dataclasses.replace(FOLDERS, directory=str(tmp_path))
    read, _ = image_folders.load(config, "train")
    codec = patches.train(SourceConfig("patches", patch_size=4), read)
    for path, expected in zip(files.values(), read, strict=True):
        image = Image.open(path)
        forms = [str(path), path, image, expected]
        if path.stem != "turned":  # an array has no orientation
            forms.append(np.asarray(image))
        for form in forms:
            assert codec.is_one(form)
            found = codec.prepared(form, "picture 1", config)
            assert np.array_equal(found.reshape(expected.shape), expected), path


def test_pictures_are_resized_only_if_those_of_training_were(files):
    codec = patches.train(SourceConfig("patches", patch_size=4), PICTURES)
    plain = DataConfig(source="arrays")
    assert np.array_equal(codec.prepared(files["equal"], "", plain), PICTURES[0])
    with pytest.raises(UserError, match=r"large\.png: has shape \(40, 30, 3\); .* 8 rows, 12 col"):
        codec.prepared(files["large"], "", plain)
    with pytest.raises(UserError, match=r"picture 2: has shape \(40, 30, 3\)"):
        codec.encode([PICTURES[0], codec.prepared(LARGE, "picture 2", plain)])
    four = patches.train(SourceConfig("patches", patch_size=4), [LARGE[:, :28, [0, 1, 2, 0]]])
    with pytest.raises(UserError, match="reads pictures of 4 channels; give an array"):
        four.prepared(files["large"], "", plain)


@pytest.mark.parametrize(
    ("shape", "given", "one"),
    [
        ((8, 12, 3), (8, 12, 3), True), ((8, 12, 3), (40, 30, 3), True),
        ((8, 12, 3), (1, 8, 12, 3), False), ((8, 12, 3), (5, 8, 12), False),
        ((8, 12), (8, 12), True), ((8, 12), (8, 12, 1), True), ((8, 12), (5, 8, 12), False),
        ((8, 12), (40, 30, 3), True), ((8, 4), (8, 8, 4), False), ((8, 4), (3, 8, 4, 1), False),
        ((2, 8, 12, 3), (2, 8, 12, 3), True), ((2, 8, 12, 3), (1, 2, 8, 12, 3), False),
    ],
)  # fmt: skip
def test_an_array_is_one_picture_or_several(shape, given, one):
    codec = patches.train(SourceConfig("patches", patch_size=4), [np.zeros(shape, np.uint8)])
    assert codec.is_one(np.zeros(given, np.uint8)) == one
    assert not codec.is_one([np.zeros(given, np.uint8)])


def test_several_pictures_of_an_example(files):
    two = [np.stack(PICTURES[:2])]
    codec = patches.train(SourceConfig("patches", patch_size=4), two)
    found = codec.prepared([files["equal"], PICTURES[1]], "picture 1", DataConfig())
    assert np.array_equal(found, two[0])
    with pytest.raises(UserError, match="picture 1: needs 2 pictures of one size"):
        codec.prepared([files["equal"], LARGE], "picture 1", DataConfig())


def test_a_classifier_takes_files_images_and_arrays(files):
    """One or several, for each verb that reads pictures."""
    model = PICTURE_MODEL
    large = Image.fromarray(LARGE)
    found = model.classify([str(files["large"]), files["large"], large, LARGE, PICTURES[0]])
    assert found[:4] == [found[0]] * 4 != [found[4]] * 4
    for one in (str(files["large"]), files["large"], large, LARGE):
        assert model.classify(one) == found[0]
    assert model.classify(PICTURES[0]) == found[4]
    assert model.classify(np.stack(PICTURES)) == [model.classify(x) for x in PICTURES]
    assert model.classify([]) == []
    inside = model.inside(LARGE)["encoder"].output
    for form in ([LARGE], [files["large"]], (large,)):
        (stacks,) = model.inside(form)
        assert np.array_equal(stacks["encoder"].output, inside)


WRONG: list[Any] = [
    None, 3, 0.5, b"bytes", {"a": 1}, np.float64(1.0), [None], [1, None], [[["a"]]],
    [b"bytes"], object(),
]  # fmt: skip


@pytest.mark.parametrize("given", WRONG, ids=lambda x: "object" if type(x) is object else repr(x))
@pytest.mark.parametrize("codec", ["patches", "log_mel", "series"])
def test_vector_models_refuse_other_values(codec, given):
    """Before any computation, in one sentence that says which value."""
    model = {"patches": PICTURE_MODEL, "log_mel": SOUND_MODEL, "series": FORECASTER}[codec]
    verb = model.forecast if codec == "series" else model.classify
    with pytest.raises(UserError, match=f"^({verb.__name__}|picture [12]|sound [12]|series [12]):"):
        verb(given)


@pytest.mark.parametrize("given", [*WRONG, Image.fromarray(LARGE), LARGE, Path("a.txt")], ids=type)
def test_text_models_refuse_other_values(given):
    for verb in (TEXT_MODEL.classify, TEXT_MODEL.tag, TEXT_MODEL.value, TEXT_MODEL.inside):
        with pytest.raises(UserError, match=f"^{verb.__name__}: .*; give a text"):
            verb(given)
    with pytest.raises(UserError, match=r"^answer: .*; give a text"):
        TEXT_MODEL.answer(given, given)
    with pytest.raises(UserError, match=r"^follows: .*; give a text"):
        TEXT_MODEL.follows("a", given)
    for verb in (WRITER.generate, WRITER.score):
        with pytest.raises(UserError, match=f"^{verb.__name__}: .*; give a text"):
            verb(given)
    with pytest.raises(UserError, match=r"^stream: .*; give one text"):
        WRITER.stream(given)


@pytest.mark.parametrize("name", ["missing.png", "notes.txt", "large.png"])
def test_unreadable_files_are_refused_by_name(name, files, tmp_path):
    (tmp_path / "notes.txt").write_text("no picture")
    (tmp_path / "large.png").write_bytes(files["large"].read_bytes()[:200])
    pattern = f"{name}: cannot be read"
    with pytest.raises(UserError, match=pattern):
        PICTURE_MODEL.classify(tmp_path / name)
    with pytest.raises(UserError, match=pattern):
        SOUND_MODEL.classify([tmp_path / name])
    with pytest.raises(UserError, match=f"{name}: (cannot be read|contains no series)"):
        FORECASTER.forecast(str(tmp_path / name))


def test_small_files_of_huge_pictures_are_refused():
    """As uploads, before their pixels are read."""
    content = io.BytesIO()
    Image.new("1", (10_000, 6_000)).save(content, "png")
    assert len(content.getvalue()) < 20_000
    with pytest.raises(UserError, match=r"a\.png: has 10,000 x 6,000 pixels, .* make it smaller"):
        PICTURE_MODEL.tokenizers.src.opened(content.getvalue(), "a.png")


def test_a_picture_without_pixels_is_refused():
    for empty in (np.zeros((0, 0, 3), np.uint8), Image.new("L", (0, 5))):
        with pytest.raises(UserError, match=r"picture 1: .*it has no pixels"):
            PICTURE_MODEL.classify(empty)


def test_a_forecaster_takes_files_and_arrays(tmp_path):
    """One or several; the forecasts are those of each alone."""
    path = tmp_path / "hours.csv"
    lines = [f"day {i}," + ",".join(map(str, row)) for i, row in enumerate(ROWS.tolist())]
    path.write_text("\n".join(["date,a,b,c", *lines]) + "\n")
    expected = FORECASTER.forecast(ROWS)
    assert expected.shape == (4, 3)
    for one in (str(path), path, ROWS.tolist(), ROWS.astype(object), ROWS[-12:]):
        assert np.array_equal(FORECASTER.forecast(one), expected)
    first = FORECASTER.forecast(ROWS[:20])
    for several in ([path, ROWS[:20]], (ROWS, ROWS[:20].tolist())):
        assert np.array_equal(np.stack(FORECASTER.forecast(several)), np.stack([expected, first]))
    assert len(FORECASTER.forecast(np.stack([ROWS, ROWS]))) == 2
    assert FORECASTER.forecast([]) == []
    (point, deciles), _ = FORECASTER.forecast([ROWS, ROWS], deciles=True)
    assert np.array_equal(point, expected)
    assert deciles.shape == (4, 3, 9)
    path.write_text(path.read_text().replace(lines[4], "day 4,1,,3"))
    with pytest.raises(UserError, match=r"hours\.csv:6: b is '', not a finite number; fill in"):
        FORECASTER.forecast(path)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_gaps_are_refused_by_place(value):
    """In each codec of numbers; no verb answers with NaN."""
    rows = ROWS.copy()
    rows[4, 1] = value
    with pytest.raises(UserError, match=rf"series 1: row 5 has {value} in channel 2, not a finite"):
        FORECASTER.forecast(rows)
    with pytest.raises(UserError, match=rf"series 2: row 5 has {value} in channel 2, .* fill in"):
        FORECASTER.forecast([ROWS, rows])
    with pytest.raises(UserError, match=rf"sound 2: sample 5 is {value}, not a finite number"):
        SOUND_MODEL.classify([np.zeros(50), np.where(np.arange(50) == 4, value, 0.0)])


def test_unsuitable_series_are_refused():
    with pytest.raises(UserError, match="series 2: has 5 rows, and such a model reads 12; give mo"):
        FORECASTER.forecast([ROWS, ROWS[:5]])
    with pytest.raises(UserError, match=r"series 1: has shape \(40,\); .* 3 channels"):
        FORECASTER.forecast(ROWS[:, 0])
    with pytest.raises(UserError, match=r"series 1: holds more than numbers; .* without dates"):
        FORECASTER.forecast([["day 1", 1, 2, 3]] * 20)


def test_empty_sounds_have_empty_transcriptions(tmp_path):
    """Also if all are, so that no program can run; and stereo is not a list of sounds."""
    pair = TokenizerPair(SOUND, TEXT)
    ctc = trained(
        pair, model=dataclasses.replace(ENCODER, stem="conv1d"), data=DataConfig(source="wavs"),
        objective=ObjectiveConfig("ctc"), src=SIDE, tgt=SideConfig("characters"),
        tokenizer=TokenizerConfig(joint=False),
    )  # fmt: skip
    short = np.zeros(SIDE.hop_length - 1, np.int16)
    assert ctc.translate([np.zeros(0), short]) == ["", ""]
    assert ctc.translate(short) == ""
    with pytest.raises(UserError, match="inside: the input is empty"):
        ctc.inside(short)
    with pytest.raises(UserError, match=r"sound 1: is an array of int16 with shape \(50, 2\)"):
        ctc.translate(np.zeros((50, 2), np.int16))
    assert not SOUND.is_one(np.zeros((2, 50)))


def test_a_text_without_anything_to_predict_has_no_score():
    """A whole file has no end of its own, so an empty one has no piece."""
    with pytest.raises(UserError, match="score: text 2 is empty"):
        WRITER.score(["a", ""])
    with pytest.raises(UserError, match="score: text 1 is empty"):
        WRITER.score("")
    assert WRITER.score([]) == []


@pytest.mark.parametrize("document", ["file", "line", "joined"])
@pytest.mark.parametrize("content", [b"", b"\xef\xbb\xbf"])
def test_a_file_without_text_is_not_scored(document, content, tmp_path):
    """A perplexity of nothing would be 1; the command ends with 2, as for all invalid input."""
    experiment = dataclasses.replace(
        WRITER.experiment, objective=ObjectiveConfig("language_model", document=document)
    )
    with WorkDir(tmp_path / "run").claim(experiment):
        pass
    (tmp_path / "empty.txt").write_bytes(content)
    with pytest.raises(UserError, match=r"empty\.txt: contains no text") as caught:
        dispatch(["score", f"--workdir={tmp_path / 'run'}", f"--target={tmp_path / 'empty.txt'}"])
    assert caught.value.exit_code == 2
