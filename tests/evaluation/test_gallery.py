"""Pictures in a report: the pictures themselves, and where a model attention_over."""

import base64
import io

import numpy as np
import pytest
from PIL import Image

from transformer_jax.config import SourceConfig
from transformer_jax.data.codecs import patches
from transformer_jax.data.codecs.codebook import Codebook, as_lines
from transformer_jax.evaluation import gallery
from transformer_jax.evaluation.gallery import attention_over, beside, drawn, rollout
from transformer_jax.evaluation.pixels import as_uri

RNG = np.random.default_rng(0)


def opened(address: str) -> np.ndarray:
    head, _, content = address.partition(",")
    assert head == "data:image/png;base64"
    return np.asarray(Image.open(io.BytesIO(base64.b64decode(content))))


@pytest.mark.parametrize("shape", [(8, 6), (8, 6, 1), (8, 6, 3), (90, 100, 3)])
def test_a_picture_survives_encoding(shape):
    """Each pixel becomes a square if there are few."""
    picture = RNG.integers(0, 256, shape, np.uint8)
    found = opened(as_uri(picture))
    times = max(1, -(-84 // max(shape[:2])))
    flat = picture[..., 0] if shape[2:] == (1,) else picture
    assert np.array_equal(found, flat.repeat(times, 0).repeat(times, 1))


def test_attention_rollout_gives_shares():
    """Positions that attend to themselves keep everything; if all attend to one position, half."""
    assert np.array_equal(rollout(np.eye(4)[None, None].repeat(3, 0)), np.eye(4))
    weights = RNG.dirichlet(np.ones(5), (2, 3, 5))
    assert np.allclose(rollout(weights).sum(-1), 1)
    first = np.zeros((1, 2, 4, 4))
    first[..., 2] = 1
    expected = np.full((4, 4), 0.0)
    expected[:, 2] = 0.5
    assert np.allclose(rollout(first), expected + 0.5 * np.eye(4))
    # The last layer's rows are not mixed; the first layer's are, by the layers after it.
    one, other = (0.5 * x.mean(0) + 0.5 * np.eye(5) for x in weights)
    assert np.allclose(rollout(weights), other @ one)


def test_attended_patches_are_bright():
    pictures = np.full((1, 2, 8, 8, 1), 100, np.uint8)
    codec = patches.train(SourceConfig("patches", patch_size=4), pictures)
    weights = np.zeros(8)
    weights[[3, 4]] = 0.5, 0.25  # the last patch of the first picture, the first of the second
    found = attention_over(pictures[0], codec, weights)
    assert found.shape == (8, 16, 3)
    assert (found[4:, 4:8] == (190, 100, 100)).all()
    assert (found[:4, 8:12, 1] == 62).all()
    dark = np.ones((8, 16), bool)
    dark[4:, 4:8] = dark[:4, 8:12] = False
    assert (found[dark] == 25).all()
    assert np.array_equal(beside(pictures[0])[:, :8], pictures[0, 0])


def test_codes_are_drawn_as_the_pictures_they_encode():
    """Spread over all lines; one that is not a picture is left out."""
    pictures = RNG.integers(0, 256, (80, 8, 8), np.uint8)
    book = Codebook.of(pictures, codes=16, patch=4)
    lines = as_lines(book.encode(pictures))
    rows = [{"hypothesis": line, "source": f"a {i}"} for i, line in enumerate(lines)]
    rows[6]["hypothesis"] = "1 2"
    found = drawn(book, rows)
    assert [*found] == [i for i in range(0, 80, 3) if i != 6]
    assert found[9]["caption"] == "a 9"
    picture = opened(found[9]["picture"])[::11, ::11]
    np.testing.assert_array_equal(picture, book.decode(book.encode(pictures[9:10]))[0, ..., 0])
    assert drawn(book, [{"hypothesis": "", "source": "a"}]) == {}


def test_right_predictions_of_every_label_are_shown():
    """Though files, and so rows, are often sorted by label; wrong ones come first."""
    labels = ["cat"] * 40 + ["dog"] * 40 + ["eel"] * 40
    rows = [{"line": i, "reference": x, "hypothesis": x} for i, x in enumerate(labels)]
    chosen = gallery._chosen(rows)
    assert [labels[i] for i in chosen] == ["cat", "dog", "eel"] * 4
    rows[5]["hypothesis"] = "dog"
    assert gallery._chosen(rows)[0] == 5
