"""Linear attention with random features, whose products approximate the weights of a softmax."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from transformer_jax.base.arrays import Array, Float, at_least_float32
from transformer_jax.nn.embedding import fix_norm
from transformer_jax.nn.initializers import named, parameter
from transformer_jax.nn.linear import Project
from transformer_jax.nn.mixers.linear_attention import LinearAttention, State, chunked, fade
from transformer_jax.nn.mixers.recurrence import Step
from transformer_jax.nn.roles import INWARD, PLAIN
from transformer_jax.nn.view import View

_LEAST = 1e-6  # the smallest magnitude of a sum of weights


class Drawn(LinearAttention):
    """Linear attention with features along random directions [K M H], different for each head.

    Training redraws them at intervals; evaluation and decoding always use the same ones.
    """

    orthogonal = False  # whether directions are orthogonal, in groups as large as possible

    def directions(self) -> Float[Array, "K M H"]:
        """Return the directions of features, as if drawn from N(0, 1)."""
        c = self.config
        shape = c.kv_heads, c.num_features, c.key_size
        wide = jnp.promote_types(self.dtype, jnp.float32)
        if not self.has_rng("features"):
            return jnp.asarray(_fixed(c.feature_seed, shape, self.orthogonal), wide)
        key, other = jax.random.split(self.make_rng("features"))
        drawn = jax.random.normal(key, shape, wide)
        if not self.orthogonal:
            return drawn
        blocks = jax.random.normal(other, _blocks(shape), wide)
        return _at_right_angles(drawn, *jnp.linalg.qr(blocks))


class RandomFeatures(Drawn):
    """Random Feature Attention (Peng et al. 2021, arXiv:2103.02143): sines and cosines along M
    directions of queries and keys of length 1, whose products approximate a constant times
    exp(sum of sigma^2 q k). sigma is trained, for each channel of a head. The sum of a query's
    weights may be small or negative: its magnitude counts as at least 1e-6.
    """

    def setup(self) -> None:
        super().setup()
        c = self.config
        ones = named(jax.nn.initializers.ones, self.kv_axis, "head_dim", role=PLAIN)
        self.sigma = parameter(self, "sigma", ones, (c.kv_heads, c.key_size))

    def features(
        self, q: Float[Array, "B T K G H"], k: Float[Array, "B T K H"]
    ) -> tuple[Float[Array, "B T K G F"], Float[Array, "B T K F"]]:
        """See LinearAttention."""
        along = self.directions() * self.sigma[:, None]

        def waves(angles: Array) -> Array:
            both = jnp.concatenate([jnp.sin(angles), jnp.cos(angles)], axis=-1)
            return both * along.shape[1] ** -0.5

        q, k = fix_norm(q), fix_norm(k)
        asked = jnp.einsum("BTKGH,KMH->BTKGM", q, along)
        return waves(asked), waves(jnp.einsum("BTKH,KMH->BTKM", k, along))

    @property
    def feature_count(self) -> int:
        """See LinearAttention: a sine and a cosine for each direction."""
        return 2 * self.config.num_features

    def leave(self, out: Float[Array, "B T K G V"]) -> Float[Array, "B T D"]:
        """See Recurrence."""
        total = out[..., -1:]
        away = jnp.where(total < 0, jnp.minimum(total, -_LEAST), jnp.maximum(total, _LEAST))
        return self._joined(out[..., :-1] / away)


class GatedRandomFeatures(RandomFeatures):
    """Random features with a decay of earlier tokens: S = g S + (1 - g) k v, with
    g = sigmoid(u x + b) for each token and head (section 3.3 of that paper). Causal only.
    """

    def setup(self) -> None:
        super().setup()
        c = self.config
        self.gate = Project(
            (c.d_model,), (c.kv_heads,), ("embed", self.kv_axis), self.dtype, role=INWARD
        )

    def enter(self, x: Float[Array, "B T D"]) -> tuple[Array, ...]:
        """See Recurrence; adds the logarithms of gates [B T K]."""
        q, k, v = super().enter(x)
        gate = at_least_float32(self.gate(x))
        return q, k, v * jax.nn.sigmoid(-gate)[..., None], jax.nn.log_sigmoid(gate)

    def step(self) -> Step:
        """See Recurrence."""

        def step(state: State, token: tuple[Array, ...]) -> tuple[State, Array]:
            q, k, v, gate = token
            state = state * jnp.exp(gate)[..., None, None] + k[..., None] * v[:, :, None]
            return state, jnp.einsum("BKGF,BKFV->BKGV", q, state)

        return step

    def through(
        self, entering: tuple[Array, ...], view: View
    ) -> tuple[Float[Array, "B T K G V"], State]:
        """See Recurrence."""
        assert view.order == "causal", "only earlier tokens decay, later ones are not seen"
        return chunked(fade, entering, view.q_seg, self.blank(view.q_seg.shape[0]))


class Favor(Drawn):
    """FAVOR+ of the Performer (Choromanski et al. 2021, arXiv:2009.14794): positive features
    exp(w x - |x|^2 / 2) along M orthogonal directions, whose products approximate exp(q k) of
    queries and keys divided by H^(1/4). Each query's largest is scaled to 1, which changes no
    weight; keys would share one such divisor, so that no key depends on those after it.
    """

    orthogonal = True

    def features(
        self, q: Float[Array, "B T K G H"], k: Float[Array, "B T K H"]
    ) -> tuple[Float[Array, "B T K G F"], Float[Array, "B T K F"]]:
        """See LinearAttention."""
        along, scale = self.directions(), self.config.key_size**-0.25
        q, k = q * scale, k * scale
        asked = jnp.einsum("BTKGH,KMH->BTKGM", q, along)
        asked = asked - jax.lax.stop_gradient(asked.max(-1, keepdims=True))
        exponents = jnp.einsum("BTKH,KMH->BTKM", k, along) - 0.5 * (k * k).sum(-1, keepdims=True)
        return jnp.exp(asked), jnp.exp(exponents) / along.shape[1]

    @property
    def feature_count(self) -> int:
        """See LinearAttention."""
        return self.config.num_features


@functools.lru_cache(maxsize=8)
def _fixed(seed: int, shape: tuple[int, int, int], orthogonal: bool) -> np.ndarray:
    chance = np.random.default_rng(seed)
    drawn = chance.normal(size=shape)
    if not orthogonal:
        return drawn
    return np.asarray(_at_right_angles(drawn, *np.linalg.qr(chance.normal(size=_blocks(shape)))))


def _blocks(shape: tuple[int, int, int]) -> tuple[int, int, int, int]:
    heads, count, size = shape
    return heads, -(-count // size), size, size


def _at_right_angles(drawn: Any, bases: Any, triangles: Any) -> Any:
    """Return directions from factors Q and R [K blocks H H], with the lengths of the drawn ones.

    Signs of R's diagonal make Q uniform among all bases (Mezzadri 2007, arXiv:math-ph/0609050);
    without them directions are biased, and weights are wrong however many directions there are.
    """
    signs = triangles.diagonal(axis1=-2, axis2=-1)[..., None, :]
    bases = bases * (1 - 2 * (signs < 0))
    rows = bases.reshape(bases.shape[0], -1, bases.shape[-1])[:, : drawn.shape[1]]
    return rows * (drawn**2).sum(-1, keepdims=True) ** 0.5


WORDS = {
    "random_features": RandomFeatures,
    "gated_random_features": GatedRandomFeatures,
    "favor": Favor,
}
