"""Scaled dot-product attention in blocks, whose scores are never all stored, over positions that
devices share: keys and values pass from one device to the next (ring attention: Liu et al. 2023,
arXiv:2310.01889).

The softmax is taken online (Milakov and Gimelshein 2018, arXiv:1805.02867), and its gradient from
the logarithm of its denominator (FlashAttention-2: Dao 2023, arXiv:2307.08691). So memory grows
with the positions of a device: not with their square, nor with the number of devices.
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.sharding import PartitionSpec

from transformer_jax.base.arrays import Array, Float, Int
from transformer_jax.base.shares import parts_of, taken
from transformer_jax.nn.mixers import dense
from transformer_jax.nn.view import View

AXIS = "context"
Tables = tuple[Array, ...]
_BLOCK = 512  # queries, and keys, whose scores exist at a time: the most
_NEVER = 2**31 - 1  # number of a key that comes after all queries


class _Places(NamedTuple):
    """What masks and biases know of queries or keys, and the number of each in its row."""

    pos: Int[Array, "B T"]
    seg: Int[Array, "B T"]
    rank: Int[Array, "B T"] | None
    number: Int[Array, "T"]

    def mapped(self, of_rows: Callable, of_numbers: Callable) -> "_Places":
        """Return what two functions make of them."""
        rank = None if self.rank is None else of_rows(self.rank)
        return _Places(of_rows(self.pos), of_rows(self.seg), rank, of_numbers(self.number))


class _Queries(NamedTuple):
    """Queries, and what a gradient needs of each, all [B N T ...]."""

    q: Float[Array, "B N T H"]
    places: _Places
    others: tuple[Array, ...] = ()


class _Keys(NamedTuple):
    """Keys and values: what passes around the ring."""

    k: Float[Array, "B K H S"]
    v: Float[Array, "B K S Hv"]
    places: _Places


class _Softmax(NamedTuple):
    """The softmax so far of some queries: the greatest score, the sum of exponentials relative to
    it, and the sum of the values that they weigh.
    """

    greatest: Float[Array, "B N T"]
    total: Float[Array, "B N T"]
    mixed: Float[Array, "B N T Hv"]


class _How(NamedTuple):
    """What is the same for all blocks."""

    kind: tuple[tuple[str, Any], ...]  # the fields of a view besides arrays
    scale: float
    softcap: float | None
    parts: int  # devices in the ring
    taken: tuple[str, ...]  # mesh axes of whoever calls: gradients are traced later

    def scores(self, q: Array, k: Array, queries: _Places, keys: _Places, tables: Tables) -> Array:
        """Return the scores of a block [B N T S], the least possible where a query may not look."""
        view = View(
            queries.pos, keys.pos, queries.seg, keys.seg, queries.rank, keys.rank, tables=tables,
            **dict(self.kind),
        )  # fmt: skip
        scores = dense.scores(q, k) * self.scale
        if self.softcap is not None:
            scores = self.softcap * jnp.tanh(scores / self.softcap)
        if view.bias is not None:
            scores += view.bias(view, q, k, self.scale).astype(scores.dtype)
        return jnp.where(view.mask(), scores, jnp.finfo(scores.dtype).min)

    @property
    def causal(self) -> bool:
        """Whether later keys are never seen."""
        return dict(self.kind)["order"] == "causal"

    def zigzag(self, length: int, others: int) -> bool:
        """Whether devices exchange halves of what they have, so that all have as much to do."""
        return self.causal and self.parts > 1 and length == others and length % 2 == 0


def mix(
    q: Float[Array, "B N T H"],
    k: Float[Array, "B K H S"],
    v: Float[Array, "B K S Hv"],
    view: View,
    dropout: Callable[[Array], Array],
    scale: float | None = None,
    softcap: float | None = None,
) -> tuple[Float[Array, "B N T Hv"], Float[Array, "B N T S"]]:
    """Return what `dense.mix` does. Its weights are computed only where they are used.

    `dropout` must do nothing. Cached decoding, with few queries and its own layout, uses `dense`.
    In a causal view, queries and keys must be the same positions, those of a segment ascending
    along its row: blocks of keys after all queries are skipped, and each device works on a part
    from either end of the rows, so that all have equally much left ("zigzag").
    """
    mixed, weights = dense.mix(q, k, v, view, dropout, scale, softcap)
    if view.visible is not None:
        return mixed, weights
    assert view.values is None, "blocks add nothing to their own products with values"
    fields = "order", "window", "dilation", "everywhere", "before", "bidirectional", "bias"
    kind = tuple((name, getattr(view, name)) for name in fields)
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    how = _How(kind, scale, softcap, parts_of((AXIS,)), taken())
    places = (
        _Places(*of, jnp.arange(length))
        for length, of in (
            (q.shape[2], (view.q_pos, view.q_seg, view.q_rank)),
            (k.shape[3], (view.k_pos, view.k_seg, view.k_rank)),
        )
    )
    mixed = _attend(how, _Queries(q, next(places)), _Keys(k, v, next(places)), view.tables)
    return mixed.astype(q.dtype), weights


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _attend(how: _How, queries: _Queries, keys: _Keys, tables: Tables) -> Float[Array, "B N T Hv"]:
    return _forward(how, queries, keys, tables)[0]


def _forward(how: _How, queries: _Queries, keys: _Keys, tables: Tables) -> Any:
    function = _on_ring(how, _found_here, ("queries", "queries"))
    mixed, log_total = function(queries, keys, tables)
    return mixed, (queries, keys, tables, mixed, log_total)


def _backward(how: _How, kept: Any, slope: Array) -> Any:
    queries, keys, tables, mixed, log_total = kept
    slope = slope.astype(mixed.dtype)
    off = (slope * mixed).sum(-1)
    function = _on_ring(how, _slopes_here, ("queries", ("keys", "values"), "tables"))
    dq, (dk, dv), dtables = function(queries._replace(others=(slope, log_total, off)), keys, tables)
    integers = jax.tree.map(
        lambda x: jnp.zeros(x.shape, jax.dtypes.float0), (queries.places, keys.places)
    )
    dkeys = _Keys(dk.astype(keys.k.dtype), dv.astype(keys.v.dtype), integers[1])
    return _Queries(dq.astype(queries.q.dtype), integers[0]), dkeys, dtables


_attend.defvjp(_forward, _backward)

_LIES = {
    "queries": PartitionSpec(None, None, AXIS),
    "keys": PartitionSpec(None, None, None, AXIS),
    "values": PartitionSpec(None, None, AXIS),
    "places": PartitionSpec(None, AXIS),
    "numbers": PartitionSpec(AXIS),
    "tables": PartitionSpec(),
}


def _on_ring(how: _How, function: Callable, wanted: Any) -> Callable:
    """Return a function of whole arrays, of which each device of the ring computes its part."""
    here = functools.partial(function, how)
    if how.parts == 1:
        return here

    def called(queries: _Queries, keys: _Keys, tables: Tables) -> Any:
        def places(of: _Places) -> _Places:
            return of.mapped(lambda _: "places", lambda _: "numbers")

        names: Any = "queries", "keys", "values"
        q, k, v = names
        others = (q,) * len(queries.others)
        given = _Queries(q, places(queries.places), others), _Keys(k, v, places(keys.places))
        specs, out = jax.tree.map(_LIES.__getitem__, ((*given, ("tables",) * len(tables)), wanted))
        mapped = jax.shard_map(
            here, in_specs=specs, out_specs=out, axis_names={AXIS, *how.taken}, check_vma=False
        )
        return mapped(queries, keys, tables)

    return called


def _found_here(how: _How, queries: _Queries, keys: _Keys, tables: Tables) -> Any:
    """Return what a device's queries gather, and the logarithms of the sums of exponentials."""
    zigzag = how.zigzag(queries.q.shape[2], keys.k.shape[3])
    if zigzag:
        queries, keys = _exchanged(queries), _exchanged(keys)
    *shape, _ = queries.q.shape
    wide = jnp.promote_types(queries.q.dtype, jnp.float32)
    zeros = jnp.zeros(shape, wide)
    softmax = _Softmax(
        zeros + jnp.finfo(wide).min, zeros, jnp.zeros((*shape, keys.v.shape[3]), wide)
    )
    add = functools.partial(_with_keys, how, queries, tables, zigzag)
    softmax = add(keys, softmax)
    if how.parts > 1:

        def step(carry, _):
            keys, softmax = carry
            keys = _passed_on(how, keys)
            return (keys, add(keys, softmax)), None

        (_, softmax), _ = jax.lax.scan(step, (keys, softmax), length=how.parts - 1)
    mixed = softmax.mixed / softmax.total[..., None]
    found = mixed, softmax.greatest + jnp.log(softmax.total)
    return jax.tree.map(lambda x: _exchange(x, 2, back=True), found) if zigzag else found


