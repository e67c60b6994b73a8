"""A constraint to well-formed trees: which pieces may follow those already written.

A linearised tree (Vinyals et al. 2015, arXiv:1412.7449) is one bracket that holds words and
brackets; none is empty, and each is closed by its own label. It also has one word for each word of
the source, and ends within the limit. What may come next follows from the pieces of a hypothesis
alone, so no state has to move with hypotheses that are reordered, paused or put elsewhere.
"""

import jax.numpy as jnp
import numpy as np
from flax import struct

from transformer_jax.base.arrays import Array, Bool, Int
from transformer_jax.base.errors import UserError
from transformer_jax.data.codecs.codec import Codec
from transformer_jax.data.codecs.trees import WORD, leaf
from transformer_jax.decoding.search.state import SearchState, static

AROUND = 3  # pieces of the smallest tree besides its words: two brackets and EOS


@struct.dataclass
class TreeConstraint:
    """For each piece, the number of its label, from 1, or 0 if it is no such bracket; and the
    number of its word, the last one for all words from there on.
    """

    opens: Int[Array | np.ndarray, "V"]
    closes: Int[Array | np.ndarray, "V"]
    words: Int[Array | np.ndarray, "V"]
    eos: int = static()

    @classmethod
    def of(cls, codec: Codec) -> "TreeConstraint":
        """Return the constraint for the pieces of a codec.

        Raises:
          UserError: if its pieces are not brackets and words.
        """
        pieces = codec.pieces(range(codec.size))
        known = {piece: i for i, piece in enumerate(pieces)}
        labels = [x[1:] for x in pieces if x[:1] == "(" and f"){x[1:]}" in known]
        leaves = [i for i, piece in enumerate(pieces) if leaf(piece)]
        if not labels or not leaves:
            raise UserError(
                f"config.decoding.constraint='tree': the target side has no pieces such as '(NP', "
                f"')NP' and '{WORD}1'; set it to 'none', or train with tgt.codec='trees'"
            )
        numbers = np.arange(1, max(len(labels), len(leaves)) + 1, dtype=np.int32)
        opens, closes, words = np.zeros((3, len(pieces)), np.int32)
        opens[[known[f"({label}"] for label in labels]] = numbers[: len(labels)]
        closes[[known[f"){label}"] for label in labels]] = numbers[: len(labels)]
        words[leaves] = numbers[: len(leaves)]
        return cls(opens, closes, words, codec.special["eos"])

    def allowed(self, state: SearchState) -> Bool[Array, "B W V"]:
        """Return which pieces may come next: at least one, if the smallest tree fits."""
        opens, closes = jnp.asarray(self.opens), jnp.asarray(self.closes)
        position = state.position[:, None]
        here = jnp.arange(state.tokens.shape[2]).reshape(1, 1, -1)
        tokens = jnp.where((here > 0) & (here <= position[:, :, None]), state.tokens, 0)
        opened = opens[tokens]
        depths = jnp.cumsum((opened > 0).astype(jnp.int32) - (closes[tokens] > 0), axis=2)
        depth = depths[:, :, -1]
        # Of all brackets opened at this depth, the last one is still open.
        place = jnp.where((opened > 0) & (depths == depth[:, :, None]), here, 0).max(2)
        label = jnp.take_along_axis(opened, place[:, :, None], axis=2)
        holds_nothing = place == position
        numbers = jnp.asarray(self.words)
        written = (numbers[tokens] > 0).sum(2)
        left = jnp.asarray(state.request.words)[:, None] - written
        following = jnp.minimum(written + 1, numbers.max())
        room = jnp.asarray(state.request.limits)[:, None] - position
        # Another bracket takes two pieces; words, open brackets and EOS must fit as well.
        may_open = (left > 0) & ((depth > 0) | (position == 0)) & (room >= left + depth + AROUND)
        may_close = (depth > 0) & ~holds_nothing & ((depth > 1) | (left == 0))
        opens, closes, numbers = (x.reshape(1, 1, -1) for x in (opens, closes, numbers))
        pieces = jnp.arange(opens.size).reshape(1, 1, -1)
        return (
            (may_open[:, :, None] & (opens > 0))
            | (may_close[:, :, None] & (closes > 0) & (closes == label))
            | (((left > 0) & (depth > 0))[:, :, None] & (numbers == following[:, :, None]))
            | (((depth == 0) & (position > 0))[:, :, None] & (pieces == self.eos))
        )

    def fewest(self, words: int) -> int:
        """See Constraint."""
        return words + AROUND
