"""BigBird: attention between blocks of positions, each attending to a fixed number of blocks."""

import functools
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np

from transformer_jax.base.arrays import Array, Bool, Float, Int
from transformer_jax.nn.cache import KeysValues
from transformer_jax.nn.mixers.attention import Attention
from transformer_jax.nn.view import View


class BlockSparse(Attention):
    """BigBird's internal transformer construction (Zaheer et al. 2020, arXiv:2007.14062).

    A block of `config.block_size` positions attends to itself, to the ones before and after it, to
    the first and the last of its text, and to `config.random_blocks` others; the first and the last
    attend to all. The others are drawn once, from `config.feature_seed`, and are the same in all
    layers and heads, in training and evaluation. Each row holds one text, whose own blocks count,
    and the whole text is known: for encoders only, with rows that are not packed.
    """

    gates = False

    def _gather(
        self, q: Float[Array, "B N T H"], memory: KeysValues, view: View, train: bool
    ) -> tuple[Float[Array, "B T D"], None]:
        assert view.order == "all", "the last block of a text being generated is not known"
        length, size = q.shape[2], self.config.block_size
        new = -length % size
        q, view = _longer(q, 2, new), _wider(view, new)
        memory = KeysValues(_longer(memory.keys, 3, new), _longer(memory.values, 2, new))
        own = jnp.maximum(-(-(view.k_seg > 0).sum(1) // size), 1)  # blocks of each text
        mixed = self._of_some(q, memory, view, own, train)
        first, last = self._of_all(q, memory, view, own, train)
        number = jnp.arange(mixed.shape[2])[None]
        for ends, number_of_it in ((last, own - 1), (first, 0 * own)):
            here = (number == number_of_it[:, None])[:, None, :, None, None]
            mixed = jnp.where(here, ends, mixed)
        mixed = mixed.reshape(*mixed.shape[:2], -1, mixed.shape[-1])
        return self._joined(mixed[:, :, :length]), None

    def _of_some(
        self, q: Array, memory: KeysValues, view: View, own: Int[Array, "B"], train: bool
    ) -> Float[Array, "B N I C Hv"]:
        """Return what each of I blocks of C positions gathers from those that it attends to."""
        c, batch = self.config, q.shape[0]
        count = q.shape[2] // c.block_size
        seen, there = attended_blocks(own, count, c.random_blocks, c.feature_seed)

        def each(x: Array, axis: int) -> Array:
            return _rows(_blocks(x, axis, c.block_size), axis)

        def beside(x: Array, axis: int) -> Array:
            x = _blocks(x, axis, c.block_size)
            place = seen.reshape(batch, -1, *(1,) * (x.ndim - 2))
            x = jnp.take_along_axis(x, place, axis=1)
            return _rows(x.reshape(batch, count, -1, *x.shape[3:]), axis)

        there = jnp.repeat(there.reshape(batch * count, -1), c.block_size, axis=1)
        among = replace(
            view,
            q_pos=each(view.q_pos, 1), q_seg=each(view.q_seg, 1),
            k_pos=beside(view.k_pos, 1), k_seg=beside(view.k_seg, 1) * there, single=False,
        )  # fmt: skip
        keys, values = beside(memory.keys, 3), beside(memory.values, 2)
        mixed, _ = self._mixed(each(q, 2), KeysValues(keys, values), among, train)
        return jnp.moveaxis(mixed.reshape(batch, count, *mixed.shape[1:]), 1, 2)

    def _of_all(
        self, q: Array, memory: KeysValues, view: View, own: Int[Array, "B"], train: bool
    ) -> list[Float[Array, "B N 1 C Hv"]]:
        """Return what the first and the last block of each text gather from all of it."""
        ends = jnp.stack([0 * own, own - 1], axis=1)

        def both(x: Array, axis: int) -> Array:
            x = _blocks(x, axis, self.config.block_size)
            x = jnp.take_along_axis(x, ends.reshape(*ends.shape, *(1,) * (x.ndim - 2)), axis=1)
            return jnp.moveaxis(x.reshape(x.shape[0], -1, *x.shape[3:]), 1, axis)

        asked = replace(view, q_pos=both(view.q_pos, 1), q_seg=both(view.q_seg, 1), single=False)
        mixed, _ = self._mixed(both(q, 2), memory, asked, train)
        return jnp.split(mixed[:, :, None], 2, axis=3)


def attended_blocks(
    own: Int[Array, "B"], count: int, drawn: int, seed: int
) -> tuple[Int[Array, "B I M"], Bool[Array, "B I M"]]:
    """Return the blocks that each of `count` blocks attends to, in texts of `own` blocks, and which
    of these are valid: the others are duplicates or outside the text.
    """
    i, n = jnp.arange(count)[None], own[:, None]
    fixed = jnp.stack(jnp.broadcast_arrays(0 * n, i - 1, i, i + 1, n - 1), axis=-1)
    fresh = jnp.stack(
        jnp.broadcast_arrays(
            i >= 0, i - 1 >= 1, (i >= 1) & (i < n), i + 1 < n, (n - 1 > i + 1) & (n > 1)
        ),
        axis=-1,
    )
    if not drawn:
        return jnp.clip(fixed, 0, count - 1), fresh
    j = jnp.arange(count)[None, None]
    others = (j > 0) & (j < n[..., None] - 1) & (jnp.abs(j - i[..., None]) > 1)
    chance = jnp.where(others, jnp.asarray(_chance(seed, count), jnp.float32)[None], -1)
    more = min(drawn, count)
    chances, place = jax.lax.top_k(chance, more)
    blocks = jnp.concatenate([fixed, place.astype(fixed.dtype)], axis=-1)
    return jnp.clip(blocks, 0, count - 1), jnp.concatenate([fresh, chances >= 0], axis=-1)


@functools.lru_cache(maxsize=64)
def _chance(seed: int, count: int) -> np.ndarray:
    """Return random numbers [count count]; a smaller count gets the same numbers."""
    return np.stack([np.random.default_rng([seed, i]).random(count) for i in range(count)])


def _longer(x: Array, axis: int, new: int) -> Array:
    return jnp.pad(x, [(0, new if i == axis else 0) for i in range(x.ndim)])


def _wider(view: View, new: int) -> View:
    """Return the view with `new` more positions of padding."""
    q_pos, k_pos, q_seg, k_seg = (
        _longer(x, 1, new) for x in (view.q_pos, view.k_pos, view.q_seg, view.k_seg)
    )
    return replace(view, q_pos=q_pos, k_pos=k_pos, q_seg=q_seg, k_seg=k_seg, single=False)


def _blocks(x: Array, axis: int, size: int) -> Array:
    """Return x [B ... T ...] as [B blocks size ...]."""
    x = jnp.moveaxis(x, axis, 1)
    return x.reshape(x.shape[0], -1, size, *x.shape[2:])


def _rows(x: Array, axis: int) -> Array:
    """Return blocks [B I C ...] as separate rows, [B I ... C ...]."""
    return jnp.moveaxis(x.reshape(-1, *x.shape[2:]), 1, axis)


WORDS = {"bigbird": BlockSparse}