def _with_keys(
    how: _How, queries: _Queries, tables: Tables, halves: bool, keys: _Keys, softmax: _Softmax
) -> _Softmax:
    """Return the softmax after some more keys."""
    by_queries, by_keys = _Cut.of(queries.q.shape[2], halves), _Cut.of(keys.k.shape[3], halves)
    each_keys = by_keys.of_keys(keys)

    def of_queries(_, block):
        queries, softmax = block
        return None, jax.lax.scan(functools.partial(of_keys, queries), softmax, each_keys)[0]

    def of_keys(queries, softmax, keys):
        def more(softmax):
            scores = how.scores(queries.q, keys.k, queries.places, keys.places, tables)
            greatest = jnp.maximum(softmax.greatest, scores.max(-1))
            powers = jnp.exp(scores - greatest[..., None])
            fall = jnp.exp(softmax.greatest - greatest)
            mixed = dense.gathered(powers.astype(keys.v.dtype), keys.v)
            return _Softmax(
                greatest,
                softmax.total * fall + powers.sum(-1),
                softmax.mixed * fall[..., None] + mixed,
            )

        return _unless_later(how, queries, keys, more, softmax), None

    blocks = by_queries.of_queries(queries), by_queries.of_each(softmax)
    _, softmaxes = jax.lax.scan(of_queries, None, blocks)
    return jax.tree.map(lambda x: by_queries.whole(x, 2), softmaxes)


