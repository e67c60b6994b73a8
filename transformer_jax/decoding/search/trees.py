"""Nothing but trees: which piece may follow those that are written already.

A linearised tree (Vinyals et al. 2015, arXiv:1412.7449) is one bracket that holds words, XX, and
brackets; each holds something and is closed by its own label. Besides it has a word for each one of
the source, and ends within the limit. What may come next follows from the pieces of a hypothesis
alone, so nothing has to move with hypotheses that are reordered, paused or put elsewhere.
"""

import jax.numpy as jnp
import numpy as np
from flax import struct

from transformer_jax.arrays import Array, Bool, Int
from transformer_jax.data.codecs.codec import Codec
from transformer_jax.data.codecs.trees import WORD
from transformer_jax.decoding.search.state import SearchState, static
from transformer_jax.errors import UserError

AROUND = 3  # pieces of the smallest tree beside its words: two brackets and EOS


@struct.dataclass
class TreeConstraint:
    """Of each piece the number of its label, from 1 on, and 0 where it is no such bracket."""

    opens: Int[Array | np.ndarray, "V"]
    closes: Int[Array | np.ndarray, "V"]
    word: int = static()
    eos: int = static()

    @classmethod
    def of(cls, codec: Codec) -> "TreeConstraint":
        """Return the constraint for the pieces of a codec.

        Raises:
          UserError: if its pieces are no brackets and words.
        """
        pieces = codec.pieces(range(codec.size))
        known = {piece: i for i, piece in enumerate(pieces)}
        labels = [x[1:] for x in pieces if x[:1] == "(" and f"){x[1:]}" in known]
        if not labels or WORD not in known:
            raise UserError(
                f"config.decoding.constraint='tree': the target side has no pieces such as '(NP', "
                f"')NP' and {WORD!r}; set it to 'none', or train with tgt.codec='trees'"
            )
        numbers = np.arange(1, len(labels) + 1, dtype=np.int32)
        opens, closes = np.zeros((2, len(pieces)), np.int32)
        opens[[known[f"({label}"] for label in labels]] = numbers
        closes[[known[f"){label}"] for label in labels]] = numbers
        return cls(opens, closes, known[WORD], codec.special["eos"])

    def allowed(self, state: SearchState) -> Bool[Array, "B W V"]:
        """Return which pieces may come next: one at least, if the smallest tree fits."""
        opens, closes = jnp.asarray(self.opens), jnp.asarray(self.closes)
        position = state.position[:, None]
        here = jnp.arange(state.tokens.shape[2]).reshape(1, 1, -1)
        tokens = jnp.where((here > 0) & (here <= position[:, :, None]), state.tokens, 0)
        opened = opens[tokens]
        depths = jnp.cumsum((opened > 0).astype(jnp.int32) - (closes[tokens] > 0), axis=2)
        depth = depths[:, :, -1]
        # Of all brackets that were opened at this depth, the last one is open still.
        place = jnp.where((opened > 0) & (depths == depth[:, :, None]), here, 0).max(2)
        label = jnp.take_along_axis(opened, place[:, :, None], axis=2)
        holds_nothing = place == position
        left = jnp.asarray(state.request.words)[:, None] - (tokens == self.word).sum(2)
        room = jnp.asarray(state.request.limits)[:, None] - position
        # A bracket more takes two pieces; beside it words, open brackets and EOS have to fit.
        may_open = (left > 0) & ((depth > 0) | (position == 0)) & (room >= left + depth + AROUND)
        may_close = (depth > 0) & ~holds_nothing & ((depth > 1) | (left == 0))
        opens, closes = opens.reshape(1, 1, -1), closes.reshape(1, 1, -1)
        pieces = jnp.arange(opens.size).reshape(1, 1, -1)
        return (
            (may_open[:, :, None] & (opens > 0))
            | (may_close[:, :, None] & (closes > 0) & (closes == label))
            | (((left > 0) & (depth > 0))[:, :, None] & (pieces == self.word))
            | (((depth == 0) & (position > 0))[:, :, None] & (pieces == self.eos))
        )

    def fewest(self, words: int) -> int:
        """See Constraint."""
        return words + AROUND
