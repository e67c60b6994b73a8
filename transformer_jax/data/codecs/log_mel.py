"""Audio as log-mel spectrogram frames, as in Whisper (Radford et al. 2022, arXiv:2212.04356)."""

import json
import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from transformer_jax.base.errors import UserError
from transformer_jax.config import DataConfig, SourceConfig
from transformer_jax.config.choices.codecs import CODECS
from transformer_jax.data.batches.batch import Read
from transformer_jax.data.codecs.codec import Kind, VectorCodec, as_array, hashed
from transformer_jax.data.codecs.spec_augment import masking
from transformer_jax.data.sources import wav_files
from transformer_jax.data.sources.wav_files import Sound, open_sound

_FIELDS = ("sample_rate", "n_fft", "hop_length", "num_mels")
_CHANNELS = 8  # the most that an array [samples channels] has
_LINEAR = 200 / 3  # Hz per mel below 1 kHz on Slaney's scale
_KNEE = 15.0  # mels at 1 kHz, above which 27 mels are a factor of 6.4
_STEP = math.log(6.4) / 27


def mels(hertz: np.ndarray) -> np.ndarray:
    """Convert frequencies to the mel scale of Slaney's Auditory Toolbox, linear below 1 kHz."""
    high = _KNEE + np.log(np.maximum(hertz, 1000) / 1000) / _STEP
    return np.where(hertz < 1000, hertz / _LINEAR, high)


def hertz(mels: np.ndarray) -> np.ndarray:
    """Convert mels on that scale to frequencies."""
    return np.where(mels < _KNEE, mels * _LINEAR, 1000 * np.exp((mels - _KNEE) * _STEP))


def filters(sample_rate: int, n_fft: int, num_mels: int) -> np.ndarray:
    """Return triangular filters of area 1 over frequency, [bins bands], with corners evenly spaced
    on the mel scale from 0 to half the sample rate.
    """
    _, highest = mels(np.array([0.0, sample_rate / 2]))
    corners = hertz(np.linspace(0, highest, num_mels + 2))
    low, middle, high = corners[:-2], corners[1:-1], corners[2:]
    bins = np.linspace(0, sample_rate // 2, 1 + n_fft // 2)[:, None]
    rising, falling = (bins - low) / (middle - low), (high - bins) / (high - middle)
    return np.maximum(0, np.minimum(rising, falling)) * 2 / (high - low)


class LogMel(VectorCodec):
    """A sound [n] of int16, or of floats from -1 to 1, becomes a vector of bands per frame, with as
    many frames as there are whole hops.

    Whisper pads each sound with silence to 30 s, and clips from below at 8 (80 dB) below the
    maximum. Silence does not raise the maximum, so it is that of the sound itself here too; but the
    last frames, which there extend into the silence, see the end mirrored here, as for a sound that
    fills the 30 s.
    """

    file = "log_mel{}.json"
    noun = CODECS["log_mel"].noun
    endings = (".wav",)
    stored = np.dtype(np.float32)

    def __init__(self, model: bytes) -> None:
        self.model = model
        self.sample_rate, self.n_fft, self.hop_length, self.channels = _read(model)
        self._filters = filters(self.sample_rate, self.n_fft, self.channels)
        # The periodic variant: exactly one period of a cosine.
        self._window = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(self.n_fft) / self.n_fft)

    @property
    def size(self) -> int:
        """The number of bands."""
        return self.channels

    @property
    def digest(self) -> str:
        """A hash of the model's bytes."""
        return hashed(self.model)

    def open(self, path: str) -> Sound:
        """See VectorCodec."""
        return open_sound(path)

    def opened(self, content: bytes, name: str) -> Sound:
        """See VectorCodec."""
        return wav_files.read(content, name)

    def samples(self, longest: int) -> Iterator[np.ndarray]:
        """See VectorCodec: silence."""
        frames = 16
        while frames < 2 * longest:
            yield np.zeros(min(frames, longest) * self.hop_length, np.int16)
            frames *= 2

    def is_one(self, given: Any) -> bool:
        """See VectorCodec. Few columns are channels of one sound, which `encode` refuses."""
        shape = getattr(given, "shape", None)
        several = shape is None or (len(shape) > 1 and shape[1] > _CHANNELS)
        return super().is_one(given) or not several

    def prepared(self, given: Any, name: str, config: DataConfig) -> np.ndarray:
        """See VectorCodec."""
        return as_array(super().prepared(given, name, config), name)

    def encode(
        self, values: Sequence[np.ndarray], bos: bool = False, eos: bool = True
    ) -> list[np.ndarray]:
        """Return the frames of each sound, float32 [L C]; none for less than a hop.

        Raises:
          UserError: if a value is not a sound, or has another sample rate; says which.
        """
        return [self._frames(_samples(x, n, self.sample_rate)) for n, x in enumerate(values, 1)]

    def reader(self, config: DataConfig | None = None) -> Read:
        """See VectorCodec."""
        return masking(config)

    def _frames(self, samples: np.ndarray) -> np.ndarray:
        count, half = len(samples) // self.hop_length, self.n_fft // 2
        if not count:
            return np.zeros((0, self.channels), np.float32)
        # NumPy's mirroring: a sound shorter than half a window is mirrored repeatedly.
        padded = np.pad(samples, half, mode="reflect" if len(samples) > 1 else "constant")
        windows = np.lib.stride_tricks.sliding_window_view(padded, self.n_fft)
        windows = windows[: count * self.hop_length : self.hop_length]
        power = np.abs(np.fft.rfft(windows * self._window, axis=1)) ** 2
        logs = np.log10(np.maximum(power @ self._filters, 1e-10))
        logs = np.maximum(logs, logs.max() - 8.0)
        return ((logs + 4.0) / 4.0).astype(np.float32)


