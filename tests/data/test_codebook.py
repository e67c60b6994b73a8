"""Vector quantisation of pictures, and the commands that encode and decode them."""

import numpy as np
import pytest
from PIL import Image

from transformer_jax.base.errors import UserError
from transformer_jax.cli.main import dispatch
from transformer_jax.config import DataConfig
from transformer_jax.data import sources
from transformer_jax.data.codecs.codebook import Codebook, as_lines, grid, shrunk

RNG = np.random.default_rng(0)
TILES = np.array([0, 90, 180, 255], np.uint8)
DRAWN = RNG.integers(0, 4, (30, 3, 2))  # the tiles of each picture
PICTURES = TILES[DRAWN].repeat(4, 1).repeat(4, 2)  # [30 12 8]


def test_pictures_of_few_distinct_patches_round_trip():
    """With as many codes as distinct patches, nothing is lost and each code is one tile."""
    book = Codebook.of(PICTURES, codes=4, patch=4)
    codes = book.encode(PICTURES)
    assert codes.shape == (30, 6)
    assert np.array_equal(book.decode(codes)[..., 0], PICTURES)
    tile_of = {int(c): int(t) for c, t in zip(codes.flat, DRAWN.reshape(30, 6).flat, strict=True)}
    assert sorted(tile_of.values()) == [0, 1, 2, 3]
    assert [[tile_of[int(c)] for c in row] for row in codes] == DRAWN.reshape(30, 6).tolist()


def test_codes_are_the_nearest_vectors():
    """By squared distance to all vectors; fewer codes give larger errors."""
    pictures = RNG.integers(0, 256, (20, 8, 8, 3), np.uint8)
    errors = []
    for count in (2, 8, 40):
        book = Codebook.of(pictures, codes=count, patch=4)
        patches = book.form.cut(pictures).reshape(-1, 48).astype(np.float64)
        away = np.square(patches[:, None] - book.vectors).sum(-1)
        assert np.array_equal(book.encode(pictures).reshape(-1), away.argmin(1))
        errors.append(away.min(1).mean())
    assert errors[0] > errors[1] > errors[2]


def test_pictures_are_reduced_before_encoding():
    small = shrunk(PICTURES, 4)
    assert np.array_equal(small[..., 0], TILES[DRAWN])
    book = Codebook.of(PICTURES, codes=4, patch=1, reduced=4)
    assert np.array_equal(book.decode(book.encode(PICTURES))[..., 0], TILES[DRAWN])


def test_codebooks_and_lines_of_codes_round_trip(tmp_path):
    book = Codebook.of(PICTURES, codes=4, patch=4)
    book.save(tmp_path / "book.npz")
    found = Codebook.load(tmp_path / "book.npz")
    assert found.form == book.form
    assert np.array_equal(found.vectors, book.vectors)
    codes = book.encode(PICTURES)
    for row, line in zip(codes, as_lines(codes), strict=True):
        assert np.array_equal(book.read(line), row)
        for broken in (line[2:], f"{line} 0", line[:-1] + "x", line[:-1] + "7", ""):
            assert book.read(broken) is None


def test_a_grid_of_pictures():
    pictures = [np.full((2, 3, 1), 10 * i, np.uint8) for i in range(5)]
    sheet = grid(pictures, columns=2, scale=2)
    assert sheet.shape == (3 * 3 * 2, 2 * 4 * 2, 1)
    assert (sheet[6:10, 8:14] == 30).all()
    assert (sheet[4:6] == 128).all()
    assert (sheet[12:, 8:] == 128).all()


def test_commands_encode_and_decode_pictures(tmp_path, capsys):
    np.savez(tmp_path / "train.npz", images=PICTURES)
    book, place = f"--codebook={tmp_path / 'book.npz'}", str(tmp_path / "train.npz")
    assert (
        dispatch(["pictures", "codebook", place, "--codes=4", f"--output={tmp_path}/book.npz"]) == 0
    )
    assert "4 codes, 6 per picture of 12 x 8; root-mean-square error 0.0" in capsys.readouterr().out
    assert dispatch(["pictures", "encode", place, book]) == 0
    lines = capsys.readouterr().out
    (tmp_path / "made.codes").write_text(lines + "1 2 3\n")
    (tmp_path / "made.labels").write_text("one\n" * 31)
    made = ["pictures", "decode", str(tmp_path / "made.codes"), book]
    labels = f"--labels={tmp_path / 'made.labels'}"
    assert dispatch([*made, labels, f"--output={tmp_path / 'made.npz'}"]) == 0
    assert "31 pictures, 1 of them broken lines" in capsys.readouterr().out
    config = DataConfig(
        source="arrays", source_language="images", target_language="labels", train=("made",),
        directory=str(tmp_path),
    )  # fmt: skip
    corpus = sources.load(config, "train")
    assert np.array_equal(np.stack(corpus.src)[:30, :, :, 0], PICTURES)
    assert not corpus.src[30].any()
    assert corpus.tgt == ["one"] * 31
    assert dispatch([*made, "--columns=8", f"--output={tmp_path / 'made.png'}"]) == 0
    with Image.open(tmp_path / "made.png") as image:
        assert image.size == (8 * 9 * 4, 4 * 13 * 4)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["codebook", "{}", "--codes=9", "--output=x.npz"], "--codes=9: there are 4 different"),
        (["codebook", "{}", "--patch-size=5", "--output=x.npz"], "--patch-size=5: .* 12 x 8"),
        (["codebook", "{}", "--reduce=5", "--output=x.npz"], "--reduce=5: does not divide 12 x 8"),
        (["codebook", "{}", "--array=labels", "--output=x.npz"], "'labels'.* it has images, other"),
        (["codebook", "{}", "--array=other", "--output=x.npz"], "of float64 with shape"),
        (["encode", "{}", "--codebook={}"], "not a codebook"),
        (["decode", "x", "--codebook=x", "--output=x.jpg"], "must end with .png or .npz"),
    ],
)  # fmt: skip
def test_invalid_arguments_are_rejected(arguments, words, tmp_path):
    place = tmp_path / "some.npz"
    np.savez(place, images=PICTURES, other=np.zeros((3, 4)))
    with pytest.raises(UserError, match=words):
        dispatch(["pictures", *(x.format(place) for x in arguments)])


def test_pictures_of_another_size_are_rejected():
    book = Codebook.of(PICTURES, codes=4, patch=4)
    with pytest.raises(
        UserError, match=r"pictures of 8 x 8 pixels and 1 channels; .* 12 x 8 and 1"
    ):
        book.encode(PICTURES[:, :8])
