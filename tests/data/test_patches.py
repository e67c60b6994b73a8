"""Pictures in array files and folders, patches, augmentation, and which input is rejected."""

import dataclasses

import numpy as np
import pytest
from PIL import Image

from transformer_jax.base.errors import UserError
from transformer_jax.config import (
    DataConfig,
    ModelConfig,
    ObjectiveConfig,
    SourceConfig,
    TokenizerConfig,
)
from transformer_jax.data import sources
from transformer_jax.data.batches.batch import one_per_row
from transformer_jax.data.codecs import patches
from transformer_jax.data.codecs.pair import TokenizerPair, train_pair
from transformer_jax.data.codecs.picture_augmentation import AUGMENTATIONS, augmented
from transformer_jax.data.objectives import OBJECTIVES
from transformer_jax.data.random import Draw
from transformer_jax.data.store.token_store import open_store

RNG = np.random.default_rng(0)
PICTURES = RNG.integers(0, 256, (7, 8, 12, 3), np.uint8)
LABELS = np.array([0, 1, 2, 0, 1, 2, 1])
NAMES = np.array(["cat", "dog", "eel"])
CONFIG = DataConfig(source="arrays", source_language="images", target_language="labels")
CLASSIFY, OBJECTIVE = OBJECTIVES["classify"], ObjectiveConfig("classify", window=7)


@pytest.fixture
def config(tmp_path) -> DataConfig:
    np.savez(tmp_path / "train.npz", images=PICTURES, labels=LABELS, names=NAMES)
    return dataclasses.replace(CONFIG, directory=str(tmp_path))


def pair_of(corpus) -> TokenizerPair:
    given = TokenizerConfig(joint=False), corpus.src, corpus.tgt, ("patches", "classes"), ()
    return train_pair(*given, SourceConfig("patches", patch_size=4))


def test_pictures_are_loaded_from_array_files(config):
    corpus = sources.load(config, "train")
    assert np.array_equal(np.stack(corpus.src), PICTURES)
    assert corpus.tgt == ["cat", "dog", "eel", "cat", "dog", "eel", "dog"]
    np.savez(f"{config.directory}/other.npz", images=PICTURES[::-1], labels=LABELS)
    other = dataclasses.replace(config, train=("other",))
    assert sources.load(other, "train").tgt == [str(label) for label in LABELS]
    np.savez(f"{config.directory}/bytes.npz", images=PICTURES, labels=NAMES[LABELS].astype("S"))
    in_bytes = dataclasses.replace(config, train=("bytes",))
    assert sources.load(in_bytes, "train").tgt == corpus.tgt
    both = sources.load(dataclasses.replace(config, train=("train", "other")), "train")
    assert len(both) == 14
    assert both.sizes == (7, 7)
    prints = {x.fingerprint for x in (corpus, both, sources.load(other, "train"))}
    assert len(prints) == 3


def test_patches_are_squares_row_by_row():
    codec = patches.train(SourceConfig("patches", patch_size=4), PICTURES)
    assert codec.size == 48
    found = np.stack(codec.encode(PICTURES))
    for row in range(2):
        for column in range(3):
            square = PICTURES[:, 4 * row : 4 * row + 4, 4 * column : 4 * column + 4]
            assert np.array_equal(found[:, 3 * row + column], square.reshape(7, 48))
    assert np.array_equal(codec.form.joined(found), PICTURES)


def test_several_pictures_per_example_are_concatenated():
    """Each is encoded as it is alone, and augmented independently."""
    side = SourceConfig("patches", patch_size=4)
    pairs = PICTURES[:6].reshape(3, 2, 8, 12, 3)
    one, two = patches.train(side, PICTURES[:6]), patches.train(side, pairs)
    assert (one.mean == two.mean).all()
    found, alone = np.stack(two.encode(pairs)), np.stack(one.encode(PICTURES[:6]))
    assert np.array_equal(found, alone.reshape(3, 12, 48))
    config = dataclasses.replace(CONFIG, augment=("flip",))
    lengths, numbers = np.full(3, 12), np.arange(3)
    read = two.reader(config)(found.reshape(-1, 48), lengths, numbers, Draw(1, 2))
    each = one.reader(config)(alone.reshape(-1, 48), np.full(6, 6), np.arange(6), Draw(1, 2))
    assert np.array_equal(read, each)
    with pytest.raises(UserError, match="those of training have 2 pictures each, with 8 rows"):
        two.encode(PICTURES[:1])


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"stem": "linear", "grid_positions": "sinusoidal", "grid": (3, 2)},
         r"config\.model\.grid=\(3, 2\): .* 2 rows and 3 columns .* \(2, 3\)"),
        ({"stem": "convolution", "grid": (1, 3)}, r"config\.model\.grid=\(1, 3\): .* \(2, 3\)"),
        ({"stem": "convolution", "grid": (2, 3)},
         r"config\.model\.stem='convolution': reads one picture, .* 2; choose 'linear'"),
    ],
)  # fmt: skip
def test_a_model_of_another_grid_or_of_one_picture_is_refused(fields, words):
    """Else positions would begin again inside a picture, and patches be left unread."""
    pairs = PICTURES[:6].reshape(3, 2, 8, 12, 3)
    codec = patches.train(SourceConfig("patches", patch_size=4), pairs)
    one = ModelConfig(
        architecture="encoder", stem="linear", grid_positions="sinusoidal", grid=(2, 3)
    )
    codec.check_read_by(one)  # each picture has the positions of all
    with pytest.raises(UserError, match=words):
        codec.check_read_by(ModelConfig(architecture="encoder", **fields))


