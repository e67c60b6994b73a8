"""Pictures of attention: every format, the pieces on the axes, the right layer and head."""

import numpy as np
import pytest
from PIL import Image

from transformer_jax.base.errors import UserError
from transformer_jax.decoding.text.attention import CrossAttention
from transformer_jax.plots.attention import draw
from transformer_jax.plots.picture import SUFFIXES, check_suffix

SOURCE = ["▁Two", "▁$x$", "▁犬", "\x00", "</s>"]
TARGET = ["▁Zwei", "▁<&>", "</s>"]
RNG = np.random.default_rng(0)
WEIGHTS = RNG.dirichlet(np.ones(len(SOURCE)), size=(2, 4, len(TARGET))).astype(np.float32)
ATTENTION = CrossAttention(WEIGHTS, SOURCE, TARGET, [])


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_every_format_is_valid_and_reproducible(suffix, tmp_path):
    """A file has the format of its suffix, and the same picture gives the same file."""
    files = [tmp_path / f"new{i}" / f"x{suffix}" for i in range(2)]
    for file in files:
        draw(ATTENTION, file)
    one, other = (file.read_bytes() for file in files)
    assert one == other
    assert one.lstrip().startswith({".svg": b"<?xml", ".pdf": b"%PDF", ".png": b"\x89PNG"}[suffix])


def test_pieces_are_on_the_axes(tmp_path):
    """As text, even if they look like mathematics or mark-up; NUL is replaced."""
    draw(ATTENTION, tmp_path / "x.svg", layer=0, head=2)
    text = (tmp_path / "x.svg").read_text()
    for piece in ("▁Two", "▁$x$", "▁犬", "�", "▁Zwei", "▁&lt;&amp;&gt;", "&lt;/s&gt;"):
        assert f">{piece}</text>" in text
    assert ">source; layer 0, head 2</text>" in text


def test_pictures_are_grey_and_differ_by_layer_and_head(tmp_path):
    """Hue carries no meaning; -1 is the last, and no head means the mean of all."""
    pictures = {}
    for name, options in {
        "mean": {}, "last": {"layer": 1}, "first": {"layer": 0}, "head": {"head": 3},
        "same head": {"head": -1},
    }.items():  # fmt: skip
        draw(ATTENTION, tmp_path / "x.png", **options)
        pictures[name] = np.asarray(Image.open(tmp_path / "x.png").convert("RGB"), np.int16)
    assert max(np.ptp(picture, axis=2).max() for picture in pictures.values()) == 0
    assert np.array_equal(pictures["mean"], pictures["last"])
    assert np.array_equal(pictures["head"], pictures["same head"])
    assert not np.array_equal(pictures["mean"], pictures["first"])
    assert not np.array_equal(pictures["mean"], pictures["head"])


@pytest.mark.parametrize(
    ("options", "shown"),
    [
        ({"layer": 2}, "--layer=2: there are 2, from 0 to 1"),
        ({"head": 4}, "--head=4: there are 4, from 0 to 3"),
        ({"head": -5}, "--head=-5: there are 4"),
    ],
)
def test_a_missing_layer_or_head_is_rejected(options, shown, tmp_path):
    with pytest.raises(UserError, match=shown):
        draw(ATTENTION, tmp_path / "x.svg", **options)
    assert not list(tmp_path.iterdir())


def test_unknown_suffixes_are_rejected(tmp_path):
    check_suffix(tmp_path / "x.svg", "--output")
    with pytest.raises(UserError, match=r"--output=x\.gif: must end in \.svg, \.pdf, \.png"):
        check_suffix(type(tmp_path)("x.gif"), "--output")
