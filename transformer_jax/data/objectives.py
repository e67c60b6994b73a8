"""How encoded texts become examples: what is read, what is predicted, and in which order."""

import numpy as np

from transformer_jax.choices import pick
from transformer_jax.config import DataConfig, ObjectiveConfig
from transformer_jax.data.answering import Answer
from transformer_jax.data.batch import (
    Batch,
    Placement,
    Ragged,
    Side,
    Target,
    lay_out,
    predicted,
    shifted,
)
from transformer_jax.data.both_ways import BidirectionalLM
from transformer_jax.data.codecs.codec import Codec
from transformer_jax.data.corrupting import Denoising, SpanCorruption
from transformer_jax.data.forecasting import Forecast
from transformer_jax.data.labelling import Classify, Regress
from transformer_jax.data.next_sentence import NextSentence
from transformer_jax.data.objective import Objective, Order
from transformer_jax.data.random import Draw, random
from transformer_jax.data.reading import MaskedLM
from transformer_jax.data.reconstructing import Reconstruct
from transformer_jax.data.tagging import Tag
from transformer_jax.data.text_pairs import ClassifyPairs
from transformer_jax.data.token_store import (
    Frame,
    Lengths,
    Selection,
    TokenStore,
    Uneven,
    select,
    without,
)
from transformer_jax.data.transcribing import Ctc
from transformer_jax.vocabulary import PAD


class Translate:
    """Read the source, write the target: teacher forcing (paper 3)."""

    order: Order = "causal"
    strict = False
    predicts: tuple[str, ...] = ("tokens",)
    noun = "pair"

    def frame(self, config: ObjectiveConfig) -> Frame:
        """See Objective."""
        return Frame()

    def items(
        self, store: TokenStore, config: ObjectiveConfig, codec: Codec | None = None
    ) -> TokenStore:
        """See Objective."""
        return store if store.src.read is None else Uneven(*store)  # frames outnumber pieces

    def select(self, items: TokenStore, config: DataConfig) -> Selection:
        """See Objective."""
        return select(items, config)

    def examples(
        self, items: TokenStore, placement: Placement, rows: int, src_length: int, tgt_length: int,
        draw: Draw = Draw(),  # noqa: B008 (immutable)
    ) -> Batch:  # fmt: skip
        """See Objective."""
        shape = rows, src_length
        src = lay_out(items.src, placement, placement.src_offset, shape, draw=draw)
        tgt = lay_out(items.tgt, placement, placement.tgt_offset, (rows, tgt_length))
        return Batch(src, shifted(tgt, items.special.bos), {"tokens": predicted(tgt)})


class LanguageModel:
    """Read a text, write each piece after those before it (Bengio et al. 2003, JMLR 3).

    A document is stored with BOS before it. Its windows overlap by one piece, which ends one of
    them as its last label and begins the next as its first input: so every piece is predicted once.
    """

    order: Order = "causal"
    strict = False
    predicts: tuple[str, ...] = ("tokens",)
    noun = "window"

    def frame(self, config: ObjectiveConfig) -> Frame:
        """See Objective: a file has no end of its own, it is where the text was cut."""
        return Frame(bos=True, eos=config.document == "line")

    def items(
        self, store: TokenStore, config: ObjectiveConfig, codec: Codec | None = None
    ) -> TokenStore:
        """See Objective. Lengths are those of the labels, or of the inputs."""
        windows = _windows(store.tgt, config.window)
        return TokenStore(windows.emptied(), windows, store.special)

    def select(self, items: TokenStore, config: DataConfig) -> Selection:
        """See Objective: all windows but those of empty lines."""
        ids, starts = items.tgt.ids, items.tgt.starts
        _, bos, eos = items.special
        return without({"empty": (ids[starts] == bos) & (ids[starts + 1] == eos)})

    def examples(
        self, items: TokenStore, placement: Placement, rows: int, src_length: int, tgt_length: int,
        draw: Draw = Draw(),  # noqa: B008 (immutable)
    ) -> Batch:  # fmt: skip
        """See Objective."""
        where = placement, placement.tgt_offset, (rows, tgt_length)
        labels = lay_out(items.tgt, *where, ahead=1)
        return Batch(None, lay_out(items.tgt, *where), {"tokens": predicted(labels)})


class _Partly(TokenStore):
    """Windows of which one piece in so many is predicted."""

    one_in: int = 1


