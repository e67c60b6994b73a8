"""Vector quantisation of pictures: each patch becomes the index of its nearest codebook vector.

With patches of one pixel this is ImageGPT's palette (Chen et al. 2020, ICML); with larger ones it
is the simplest form of the codebooks of DALL-E (Ramesh et al. 2021, arXiv:2102.12092) and Parti (Yu
et al. 2022, arXiv:2206.10789), with k-means instead of a trained encoder.
"""

import io
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from transformer_jax.base.disk import write_bytes, writing
from transformer_jax.base.errors import UserError
from transformer_jax.data.codecs.patches import Form

_ROUNDS = 30  # iterations of k-means
_SAMPLED = 200_000  # patches it is fitted to


class Codebook(NamedTuple):
    """The vectors that codes stand for."""

    form: Form  # of the reduced pictures
    vectors: np.ndarray  # [K patch*patch*C], float32, from 0 to 255
    reduced: int  # factor by which pictures are downscaled first

    @classmethod
    def of(
        cls, pictures: np.ndarray, codes: int, patch: int, reduced: int = 1, seed: int = 0
    ) -> "Codebook":
        """Return a codebook, by k-means on the patches of pictures [n H W] or [n H W C].

        Raises:
          UserError: if they are not pictures of whole patches, or have fewer patches than codes.
        """
        small = shrunk(pictures, reduced)
        height, width, channels = small.shape[1:]
        form = Form(height, width, channels, patch)
        if form.height % patch or form.width % patch:
            raise UserError(
                f"--patch-size={patch}: does not divide pictures of {form.height} x {form.width} "
                "pixels into whole patches; choose a divisor of both"
            )
        patches = form.cut(small).reshape(-1, patch**2 * form.channels).astype(np.float32)
        generator = np.random.default_rng(seed)
        if len(patches) > _SAMPLED:
            patches = patches[np.sort(generator.choice(len(patches), _SAMPLED, replace=False))]
        different = np.unique(patches, axis=0)
        if len(different) < codes:
            raise UserError(
                f"--codes={codes}: there are {len(different)} different patches; choose fewer"
            )
        if codes == 1:
            return cls(form, patches.mean(0, keepdims=True), reduced)
        begin = different[np.sort(generator.choice(len(different), codes, replace=False))]
        from scipy.cluster.vq import kmeans2  # lazy: a tenth of every command's start-up time

        vectors, _ = kmeans2(patches, begin, iter=_ROUNDS, minit="matrix", missing="warn")
        return cls(form, np.asarray(vectors, np.float32), reduced)

    def encode(self, pictures: np.ndarray) -> np.ndarray:
        """Return the codes [n L] of pictures [n H W] or [n H W C], row by row.

        Raises:
          UserError: if their size differs from that of the codebook.
        """
        small = shrunk(pictures, self.reduced)
        if small.shape[1:] != self.form[:3]:
            sizes, own = (
                [size * self.reduced for size in x] for x in (small.shape[1:3], self.form[:2])
            )
            raise UserError(
                f"pictures of {sizes[0]} x {sizes[1]} pixels and {small.shape[3]} channels; the "
                f"codebook is for {own[0]} x {own[1]} and {self.form.channels}"
            )
        patches = self.form.cut(small).reshape(-1, self.vectors.shape[1]).astype(np.float32)
        from scipy.cluster.vq import vq

        return vq(patches, self.vectors, check_finite=False)[0].reshape(len(pictures), -1)

    def decode(self, codes: np.ndarray) -> np.ndarray:
        """Return the pictures of codes [n L]: uint8 [n H W C], at the reduced size."""
        pixels = np.clip(np.rint(self.vectors), 0, 255).astype(np.uint8)
        return self.form.joined(pixels[codes])

    def read(self, line: str) -> np.ndarray | None:
        """Return the codes [L] of a line of text, or None if it is not a whole picture."""
        return read_codes(line, self.form.patches, len(self.vectors))

    def save(self, path: Path) -> None:
        """Write a NumPy .npz file.

        Raises:
          DiskError: if writing fails.
        """
        content = io.BytesIO()
        np.savez(content, vectors=self.vectors, form=np.array(self.form), reduced=self.reduced)
        with writing(str(path), path.parent):
            write_bytes(path, content.getvalue())

    @classmethod
    def load(cls, path: Path) -> "Codebook":
        """Read a file written by `save`.

        Raises:
          UserError: if the file does not exist or is something else.
        """
        try:
            with np.load(path, allow_pickle=False) as file:
                form = Form(*(int(x) for x in file["form"]))
                book = cls(form, file["vectors"], int(file["reduced"]))
            if book.vectors.shape[1:] == (form.patch**2 * form.channels,) and book.reduced > 0:
                return book
        except (OSError, ValueError, KeyError, TypeError, EOFError, zipfile.BadZipFile):
            pass
        raise UserError(f"{path}: not a codebook; make one with transformer-jax pictures codebook")


def shrunk(pictures: np.ndarray, by: int) -> np.ndarray:
    """Return pictures [n H W] or [n H W C] as uint8 [n H/by W/by C], means of squares of pixels.

    Raises:
      UserError: if they are not pictures, or `by` does not divide their sides.
    """
    if pictures.dtype != np.uint8 or pictures.ndim not in (3, 4):
        raise UserError(
            f"an array of {pictures.dtype} with shape {pictures.shape}; pictures are uint8, "
            "[n rows columns] or [n rows columns channels]"
        )
    pictures = pictures.reshape(*pictures.shape[:3], -1)
    count, height, width, channels = pictures.shape
    if height % by or width % by:
        raise UserError(f"--reduce={by}: does not divide {height} x {width} pixels")
    squares = pictures.reshape(count, height // by, by, width // by, by, channels)
    return np.rint(squares.mean((2, 4))).astype(np.uint8) if by > 1 else pictures


def read_codes(line: str, length: int, count: int) -> np.ndarray | None:
    """Return the `length` numbers of a line, each below `count`, or None if it is not so."""
    words = line.split()
    whole = len(words) == length and all(word.isdecimal() and int(word) < count for word in words)
    return np.array(words, np.int64) if whole else None


def as_lines(codes: np.ndarray) -> list[str]:
    """Return codes [n L] as text: one picture per line, numbers separated by spaces."""
    return [" ".join(map(str, row)) for row in codes.tolist()]


def grid(pictures: Sequence[np.ndarray], columns: int, scale: int = 4) -> np.ndarray:
    """Return pictures [H W C] tiled row by row, each pixel enlarged to a square of `scale`: uint8
    [rows columns C].
    """
    height, width, channels = pictures[0].shape
    rows = -(-len(pictures) // columns)
    sheet = np.full((rows, height + 1, columns, width + 1, channels), 128, np.uint8)
    for place, picture in enumerate(pictures):
        sheet[place // columns, :height, place % columns, :width] = picture
    sheet = sheet.reshape(rows * (height + 1), columns * (width + 1), channels)
    return sheet.repeat(scale, 0).repeat(scale, 1)