def _samples(value: Any, number: int, rate: int) -> np.ndarray:
    """Return samples from -1 to 1."""
    name = getattr(value, "name", f"sound {number}")
    if not isinstance(value, np.ndarray) or value.ndim != 1 or value.dtype.kind not in "if":
        kind = f"an array of {value.dtype} with shape {value.shape}" if isinstance(
            value, np.ndarray) else f"{value!r:.40}"  # fmt: skip
        raise UserError(
            f"{name}: is {kind}; a sound is an array [n] of int16, or of floats; "
            "several are a list of these"
        )
    if isinstance(value, Sound) and value.rate != rate:
        raise UserError(
            f"{name}: has {value.rate:,} samples per second, but config.src.sample_rate={rate}; "
            f"convert it, with `sox {name.split('/')[-1]} -r {rate} OTHER.wav` for example, or "
            "train with that rate"
        )
    if value.dtype.kind == "i" and value.dtype != np.int16:
        raise UserError(f"{name}: has samples of {value.dtype}; give int16, or floats from -1 to 1")
    if value.dtype.kind == "f" and not np.isfinite(value).all():
        first = int(np.argmin(np.isfinite(value)))
        raise UserError(f"{name}: sample {first + 1} is {value[first]}, not a finite number")
    scale = 2.0**-15 if value.dtype == np.int16 else 1.0
    return np.asarray(value, np.float64) * scale


def _read(model: bytes) -> tuple[int, int, int, int]:
    try:
        fields = json.loads(model)
        form = [fields[name] for name in _FIELDS]
        if all(type(number) is int and number > 0 for number in form):
            return form[0], form[1], form[2], form[3]
    except (ValueError, TypeError, KeyError, RecursionError):
        pass
    raise ValueError("not the form of a spectrogram")


def train(source: SourceConfig, values: Sequence[np.ndarray]) -> LogMel:
    """Return the codec of these fields.

    Raises:
      UserError: if a band contains no frequency bin, or a sound has another sample rate.
    """
    deaf = np.flatnonzero(filters(source.sample_rate, source.n_fft, source.num_mels).sum(0) == 0)
    if len(deaf):
        raise UserError(
            f"config.src.num_mels={source.num_mels}: {len(deaf)} of the bands, the lowest being "
            f"number {deaf[0] + 1}, fall between the frequency bins of a frame of n_fft="
            f"{source.n_fft} samples and are always empty; lower it or raise n_fft"
        )
    for number, value in enumerate(values, 1):
        _samples(value[:0], number, source.sample_rate)
    return LogMel(json.dumps({name: getattr(source, name) for name in _FIELDS}).encode())


WORDS = {"log_mel": Kind(LogMel, train, "the form of a spectrogram", vectors=True)}
