"""Requests to a search: what sentences start from, and their settings."""

from typing import NamedTuple

import numpy as np
from flax import struct

from transformer_jax.base.arrays import Array, Float, Int, UInt
from transformer_jax.base.vocabulary import BOS


@struct.dataclass
class Asked:
    """Per-sentence numbers that replace those of the search, so that sentences with different
    settings run side by side in one program.
    """

    wanted: Int[Array | np.ndarray, "B"]  # for a beam: number of best hypotheses to be exact
    temperature: Float[Array | np.ndarray, "B"]  # for sampling; 0: the most probable token
    top_k: Int[Array | np.ndarray, "B"]
    top_p: Float[Array | np.ndarray, "B"]
    min_p: Float[Array | np.ndarray, "B"]
    repetition_penalty: Float[Array | np.ndarray, "B"]
    seed: UInt[Array | np.ndarray, "B"]
    lane: Int[Array | np.ndarray, "B"]  # of the first hypothesis: which of a prompt's samples it is

    @classmethod
    def empty(cls, rows: int) -> "Asked":
        """Return neutral values as NumPy arrays, to be filled in."""
        return cls(
            np.ones(rows, np.int32), np.zeros(rows, np.float32), np.zeros(rows, np.int32),
            np.ones(rows, np.float32), np.zeros(rows, np.float32), np.ones(rows, np.float32),
            np.zeros(rows, np.uint32), np.zeros(rows, np.int32),
        )  # fmt: skip


class Form(NamedTuple):
    """The form of a request's arrays, besides rows and the length of sources."""

    prefix: int = 0  # room for pieces
    asked: bool = False  # whether sentences have their own numbers
    channels: int | None = None  # for sources that are vectors
    shortlist: int = 0  # pieces per sentence that may be written; 0: all


@struct.dataclass
class SearchRequest:
    """What sentences start from, and their settings, as NumPy or JAX arrays."""

    # What the model reads before it writes: a source, or a prompt that hypotheses share.
    # Ids, or vectors.
    src_ids: Int[Array | np.ndarray, "B S"] | Float[Array | np.ndarray, "B S C"]
    src_lengths: Int[Array | np.ndarray, "B"]
    first: Int[Array | np.ndarray, "B"]  # the token before the output: BOS, mostly
    limits: Int[Array | np.ndarray, "B"]  # most tokens, including EOS; 0 skips the sentence
    least: Int[Array | np.ndarray, "B"]  # fewest tokens, including EOS, unless limits is lower
    # Tokens that the output begins with, each plus 1, since any may be token 0; then zeros.
    prefix: Int[Array | np.ndarray, "B P"]
    seeds: Int[Array | np.ndarray, "B"]  # for random numbers
    words: Int[Array | np.ndarray, "B"]  # in the source's text, for a constraint
    asked: Asked | None = None  # None: the search's own numbers
    # The pieces that may be written, in the order of ids, including special ones; see `columns`.
    # None: all.
    shortlist: Int[Array | np.ndarray, "B K"] | None = None

    @classmethod
    def empty(
        cls,
        rows: int,
        src_length: int,
        form: Form = Form(),  # noqa: B008 (immutable)
    ) -> "SearchRequest":
        """Return an empty request as NumPy arrays, to be filled in."""
        return cls(
            np.zeros((rows, src_length), np.int32)
            if form.channels is None
            else np.zeros((rows, src_length, form.channels), np.float32),
            np.zeros(rows, np.int32),
            np.full(rows, BOS, np.int32),
            np.zeros(rows, np.int32),
            np.zeros(rows, np.int32),
            np.zeros((rows, form.prefix), np.int32),
            np.zeros(rows, np.int32),
            np.zeros(rows, np.int32),
            Asked.empty(rows) if form.asked else None,
            np.zeros((rows, form.shortlist), np.int32) if form.shortlist else None,
        )
