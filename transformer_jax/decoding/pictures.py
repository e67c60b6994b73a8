"""Encoding pictures as codes or latents, and decoding them, with a trained autoencoder."""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from transformer_jax.base.arrays import Array
from transformer_jax.base.errors import UserError
from transformer_jax.data.batches.batch import Side
from transformer_jax.data.codecs.codebook import read_codes
from transformer_jax.data.codecs.patches import Form, Patches
from transformer_jax.data.random import Draw
from transformer_jax.decoding.inputs import read
from transformer_jax.decoding.loaded import Loaded
from transformer_jax.decoding.text.prompt_cache import digest
from transformer_jax.models.model import Model

_PLACES = 2**14  # of a batch, at most


class PictureCodes:
    """The interface of a `Codebook`, for codes that depend on the whole picture: see there."""

    def __init__(self, loaded: Loaded) -> None:
        codec = loaded.codecs.tgt
        assert isinstance(codec, Patches)
        self.model, self.params, self.codec, self._data = (
            loaded.model, loaded.params, codec, loaded.data
        )  # fmt: skip

    @property
    def form(self) -> Form:
        """The form of the pictures."""
        return self.codec.form

    def encode(self, pictures: Any) -> np.ndarray:
        """Return the codes of pictures [n H W] or [n H W C], or of a list of files, images or
        arrays: [n L], row by row; of one of these, [L].

        Raises:
          UserError: if their form is not that of the training pictures.
        """
        several, one = read(pictures, self.codec, self._data, "encode")
        codes = self._codes(several) if several else np.zeros((0, self.form.patches), np.int32)
        return codes[0] if one else codes

    def _codes(self, pictures: list[np.ndarray]) -> np.ndarray:
        patches, read = self.codec.encode(pictures), self.codec.reader()
        lengths = np.full(len(patches), self.form.patches)
        vectors = read(np.concatenate(patches), lengths, np.arange(len(patches)), Draw())
        return self._each("to_codes", vectors.reshape(len(patches), -1, vectors.shape[-1]))

    def decode(self, codes: np.ndarray) -> np.ndarray:
        """Return the pictures of codes [n L]: bytes [n H W C]."""
        return self.codec.values(self._each("from_codes", codes))

    def read(self, line: str) -> np.ndarray | None:
        """Return the codes of a line of text [L]; None if it does not hold a whole picture's."""
        return read_codes(line, self.form.patches, self.model.config.num_codes)

    def _each(self, method: str, inputs: np.ndarray) -> np.ndarray:
        """Apply a method of the model to sides [n L ...], in batches of one shape."""
        count, length = inputs.shape[:2]
        rows = min(count, max(1, _PLACES // length))
        pos = np.broadcast_to(np.arange(length, dtype=np.int32), (rows, length))
        batches = []
        for start in range(0, count, rows):
            part = inputs[start : start + rows]
            full = np.concatenate([part, np.zeros_like(inputs[: rows - len(part)])])
            side = jax.tree.map(jnp.asarray, Side(full, pos, np.ones_like(pos)))
            made = _computed(self.model, method, self.params, side)
            batches.append(np.asarray(made)[: len(part)])
        return np.concatenate(batches)


class PictureLatents(PictureCodes):
    """The same for an autoencoder of vectors, whose latents stand for codes."""

    @property
    def digest(self) -> str:
        """A hash of the autoencoder, which other latents than its own do not fit."""
        return f"{digest(self.params)}{self.codec.digest}"

    def encode(self, pictures: Any) -> np.ndarray:
        """Return the latents of pictures, float32 [n rows columns K], of one [rows columns K]; see
        PictureCodes.
        """
        several, one = read(pictures, self.codec, self._data, "encode")
        width = self.model.config.code_width
        vectors = self._codes(several) if several else np.zeros((0, width), np.float32)
        latents = vectors.reshape(-1, *self.form.grid, width)
        return latents[0] if one else latents

    def decode(self, codes: np.ndarray) -> np.ndarray:
        """Return the pictures of latents [n rows columns K]: bytes [n H W C].

        Raises:
          UserError: if they have another shape.
        """
        wanted = (*self.form.grid, self.model.config.code_width)
        if codes.shape[1:] != wanted:
            raise UserError(
                f"decode: latents have shape {codes.shape}, and this autoencoder's are [n "
                f"{' '.join(map(str, wanted))}]; give those of this one"
            )
        rows = codes.reshape(len(codes), -1, wanted[2]).astype(np.float32)
        return super().decode(rows)

    def read(self, line: str) -> None:
        """See PictureCodes: latents are not written as text."""
        raise UserError(
            "this autoencoder has latents, not codes, and they are no text; give an .npz file of "
            "them"
        )


_KINDS = {"autoencoder": PictureCodes, "variational_autoencoder": PictureLatents}


def picture_codes(loaded: Loaded) -> PictureCodes:
    """Return the codes of a model, or its latents.

    Raises:
      UserError: if the model has none.
    """
    architecture = loaded.model.config.architecture
    if architecture not in _KINDS:
        raise UserError(
            f"config.model.architecture={architecture!r}: such a model has no codes "
            "of pictures; train an 'autoencoder', as configs/picture_codes.py does"
        )
    return _KINDS[architecture](loaded)


@functools.partial(jax.jit, static_argnums=(0, 1))
def _computed(model: Model, method: str, params: Any, side: Side) -> Array:
    apply: Callable[..., Array] = model.apply  # type: ignore[attr-defined]
    return apply({"params": params}, side, method=method)
