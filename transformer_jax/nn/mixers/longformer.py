"""Longformer: attention within a window, and a few positions that see all and are seen by all."""

from dataclasses import replace

import jax.numpy as jnp

from transformer_jax.base.arrays import Array, Float, Int
from transformer_jax.nn.cache import KeysValues
from transformer_jax.nn.linear import Project, project_together
from transformer_jax.nn.mixers.attention import keys_values
from transformer_jax.nn.mixers.heads import heads_first, normal
from transformer_jax.nn.mixers.local import Blocks, LocalAttention
from transformer_jax.nn.roles import MAP
from transformer_jax.nn.view import View


class Longformer(LocalAttention):
    """Sliding windows with global attention (Beltagy et al. 2020, arXiv:2004.05150, section 3.1).

    The first `config.global_tokens` positions of a text are global: every position attends to them,
    besides those less than `config.window` away, and they attend to all positions, with separate
    projections to queries, keys and values. The paper's window of w positions is a window of
    w / 2 + 1 here. Each row holds one text, and the whole text is known: for encoders only, with
    rows that are not packed. A text of T positions costs T (3 `window` + `global_tokens`) scores
    per head.
    """

    gates = False

    def setup(self) -> None:
        super().setup()
        for name in ("query", "key", "value"):
            local = getattr(self, name)
            shape = local.in_shape, local.out_shape, local.names, self.dtype, local.use_bias
            setattr(self, f"global_{name}", Project(*shape, role=MAP))

    def mix(
        self, x: Float[Array, "B T D"], view: View, train: bool
    ) -> tuple[Float[Array, "B T D"], Float[Array, "B N T S"]]:
        """See Mixer."""
        assert view.order == "all", "a text being generated is not complete"
        view = self._view(view)
        q, past = self._queries_keys_values(x, view)
        length, window = x.shape[1], self.config.window
        assert window is not None
        count = min(self.config.global_tokens, length)
        if length <= 2 * window:
            mixed, weights = self._mixed(q, past, replace(view, everywhere=count), train)
        else:
            blocks = Blocks(x.shape[0], length, window, 1, ahead=True)
            mixed, weights = self._in_blocks(q, past, view, blocks, count, train)
        first, theirs = self._from_everywhere(x, view, count, train)
        mixed = jnp.concatenate([first, mixed[:, :, count:]], axis=2)
        return self._joined(mixed), jnp.concatenate([theirs, weights[:, :, count:]], axis=2)

    def _in_blocks(
        self,
        q: Float[Array, "B N T H"],
        memory: KeysValues,
        view: View,
        blocks: Blocks,
        count: int,
        train: bool,
    ) -> tuple[Float[Array, "B N T Hv"], Float[Array, "B N T T"]]:
        """Return what queries gather from near and from global positions; the latter are added
        beside every block and masked inside blocks.
        """

        def beside(x: Array, axis: int) -> Array:
            first = jnp.take(x, jnp.arange(count), axis=axis)
            return jnp.concatenate([blocks.each(first), blocks.around(x, axis)], axis=axis)

        def seen(seg: Int[Array, "B T"]) -> Int[Array, "R K"]:
            others = jnp.where(jnp.arange(seg.shape[1])[None] < count, 0, seg)
            return jnp.concatenate([blocks.each(seg[:, :count]), blocks.around(others, 1)], axis=1)

        among = replace(
            view, everywhere=count, single=False,
            q_pos=blocks.own(view.q_pos, 1), q_seg=blocks.own(view.q_seg, 1),
            k_pos=beside(view.k_pos, 1), k_seg=seen(view.k_seg),
        )  # fmt: skip
        keys, values = beside(memory.keys, 3), beside(memory.values, 2)
        with blocks.numbered():
            mixed, weights = self._mixed(blocks.own(q, 2), KeysValues(keys, values), among, train)
        spread = blocks.spread(weights[..., count:])
        spread = spread.at[..., :count].add(blocks.whole(weights[..., :count]))
        return blocks.whole(mixed), spread

    def _from_everywhere(
        self, x: Float[Array, "B T D"], view: View, count: int, train: bool
    ) -> tuple[Float[Array, "B N G Hv"], Float[Array, "B N G T"]]:
        """Return what the first `count` positions gather from all positions."""
        q = normal(self.query_norm, self.global_query(x[:, :count]))
        k, v = project_together(x, [self.global_key, self.global_value])
        k = normal(self.key_norm, k)
        if view.rotate is not None:
            q = jnp.pad(q, ((0, 0), (0, x.shape[1] - count), (0, 0), (0, 0)))
            q, k = view.rotate(q)[:, :count], view.rotate(k)
        asked = replace(view.within(None), q_pos=view.q_pos[:, :count], q_seg=view.q_seg[:, :count])
        return self._mixed(heads_first(q), keys_values(k, v), asked, train)


WORDS = {"longformer": Longformer}
