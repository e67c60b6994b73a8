"""What a model predicts for a number: the number itself, or a distribution's parameters."""

import math
from typing import NamedTuple, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import gammaln

from transformer_jax.base.arrays import Array, Float, Int, at_least_float32

_EPSILON = 1e-5  # added to the variance; RevIN's value


class Scale(NamedTuple):
    """Mean and standard deviation of each window of a series, which normalise the input and bring
    predictions back (RevIN: Kim et al. 2022, https://openreview.net/forum?id=cGDAkQo1C0p).
    """

    mean: Float[Array, "B 1 C"]
    deviation: Float[Array, "B 1 C"]

    def scaled(self, values: Float[Array, "B L C"]) -> Float[Array, "B L C"]:
        """Return values in standard deviations from the mean, at least float32."""
        return (at_least_float32(values) - self.mean) / self.deviation


def scale_of(inputs: Float[Array, "B L C"]) -> Scale:
    """Return the scale of each window, at least float32."""
    wide = at_least_float32(inputs)
    mean = wide.mean(1, keepdims=True)
    variance = jnp.square(wide - mean).mean(1, keepdims=True)
    return Scale(mean, jnp.sqrt(variance + _EPSILON))


LEVELS = tuple(level / 10 for level in range(1, 10))  # of the deciles


@runtime_checkable
class Distribution(Protocol):
    """One kind of prediction, with parameters [B T K], K = `count` for each number."""

    count: int

    def placed(self, raw: Float[Array, "B T K"], scale: Scale) -> Float[Array, "B T K"]:
        """Return parameters in the unit of the series, from the output of a linear map."""

    def loss(self, said: Float[Array, "B T K"], true: Float[Array, "B T"]) -> Float[Array, "B T"]:
        """Return the training loss."""

    def point(self, said: np.ndarray) -> np.ndarray:
        """Return a point forecast [... T]: the mean or the median."""

    def quantiles(self, said: np.ndarray) -> np.ndarray | None:
        """Return the deciles [... T 9], or None if the prediction has none."""


def squareplus(x: Float[Array, "..."]) -> Float[Array, "..."]:
    """Return (x + sqrt(x^2 + 4)) / 2, above 0 (Barron 2021, arXiv:2112.11687)."""
    far = (jnp.abs(x) + jnp.sqrt(jnp.square(x) + 4)) / 2  # f(x) = 1 / f(-x)
    return jnp.where(x < 0, 1 / far, far)


class Point:
    """A number; the loss is its squared error."""

    count = 1

    def placed(self, raw: Float[Array, "B T K"], scale: Scale) -> Float[Array, "B T K"]:
        """See Distribution."""
        return at_least_float32(raw) * scale.deviation + scale.mean

    def loss(self, said: Float[Array, "B T K"], true: Float[Array, "B T"]) -> Float[Array, "B T"]:
        """See Distribution."""
        return jnp.square(said[..., 0] - true)

    def point(self, said: np.ndarray) -> np.ndarray:
        """See Distribution."""
        return said[..., 0]

    def quantiles(self, said: np.ndarray) -> np.ndarray | None:
        """See Distribution: there are none."""
        return None


class Normal(Point):
    """Mean and standard deviation; the loss is the negative log density."""

    count = 2

    def placed(self, raw: Float[Array, "B T K"], scale: Scale) -> Float[Array, "B T K"]:
        """See Distribution."""
        raw = at_least_float32(raw)
        mean = super().placed(raw[..., :1], scale)
        return jnp.concatenate([mean, squareplus(raw[..., 1:]) * scale.deviation], -1)

    def loss(self, said: Float[Array, "B T K"], true: Float[Array, "B T"]) -> Float[Array, "B T"]:
        """See Distribution."""
        off = (true - said[..., 0]) / said[..., 1]
        return jnp.square(off) / 2 + jnp.log(said[..., 1]) + math.log(2 * math.pi) / 2

    def quantiles(self, said: np.ndarray) -> np.ndarray | None:
        """See Distribution."""
        from scipy import stats

        return said[..., :1] + said[..., 1:2] * stats.norm.ppf(LEVELS)