def _slopes_here(how: _How, queries: _Queries, keys: _Keys, tables: Tables) -> Any:
    """Return the gradients of a device's queries, keys and values, and of tables; `others` are the
    slope of what was gathered, the logarithms of the sums, and the products of that slope and it.
    """
    zigzag = how.zigzag(queries.q.shape[2], keys.k.shape[3])
    if zigzag:
        queries, keys = _exchanged(queries), _exchanged(keys)
    wide = jnp.promote_types(queries.q.dtype, jnp.float32)
    dq, dk, dv = (jnp.zeros(x.shape, wide) for x in (queries.q, keys.k, keys.v))
    add = functools.partial(_with_slopes, how, queries, tables, zigzag)
    found = add(keys, (dq, (dk, dv), jax.tree.map(jnp.zeros_like, tables)))
    if how.parts > 1:

        def step(carry, _):
            keys, (dq, dkv, dtables) = carry
            keys, dkv = _passed_on(how, (keys, dkv))
            return (keys, add(keys, (dq, dkv, dtables))), None

        (_, found), _ = jax.lax.scan(step, (keys, found), length=how.parts - 1)
        found = found[0], _passed_on(how, found[1]), jax.lax.psum(found[2], AXIS)
    dq, (dk, dv), dtables = found
    if zigzag:
        dq, dk, dv = (_exchange(x, axis, back=True) for x, axis in ((dq, 2), (dk, 3), (dv, 2)))
    return dq, (dk, dv), dtables


def _with_slopes(
    how: _How, queries: _Queries, tables: Tables, halves: bool, keys: _Keys, found: Any
) -> Any:
    """Return the gradients with those by way of some more keys added."""
    by_queries, by_keys = _Cut.of(queries.q.shape[2], halves), _Cut.of(keys.k.shape[3], halves)
    each_keys = by_keys.of_keys(keys)

    def of_queries(carry, block):
        queries, dq = block
        add = functools.partial(of_keys, queries)
        (dq, dtables), dkv = jax.lax.scan(add, (dq, carry[1]), (each_keys, carry[0]))
        return (dkv, dtables), dq

    def of_keys(queries, carry, block):
        keys, dkv = block
        slope, log_total, off = queries.others

        def more(found):
            scores, pull = jax.vjp(
                lambda q, k, tables: how.scores(q, k, queries.places, keys.places, tables),
                queries.q, keys.k, tables,
            )  # fmt: skip
            weights = jnp.exp(scores - log_total[..., None])
            dweights, dv = dense.gathered_slopes(
                weights.astype(keys.v.dtype), keys.v, slope.astype(keys.v.dtype)
            )
            dq, dk, dtables = pull(weights * (dweights.astype(scores.dtype) - off[..., None]))
            own = (dq, dtables), (dk, dv)
            return jax.tree.map(lambda total, x: total + x.astype(total.dtype), found, own)

        return _unless_later(how, queries, keys, more, (carry, dkv))

    dq, (dk, dv), dtables = found
    dkv = by_keys.blocks(dk, 3), by_keys.blocks(dv, 2)
    blocks = by_queries.of_queries(queries), by_queries.blocks(dq, 2)
    ((dk, dv), dtables), dq = jax.lax.scan(of_queries, (dkv, dtables), blocks)
    return by_queries.whole(dq, 2), (by_keys.whole(dk, 3), by_keys.whole(dv, 2)), dtables