def test_model_inputs_have_mean_0_and_variance_1(config, tmp_path):
    """Per channel; from the store, which holds bytes and is read back unchanged."""
    corpus = sources.load(config, "train")
    pair = pair_of(corpus)
    for _ in range(2):  # written, read
        store = open_store(corpus, pair, tmp_path / "cache")
        assert store.src.ids.dtype == np.uint8
        items = CLASSIFY.items(store, OBJECTIVE, pair.src)
        batch = CLASSIFY.examples(items, one_per_row(np.arange(7)), 8, 7, 1)
    assert batch.src.inputs.shape == (8, 7, 48)
    assert not batch.src.inputs[:, 0].any()  # the place of the class token
    assert batch.src.seg[:7].all()
    assert not batch.src.seg[7:].any()
    pixels = batch.src.inputs[:7, 1:].reshape(-1, 3).astype(np.float64)
    assert np.abs(pixels.mean(0)).max() < 1e-4
    assert np.abs(pixels.std(0) - 1).max() < 1e-4
    assert batch.targets["class"].labels[:7, 0].tolist() == LABELS.tolist()
    pair.save(tmp_path)
    loaded = TokenizerPair.load(tmp_path, False, ("patches", "classes"))
    assert loaded.digest == pair.digest


@pytest.mark.parametrize("name", AUGMENTATIONS)
def test_augmentation_depends_only_on_seed_epoch_and_picture(name):
    """Not on the other pictures; other epochs and seeds change a picture differently."""
    config = dataclasses.replace(CONFIG, augment=(name,))
    many = np.repeat(PICTURES, 20, axis=0)
    numbers = np.arange(len(many))
    found = augmented(many, config, numbers, Draw(3, 1))
    assert found.dtype == np.uint8
    some = np.array([5, 31, 77])
    assert np.array_equal(augmented(many[some], config, some, Draw(3, 1)), found[some])
    for other in (Draw(3, 2), Draw(4, 1)):
        assert not np.array_equal(augmented(many, config, numbers, other), found)


def test_flip_crop_and_cutout():
    one = np.repeat(PICTURES[:1], 500, axis=0)
    numbers = np.arange(500)

    def changed(**fields) -> np.ndarray:
        return augmented(one, dataclasses.replace(CONFIG, **fields), numbers, Draw())

    flipped = changed(augment=("flip",))
    same = (flipped == one).all((1, 2, 3))
    assert np.array_equal(flipped[~same], one[~same][:, :, ::-1])
    assert 200 < same.sum() < 300
    padded = np.pad(PICTURES[0], ((2, 2), (2, 2), (0, 0)))
    cropped = changed(augment=("crop",), crop_padding=2)
    moved = {padded[i : i + 8, j : j + 12].tobytes() for i in range(5) for j in range(5)}
    assert {picture.tobytes() for picture in cropped} == moved
    cut = changed(augment=("cutout",), cutout_size=4)
    hidden = (cut != one).any(-1)
    assert (cut[hidden] == 0).all()
    sizes = hidden.sum((1, 2))
    assert sizes.max() == 16  # no pixel was 0 before
    assert sizes.min() == 4  # around a corner


def test_validation_is_not_augmented(config, tmp_path):
    corpus = sources.load(config, "train")
    pair = pair_of(corpus)
    store = open_store(corpus, pair, tmp_path / "cache")
    items = CLASSIFY.items(store, OBJECTIVE, pair.src)
    one, other = (
        CLASSIFY.examples(items, one_per_row(np.arange(7)), 8, 7, 1, draw).src.inputs
        for draw in (Draw(), Draw(5, 6))
    )
    assert np.array_equal(one, other)
    trained = pair.src.reader(dataclasses.replace(config, augment=("crop",)))
    store = store.__class__(store.src._replace(read=trained), store.tgt, store.special)
    items = CLASSIFY.items(store, OBJECTIVE, pair.src)
    moved = CLASSIFY.examples(items, one_per_row(np.arange(7)), 8, 7, 1, Draw(5, 6)).src.inputs
    assert not np.array_equal(one, moved)


