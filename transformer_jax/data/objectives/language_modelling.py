"""Language modelling: predicting each piece of a text, left to right or in a random order."""

import numpy as np

from transformer_jax.base.vocabulary import PAD
from transformer_jax.config import DataConfig, ObjectiveConfig
from transformer_jax.data.batches.batch import (
    Batch,
    Placement,
    Ragged,
    Target,
    lay_out,
    places,
    predicted,
)
from transformer_jax.data.codecs.codec import Codec
from transformer_jax.data.objectives.infilling import Infilling
from transformer_jax.data.objectives.objective import BaseObjective, Order
from transformer_jax.data.random import Draw, random
from transformer_jax.data.store.token_store import Frame, Selection, TokenStore, without


class _Windows(TokenStore):
    """Windows of texts, of which some may be rearranged; see `Infilling`."""

    infilling: Infilling | None = None


class _Running(_Windows):
    """Windows of joined lines, where an empty line is part of the text."""


class LanguageModel(BaseObjective):
    """Predict each piece of a text from the preceding ones (Bengio et al. 2003, JMLR 3).

    A document is stored with a leading BOS, unless its tokenizer was imported and puts none there.
    Its windows overlap by one piece, the last label of one window and the first input of the next,
    so every piece after the first is predicted once, and so is BOS where lines are joined.
    """

    noun = "window"

    def frame(self, config: ObjectiveConfig) -> Frame:
        """See Objective: the end of a file is only where the text was cut, so it has no EOS."""
        return Frame(bos=True, eos=config.document != "file")

    def items(
        self, store: TokenStore, config: ObjectiveConfig, codec: Codec | None = None
    ) -> TokenStore:
        """See Objective. Lengths are those of the labels, which equal those of the inputs."""
        running = config.document == "joined"
        windows = _windows(store.tgt.joined() if running else store.tgt, config.window)
        items = (_Running if running else _Windows)(windows.emptied(), windows, store.special)
        if config.fim_rate:
            assert codec is not None
            items.infilling = Infilling.of(config, codec)
        return items

    def select(self, items: TokenStore, config: DataConfig) -> Selection:
        """See Objective: all windows except those of empty lines."""
        ids, starts = items.tgt.ids, items.tgt.starts
        bos, eos = items.special[1:]
        empty = (ids[starts] == bos) & (ids[starts + 1] == eos)
        return without({"empty": empty & (not isinstance(items, _Running))})

    def batch(
        self, items: TokenStore, placement: Placement, rows: int, src_length: int, tgt_length: int,
        draw: Draw,
    ) -> Batch:  # fmt: skip
        """See Objective."""
        texts = items.tgt
        if isinstance(items, _Windows) and items.infilling and len(placement.pairs):
            texts = _rearranged(items.infilling, texts, placement.pairs, draw)
            placement = placement._replace(pairs=np.arange(len(placement.pairs)))
        where = placement, placement.tgt_offset, (rows, tgt_length)
        labels = lay_out(texts, *where, ahead=1)
        return Batch(None, lay_out(texts, *where), {"tokens": predicted(labels)})


class TextPrefixLM(LanguageModel):
    """Read the start of a window as a prefix with bidirectional attention, predict the rest (Raffel
    et al. 2020, arXiv:1910.10683, section 3.2.3; Dong et al. 2019, arXiv:1905.03197).

    Every piece except the first may begin the rest, with equal probability. The piece before it has
    rank 1, the next one 2, and so on, like BOS and the target where prefixes are sources.
    """

    order: Order = "ranked"

    def batch(
        self, items: TokenStore, placement: Placement, rows: int, src_length: int, tgt_length: int,
        draw: Draw,
    ) -> Batch:  # fmt: skip
        """See Objective."""
        batch = super().batch(items, placement, rows, src_length, tgt_length, draw)
        assert batch.tgt is not None
        lengths = items.tgt.lengths[placement.pairs]
        prefix = (random(*draw, placement.pairs) % lengths.astype(np.uint64)).astype(np.int64)
        item, within = places(lengths)
        rank = np.zeros((rows, tgt_length), np.int32)
        where = placement.rows[item], placement.tgt_offset[item] + within
        rank[where] = np.maximum(within - prefix[item] + 1, 0)
        labels = np.where(rank > 0, batch.targets["tokens"].labels, PAD)
        target = Target(labels, (rank > 0).astype(np.float32))
        return Batch(None, batch.tgt._replace(rank=rank), {"tokens": target})


class _Partly(TokenStore):
    """Windows in which one piece in `one_in` is predicted."""

    one_in: int = 1


class PermutationLM(LanguageModel):
    """Predict pieces in a random order, each from those before it in that order, wherever they are
    (XLNet: Yang et al. 2019, arXiv:1906.08237). Labels are at the positions of their pieces, which
    the query stream does not see.

    Only the last 1/K of the order is predicted (section 2.3). The rest has rank 0, as in the
    authors' code: each piece sees all of it, and predicted pieces have ranks 1, 2, and so on. The
    rest always includes the first piece of a window: BOS, or the last piece of the previous window.
    """

    order: Order = "ranked"
    strict = True

    def items(
        self, store: TokenStore, config: ObjectiveConfig, codec: Codec | None = None
    ) -> TokenStore:
        """See Objective. Windows are as long as their inputs, one more than the labels."""
        windows = _windows(store.tgt, config.window - 1)
        windows = windows._replace(lengths=windows.lengths + 1)
        items = _Partly(windows.emptied(), windows, store.special)
        items.one_in = config.partial_prediction
        return items

    def batch(
        self, items: TokenStore, placement: Placement, rows: int, src_length: int, tgt_length: int,
        draw: Draw,
    ) -> Batch:  # fmt: skip
        """See Objective."""
        side = lay_out(items.tgt, placement, placement.tgt_offset, (rows, tgt_length))
        one_in = items.one_in if isinstance(items, _Partly) else 1
        lengths = items.tgt.lengths[placement.pairs]
        item, within = places(lengths)
        order = np.lexsort((random(*draw, placement.pairs[item], within), within > 0, item))
        place = np.empty_like(within)
        place[order] = within  # from 1 on; 0 is the first piece
        count = np.maximum((lengths - 1) // one_in, 1)
        rank = np.zeros((rows, tgt_length), np.int32)
        where = placement.rows[item], placement.tgt_offset[item] + within
        rank[where] = np.maximum(place - (lengths - 1 - count)[item], 0)
        target = Target(np.where(rank > 0, side.inputs, PAD), (rank > 0).astype(np.float32))
        return Batch(None, side._replace(rank=rank), {"tokens": target})


def _rearranged(infilling: Infilling, texts: Ragged, numbers: np.ndarray, draw: Draw) -> Ragged:
    """Return the windows of these numbers, some of them rearranged."""
    starts, lengths = texts.starts[numbers], texts.lengths[numbers]
    whole = [np.asarray(texts.ids[a : a + n + 1]) for a, n in zip(starts, lengths, strict=True)]
    made = infilling.rearranged(whole, draw, numbers)
    sizes = np.array([len(ids) for ids in made])
    return Ragged(np.concatenate(made), np.cumsum(sizes) - sizes, sizes - 1)


def _windows(documents: Ragged, most: int) -> Ragged:
    """Return windows of at most `most` labels: each begins with the piece before its first label,
    and its length is its number of labels.
    """
    return documents._replace(lengths=np.maximum(documents.lengths - 1, 0)).windows(most)


WORDS = {
    "language_model": LanguageModel(),
    "text_prefix_lm": TextPrefixLM(),
    "permutation_lm": PermutationLM(),
}
