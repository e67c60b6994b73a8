"""Frames of features: arrays of different lengths, and their codec."""

import dataclasses
import io

import numpy as np
import pytest

from transformer_jax.base.errors import UserError
from transformer_jax.config import DataConfig, SourceConfig
from transformer_jax.data import sources
from transformer_jax.data.codecs import frames
from transformer_jax.data.random import Draw

RNG = np.random.default_rng(0)
FEATURES = RNG.normal(3, 2, (12, 4)).astype(np.float16)
FEATURES[:, 3] = 7  # never changes
OFFSETS = np.array([0, 5, 5, 9, 12], np.int32)
TEXT = np.array(["YES", "", "GO B", "A"])
CONFIG = DataConfig(source="arrays", source_language="features", target_language="text")
SOUNDS = [FEATURES[begin:end] for begin, end in ((0, 5), (5, 9), (9, 12))]


@pytest.fixture
def config(tmp_path) -> DataConfig:
    np.savez(tmp_path / "train.npz", features=FEATURES, offsets=OFFSETS, text=TEXT)
    return dataclasses.replace(CONFIG, directory=str(tmp_path))


def test_entries_of_different_lengths_are_rows_between_offsets(config):
    corpus = sources.load(config, "train")
    assert [len(x) for x in corpus.src] == [5, 0, 4, 3]
    assert np.array_equal(np.concatenate(corpus.src), FEATURES)
    assert corpus.tgt == [*TEXT]


def test_some_entries_of_a_part(config):
    first = dataclasses.replace(config, train=("train[::2]",))
    others = dataclasses.replace(config, train=("train[!::2]", "train[3:]"))
    assert sources.load(first, "train").tgt == ["YES", "GO B"]
    found = sources.load(others, "train")
    assert found.tgt == ["", "A", "A"]
    assert [len(x) for x in found.src] == [0, 3, 3]
    assert found.sizes == (2, 1)
    none = dataclasses.replace(config, train=("train[9:]",))
    with pytest.raises(UserError, match=r"config\.data\.train='train\[9:\]': .* train has 4"):
        sources.load(none, "train")


@pytest.mark.parametrize(
    ("offsets", "words"),
    [
        (
            [0, 5, 5, 9],
            r"offsets must be whole .* \[n\+1\] from 0 to 12, the rows of f",
        ),
        ([0.0, 5, 5, 9, 12], "offsets must be whole"),
        ([0, 9, 5, 9, 12], "offsets fall from 9 to 5 at entry 2"),
        ([0, 9, 12], "features has 2 entries, text 4"),
    ],
)
def test_wrong_offsets_are_refused(config, offsets, words):
    place = f"{config.directory}/train.npz"
    np.savez(place, features=FEATURES, offsets=np.array(offsets), text=TEXT)
    with pytest.raises(UserError, match=rf"train\.npz: {words}"):
        sources.load(config, "train")


def test_features_are_standardised_by_the_frames_of_training():
    codec = frames.train(SourceConfig("frames"), SOUNDS)
    assert codec.size == 4
    found = codec.encode(SOUNDS)
    assert [len(x) for x in found] == [5, 4, 3]
    both = np.concatenate(found)
    assert both.dtype == np.float32
    assert np.abs(both.mean(0)).max() < 1e-6
    assert np.abs(both.std(0) - [1, 1, 1, 0]).max() < 1e-6
    again = frames.Frames(codec.model)
    assert again.digest == codec.digest
    assert np.array_equal(again.encode(SOUNDS[:1])[0], found[0])
    with pytest.raises(ValueError, match="not the scale"):
        frames.Frames(codec.model[:-1])
    file = io.BytesIO()
    np.save(file, SOUNDS[1])
    assert np.array_equal(codec.opened(file.getvalue(), "a.npy"), SOUNDS[1])


def test_masks_of_training_hide_frames_and_features():
    codec = frames.train(SourceConfig("frames"), SOUNDS)
    config = dataclasses.replace(
        CONFIG, augment=("frequency_mask", "time_mask"), frequency_mask_size=2, time_mask_size=2
    )
    vectors, lengths = np.concatenate(codec.encode(SOUNDS)), np.array([5, 4, 3])
    numbers = np.arange(3)
    plain = codec.reader()(vectors, lengths, numbers, Draw(0, 1))
    assert np.array_equal(plain, vectors)
    changed = [codec.reader(config)(vectors, lengths, numbers, Draw(0, n)) for n in range(9)]
    assert len({x.tobytes() for x in changed}) > 5


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (np.zeros((3, 5)), r"sound 2: is an array of float64 with shape \(3, 5\); .* \[frames 4\]"),
        (np.zeros(8), "sound 2: is an array"),
        (np.array([[0, 0, np.nan, 0]]), "sound 2: frame 1 has nan as feature 3"),
    ],
)
def test_other_features_are_refused(value, words):
    codec = frames.train(SourceConfig("frames"), SOUNDS)
    with pytest.raises(UserError, match=words):
        codec.encode([SOUNDS[0], value])