@pytest.mark.parametrize(
    ("arrays", "fields", "words"),
    [
        (None, {}, ["config.data.train", "there is no", "train.npz"]),
        ({"images": PICTURES}, {}, ["config.data.target_language='labels'", "it has images"]),
        ({"images": PICTURES, "labels": LABELS[:5]}, {}, ["7 entries", "labels 5"]),
        ({"images": PICTURES, "labels": LABELS, "names": NAMES[:2]}, {},
         ["label 2 of entry 3 is outside the 2 names"]),
        ({"images": PICTURES, "labels": LABELS[:, None]}, {}, ["shape (7, 1)"]),
        ({"images": PICTURES, "labels": LABELS / 1, "names": NAMES}, {},
         ["labels must be whole numbers", "float64"]),
        ({"images": PICTURES, "labels": NAMES[LABELS], "names": NAMES}, {}, ["whole numbers"]),
        ({"images": PICTURES, "labels": LABELS, "names": NAMES[None]}, {}, ["shape (1, 3)"]),
        ({"images": LABELS, "labels": LABELS}, {},
         ["config.data.source_language='images'", "not an array such as a picture", "another"]),
    ],
)  # fmt: skip
def test_malformed_array_files_are_rejected(arrays, fields, words, tmp_path):
    if arrays is not None:
        np.savez(tmp_path / "train.npz", **arrays)
    config = dataclasses.replace(CONFIG, directory=str(tmp_path), **fields)
    with pytest.raises(UserError) as caught:
        sources.load(config, "train")
    assert all(word in str(caught.value) for word in words), caught.value


def test_damaged_files_are_rejected(config):
    path = f"{config.directory}/train.npz"
    with open(path, "rb") as file:
        whole = file.read()
    for part in (whole[: len(whole) // 2], b"", b"no zip"):
        with open(path, "wb") as file:
            file.write(part)
        with pytest.raises(UserError, match=r"train\.npz: cannot be read as \.npz"):
            sources.load(config, "train")


def test_unsuitable_pictures_are_rejected():
    side = SourceConfig("patches", patch_size=4)
    with pytest.raises(UserError, match="picture 2 has shape"):
        patches.train(side, [PICTURES[0], PICTURES[0][:4]])
    with pytest.raises(UserError, match="picture 1: is an array of float64"):
        patches.train(side, [PICTURES[0] / 255])
    with pytest.raises(UserError, match=r"config\.src\.patch_size=5: .* 8 x 12"):
        patches.train(SourceConfig("patches", patch_size=5), PICTURES)
    codec = patches.train(side, PICTURES)
    with pytest.raises(UserError, match="picture 2: has shape"):
        codec.encode([PICTURES[0], PICTURES[0, :, :, :1]])
    with pytest.raises(ValueError, match="not the form of pictures"):
        patches.Patches(codec.model[:-9])


def test_a_window_shorter_than_a_picture_is_rejected(config, tmp_path):
    corpus = sources.load(config, "train")
    pair = pair_of(corpus)
    store = open_store(corpus, pair, tmp_path / "cache")
    short = ObjectiveConfig("classify", window=6)
    with pytest.raises(UserError, match=r"config\.objective\.window=6: .* raise it to 7"):
        CLASSIFY.items(store, short, pair.src)


def saved(directory, pictures, ending="png"):
    for number, picture in enumerate(pictures):
        folder = directory / "train" / ("cat", "dog")[number % 2]
        folder.mkdir(parents=True, exist_ok=True)
        Image.fromarray(picture).save(folder / f"{number}.{ending}")


FOLDERS = dataclasses.replace(CONFIG, source="folders")


def test_pictures_are_loaded_from_folders(tmp_path):
    """Unchanged, label by label; files of other kinds are ignored."""
    saved(tmp_path, PICTURES)
    (tmp_path / "train" / "cat" / "notes.txt").write_text("no picture")
    corpus = sources.load(dataclasses.replace(FOLDERS, directory=str(tmp_path)), "train")
    assert corpus.tgt == ["cat"] * 4 + ["dog"] * 3
    assert np.array_equal(np.stack(corpus.src), PICTURES[[0, 2, 4, 6, 1, 3, 5]])


def test_pictures_are_resized_to_one_size(tmp_path):
    grey = [np.full((10, 20), 50, np.uint8), np.full((30, 12), 90, np.uint8)]
    saved(tmp_path, grey)
    config = dataclasses.replace(FOLDERS, directory=str(tmp_path))
    with pytest.raises(
        UserError, match=r"1\.png: has 30 x 12 pixels, but the first has 10 x 20; set"
    ):
        sources.load(config, "train")
    corpus = sources.load(dataclasses.replace(config, image_size=(8, 6)), "train")
    assert [x.shape for x in corpus.src] == [(8, 6, 1)] * 2
    assert [int(x.mean()) for x in corpus.src] == [50, 90]


def test_unusable_folders_are_rejected(tmp_path):
    config = dataclasses.replace(FOLDERS, directory=str(tmp_path))
    with pytest.raises(UserError, match=r"config\.data\.train: no pictures in .*/train/LABEL/"):
        sources.load(config, "train")
    saved(tmp_path, PICTURES[:3])
    broken = tmp_path / "train" / "dog" / "1.png"
    for content in (broken.read_bytes()[:60], b"", b"text"):
        broken.write_bytes(content)
        with pytest.raises(UserError, match=r"dog/1\.png: cannot be read as a picture"):
            sources.load(config, "train")
    Image.fromarray(PICTURES[1, :, :, 0].astype(np.uint16) << 8).save(broken)
    with pytest.raises(UserError, match=r"dog/1\.png: .*more than 8 bits, mode I;16"):
        sources.load(config, "train")
