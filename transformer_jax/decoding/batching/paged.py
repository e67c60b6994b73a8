"""Continuous batching of prompts over a paged cache.

Each row has a table of blocks. Prompts that begin alike share blocks, as do the samples of one
prompt; a shared block is copied before it is written to. A row holds the blocks of its text and of
at most one more turn of steps. If none is free, the sentence admitted last is evicted and restarts
later: results depend on the sentence alone.
"""

import functools
from collections import deque
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from transformer_jax.base.arrays import Array, Bool, Float, Int
from transformer_jax.decoding.batching.stream import Found, Sentence
from transformer_jax.decoding.search.state import Search, SearchRequest, begin
from transformer_jax.models.model import Stepper
from transformer_jax.models.network import DecodeState
from transformer_jax.nn.cache import Lanes
from transformer_jax.nn.pages import Pages


@struct.dataclass
class PagedState:
    """The pool of each layer, and the block tables of the rows."""

    pools: Any
    table: Int[Array, "B W T"]
    start: Int[Array, "B"]  # lengths of prompts
    memories: Any


class Paged:
    """A Stepper on pages, for models whose memory is only keys and values; one token at a time."""

    def __init__(self, stepper: Stepper) -> None:
        self._stepper = stepper

    def step(
        self, state: PagedState, tokens: Int[Array, "B W 1"], positions: Int[Array, "B 1"],
        active: Bool[Array, "B"],
    ) -> tuple[Float[Array, "B W 1 V"], None, PagedState]:  # fmt: skip
        """See Stepper."""
        width, count = tokens.shape[1], tokens.shape[0] * tokens.shape[1]
        table = state.table.reshape(count, -1)
        place = jnp.repeat(state.start + positions[:, 0], width)
        going = jnp.repeat(active, width)
        caches = [pages.gathered(table) for pages in state.pools]
        room = caches[0].keys.shape[3]
        seen = jnp.arange(room)[None] < place[:, None]
        lanes = Lanes(seen[:, None], jnp.zeros(count, jnp.int32), room)
        rows = DecodeState(state.memories, None, caches, lanes)
        following = tokens.reshape(count, 1, 1), place[:, None], going
        logits, _, after = self._stepper.step(rows, *following)
        pairs = zip(state.pools, after.caches, strict=True)
        pools = [pages.write(table, place, going, cache) for pages, cache in pairs]
        return logits.reshape(*tokens.shape, -1), None, replace(state, pools=pools)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stepper, name)


class Blocks:
    """The blocks of a pool. Named blocks can be shared; nobody writes to a shared block."""

    def __init__(self, count: int) -> None:
        self._free = list(range(count))[::-1]
        self._uses = [0] * count
        self._named: dict[Hashable, int] = {}
        self._names: dict[int, Hashable] = {}

    @property
    def free(self) -> int:
        """Number of free blocks."""
        return len(self._free)

    def uses(self, block: int) -> int:
        """Return the number of users of a block."""
        return self._uses[block]

    def take(self, name: Hashable = None) -> int:
        """Take a free block, of which there must be one, under the given name."""
        block = self._free.pop()
        self._uses[block] = 1
        if name is not None:
            self._named[name], self._names[block] = block, name
        return block

    def share(self, name: Hashable) -> int | None:
        """Return the block with a name for one more user, or None."""
        block = self._named.get(name)
        if block is not None:
            self._uses[block] += 1
        return block

    def release(self, block: int) -> None:
        """Release one use; a block without uses becomes free and loses its name."""
        self._uses[block] -= 1
        if not self._uses[block]:
            self._named.pop(self._names.pop(block, None), None)
            self._free.append(block)

    def own(self, block: int) -> int:
        """Return a block to write to instead of this one: itself, or a copy if others use it."""
        if self._uses[block] == 1:
            return block
        copy = self.take()
        self.release(block)
        return copy


_ROWS = 64  # sentences at a time, at most


