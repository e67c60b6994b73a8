"""Decoding step by step with a cache gives the logits of one pass over the whole target."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tiny import (
    BASE,
    MORE_VARIANTS,
    UNPACKED,
    VARIANTS,
    VOCAB,
    WIDE,
    Stepping,
    alone,
    logits_of,
    make,
    random_store,
)

from transformer_jax.base.vocabulary import UNK
from transformer_jax.data.batches.batch import Batch, Side

# As many rows as in the other property tests; with 3 x WIDTH = 6 queries, a step has the shape of a
# pass over whole texts and of the encoder's: fewer operations to compile.
ROWS, WIDTH, ROOM = 6, 2, 6
SOURCES = alone(random_store([(5, 1), (3, 1), (6, 1)] * 2), ROWS, 6, 1)
# A number feeds that many tokens to every hypothesis; a list takes back that many from each row.
# Caches have the same numbers of slots with and without a prompt.
PROGRAMS = {
    # One shape, with everything that differs between entries.
    "in brief": ["16 slots", 3, "reorder", [2, 2, 3] * 2, 3],
    "everything": [3, "reorder", [2, 1, 3] * 2, 1, "reorder", "20 slots", 3],
    "one token at a time": [1, 1, 1, 1],
    "several tokens at once": [1, 3, 1],
    "hypotheses exchanged": [1, "reorder", 1, "reorder", 3, "reorder", 1],
    "tokens taken back": [3, [2] * 6, 3, [1] * 6, 1],
    "rows at different positions": [3, [1, 2, 3] * 2, 1, 3],
    "room made on the way": [3, "reorder", "16 slots", "20 slots", 3],
}


# Prompts with bidirectional attention.
RANKED = [f"{name} by ranks" for name in ("decoder", "llama", "t5")]
# With caches of other kinds: of what one side reads, of some heads, of a window.
OF_ANOTHER_KIND = [BASE, "llama", "pattern"]
# Where every layer keeps a state, there are no slots by which to count positions.
WITHOUT_SLOTS = {
    "universal without slots": replace(VARIANTS["universal"], decoder_pattern=("linear",))
}
# Rematerialisation in the backward pass does not change the forward pass.
LIKE_BASE = [n for n, c in VARIANTS.items() if replace(c, remat="none") == VARIANTS[BASE]]


class Decoding:
    """A Stepper's state, the text of each hypothesis, and all logits computed so far."""

    def __init__(self, model, params) -> None:
        self.stepper = Stepping(model, params)
        batch, room = Batch(jax.device_put(SOURCES.src), None, {}), ROOM
        if model.config.architecture == "decoder":  # its prompt stands for the source
            prompt = batch.src._replace(rank=jnp.zeros_like(batch.src.pos))
            batch, room = Batch(None, prompt, {}), ROOM - 6 // WIDTH
        self.state = self.stepper.start(batch, width=WIDTH, length=room)
        self.texts = [[[] for _ in range(WIDTH)] for _ in range(ROWS)]
        self.random = np.random.default_rng(0)
        self.asked: list[tuple[int, list[int]]] = []  # a row and a text in it
        self.answered: list[np.ndarray] = []  # logits after the last tokens of the text, [T V]

    def follow(self, program) -> None:
        for what in program:
            if isinstance(what, int):
                self.feed(what)
            elif what == "reorder":
                self.reorder()
            elif isinstance(what, str):
                self.grow(int(what.removesuffix(" slots")))
            else:
                self.rewind(what)

    def feed(self, count: int) -> None:
        tokens = self.random.integers(UNK, VOCAB, (ROWS, WIDTH, count))
        first = np.array([[len(row[0])] for row in self.texts])
        positions = first + np.arange(count)
        logits, _, self.state = self.stepper.step(
            self.state, jnp.asarray(tokens, jnp.int32), jnp.asarray(positions, jnp.int32),
            jnp.ones(ROWS, bool),
        )  # fmt: skip
        for row, lane in np.ndindex(ROWS, WIDTH):
            self.texts[row][lane] = self.texts[row][lane] + tokens[row, lane].tolist()
            self.asked.append((row, self.texts[row][lane]))
        self.answered.extend(np.asarray(logits).reshape(-1, count, VOCAB))

    def grow(self, slots: int) -> None:
        """Make room after a longer prompt, or beside a longer source."""
        shared, src_length = (8, 8) if self.state.src_seg is None else (0, slots - 4)
        length = (slots - shared) // WIDTH
        self.state = self.stepper.grow(self.state, src_length=src_length, length=length)
        lanes = self.state.lanes
        assert lanes.seen.shape[2] == (slots if lanes.slotted else 0)

    def reorder(self) -> None:
        parents = self.random.integers(0, WIDTH, (ROWS, WIDTH))
        self.state = self.stepper.reorder(self.state, jnp.asarray(parents, jnp.int32))
        self.texts = [[self.texts[r][p] for p in parents[r]] for r in range(ROWS)]

    def rewind(self, back: list[int]) -> None:
        kept = [len(row[0]) - n for row, n in zip(self.texts, back, strict=True)]
        self.state = self.stepper.rewind(self.state, jnp.asarray(kept, jnp.int32))
        self.texts = [[t[:n] for t in row] for row, n in zip(self.texts, kept, strict=True)]

    def in_one_pass(self, model, params) -> np.ndarray:
        """Return the logits of every text, [texts ROOM V], prompts excluded."""
        if model.config.architecture == "decoder":
            return self._after_prompts(model, params)
        rows = [row for row, _ in self.asked]
        tgt_in = np.zeros((len(rows), ROOM), np.int32)
        for number, (_, text) in enumerate(self.asked):
            tgt_in[number, : len(text)] = text
        positions = np.broadcast_to(np.arange(ROOM, dtype=np.int32), tgt_in.shape)
        tgt = Side(tgt_in, positions, (tgt_in > 0).astype(np.int32))
        batch = Batch(jax.tree.map(lambda x: x[rows], SOURCES.src), tgt, {})
        return _by_sixes(model, params, batch)

    def _after_prompts(self, model, params) -> np.ndarray:
        rows = [row for row, _ in self.asked]
        inputs, rank = np.zeros((2, len(rows), 6 + ROOM), np.int32)
        begin = (SOURCES.src.seg > 0).sum(1)[rows]
        for number, (row, text) in enumerate(self.asked):
            whole = [*SOURCES.src.inputs[row][: begin[number]], *text]
            inputs[number, : len(whole)] = whole
            rank[number] = np.maximum(np.arange(6 + ROOM) - begin[number] + 1, 0)
        positions = np.broadcast_to(np.arange(6 + ROOM, dtype=np.int32), inputs.shape)
        side = Side(inputs, positions, (inputs > 0).astype(np.int32), rank)
        logits = _by_sixes(model, params, Batch(None, side, {}))
        return np.stack([x[n : n + ROOM] for x, n in zip(logits, begin, strict=True)])


