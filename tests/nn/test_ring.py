"""The ring buffer of a window: what it holds after writing, reordering and rewinding."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from transformer_jax.nn.cache import KeysValues, Lanes
from transformer_jax.nn.ring import Ring

BATCH, WIDTH, REACH, ROOM = 2, 3, 3, 12
PROMPTS = np.array([5, 1])
SHARED = 6


def memory(numbers) -> KeysValues:
    """Return keys and values that are numbers [B S]."""
    x = jnp.asarray(numbers, jnp.float32)
    return KeysValues(x[:, None, None, :], x[:, None, :, None])


class Held:
    """A ring, with the texts of its hypotheses: lists of numbers, none of them twice."""

    def __init__(self, prompts: bool) -> None:
        lanes = Lanes.empty(BATCH, WIDTH, ROOM, slotted=False)
        self.texts = [[[] for _ in range(WIDTH)] for _ in range(BATCH)]
        self.begin = PROMPTS if prompts else 0 * PROMPTS
        self.next = 1
        seg = jnp.asarray(np.arange(SHARED) < PROMPTS[:, None], jnp.int32)
        if prompts:
            lanes, _ = lanes.prompt(seg, "causal")
        self.lanes = lanes
        self.ring = Ring.empty(lanes, REACH, 1, 1, 1, jnp.dtype("float32"))
        if prompts:
            numbers = self.numbers(BATCH, SHARED)
            self.ring = self.ring.prompted(memory(numbers), seg)
            self.texts = [[numbers[b, :n].tolist()] * WIDTH for b, n in enumerate(PROMPTS)]

    def numbers(self, *shape):
        count = int(np.prod(shape))
        self.next += count
        return np.arange(self.next - count, self.next).reshape(shape)

    def write(self, count: int, active=(True, True)) -> None:
        new = self.numbers(BATCH, WIDTH, count)
        length = np.array([len(row[0]) for row in self.texts])
        pos = length[:, None] + np.arange(count)
        flat = memory(new.reshape(BATCH, -1))
        self.ring = _write(self.ring, jnp.asarray(pos, jnp.int32), flat, jnp.asarray(active))
        for b, w in np.ndindex(BATCH, WIDTH):
            self.texts[b][w] = self.texts[b][w] + new[b, w].tolist() * active[b]

    def reorder(self, parents) -> None:
        self.ring = _reorder(self.ring, jnp.asarray(parents))
        self.texts = [[row[p] for p in ps] for row, ps in zip(self.texts, parents, strict=True)]

    def rewind(self, back) -> None:
        kept = [len(row[0]) - n for row, n in zip(self.texts, back, strict=True)]
        self.ring = _rewind(self.ring, jnp.asarray(np.array(kept) - self.begin, jnp.int32))
        self.texts = [[t[:n] for t in row] for row, n in zip(self.texts, kept, strict=True)]

    def grow(self, room: int) -> None:
        grown = self.lanes.grow(room, self.lanes.shared)
        self.ring = self.ring.grow(self.lanes, grown)
        self.lanes = grown

    def check(self) -> None:
        """Check that each hypothesis finds what the next window reaches, and nothing of others."""
        values = np.asarray(self.ring.memory.values)[:, 0, :, 0]
        np.testing.assert_array_equal(values, np.asarray(self.ring.memory.keys)[:, 0, 0])
        seen, pos = np.asarray(self.ring.seen), np.asarray(self.ring.k_pos())
        for b, w in np.ndindex(BATCH, WIDTH):
            text, here = self.texts[b][w], seen[b, w]
            held = dict(zip(pos[b, here].tolist(), values[b, here].tolist(), strict=True))
            assert len(held) == here.sum()
            assert all(text[at] == value for at, value in held.items())
            assert {*range(len(text))[1 - REACH :]} <= {*held}


_write, _reorder, _rewind = (jax.jit(f) for f in (Ring.write, Ring.reorder, Ring.rewind))


@pytest.mark.parametrize("prompts", [pytest.param(False, marks=pytest.mark.e2e), True])
def test_the_ring_holds_what_windows_reach(prompts):
    held = Held(prompts)
    held.check()
    for what in (
        1, [[0, 0, 2], [1, 2, 1]], 1, 1, [[1, 0, 0], [2, 1, 0]], 1,
        3, (1, 3), 1, 3, (3, 0), 1, [[2, 2, 2], [0, 1, 2]], "grow", 1, 1, (1, 1), 1,
    ):  # fmt: skip
        if isinstance(what, int):
            held.write(what)
        elif isinstance(what, tuple):
            held.rewind(what)
        elif what == "grow":
            held.grow(20)
        else:
            held.reorder(what)
        held.check()
    held.write(1, (True, False))
    held.check()
    assert held.ring.pos.shape == (BATCH, REACH + 2)  # a step had three tokens


def test_writes_beyond_the_room_are_dropped():
    """They do not wrap around to overwrite something else."""
    held = Held(prompts=False)
    held.grow(2)
    held.write(1)
    before = [list(row) for row in held.texts]
    held.write(3)
    held.texts = [[text[:2] for text in row] for row in held.texts]
    held.check()
    held.rewind((1, 1))
    assert held.texts == before
    held.check()


def test_slots_are_limited_by_the_room():
    """A window wider than the texts costs nothing more."""
    for reach, size in ((3, 3), (100, ROOM)):

        def made(reach=reach):
            lanes = Lanes.empty(BATCH, WIDTH, ROOM, slotted=False)
            ring = Ring.empty(lanes, reach, 1, 1, 1, jnp.dtype("float32"))
            return lanes.seen, ring.seen, ring.grow(lanes, lanes.grow(2 * ROOM, 0)).pos

        slots, seen, pos = jax.eval_shape(made)
        assert seen.shape == (BATCH, WIDTH, size * WIDTH)
        assert slots.size == 0
        assert pos.shape[1] == min(reach, 2 * ROOM)


def test_a_grown_ring_has_the_shape_of_a_new_one():
    """So that sentences can move from one to the other, however far a step may rewind."""

    def made():
        lanes = Lanes.empty(BATCH, WIDTH, 4, slotted=False)
        more = lanes.grow(20, 0)
        one, other = (
            Ring.empty(x, 6, 1, 1, 1, jnp.dtype("float32")).keep(5) for x in (lanes, more)
        )
        one = one.grow(lanes, more)
        assert jax.tree.structure(one) == jax.tree.structure(other)
        return jax.tree.leaves(one), jax.tree.leaves(other)

    one, other = jax.eval_shape(made)
    assert [leaf.shape for leaf in one] == [leaf.shape for leaf in other]
