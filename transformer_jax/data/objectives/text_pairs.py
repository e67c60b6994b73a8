"""Classification of text pairs: entailment, paraphrase."""

import numpy as np

from transformer_jax.config import DataConfig, ObjectiveConfig
from transformer_jax.data.batches.batch import Batch, Placement, Ragged
from transformer_jax.data.codecs.codec import Codec, special_of
from transformer_jax.data.objectives.labelling import Classify, said
from transformer_jax.data.objectives.masked_lm import two_segments
from transformer_jax.data.random import Draw
from transformer_jax.data.store.token_store import Frame, Lengths, Selection, TokenStore, without


class Pairs(TokenStore):
    """Two texts per item, the first on the source side."""

    seconds: Ragged

    @property
    def lengths(self) -> Lengths:
        """See TokenStore; includes BOS and two EOS."""
        src = self.src.lengths + self.seconds.lengths + 3
        return Lengths(src, np.minimum(self.tgt.lengths, 1))


class ClassifyPairs(Classify):
    """Read two texts, BOS first EOS second EOS, predict their class (Devlin et al. 2019,
    arXiv:1810.04805, section 4.1; natural language inference: Bowman et al. 2015,
    arXiv:1508.05326). If together they exceed the window, the longer one is truncated at its end
    until both are equally long, then both are; an odd piece is kept of the longer one, or of the
    second. This is what Hugging Face tokenizers do with truncation.
    """

    noun = "pair"

    def frame(self, config: ObjectiveConfig) -> Frame:
        """See Objective."""
        return Frame(eos=False, cut="texts")

    def items(
        self, store: TokenStore, config: ObjectiveConfig, codec: Codec | None = None
    ) -> TokenStore:
        """See Objective. The source side of the store has a sequence for each text."""
        ids, starts, lengths, _ = store.src
        first, second = lengths[::2], lengths[1::2]
        room = config.window - 3
        half = np.where(first > second, room - room // 2, room // 2)  # of the first
        one = np.minimum(first, np.maximum(room - second, half))
        two = np.minimum(second, np.maximum(room - first, room - half))
        items = Pairs(Ragged(ids, starts[::2], one), store.tgt, special_of(codec).both())
        items.seconds = Ragged(ids, starts[1::2], two)
        return items

    def select(self, items: TokenStore, config: DataConfig) -> Selection:
        """See Objective: all pairs."""
        return without({"empty": np.zeros(len(items), bool)})

    def batch(
        self, items: TokenStore, placement: Placement, rows: int, src_length: int, tgt_length: int,
        draw: Draw,
    ) -> Batch:  # fmt: skip
        """See Objective."""
        pairs = placement.pairs
        texts = (items.src, items.seconds) if isinstance(items, Pairs) else (_NONE, _NONE)
        one, two = (Ragged(x.ids, x.starts[pairs], x.lengths[pairs]) for x in texts)
        src, _ = two_segments(one, two, placement, (rows, src_length), items.special)
        tgt, target = said(items, placement, (rows, tgt_length))
        return Batch(src, tgt, {"class": target})


_NONE = Ragged.from_lists([])


WORDS = {"classify_pairs": ClassifyPairs()}
