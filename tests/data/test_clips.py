"""Clips: moving digits, folders of frames, tubelets, and which input is rejected."""

import dataclasses
import itertools

import numpy as np
import pytest
from PIL import Image

from transformer_jax.base.errors import UserError
from transformer_jax.config import DataConfig, ModelConfig, SourceConfig
from transformer_jax.data import sources
from transformer_jax.data.codecs import tubelets
from transformer_jax.data.random import Draw
from transformer_jax.data.sources.clip_folders import spaced
from transformer_jax.data.sources.moving_digits import DIRECTIONS
from transformer_jax.decoding.inputs import files, read

RNG = np.random.default_rng(0)
SIDE = SourceConfig("tubelets", patch_size=4, tubelet_frames=2)
DIGITS = DataConfig(
    source="moving_digits", target_language="direction", num_examples=(40, 8, 8), num_frames=4
)
CLIPS = RNG.integers(0, 256, (5, 4, 8, 12, 3), np.uint8)


def test_digits_move_on_a_torus():
    """By two pixels a frame in the direction of the label; splits differ, and nothing else does."""
    corpus = sources.load(DIGITS, "train")
    assert {*corpus.tgt} <= {*DIRECTIONS}
    for clip, way in zip(corpus.src, corpus.tgt, strict=True):
        assert clip.shape == (4, 32, 32)
        assert clip.dtype == np.uint8
        step = [2 * n for n in DIRECTIONS[way]]
        for one, other in itertools.pairwise(clip):
            assert np.array_equal(np.roll(one, step, (0, 1)), other)
    assert sources.load(DIGITS, "train").fingerprint == corpus.fingerprint
    more = dataclasses.replace(DIGITS, num_examples=(50, 8, 8))
    assert np.array_equal(np.stack(sources.load(more, "train").src[:40]), np.stack(corpus.src))
    assert not np.array_equal(sources.load(DIGITS, "test").src[0], corpus.src[0])


def test_several_digits_are_told_apart_by_their_values():
    """The label is of the largest; values and directions of a clip all differ."""
    config = dataclasses.replace(DIGITS, num_digits=3, image_size=(16, 24))
    texts = sources.load(dataclasses.replace(config, target_language="text"), "train").tgt
    ways = sources.load(config, "train").tgt
    values = sources.load(dataclasses.replace(config, target_language="value"), "train").tgt
    names = [
        "zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine",
    ]  # fmt: skip
    for text, way, value in zip(texts, ways, values, strict=True):
        each = [part.split(" moves ") for part in text.split(" and ")]
        numbers = [names.index(what.split()[1]) for what, _ in each]
        assert numbers == sorted({*numbers}, reverse=True)
        assert len({moves for _, moves in each}) == 3
        assert (each[0][1], str(numbers[0])) == (way, value)
    with pytest.raises(UserError, match=r"target_language='de'.*'direction', 'value', 'text'"):
        sources.load(dataclasses.replace(config, target_language="de"), "train")


def test_tubelets_are_boxes_by_time_row_and_column():
    codec = tubelets.train(SIDE, list(CLIPS))
    assert codec.size == 2 * 4 * 4 * 3
    assert codec.form.grid == (2, 2, 3)
    found = np.stack(codec.encode(list(CLIPS)))
    for number, (time, row, column) in enumerate(np.ndindex(2, 2, 3)):
        box = CLIPS[:, 2 * time : 2 * time + 2, 4 * row : 4 * row + 4, 4 * column : 4 * column + 4]
        assert np.array_equal(found[:, number], box.reshape(5, -1))
    assert np.array_equal(codec.form.joined(found), CLIPS)
    vectors = codec.reader()(found.reshape(-1, codec.size), np.full(5, 12), np.arange(5), Draw())
    pixels = vectors.reshape(-1, 3).astype(np.float64)
    assert np.abs(pixels.mean(0)).max() < 1e-4
    assert np.abs(pixels.std(0) - 1).max() < 1e-4
    assert np.array_equal(codec.as_bytes(vectors).reshape(found.shape), found)
    assert tubelets.Tubelets(codec.model).digest == codec.digest
    with pytest.raises(ValueError, match="not the form"):
        tubelets.Tubelets(codec.model.replace(b'"frames": 4', b'"frames": 5'))
    grey = tubelets.train(SIDE, list(CLIPS[..., 0]))
    assert np.array_equal(grey.encode([CLIPS[0, ..., 0]])[0], found[0].reshape(12, -1, 3)[..., 0])


