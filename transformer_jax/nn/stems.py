"""What a source side of vectors passes first, in place of a table of pieces."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from transformer_jax.arrays import Array, Float, Int, Size, at_least_float32
from transformer_jax.choices import pick
from transformer_jax.config import ModelConfig
from transformer_jax.errors import UserError
from transformer_jax.nn.initializers import named, parameter
from transformer_jax.nn.linear import Project
from transformer_jax.nn.norm import make_norm
from transformer_jax.nn.window_scale import scale_of


class Entered(NamedTuple):
    """What enters the stack, and where it stands there."""

    x: Float[Array, "B S D"]
    pos: Int[Array, "B S"]
    seg: Int[Array, "B S"]


class Linear(nn.Module):
    """One map of each vector (ViT: Dosovitskiy et al. 2021, arXiv:2010.11929, equation 1). Where
    there is a place before each sequence, `begun`, a learned vector stands there.
    """

    config: ModelConfig
    channels: int
    dtype: jnp.dtype
    begun: bool

    def setup(self) -> None:
        width, entering = self.config.d_model, self.entering
        self.patch = Project((entering,), (width,), ("features", "embed"), self.dtype)
        if self.begun:
            init = named(nn.initializers.normal(width**-0.5), "embed")
            self.class_token = parameter(self, "class_token", init, (width,))

    @property
    def entering(self) -> int:
        """Channels of what the map reads."""
        return self.channels

    def __call__(
        self, inputs: Float[Array, "B L C"], pos: Int[Array, "B L"], seg: Int[Array, "B L"]
    ) -> Entered:
        x = self.mapped(inputs)
        table = pick(GRID_POSITIONS, self.config.grid_positions, "config.model.grid_positions")
        if table is not None:
            places = table(self.config.grid, self.config.d_model)
            here = (pos - int(self.begun)) % len(places)
            x = x + jnp.asarray(places)[here].astype(x.dtype)
        if self.begun:
            first = (pos == 0) & (seg > 0)
            x = jnp.where(first[..., None], self.class_token.astype(x.dtype), x)
        return Entered(x, pos, seg)

    @nn.nowrap
    def length(self, length: Size) -> Size:
        """Return how many places so many vectors take in the stack."""
        return length

    def mapped(self, inputs: Float[Array, "B L C"]) -> Float[Array, "B L D"]:
        """Return what becomes of the vectors themselves."""
        return self.patch(inputs)


class Convolution(Linear):
    """Patches as one picture again, which 3 x 3 convolutions of stride 2 make smaller by a patch,
    each with a norm and GELU behind it; then a map (Xiao et al. 2021, arXiv:2106.14881, with the
    norm of the model, as no statistics of a batch are kept here). Each but the last has half the
    channels of the next.
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
                "vectors; set it to the rows and columns of patches that pictures have"
            )
        x = inputs[:, first:last].reshape(batch, rows, columns, size, size, -1)
        x = x.swapaxes(2, 3).reshape(batch, rows * size, columns * size, -1)
        for convolution, norm in zip(self.convolution, self.norm, strict=True):
            x = convolution(x)
            flat = norm(x.reshape(batch, -1, x.shape[-1]))
            x = jax.nn.gelu(flat, approximate=False).reshape(x.shape)
        x = self.patch(x.reshape(batch, rows * columns, -1))
        return jnp.pad(x, ((0, 0), (first, length - last), (0, 0)))


class Convolve(nn.Module):
    """A convolution of 3 x 3 pixels and stride 2, with a bias; it pads as PyTorch does, by one."""

    channels: int
    width: int
    dtype: jnp.dtype

    @nn.compact
    def __call__(self, x: Float[Array, "B H W C"]) -> Float[Array, "B h w D"]:
        init = named(nn.initializers.he_normal(), "rows", "columns", "features", "embed")
        kernel = parameter(self, "kernel", init, (3, 3, self.channels, self.width))
        bias = parameter(self, "bias", named(nn.initializers.zeros, "embed"), (self.width,))
        wide = jnp.promote_types(self.dtype, jnp.float32)
        y = jax.lax.conv_general_dilated(
            x.astype(self.dtype), kernel.astype(self.dtype), (2, 2), ((1, 1), (1, 1)),
            dimension_numbers=("NHWC", "HWIO", "NHWC"),
            preferred_element_type=None if self.dtype == jnp.bfloat16 else wide,
        )  # fmt: skip
        return (at_least_float32(y) + bias.reshape(1, 1, 1, -1)).astype(self.dtype)


class Series(Linear):
    """A window of a time series, scaled by itself, in patches that overlap, each mapped (PatchTST:
    Nie et al. 2023, arXiv:2211.14730, section 3.1).
    """

    @property
    def entering(self) -> int:
        """See Linear."""
        return self.config.patch_length

    def __call__(
        self, inputs: Float[Array, "B L 1"], pos: Int[Array, "B L"], seg: Int[Array, "B L"]
    ) -> Entered:
        size, stride = self.config.patch_length, self.config.patch_stride
        begins = jnp.arange(self.length(inputs.shape[1])) * stride
        scaled = scale_of(inputs).scaled(inputs)[..., 0]
        patches = scaled[:, begins[:, None] + jnp.arange(size)[None]]
        return Entered(self.patch(patches), pos[:, begins] // stride, seg[:, begins])

    @nn.nowrap
    def length(self, length: Size) -> Size:
        """See Linear."""
        return self.config.patches(length)


def sinusoidal(grid: Sequence[int], width: int) -> np.ndarray:
    """Return vectors of the places of a grid, row by row [R C, width], float64: sines and cosines
    of the row, then of the column, each as in paper 3.5 with half of the channels.
    """
    half = width // 2
    rates = 10000.0 ** (-2 * np.arange(half // 2) / half)
    axes = np.meshgrid(*(np.arange(size) for size in grid), indexing="ij")
    angles = [place.reshape(-1, 1) * rates for place in axes]
    each = [np.stack([np.sin(x), np.cos(x)], -1).reshape(len(x), half) for x in angles]
    return np.concatenate(each, axis=1)


GRID_POSITIONS: dict[str, Callable[[Sequence[int], int], np.ndarray] | None] = {
    "none": None,
    "sinusoidal": sinusoidal,
}
STEMS: dict[str, type[Linear] | None] = {
    "embedding": None,
    "linear": Linear,
    "convolution": Convolution,
    "series": Series,
}