def _unless_later(how: _How, queries: _Queries, keys: _Keys, function: Callable, state: Any) -> Any:
    """Return what a function makes of a state; the state, if all keys come after all queries."""
    if not how.causal:
        return function(state)
    some = keys.places.number.min() <= queries.places.number.max()
    return jax.lax.cond(some, function, lambda state: state, state)


class _Cut(NamedTuple):
    """How a device's part of a row is cut into blocks of one size, the last of which are padded."""

    length: int
    parts: int

    @classmethod
    def of(cls, length: int, halves: bool) -> "_Cut":
        """Return the cut with the fewest blocks, at least two if they are of halves."""
        return cls(length, max(-(-length // _BLOCK), 1 + halves))

    @property
    def size(self) -> int:
        """How long a block is."""
        return -(-self.length // self.parts)

    def blocks(self, x: Array, axis: int, fill: int = 0) -> Array:
        """Return an array in blocks along an axis, [parts ...]."""
        if spare := self.parts * self.size - self.length:
            widths = [(0, spare * (i == axis)) for i in range(x.ndim)]
            x = jnp.pad(x, widths, constant_values=fill)
        x = x.reshape(*x.shape[:axis], self.parts, self.size, *x.shape[axis + 1 :])
        return jnp.moveaxis(x, axis, 0)

    def whole(self, blocks: Array, axis: int) -> Array:
        """Return the array that blocks are of."""
        x = jnp.moveaxis(blocks, 0, axis)
        x = x.reshape(*x.shape[:axis], -1, *x.shape[axis + 2 :])
        return jax.lax.slice_in_dim(x, 0, self.length, axis=axis)

    def of_each(self, arrays: Any) -> Any:
        """Return arrays of queries in blocks."""
        return jax.tree.map(lambda x: self.blocks(x, 2), arrays)

    def of_places(self, places: _Places, number: int) -> _Places:
        """Return places in blocks; padding has a number and no segment."""
        return places.mapped(lambda x: self.blocks(x, 1), lambda x: self.blocks(x, 0, number))

    def of_queries(self, queries: _Queries) -> _Queries:
        """Return queries in blocks."""
        q, others = self.of_each((queries.q, queries.others))
        return _Queries(q, self.of_places(queries.places, -1), others)

    def of_keys(self, keys: _Keys) -> _Keys:
        """Return keys and values in blocks."""
        k, v = self.blocks(keys.k, 3), self.blocks(keys.v, 2)
        return _Keys(k, v, self.of_places(keys.places, _NEVER))


def _passed_on(how: _How, tree: Any) -> Any:
    """Return what the device before this one has."""
    turn = [(i, (i + 1) % how.parts) for i in range(how.parts)]
    return jax.tree.map(lambda x: jax.lax.ppermute(x, AXIS, turn), tree)


def _exchanged(one: Any) -> Any:
    """Return queries or keys, exchanged."""
    places = one.places.mapped(lambda x: _exchange(x, 1), lambda x: _exchange(x, 0))
    if isinstance(one, _Keys):
        return _Keys(_exchange(one.k, 3), _exchange(one.v, 2), places)
    q, others = jax.tree.map(lambda x: _exchange(x, 2), (one.q, one.others))
    return _Queries(q, places, others)


def _exchange(x: Array, axis: int, back: bool = False) -> Array:
    """Return, on device i of n, parts i and 2n - 1 - i of 2n, in either order, of which it has
    parts 2i and 2i + 1; or the other way round.
    """
    count = jax.lax.axis_size(AXIS)
    halves = []
    for place, half in enumerate(jnp.split(x, 2, axis)):
        parts = [2 * i + place for i in range(count)]
        moves = [(i, min(part, 2 * count - 1 - part)) for i, part in enumerate(parts)]
        moves = [move[::-1] for move in moves] if back else moves
        halves.append(jax.lax.ppermute(half, AXIS, moves))
    return jnp.concatenate(halves, axis)