def test_frames_of_a_clip_are_augmented_alike():
    codec = tubelets.train(SIDE, list(CLIPS))
    still = np.repeat(CLIPS[:, :1], 4, axis=1)
    config = dataclasses.replace(DIGITS, augment=("crop", "flip"), crop_padding=2)
    read = codec.reader(config)
    vectors = read(np.concatenate(codec.encode(list(still))), np.full(5, 12), np.arange(5), Draw(1))
    changed = codec.form.joined(codec.as_bytes(vectors))
    assert not np.array_equal(changed, still)
    assert np.array_equal(changed, np.repeat(changed[:, :1], 4, axis=1))


def write(folder, clips, size=None):
    """Write clips [T H W C] as folders of frames, named so that their numbers count."""
    for number, clip in enumerate(clips):
        (folder / f"clip{number}").mkdir(parents=True)
        for frame, pixels in enumerate(clip):
            Image.fromarray(pixels).save(folder / f"clip{number}" / f"frame{8 + frame}.png")


@pytest.fixture
def folders(tmp_path):
    write(tmp_path / "train" / "up", CLIPS[:2])
    write(tmp_path / "train" / "down", CLIPS[2:4])
    grey = [Image.fromarray(frame) for frame in CLIPS[4, ..., 0]]
    grey[0].save(tmp_path / "train" / "up" / "last.gif", save_all=True, append_images=grey[1:])
    return DataConfig(source="clips", directory=str(tmp_path), num_frames=4)


def test_clips_are_read_from_folders_and_animations(folders, tmp_path):
    corpus = sources.load(folders, "train")
    assert corpus.tgt == ["down", "down", "up", "up", "up"]
    grey = np.repeat(CLIPS[4:, ..., :1], 3, axis=-1)
    assert np.array_equal(np.stack(corpus.src), np.concatenate([CLIPS[[2, 3, 0, 1]], grey]))
    only = dataclasses.replace(folders, train=("grey",))
    (tmp_path / "grey" / "up").mkdir(parents=True)
    (tmp_path / "train" / "up" / "last.gif").rename(tmp_path / "grey" / "up" / "last.gif")
    assert np.array_equal(sources.load(only, "train").src[0], CLIPS[4, ..., :1])
    half = sources.load(dataclasses.replace(folders, num_frames=2, image_size=(4, 6)), "train")
    assert half.src[0].shape == (2, 4, 6, 3)
    assert [spaced(9, 3), spaced(4, 4), spaced(5, 1)] == [[1, 4, 7], [0, 1, 2, 3], [2]]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda up: [file.unlink() for file in (up / "clip0").iterdir()],
         ["clip0: holds no frames", "*.gif or *.webp"]),
        (lambda up: (up / "clip1" / "frame8.png").unlink(),
         ["clip1: has 3 frames, fewer than config.data.num_frames=4", "lower"]),
        (lambda up: Image.new("RGB", (12, 9)).save(up / "clip0" / "frame9.png"),
         ["frame9.png: has 9 x 12 pixels", "the first frame of its clip has 8 x 12",
          "config.data.image_size"]),
        (lambda up: write(up, [CLIPS[0, :, :4]] * 3) if (up / "clip0").rename(up / "old")
         and (up / "clip1").rename(up / "older") else None,
         ["clip0: has frames of 4 x 12 pixels", "the first clip have 8 x 12"]),
        (lambda up: (up / "clip0" / "frame8.png").write_bytes(b"no"),
         ["frame8.png: cannot be read as a picture"]),
        (lambda up: (up.parent.rename(up.parents[1] / "elsewhere")),
         ["config.data.train: no clips in", "/LABEL/", "--config.data.directory"]),
    ],
)  # fmt: skip
def test_malformed_clips_are_rejected(folders, tmp_path, change, words):
    change(tmp_path / "train" / "up")
    with pytest.raises(UserError) as caught:
        sources.load(folders, "train")
    assert all(word in str(caught.value) for word in words), caught.value


