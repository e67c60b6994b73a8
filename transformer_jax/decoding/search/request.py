"""What searches begin from, and what is asked of each sentence."""

from typing import NamedTuple

import numpy as np
from flax import struct

from transformer_jax.arrays import Array, Float, Int, UInt
from transformer_jax.vocabulary import BOS


@struct.dataclass
class Asked:
    """Numbers that sentences have of their own, in place of those of the search: so sentences that
    are asked for in different ways go through one program, side by side.
    """

    wanted: Int[Array | np.ndarray, "B"]  # of a beam: the best hypotheses that must be exact
    temperature: Float[Array | np.ndarray, "B"]  # of samples; 0: the most probable token
    top_k: Int[Array | np.ndarray, "B"]
    top_p: Float[Array | np.ndarray, "B"]
    seed: UInt[Array | np.ndarray, "B"]
    lane: Int[Array | np.ndarray, "B"]  # of the first hypothesis: which of a prompt's samples it is

    @classmethod
    def empty(cls, rows: int) -> "Asked":
        """Return what asks for nothing in particular, in numpy's arrays, to be filled in."""
        return cls(
            np.ones(rows, np.int32), np.zeros(rows, np.float32), np.zeros(rows, np.int32),
            np.ones(rows, np.float32), np.zeros(rows, np.uint32), np.zeros(rows, np.int32),
        )  # fmt: skip


class Form(NamedTuple):
    """What the arrays of a request have beside rows and the length of sources."""

    prefix: int = 0  # pieces that there is room for
    asked: bool = False  # whether sentences have numbers of their own
    channels: int | None = None  # of sources that are vectors
    shortlist: int = 0  # pieces that each sentence is written with; 0: all


@struct.dataclass
class SearchRequest:
    """What sentences begin from, and what is asked of each. Arrays of numpy or of jax."""

    # What the model reads before it writes: a source, or a prompt that hypotheses share.
    # Ids, or vectors.
    src_ids: Int[Array | np.ndarray, "B S"] | Float[Array | np.ndarray, "B S C"]
    src_lengths: Int[Array | np.ndarray, "B"]
    first: Int[Array | np.ndarray, "B"]  # the token that what is written follows: BOS, mostly
    limits: Int[Array | np.ndarray, "B"]  # most tokens, EOS counted; 0 leaves the sentence out
    least: Int[Array | np.ndarray, "B"]  # fewest tokens, EOS counted, but for the limit
    prefix: Int[Array | np.ndarray, "B P"]  # tokens that it begins with; 0 is padding
    seeds: Int[Array | np.ndarray, "B"]  # of random numbers
    words: Int[Array | np.ndarray, "B"]  # of the source's text, for a constraint
    asked: Asked | None = None  # None: the search's own numbers
    # The pieces that each is written with, in the order of ids, special ones among them; see
    # `columns`. None: all.
    shortlist: Int[Array | np.ndarray, "B K"] | None = None

    @classmethod
    def empty(
        cls,
        rows: int,
        src_length: int,
        form: Form = Form(),  # noqa: B008 (immutable)
    ) -> "SearchRequest":
        """Return a request for nothing, in numpy's arrays, to be filled in."""
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