def _by_sixes(model, params, batch: Batch) -> np.ndarray:
    rows = len(batch.tgt.inputs)
    parts = (jax.tree.map(lambda x, i=i: x[i : i + 6], batch) for i in range(0, rows, 6))
    return np.concatenate([logits_of(model, params, part) for part in parts])


@pytest.mark.one_in(6)
@pytest.mark.parametrize(
    ("name", "program"),
    [
        (name, "in brief")
        for name in [*VARIANTS, *RANKED]
        if name not in (*OF_ANOTHER_KIND, *LIKE_BASE)
    ]
    + [("lsh", "in brief"), ("universal without slots", "in brief")]
    + [pytest.param("windows", "everything", marks=pytest.mark.e2e)]
    + [(name, "everything") for name in OF_ANOTHER_KIND]
    + [
        pytest.param(name, "everything", marks=pytest.mark.e2e)
        for name in [*VARIANTS, *RANKED, *MORE_VARIANTS]
        if name not in OF_ANOTHER_KIND
    ]
    + [(BASE, program) for program in PROGRAMS if program not in ("in brief", "everything")],
)
def test_cached_decoding_equals_one_full_pass(name, program):
    """Whatever is fed, reordered and rewound, the logits are those of the text that is left."""
    config, by_ranks, _ = name.partition(" by ranks")
    with jax.enable_x64(config in WIDE):
        model, params = make(
            (VARIANTS | MORE_VARIANTS | UNPACKED | WITHOUT_SLOTS)[config],
            "ranked" if by_ranks else "causal",
        )
        decoding = Decoding(model, params)
        decoding.follow(PROGRAMS[program])
        expected = decoding.in_one_pass(model, params)
    for (_, text), ours, whole in zip(decoding.asked, decoding.answered, expected, strict=True):
        np.testing.assert_allclose(ours, whole[len(text) - len(ours) : len(text)], atol=1e-5)
