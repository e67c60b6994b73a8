"""Input layers for a source side of vectors, in place of a table of pieces."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from transformer_jax.base.arrays import Array, Float, Int, Size, at_least_float32
from transformer_jax.base.errors import UserError
from transformer_jax.config import ModelConfig
from transformer_jax.config.registry import pick
from transformer_jax.nn.convolutions import Convolve, ConvolveAlong
from transformer_jax.nn.distributions import Scale, scale_of
from transformer_jax.nn.initializers import named, parameter
from transformer_jax.nn.linear import Project
from transformer_jax.nn.lookup import look_up
from transformer_jax.nn.norm import make_norm
from transformer_jax.nn.roles import OWN_MAP, PLAIN, POSITIONS


class Entered(NamedTuple):
    """The input of the stack, with its positions and segments."""

    x: Float[Array, "B S D"]
    pos: Int[Array, "B S"]
    seg: Int[Array, "B S"]


class Stem(nn.Module):
    """An input layer for vectors. If there is a position before each sequence, `begun`, a learned
    vector fills it.
    """

    config: ModelConfig
    channels: int
    dtype: jnp.dtype
    begun: bool

    def setup(self) -> None:
        width = self.config.d_model
        if self.begun:
            init = named(nn.initializers.normal(width**-0.5), "embed", role=PLAIN)
            self.class_token = parameter(self, "class_token", init, (width,))

    @nn.nowrap
    def length(self, length: Size) -> Size:
        """Return how many positions in the stack `length` vectors take."""
        return length


class Linear(Stem):
    """A linear map of each vector (ViT: Dosovitskiy et al. 2021, arXiv:2010.11929, equation 1)."""

    def setup(self) -> None:
        super().setup()
        width, entering = self.config.d_model, self.entering
        self.patch = Project((entering,), (width,), ("features", "embed"), self.dtype, role=OWN_MAP)
        table = pick(GRID_POSITIONS, self.config.grid_positions, "config.model.grid_positions")
        self.grid_positions = None if table is None else table(self.config)

    @property
    def entering(self) -> int:
        """Input channels of the map."""
        return self.channels

    def __call__(
        self, inputs: Float[Array, "B L C"], pos: Int[Array, "B L"], seg: Int[Array, "B L"]
    ) -> Entered:
        x = self.mapped(inputs)
        if self.grid_positions is not None:
            places = self.grid_positions()
            here = (pos - int(self.begun)) % len(places)
            x = x + look_up(places, here).astype(x.dtype)
        if self.begun:
            first = (pos == 0) & (seg > 0)
            x = jnp.where(first[..., None], self.class_token.astype(x.dtype), x)
        return Entered(x, pos, seg)

    def mapped(self, inputs: Float[Array, "B L C"]) -> Float[Array, "B L D"]:
        """Return the mapped vectors, before positions are added."""
        return self.patch(inputs)


class Convolution(Linear):
    """Patches reassembled into a picture, which 3 x 3 convolutions of stride 2, each followed by a
    norm and GELU, reduce by the size of a patch; then a linear map (Xiao et al. 2021,
    arXiv:2106.14881, with the model's norm, as no batch statistics are kept here). Each convolution
    but the last has half the channels of the next.
    """

    def setup(self) -> None:
        super().setup()
        c = self.config
        widths = [c.d_model // 2 ** (c.stem_layers - 1 - i) for i in range(c.stem_layers)]
        entering = [self.channels // 4**c.stem_layers, *widths]
        self.convolution = [
            Convolve(one, other, self.dtype) for one, other in zip(entering, widths, strict=False)
        ]
        self.norm = [make_norm(c) for _ in widths]

    @property
    def entering(self) -> int:
        """See Linear."""
        return self.config.d_model

    def mapped(self, inputs: Float[Array, "B L C"]) -> Float[Array, "B L D"]:
        """See Linear."""
        (rows, columns), size = self.config.grid, 2**self.config.stem_layers
        first = int(self.begun)
        batch, length, _ = inputs.shape
        last = first + rows * columns
        if length < last:
            raise UserError(
                f"config.model.grid={self.config.grid}: the source side has {length - first} "
                "vectors; set it to the rows and columns of patches in a picture"
            )
        x = inputs[:, first:last].reshape(batch, rows, columns, size, size, -1)
        x = x.swapaxes(2, 3).reshape(batch, rows * size, columns * size, -1)
        for convolution, norm in zip(self.convolution, self.norm, strict=True):
            x = convolution(x)
            flat = norm(x.reshape(batch, -1, x.shape[-1]))
            x = jax.nn.gelu(flat, approximate=False).reshape(x.shape)
        x = self.patch(x.reshape(batch, rows * columns, -1))
        return jnp.pad(x, ((0, 0), (first, length - last), (0, 0)))


class Conv1d(Stem):
    """Two convolutions of width 3 along the sequence, each followed by GELU; the second has stride
    2, so half as many positions enter the stack (Whisper: Radford et al. 2022, arXiv:2212.04356).
    They see zeros outside the sequence, so padding changes nothing; a row holds one sequence. The
    position before it is not convolved.
    """

    def setup(self) -> None:
        super().setup()
        width = self.config.d_model
        self.convolution = [
            ConvolveAlong(self.channels, width, 1, self.dtype),
            ConvolveAlong(width, width, 2, self.dtype),
        ]

    def __call__(
        self, inputs: Float[Array, "B L C"], pos: Int[Array, "B L"], seg: Int[Array, "B L"]
    ) -> Entered:
        first = int(self.begun)
        x, kept = inputs[:, first:], seg[:, first:]
        for convolution in self.convolution:
            x = jax.nn.gelu(convolution(jnp.where(kept[..., None] > 0, x, 0)), approximate=False)
        pos, seg = (
            jnp.concatenate([old[:, :first], new], axis=1)
            for old, new in ((pos, (pos[:, first::2] + first) // 2), (seg, seg[:, first::2]))
        )
        if self.begun:
            token = jnp.broadcast_to(self.class_token.astype(x.dtype), (len(x), 1, x.shape[2]))
            x = jnp.concatenate([token, x], axis=1)
        return Entered(x, pos, seg)

    @nn.nowrap
    def length(self, length: Size) -> Size:
        """See Stem."""
        first = int(self.begun)
        return first + (length - first + 1) // 2


class SeriesNorm(nn.Module):
    """The scale of windows of a series: see `config.model.series_norm`. A learned one divides by
    deviation / gain after it has subtracted mean - shift deviation / gain, so that a window becomes
    gain times what it is without, plus shift.
    """

    config: ModelConfig

    def setup(self) -> None:
        self.known = pick(SERIES_NORMS, self.config.series_norm, "config.model.series_norm")
        if self.known.trained:
            self.gain = parameter(self, "gain", named(nn.initializers.ones, role=PLAIN), ())
            self.shift = parameter(self, "shift", named(nn.initializers.zeros, role=PLAIN), ())

    def __call__(self, inputs: Float[Array, "B L C"]) -> Scale:
        scale = self.known.scale(inputs)
        if not self.known.trained:
            return scale
        deviation = scale.deviation / self.gain
        return Scale(scale.mean - self.shift * deviation, deviation)


class KnownNorm(NamedTuple):
    """Statistics of windows, and whether two trained numbers change them."""

    scale: Callable[[Array], Scale]
    trained: bool = False


def unscaled(inputs: Float[Array, "B L C"]) -> Scale:
    """Return the scale that changes nothing."""
    one = at_least_float32(jnp.ones_like(inputs[:, :1]))
    return Scale(0 * one, one)


def from_last(inputs: Float[Array, "B L C"]) -> Scale:
    """Return the scale that subtracts the last row."""
    return unscaled(inputs)._replace(mean=at_least_float32(inputs[:, -1:]))


SERIES_NORMS = {
    "window": KnownNorm(scale_of),
    "learned": KnownNorm(scale_of, trained=True),
    "last": KnownNorm(from_last),
    "none": KnownNorm(unscaled),
}


class Series(Linear):
    """A window of a time series, normalised and cut into overlapping patches, each of which is
    mapped (PatchTST: Nie et al. 2023, arXiv:2211.14730, section 3.1).
    """

    def setup(self) -> None:
        super().setup()
        self.norm = SeriesNorm(self.config)

    def scale(self, inputs: Float[Array, "B L C"]) -> Scale:
        """Return the scale of each window."""
        return self.norm(inputs)

    @property
    def entering(self) -> int:
        """See Linear."""
        return self.config.patch_length

    def __call__(
        self, inputs: Float[Array, "B L 1"], pos: Int[Array, "B L"], seg: Int[Array, "B L"]
    ) -> Entered:
        size, stride = self.config.patch_length, self.config.patch_stride
        begins = jnp.arange(self.length(inputs.shape[1])) * stride
        scaled = self.scale(inputs).scaled(inputs)[..., 0]
        patches = scaled[:, begins[:, None] + jnp.arange(size)[None]]
        return Entered(self.patch(patches), pos[:, begins] // stride, seg[:, begins])

    @nn.nowrap
    def length(self, length: Size) -> Size:
        """See Linear."""
        return self.config.patches(length)


class Variates(Stem):
    """A window of a time series, normalised; each of its channels is mapped, from all of its rows,
    to one position (iTransformer: Liu et al. 2024, arXiv:2310.06625, section 3.1).
    """

    def setup(self) -> None:
        super().setup()
        self.norm = SeriesNorm(self.config)

    def scale(self, inputs: Float[Array, "B L C"]) -> Scale:
        """Return the scale of each channel of each window."""
        return self.norm(inputs)

    @nn.compact
    def __call__(
        self, inputs: Float[Array, "B L C"], pos: Int[Array, "B L"], seg: Int[Array, "B L"]
    ) -> Entered:
        batch, length, channels = inputs.shape
        names = ("length", "embed")
        variate = Project(
            (length,), (self.config.d_model,), names, self.dtype, role=OWN_MAP, name="variate"
        )
        x = variate(self.scale(inputs).scaled(inputs).swapaxes(1, 2).astype(self.dtype))
        places = jnp.broadcast_to(jnp.arange(channels)[None], (batch, channels))
        return Entered(x, places, jnp.broadcast_to(seg[:, :1], places.shape))


class Trajectory(Stem):
    """The steps of an agent: return, state and action, each through a linear map of its own, become
    consecutive positions; what is added for a time step is the same for all of them (Chen et al.
    2021, arXiv:2106.01345). Without returns, a step has two positions.
    """

    actions: int  # numbers in an action
    returns: bool

    def setup(self) -> None:
        super().setup()
        for name, size in self.sizes.items():
            shape, names = ((size,), (self.config.d_model,)), ("features", "embed")
            setattr(self, name, Project(*shape, names, self.dtype, role=OWN_MAP))

    @property
    def sizes(self) -> dict[str, int]:
        """The numbers in each part of a step, in their order."""
        first = {"return_map": 1} if self.returns else {}
        return {**first, "state_map": self.channels - 2, "action_map": self.actions}

    def __call__(
        self,
        inputs: Float[Array, "B L C"],
        actions: Float[Array, "B L A"],
        of_time: Float[Array, "B L D"] | None,
        pos: Int[Array, "B L"],
        seg: Int[Array, "B L"],
    ) -> Entered:
        """Return the positions of the steps [B L C], which are time, return and state, and of their
        actions, in the order in which they happen, with the vectors of their times.
        """
        parts = (*((inputs[..., 1:2],) if self.returns else ()), inputs[..., 2:], actions)
        each = [getattr(self, name)(x) for name, x in zip(self.sizes, parts, strict=True)]
        x = jnp.stack(each, 2)
        if of_time is not None:
            x = x + of_time[:, :, None].astype(x.dtype)
        count = len(each)
        place = pos[..., None] * count + jnp.arange(count).reshape(1, 1, -1)
        return Entered(
            x.reshape(len(x), -1, x.shape[-1]),
            place.reshape(len(x), -1),
            jnp.repeat(seg, count, axis=1),
        )


def sinusoidal(grid: Sequence[int], width: int) -> np.ndarray:
    """Return vectors for the places of a grid, row by row [R C, width], float64: sines and cosines
    of the row, then of the column, each as in paper 3.5 with half the channels. Of a clip, [T R C,
    width], a quarter is for the time and three eighths each are for row and column (CogVideoX: Yang
    et al. 2024, arXiv:2408.06072, its code).
    """
    shares = (width // 4, 3 * width // 8, 3 * width // 8) if len(grid) == 3 else 2 * (width // 2,)
    axes = np.meshgrid(*(np.arange(size) for size in grid), indexing="ij")
    each = []
    for share, place in zip(shares, axes, strict=True):
        angles = place.reshape(-1, 1) * 10000.0 ** (-2 * np.arange(share // 2) / share)
        each.append(np.stack([np.sin(angles), np.cos(angles)], -1).reshape(-1, share))
    return np.concatenate(each, axis=1)


class GridSinusoids(nn.Module):
    """Sines and cosines of each axis: see `sinusoidal`."""

    config: ModelConfig

    def __call__(self) -> Float[Array, "L D"]:
        """Return the vectors of all places of the grid."""
        return jnp.asarray(sinusoidal(self.config.grid, self.config.d_model))


class GridLearned(GridSinusoids):
    """A trained vector for each place of a picture and, of a clip, one more for each time, which
    all its places share (TimeSformer: Bertasius et al. 2021, arXiv:2102.05095, its code).
    """

    @nn.compact
    def __call__(self) -> Float[Array, "L D"]:
        (*times, rows, columns), width = self.config.grid, self.config.d_model
        init = named(nn.initializers.normal(width**-0.5), "length", "embed", role=POSITIONS)
        places = parameter(self, "places", init, (rows * columns, width))
        if not times:
            return places
        moments = parameter(self, "times", init, (times[0], width))
        return (moments[:, None] + places[None]).reshape(-1, width)


GRID_POSITIONS: dict[str, Callable[[ModelConfig], GridSinusoids] | None] = {
    "none": None,
    "sinusoidal": GridSinusoids,
    "learned": GridLearned,
}
STEMS: dict[str, type[Stem] | None] = {
    "embedding": None,
    "linear": Linear,
    "convolution": Convolution,
    "series": Series,
    "variates": Variates,
    "conv1d": Conv1d,
    "trajectory": Trajectory,
    "pairs": None,  # the Evoformer's: pairs of positions, not positions
}