class StudentT(Normal):
    """Mean, scale and degrees of freedom (above 2): a normal's centre with heavier tails."""

    count = 3

    def placed(self, raw: Float[Array, "B T K"], scale: Scale) -> Float[Array, "B T K"]:
        """See Distribution."""
        freedom = 2 + squareplus(at_least_float32(raw[..., 2:]))
        return jnp.concatenate([super().placed(raw[..., :2], scale), freedom], -1)

    def loss(self, said: Float[Array, "B T K"], true: Float[Array, "B T"]) -> Float[Array, "B T"]:
        """See Distribution."""
        mean, scale, n = (said[..., i] for i in range(3))
        off = (true - mean) / scale
        weight = gammaln(n / 2) - gammaln((n + 1) / 2) + jnp.log(n * math.pi) / 2
        return weight + jnp.log(scale) + (n + 1) / 2 * jnp.log1p(jnp.square(off) / n)

    def quantiles(self, said: np.ndarray) -> np.ndarray | None:
        """See Distribution."""
        from scipy import stats

        return said[..., :1] + said[..., 1:2] * stats.t.ppf(LEVELS, said[..., 2:])


class Quantiles(Point):
    """The nine deciles; the loss is the mean of twice their pinball losses (Koenker and Bassett
    1978, https://doi.org/10.2307/1913643), approximately the continuous ranked probability score.
    """

    count = len(LEVELS)

    def loss(self, said: Float[Array, "B T K"], true: Float[Array, "B T"]) -> Float[Array, "B T"]:
        """See Distribution."""
        off = true[..., None] - said
        levels = jnp.asarray(LEVELS, said.dtype).reshape(1, 1, -1)
        return 2 * jnp.maximum(levels * off, (levels - 1) * off).mean(-1)

    def point(self, said: np.ndarray) -> np.ndarray:
        """See Distribution: the median."""
        return said[..., len(LEVELS) // 2]

    def quantiles(self, said: np.ndarray) -> np.ndarray | None:
        """See Distribution: sorted, since each is trained separately."""
        return np.sort(said, -1)


class Bins:
    """A distribution of a distance over `count` bins of equal width between two distances; what is
    less or more counts to the first or the last. The loss is the cross-entropy.
    """

    def __init__(self, count: int, nearest: float, farthest: float) -> None:
        self.edges = np.linspace(nearest, farthest, count + 1)[1:-1]
        width = (farthest - nearest) / count
        self.centres = nearest + width * (np.arange(count) + 0.5)

    def of(self, distances: Float[Array, "..."]) -> Int[Array, "..."]:
        """Return the bin of each distance."""
        edges = jnp.asarray(self.edges, distances.dtype)
        return (distances[..., None] >= edges.reshape((1,) * distances.ndim + (-1,))).sum(-1)

    def loss(self, said: Float[Array, "B T K"], true: Float[Array, "B T"]) -> Float[Array, "B T"]:
        """Return -log p of the bin of each distance."""
        log_probs = jax.nn.log_softmax(said)
        return -jnp.take_along_axis(log_probs, self.of(true)[..., None], -1)[..., 0]

    def point(self, said: np.ndarray) -> np.ndarray:
        """Return the median of each distribution [... K], linear within its bin."""
        wide = said.astype(np.float64)
        shares = np.exp(wide - wide.max(-1, keepdims=True))
        shares /= shares.sum(-1, keepdims=True)
        ends = shares.cumsum(-1)
        here = np.minimum((ends < 0.5).sum(-1), said.shape[-1] - 1)[..., None]
        own = np.take_along_axis(shares, here, -1)
        begin = np.take_along_axis(ends, here, -1) - own
        within = ((0.5 - begin) / np.maximum(own, 1e-12)).clip(0, 1) - 0.5
        width = self.centres[1] - self.centres[0]
        return (self.centres[here] + width * within)[..., 0]


DISTRIBUTIONS: dict[str, Distribution] = {
    "point": Point(),
    "normal": Normal(),
    "student_t": StudentT(),
    "quantiles": Quantiles(),
}