class PermutationLM(LanguageModel):
    """Predict pieces in a random order, each from those before it in that order, wherever they
    stand (XLNet: Yang et al. 2019, arXiv:1906.08237). Labels stand where their pieces do, which a
    query stream does not see.

    Only the last 1/K of the order is predicted (2.3 there). All others have rank 0, as in the
    authors' code: each sees all of them, and what is predicted has ranks 1, 2, and so on. Among
    the others is always the first piece of a window, BOS or the last one of the window before.
    """

    order: Order = "ranked"
    strict = True

    def items(
        self, store: TokenStore, config: ObjectiveConfig, codec: Codec | None = None
    ) -> TokenStore:
        """See Objective. Windows are as long as what is read, which is labels and one more."""
        windows = _windows(store.tgt, config.window - 1)
        windows = windows._replace(lengths=windows.lengths + 1)
        items = _Partly(windows.emptied(), windows, store.special)
        items.one_in = config.partial_prediction
        return items

    def examples(
        self, items: TokenStore, placement: Placement, rows: int, src_length: int, tgt_length: int,
        draw: Draw = Draw(),  # noqa: B008 (immutable)
    ) -> Batch:  # fmt: skip
        """See Objective."""
        side = lay_out(items.tgt, placement, placement.tgt_offset, (rows, tgt_length))
        one_in = items.one_in if isinstance(items, _Partly) else 1
        lengths = items.tgt.lengths[placement.pairs]
        item = np.repeat(np.arange(len(lengths)), lengths)
        within = np.arange(len(item)) - (np.cumsum(lengths) - lengths)[item]
        order = np.lexsort((random(*draw, placement.pairs[item], within), within > 0, item))
        place = np.empty_like(within)
        place[order] = within  # from 1 on; 0 is the first piece
        count = np.maximum((lengths - 1) // one_in, 1)
        rank = np.zeros((rows, tgt_length), np.int32)
        where = placement.rows[item], placement.tgt_offset[item] + within
        rank[where] = np.maximum(place - (lengths - 1 - count)[item], 0)
        target = Target(np.where(rank > 0, side.inputs, PAD), (rank > 0).astype(np.float32))
        return Batch(None, side._replace(rank=rank), {"tokens": target})


class _Joined(TokenStore):
    """Pairs whose target stands behind the source, on the target side."""

    @property
    def lengths(self) -> Lengths:
        """See TokenStore."""
        both = self.src.lengths + self.tgt.lengths
        return Lengths(0 * both, both)


class PrefixLM:
    """Read the source as a prefix that sees itself whole, write the target behind it (Raffel et al.
    2020, arXiv:1910.10683, section 3.2.1).

    A row is source, EOS, BOS, target: the prefix has rank 0, BOS rank 1, and so on.
    """

    order: Order = "ranked"
    strict = False
    predicts: tuple[str, ...] = ("tokens",)
    noun = "pair"

    def frame(self, config: ObjectiveConfig) -> Frame:
        """See Objective."""
        return Frame()

    def items(
        self, store: TokenStore, config: ObjectiveConfig, codec: Codec | None = None
    ) -> TokenStore:
        """See Objective."""
        return _Joined(*store)

    def select(self, items: TokenStore, config: DataConfig) -> Selection:
        """See Objective: both sides together may be as long as one side is in translation."""
        return select(items, config)

    def examples(
        self, items: TokenStore, placement: Placement, rows: int, src_length: int, tgt_length: int,
        draw: Draw = Draw(),  # noqa: B008 (immutable)
    ) -> Batch:  # fmt: skip
        """See Objective."""
        shape, begin = (rows, tgt_length), placement.tgt_offset
        prefix = lay_out(items.src, placement, begin, shape)
        behind = begin + items.src.lengths[placement.pairs]
        labels = lay_out(items.tgt, placement, behind, shape)
        seg = prefix.seg + labels.seg
        inputs = prefix.inputs + shifted(labels, items.special.bos).inputs
        first = np.zeros(shape, np.int32)  # column where the segment of each position begins
        first[placement.rows, begin] = begin
        first = np.maximum.accumulate(first, axis=1)
        pos = np.where(seg > 0, np.arange(tgt_length, dtype=np.int32) - first, 0)
        rank = np.where(labels.seg > 0, labels.pos + 1, 0)
        return Batch(None, Side(inputs, pos, seg, rank), {"tokens": predicted(labels)})


def _windows(documents: Ragged, most: int) -> Ragged:
    """Return windows of at most `most` labels: each begins with the piece before its first label,
    and is as long as it has labels.
    """
    return documents._replace(lengths=np.maximum(documents.lengths - 1, 0)).windows(most)


OBJECTIVES: dict[str, Objective] = {
    "translate": Translate(),
    "language_model": LanguageModel(),
    "prefix_lm": PrefixLM(),
    "permutation_lm": PermutationLM(),
    "bidirectional_lm": BidirectionalLM(),
    "masked_lm": MaskedLM(),
    "masked_lm_nsp": NextSentence(),
    "span_corruption": SpanCorruption(),
    "denoising": Denoising(),
    "tag": Tag(),
    "answer": Answer(),
    "regress": Regress(),
    "classify": Classify(),
    "classify_pairs": ClassifyPairs(),
    "forecast": Forecast(),
    "ctc": Ctc(),
    "reconstruct": Reconstruct(),
}


def objective_named(name: str) -> Objective:
    """Return an entry of the table, or a part of one's own."""
    return pick(OBJECTIVES, name, "config.objective.name")
