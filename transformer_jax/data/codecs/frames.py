"""Sounds as frames of features that were computed elsewhere, such as mel cepstra, standardised."""

import io
import json
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from transformer_jax.base.disk import user_path
from transformer_jax.base.errors import UserError
from transformer_jax.config import DataConfig, SourceConfig
from transformer_jax.config.choices.codecs import CODECS
from transformer_jax.data.batches.batch import Read
from transformer_jax.data.codecs.codec import Kind, VectorCodec, as_array, hashed
from transformer_jax.data.codecs.spec_augment import masking


class Frames(VectorCodec):
    """A sound [frames C] becomes a vector for each frame, in which each of its C features has mean
    0 and deviation 1 over the frames of training; one that never changes there is 0.
    """

    file = "frames{}.json"
    noun = CODECS["frames"].noun
    endings = (".npy",)
    stored = np.dtype(np.float32)

    def __init__(self, model: bytes) -> None:
        self.model = model
        self.mean, self.deviation = _read(model)
        self.size = self.channels = len(self.mean)

    @property
    def digest(self) -> str:
        """A hash of the model's bytes."""
        return hashed(self.model)

    def encode(
        self, values: Sequence[np.ndarray], bos: bool = False, eos: bool = True
    ) -> list[np.ndarray]:
        """Return the vectors of each sound, float32 [frames C].

        Raises:
          UserError: if a sound has other features than those of training; gives its number, from 1.
        """
        for number, value in enumerate(values, 1):
            _check(value, f"{self.noun} {number}", self.channels)
        return [((x - self.mean) / self.deviation).astype(np.float32) for x in values]

    def reader(self, config: DataConfig | None = None) -> Read:
        """See VectorCodec: in training, with the masks of SpecAugment."""
        return masking(config)

    def samples(self, longest: int) -> Iterator[np.ndarray]:
        """See VectorCodec: the mean of training."""
        frames = 16
        while frames < 2 * longest:
            yield np.tile(self.mean, (min(frames, longest), 1))
            frames *= 2

    def open(self, path: str) -> np.ndarray:
        """See VectorCodec: a NumPy file."""
        try:
            return self.opened(user_path(path).read_bytes(), path)
        except OSError as error:
            raise UserError(f"{path}: cannot be read ({error.strerror})") from None

    def opened(self, content: bytes, name: str) -> np.ndarray:
        """See VectorCodec."""
        try:
            return np.load(io.BytesIO(content), allow_pickle=False)
        except (ValueError, EOFError) as error:
            raise UserError(f"{name}: cannot be read as a .npy file ({error})") from None

    def is_one(self, given: Any) -> bool:
        """See VectorCodec: a file, or a matrix."""
        return super().is_one(given) or getattr(given, "ndim", 3) == 2

    def prepared(self, given: Any, name: str, config: DataConfig) -> np.ndarray:
        """See VectorCodec."""
        frames = as_array(super().prepared(given, name, config), name)
        _check(frames, name, self.channels)
        return frames


def _check(value: np.ndarray, name: str, channels: int) -> None:
    if value.ndim != 2 or value.shape[1] != channels or value.dtype.kind not in "iuf":
        raise UserError(
            f"{name}: is an array of {value.dtype} with shape {value.shape}; a sound is [frames "
            f"{channels}], {channels} features for each of its frames, as in training"
        )
    if not np.isfinite(value).all():
        frame, feature = (int(place[0]) for place in np.nonzero(~np.isfinite(value)))
        raise UserError(
            f"{name}: frame {frame + 1} has {value[frame, feature]} as feature {feature + 1}, not "
            "a finite number; compute it again, or leave the sound out"
        )


def _read(model: bytes) -> tuple[np.ndarray, np.ndarray]:
    try:
        fields = json.loads(model)
        mean, deviation = (np.array(fields[name], np.float64) for name in ("mean", "deviation"))
        shaped = mean.ndim == 1 and mean.size > 0 and mean.shape == deviation.shape
        if shaped and np.isfinite([*mean, *deviation]).all() and (deviation > 0).all():
            return mean, deviation
    except (ValueError, TypeError, KeyError, RecursionError):
        pass
    raise ValueError("not the scale of frames")


def train(source: SourceConfig, values: Sequence[np.ndarray]) -> Frames:
    """Return the codec with the scale of all training frames; `source` is ignored.

    Raises:
      UserError: if a sound is no array [frames C], or they differ in C.
    """
    channels = values[0].shape[-1]
    for number, value in enumerate(values, 1):
        _check(value, f"config.data.train: {Frames.noun} {number}", channels)
    frames = np.concatenate(values).astype(np.float64)
    constant = (frames == frames[:1]).all(0)
    deviation = np.where(constant, 1.0, frames.std(0))
    scale = {"mean": frames.mean(0).tolist(), "deviation": deviation.tolist()}
    return Frames(json.dumps(scale).encode())


WORDS = {"frames": Kind(Frames, train, "the scale of frames", vectors=True)}