class PagedStream:
    """A stream of prompts over a paged cache; `make_stepper` as for `engine.Engine`.

    `size` is the number of positions per block, `budget` that of all blocks together, unless one
    sentence needs more.
    """

    def __init__(
        self, make_stepper: Callable[[Any], Stepper], search: Search, params: Any, size: int,
        budget: int,
    ) -> None:  # fmt: skip
        self._programs, self._search, self._params = _programs(make_stepper), search, params
        self._size, self._budget = size, budget
        self.most_used = 0  # peak number of blocks so far
        self._state: Any = None
        self._pools: Any = None
        self._rest: Any = None  # of the model's state

    @property
    def count(self) -> int:
        """Number of blocks in the pool."""
        return self._count

    @property
    def gathered(self) -> int:
        """Number of blocks in all rows' tables, which a step gathers."""
        return self._table.size

    @property
    def block_bytes(self) -> int:
        """Bytes of a block over all layers."""
        leaves = jax.tree.leaves(self._pools)
        return sum(leaf.nbytes for leaf in leaves) // self._count

    def run(self, sentences: Sequence[Sentence]) -> Iterator[Found]:
        """Yield the results of each sentence, best hypothesis first."""
        if not sentences:
            return
        self._prepare(sentences)
        waiting = deque(range(len(sentences)))
        while waiting or self._order:
            while waiting and self._enters(sentences[waiting[0]]):
                self._admit(waiting[0], sentences[waiting.popleft()])
            waiting.extendleft(self._make_room())
            arrays = self._params, self._search, self._state, self._pools, self._rest
            self._state, self._pools = self._programs.turn(*arrays, self._table, self._start)
            yield from self._harvest()

    def _prepare(self, sentences: Sequence[Sentence]) -> None:
        width, size = self._search.width, self._size
        self._length = max(max(len(s.ids) for s in sentences), 1)
        self._room = max(s.limit for s in sentences)
        self._columns = -(-(self._length + self._room) // size)
        least = self._columns * width + 1  # one more for a copy
        self._count = max(self._budget // size, least)
        rows = min(len(sentences), _ROWS, max(self._count // -(-self._length // size), 1))
        self._blocks = Blocks(self._count)
        self._table = np.full((rows, width, self._columns), self._count, np.int32)
        self._start, self._position = np.zeros((2, rows), np.int32)
        self._limits = np.zeros(rows, np.int32)
        self._owner = np.full(rows, -1)
        self._order: list[int] = []  # rows, the newest last
        request = SearchRequest.empty(1, self._length)
        arguments = self._params, self._search, request, self._room, rows, self._count, size
        self._state, self._pools, self._rest = self._programs.empty(*arguments)

    def _parts(self, ids: Sequence[int]) -> list[tuple[int, ...]]:
        """Return the names of a prompt's blocks: all pieces up to the end of each."""
        return [tuple(ids[: i + self._size]) for i in range(0, len(ids), self._size)]

    def _enters(self, sentence: Sentence) -> bool:
        """Return whether there is a row for a sentence, and blocks for its prompt and a turn."""
        new = len(self._parts(sentence.ids)) + 2 * self._search.width
        return bool((self._owner < 0).any()) and (not self._order or self._blocks.free >= new)

    def _admit(self, number: int, sentence: Sentence) -> None:
        row = int(np.flatnonzero(self._owner < 0)[0])
        table = self._table[row]
        table[:] = self._count
        new = np.full(self._columns, self._count, np.int32)  # blocks yet to be filled
        for column, name in enumerate(self._parts(sentence.ids)):
            shared = self._blocks.share(name)
            if shared is None:
                shared = new[column] = self._blocks.take(name)
            table[:, column] = shared
            for _ in range(self._search.width - 1):
                self._blocks.share(name)
        request = SearchRequest.empty(1, self._length)
        request.src_ids[0, : len(sentence.ids)] = sentence.ids
        request.src_lengths[0], request.first[0] = len(sentence.ids), sentence.first
        request.limits[0], request.least[0] = sentence.limit, sentence.least
        request.seeds[0] = sentence.seed
        arguments = self._params, self._search, request, self._room, self._state, self._pools
        self._state, self._pools = self._programs.admit(*arguments, np.int32(row), new)
        self._owner[row], self._start[row] = number, len(sentence.ids)
        self._position[row], self._limits[row] = 0, sentence.limit
        self._order.append(row)

    def _make_room(self) -> list[int]:
        """Give every row the blocks of its next turn; return evicted sentences, latest first."""
        leaving: list[int] = []
        copies: dict[int, int] = {}  # source by target
        for row in list(self._order):
            while row in self._order and not self._extend(row, copies):
                last = self._order[-1]
                leaving.append(int(self._owner[last]))
                for block in self._table[last].reshape(-1).tolist():
                    copies.pop(block, None)
                self._leave(last)
                self._state = self._programs.stop(self._state, np.int32(last))
        self.most_used = max(self.most_used, self._count - self._blocks.free)
        pairs = [*copies.items()] + [(self._count, 0)] * (self._table[..., 0].size - len(copies))
        targets, sources = np.array(pairs, np.int32).T
        self._pools = self._programs.copy(self._pools, sources, targets)
        return leaving

    def _extend(self, row: int, copies: dict[int, int]) -> bool:
        """Give a row its own blocks for the writes of a turn; return False if too few are free."""
        first = int(self._start[row] + self._position[row])
        last = min(first + self._size, int(self._start[row] + self._limits[row])) - 1
        columns = slice(first // self._size, last // self._size + 1)
        table, blocks = self._table[row], self._blocks
        there = table[:, columns].reshape(-1).tolist()
        if blocks.free < sum(x == self._count or blocks.uses(x) > 1 for x in there):
            return False
        new = [blocks.take() if x == self._count else blocks.own(x) for x in there]
        moved = zip(new, there, strict=True)
        copies |= {y: x for y, x in moved if x not in (y, self._count)}
        table[:, columns] = np.array(new, np.int32).reshape(table[:, columns].shape)
        return True

    def _leave(self, row: int) -> None:
        for block in self._table[row][self._table[row] < self._count].tolist():
            self._blocks.release(block)
        self._table[row], self._owner[row] = self._count, -1
        self._order.remove(row)

    def _harvest(self) -> Iterator[Found]:
        s = self._state
        done, position, tokens, scores = jax.device_get((s.done, s.position, s.finished, s.scores))
        self._position = np.array(position)
        for row in [row for row in self._order if done[row]]:
            yield int(self._owner[row]), tokens[row, :, 1:], scores[row]
            self._leave(row)


class _Programs(NamedTuple):
    empty: Any
    admit: Any
    copy: Any
    stop: Any
    turn: Any


@functools.lru_cache(maxsize=8)
def _programs(make_stepper: Callable[[Any], Stepper]) -> _Programs:
    """Return compiled functions: see their callers."""

    def started(params, search, request, room):
        request = jax.tree.map(jnp.asarray, request)
        model = begin(search, make_stepper(params), request, 1).model_state
        return search.start(request, room, None), model

    def empty(params, search, request, room, rows, count, size):
        one, model = started(params, search, request, room)
        state = jax.tree.map(lambda x: jnp.zeros((rows, *x.shape[1:]), x.dtype), one)
        pools = [Pages.like(cache, count, size) for cache in model.caches]
        return state.replace(done=jnp.ones(rows, bool)), pools, model.memories

    def admit(params, search, request, room, state, pools, row, blocks):
        new, model = started(params, search, request, room)
        state = jax.tree.map(lambda old, x: old.at[row].set(x[0]), state, new)
        length = request.src_ids.shape[1]
        prompts = [cache.part(0, length) for cache in model.caches]
        return state, [p.fill(blocks, x) for p, x in zip(pools, prompts, strict=True)]

    def turn(params, search, state, pools, memories, table, start):
        stepper, size = Paged(make_stepper(params)), pools[0].keys.shape[3]
        state = state.replace(model_state=PagedState(pools, table, start, memories))

        def on(carry):
            return (carry[1] < size) & carry[0].active.any()

        def step(carry):
            return search.advance(stepper, carry[0]), carry[1] + 1

        state, _ = jax.lax.while_loop(on, step, (state, 0))
        return state.replace(model_state=None), state.model_state.pools

    def stop(state, row):
        return state.replace(done=state.done.at[row].set(True))

    def copy(pools, sources, targets):
        return [pages.copied(sources, targets) for pages in pools]

    return _Programs(
        jax.jit(empty, static_argnums=(3, 4, 5, 6)),
        jax.jit(admit, static_argnums=3, donate_argnums=(4, 5)),
        jax.jit(copy, donate_argnums=0),
        jax.jit(stop, donate_argnums=0),
        jax.jit(turn, donate_argnums=(2, 3)),
    )
