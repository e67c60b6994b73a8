"""CTC: transcription of a source in the order of its positions, without an alignment."""

import numpy as np

from transformer_jax.config import DataConfig, ObjectiveConfig
from transformer_jax.data.batches.batch import Batch, Placement, Target, lay_out, predicted
from transformer_jax.data.codecs.codec import Codec
from transformer_jax.data.objectives.objective import BaseObjective, Order
from transformer_jax.data.objectives.translating import Translate
from transformer_jax.data.random import Draw
from transformer_jax.data.store.token_store import Frame, Selection, TokenStore, Uneven, without


class Ctc(BaseObjective):
    """Read the source, predict a piece or a blank at each position: connectionist temporal
    classification (Graves et al. 2006, https://doi.org/10.1145/1143844.1143891). PAD, which no text
    contains, is the blank. The target side has a position for each piece, without input.
    """

    order: Order = "all"
    predicts: tuple[str, ...] = ("ctc",)

    def frame(self, config: ObjectiveConfig) -> Frame:
        """See Objective: the text ends with the source, so it has no EOS."""
        return Frame(eos=False)

    def items(
        self, store: TokenStore, config: ObjectiveConfig, codec: Codec | None = None
    ) -> TokenStore:
        """See Objective."""
        return Uneven(*store)

    def select(self, items: TokenStore, config: DataConfig) -> Selection:
        """See Objective. A text too long for its source's positions contributes nothing."""
        longest = np.maximum(*items.lengths)
        return without({
            "empty": np.minimum(*items.lengths) == 0,
            f"longer than {config.max_length} pieces": longest > config.max_length,
        })  # fmt: skip

    def batch(
        self, items: TokenStore, placement: Placement, rows: int, src_length: int, tgt_length: int,
        draw: Draw,
    ) -> Batch:  # fmt: skip
        """See Objective."""
        shape = rows, src_length
        src = lay_out(items.src, placement, placement.src_offset, shape, draw=draw)
        tgt = lay_out(items.tgt, placement, placement.tgt_offset, (rows, tgt_length))
        target = predicted(tgt)
        return Batch(src, tgt._replace(inputs=np.zeros_like(tgt.inputs)), {"ctc": target})


class Weighted(Uneven):
    """Pairs, with the weight of CTC in the loss."""

    ctc_weight: float = 0.0


class CtcAttention(Translate):
    """Predict the target twice: after its earlier pieces, as in translation, and from the encoder
    alone, as in `Ctc` (Watanabe et al. 2017, https://doi.org/10.1109/JSTSP.2017.2763455). Losses
    are (1 - w) x cross-entropy + w x CTC's, with w the weight of CTC; divided by 1 - w, so that a
    piece weighs 1 in the former and w / (1 - w) in the latter, which has no EOS.
    """

    predicts: tuple[str, ...] = ("tokens", "ctc")

    def items(
        self, store: TokenStore, config: ObjectiveConfig, codec: Codec | None = None
    ) -> TokenStore:
        """See Objective."""
        items = Weighted(store.src, store.tgt, store.special.both())
        items.ctc_weight = config.ctc_weight
        return items

    def batch(
        self, items: TokenStore, placement: Placement, rows: int, src_length: int, tgt_length: int,
        draw: Draw,
    ) -> Batch:  # fmt: skip
        """See Objective."""
        batch = super().batch(items, placement, rows, src_length, tgt_length, draw)
        weight = getattr(items, "ctc_weight", 0.0)  # a batch without examples has none
        labels, kept = batch.targets["tokens"]
        kept = np.where(labels == items.special.eos, 0, kept * np.float32(weight / (1 - weight)))
        return batch._replace(targets={**batch.targets, "ctc": Target(labels, kept)})


WORDS = {"ctc": Ctc(), "ctc_attention": CtcAttention()}
