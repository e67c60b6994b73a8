"""Multi-head attention (paper 3.2.2): project to heads, mix, join."""

from collections.abc import Callable
from typing import Any, ClassVar

import jax

from transformer_jax.base.arrays import Array, Bool, Float, at_least_float32
from transformer_jax.config import ModelConfig
from transformer_jax.config.registry import pick
from transformer_jax.nn.cache import KeysValues, Lanes, Slots
from transformer_jax.nn.dropout import Dropout
from transformer_jax.nn.linear import Project, project_together
from transformer_jax.nn.mixers import dense, fused, ring
from transformer_jax.nn.mixers.heads import Heads, heads_first, normal, positions_first, whole_rows
from transformer_jax.nn.relative_positions import scheme_of
from transformer_jax.nn.roles import INWARD
from transformer_jax.nn.view import View

KERNELS = {"dense": dense.mix, "fused": fused.mix, "ring": ring.mix}
# The factor of scores, from the size of a head.
SCORE_SCALES: dict[str, Callable[[int], float]] = {
    "inverse_sqrt": lambda size: size**-0.5,
    "none": lambda size: 1.0,
}


# The shape of a gate, from the config; (): there is none.
GATES: dict[str, Callable[[ModelConfig], tuple[int, ...]]] = {
    "none": lambda config: (),
    "elementwise": lambda config: (config.num_heads, config.value_size),
    "headwise": lambda config: (config.num_heads,),
}


def score_scale(config: ModelConfig) -> float:
    """Return the factor of products of queries and keys."""
    scale = pick(SCORE_SCALES, config.score_scale, "config.model.score_scale")
    return scale(config.scored_size) / config.attention_temperature


class Attention(Heads):
    """Projections to heads, a kernel between them, and the projection back: a Mixer.

    It also serves as cross-attention: `recall` on what `remember` returned for another sequence.
    """

    gates: ClassVar[bool] = True  # whether it reads `config.attention_gate`

    def setup(self) -> None:
        super().setup()
        c = self.config
        shape = pick(GATES, c.attention_gate, "config.model.attention_gate")(c)
        self.gate = None
        if self.gates and shape:
            names = ("heads", "head_dim")[: len(shape)]
            self.gate = Project((c.d_model,), shape, ("embed", *names), self.dtype, False, INWARD)
        self.relative_positions = scheme_of("layer", c)
        self.dropout = Dropout(c.attention_dropout_rate)

    def mix(
        self, x: Float[Array, "B T D"], view: View, train: bool
    ) -> tuple[Float[Array, "B T D"], Float[Array, "B N T S"] | None]:
        """See Mixer."""
        view = self._view(view)
        q, past = self._queries_keys_values(x, view)
        return self._gather_gated(x, q, past, view, train)

    def empty(self, lanes: Lanes) -> Any:
        """See Mixer."""
        c = self.config
        batch, _, slots = lanes.seen.shape
        return KeysValues.empty(batch, slots, c.kv_heads, c.key_size, c.value_size, self.dtype)

    def extend(
        self, x: Float[Array, "B Q D"], cache: Any, slots: Slots, active: Bool[Array, "B"]
    ) -> tuple[Float[Array, "B Q D"], Float[Array, "B N Q C"] | None, Any]:
        """See Mixer."""
        view = self._view(slots.view)
        q, new = self._queries_keys_values(x, view)
        cache = cache.write(slots.number, new)  # not written for inactive sentences
        seen, view = (cache, view) if view.visible is not None else (new, view.on_itself())
        mixed, weights = self._gather_gated(x, q, seen, view, False)
        return mixed, weights, cache

    def remember(self, x: Float[Array, "B S D"]) -> KeysValues:
        """Return the keys and values of another sequence, for cross-attention."""
        k, v = project_together(x, [self.key, self.value])
        return keys_values(normal(self.key_norm, k), v)

    def recall(
        self, x: Float[Array, "B T D"], memory: KeysValues, view: View, train: bool
    ) -> tuple[Float[Array, "B T D"], Float[Array, "B N T S"] | None]:
        """Return what x gathers from a memory, and the weights; without relative positions."""
        q = normal(self.query_norm, self.query(x))
        return self._gather_gated(x, heads_first(q), memory, view, train)

    def _gather_gated(
        self, x: Float[Array, "B T D"], q: Float[Array, "B N T H"], memory: KeysValues, view: View,
        train: bool,
    ) -> tuple[Float[Array, "B T D"], Float[Array, "B N T S"] | None]:  # fmt: skip
        """Return what `_gather` does, with heads multiplied by a gate of x, if there is one."""
        if not self.gates or self.gate is None:
            return self._gather(q, memory, view, train)
        mixed, weights = self._heads(q, memory, view, train)
        gate = jax.nn.sigmoid(at_least_float32(self.gate(x)))
        gate = (gate if gate.ndim == 4 else gate[..., None]).swapaxes(1, 2)
        return self._joined((mixed * gate).astype(mixed.dtype)), weights

    def _view(self, view: View) -> View:
        return self.relative_positions(view)

    def _queries_keys_values(self, x: Array, view: View) -> tuple[Array, KeysValues]:
        q, k, v = self.queries_keys_values(x)
        if view.rotate is not None:
            q, k = view.rotate(q), view.rotate(k)
        return heads_first(q), keys_values(k, v)

    def _gather(
        self, q: Float[Array, "B N T H"], memory: KeysValues, view: View, train: bool
    ) -> tuple[Float[Array, "B T D"], Float[Array, "B N T S"] | None]:
        mixed, weights = self._heads(q, memory, view, train)
        return self._joined(mixed), weights

    def _heads(
        self, q: Float[Array, "B N T H"], memory: KeysValues, view: View, train: bool
    ) -> tuple[Float[Array, "B N T Hv"], Float[Array, "B N T S"] | None]:
        """Return what each head gathers, before the map that joins them."""
        return self._mixed(q, memory, view, train, whole=True)

    def _mixed(
        self, q: Float[Array, "B N T H"], memory: KeysValues, view: View, train: bool,
        whole: bool = False,
    ) -> tuple[Float[Array, "B N T Hv"], Float[Array, "B N T S"]]:  # fmt: skip
        c = self.config
        # Parts of a sequence that a kind of attention has cut are shorter than a ring's blocks.
        kernel = "dense" if c.attention == "ring" and not whole else c.attention
        if kernel == "dense" and whole:
            memory = KeysValues(*map(whole_rows, memory))
        mix = pick(KERNELS, kernel, "config.model.attention")
        dropout: Callable[[Array], Array] = lambda w: self.dropout(w, train)  # noqa: E731
        return mix(q, *memory, view, dropout, score_scale(c), c.attention_softcap)

    def _joined(self, mixed: Float[Array, "B N T Hv"]) -> Float[Array, "B T D"]:
        return self.output(positions_first(mixed))


def keys_values(k: Float[Array, "B S K H"], v: Float[Array, "B S K Hv"]) -> KeysValues:
    """Return keys and values in the layout that attention reads."""
    return KeysValues(heads_first(k).swapaxes(2, 3), heads_first(v))


WORDS = {
    "full": Attention,
    "conformer": Attention,
}  # a conformer is one of its parts: see `models.layers`
