"""A report's drawings show the sounds, trees and forecasts as they are."""

import base64
import io

import numpy as np
from PIL import Image

from transformer_jax.config import SourceConfig
from transformer_jax.data.codecs import log_mel
from transformer_jax.data.sources.series_files import Rows
from transformer_jax.data.sources.wav_files import Sound
from transformer_jax.evaluation import drawings
from transformer_jax.plots import tree


def opened(address: str) -> np.ndarray:
    return np.asarray(Image.open(io.BytesIO(base64.b64decode(address.partition(",")[2]))))


def test_a_spectrogram_is_brightest_at_the_pitch():
    """Time runs to the right and pitch upwards; the second half is an octave higher."""
    source = SourceConfig("log_mel", sample_rate=8000, n_fft=256, hop_length=80, num_mels=40)
    time = np.arange(8000) / 8000
    sound = np.sin(2 * np.pi * np.where(time < 0.5, 1000, 2000) * time).astype(np.float32)
    heard = Sound.of(sound, "tone", 8000)
    codec = log_mel.train(source, [heard])
    seen = opened(drawings.spectrogram(heard, codec))
    assert seen.shape == (40, 100)
    brightest = 39 - seen.argmax(0)
    corners = log_mel.mels(np.array([0.0, 4000, 1000, 2000]))
    bands = 41 * (corners[2:] - corners[0]) / (corners[1] - corners[0]) - 1
    assert np.abs(brightest[5:45] - bands[0]).max() <= 1
    assert np.abs(brightest[55:95] - bands[1]).max() <= 1


def test_brackets_are_drawn_above_what_they_hold():
    brackets = [("NP", 0, 2), ("NP", 3, 4), ("VP", 2, 4), ("S", 0, 4)]
    figure = tree.draw(["the", "dog", "eats", "meat"], [("said", brackets), ("is", brackets[:1])])
    first, second = figure.axes
    heights = {text.get_text(): text.get_position() for text in first.texts}
    assert heights["S"] == (2, 3)
    assert heights["VP"] == (3, 2)
    assert len(second.texts) == 1
    assert " ".join(text.get_text() for text in second.get_xticklabels()) == "the dog eats meat"


def test_worst_best_and_some_intermediate_trees_are_drawn():
    """From 20 sentences, one of which is too long."""
    right, flat = "(S (NP XX )NP (VP XX XX )VP )S", "(S XX XX XX )S"
    rows = [
        {"line": n + 1, "source": "a b c", "reference": right,
         "hypothesis": right if n > 8 else flat}
        for n in range(20)
    ]  # fmt: skip
    rows[3] |= {"source": "word " * 40}
    found = drawings.trees(rows)
    assert len(found) == 12
    assert 3 not in found
    shares = {entry["caption"].partition(": ")[2] for entry in found.values()}
    assert shares == {"F1 50.0", "F1 100.0"}
    picture = opened(found[0]["picture"])
    assert picture.std() > 0


def test_forecasts_are_ranked_by_their_errors():
    """Of the windows of a line, one is predicted exactly and one is off by ten."""
    rows = np.stack([np.arange(40.0), -np.arange(40.0)], 1)
    windows = np.lib.stride_tricks.sliding_window_view(rows[8:], 4, axis=0).swapaxes(1, 2)
    point = windows + 1.0
    point[5] -= 1.0
    point[11] += 9.0
    errors = np.square(point - windows).mean((1, 2))
    rows = Rows.of(rows, "x.csv", ["a", "b"], [])
    found = drawings.forecasts(rows, point, None, 8, errors)
    assert [*found] == [5, 15, 11]  # 15 is in the middle of 29, after 5 and without 11
    assert found[11]["caption"] == "window 11, largest error of 29: MSE 100.000, standardised"
    assert all(opened(entry["picture"]).std() > 0 for entry in found.values())