@pytest.mark.parametrize(
    ("values", "fields", "words"),
    [
        ([CLIPS[0], CLIPS[1, :3]], {}, ["clip 2 has shape (3, 8, 12, 3)", "the first has (4,"]),
        ([CLIPS[0, 0, 0]], {}, ["clip 1: is an array of uint8 with shape (12, 3)", "[frames rows"]),
        ([CLIPS[0] / 2], {}, ["clip 1: is an array of float64"]),
        (list(CLIPS), {"patch_size": 5}, ["config.src.patch_size=5", "8 x 12", "divisor of both"]),
        (list(CLIPS), {"tubelet_frames": 3},
         ["config.src.tubelet_frames=3", "clips of 4 frames", "choose a divisor"]),
    ],
)  # fmt: skip
def test_what_cannot_be_cut_into_tubelets_is_rejected(values, fields, words):
    with pytest.raises(UserError) as caught:
        tubelets.train(dataclasses.replace(SIDE, **fields), values)
    assert all(word in str(caught.value) for word in words), caught.value


def test_a_model_of_another_grid_is_refused():
    codec = tubelets.train(SIDE, list(CLIPS))
    model = ModelConfig(architecture="encoder", stem="linear", grid=(2, 2, 3),
                        grid_positions="learned")  # fmt: skip
    codec.check_read_by(model)
    with pytest.raises(UserError, match=r"grid=\(2, 3, 2\): clips have 2 times, 2 rows and 3"):
        codec.check_read_by(dataclasses.replace(model, grid=(2, 3, 2)))


def test_what_is_given_for_prediction_is_prepared_as_in_training(folders, tmp_path):
    """A folder of frames, an animated picture, a .npy file or an array is one clip."""
    codec = tubelets.train(SIDE, list(CLIPS))
    up = tmp_path / "train" / "up"
    np.save(up / "clip2.npy", CLIPS[3])
    paths = files([tmp_path / "train"], codec)
    names = [str(path.relative_to(tmp_path / "train")) for path in paths]
    assert names == ["down/clip0", "down/clip1", "up/clip0", "up/clip1", "up/clip2.npy",
                     "up/last.gif"]  # fmt: skip
    found, one = read(paths, codec, folders, "predict")
    assert not one
    assert np.array_equal(np.stack(found)[:5], CLIPS[[2, 3, 0, 1, 3]])
    for given in (up / "clip0", str(up / "last.gif"), CLIPS[0], Image.open(up / "last.gif")):
        assert read(given, codec, folders, "predict")[1]
    uploaded = codec.opened((up / "last.gif").read_bytes(), "last.gif")
    assert np.array_equal(codec.prepared(uploaded, "last.gif", folders), found[5])
    uploaded = codec.opened((up / "clip2.npy").read_bytes(), "clip2.npy")
    assert np.array_equal(codec.prepared(uploaded, "clip2.npy", folders), CLIPS[3])
    several, one = read(CLIPS, codec, folders, "predict")
    assert not one
    assert len(several) == 5
    write(tmp_path / "longer", [np.concatenate([CLIPS[0]] * 2)])
    longer = tmp_path / "longer" / "clip0"
    assert np.array_equal(codec.prepared(longer, "", folders), CLIPS[0, [1, 3, 1, 3]])
    with pytest.raises(UserError, match=r"clip0: has shape \(8, .*training have 4 frames of 8"):
        codec.prepared(longer, "", DIGITS)
    with pytest.raises(UserError, match=r"no\.npy: cannot be read as \.npy"):
        codec.prepared(tmp_path / "no.npy", "", DIGITS)
