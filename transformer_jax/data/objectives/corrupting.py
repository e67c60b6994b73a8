"""Denoising objectives of encoder-decoders: reconstruct a corrupted text or its missing parts."""

from typing import NamedTuple

import numpy as np

from transformer_jax.base.errors import UserError
from transformer_jax.config import DataConfig, ObjectiveConfig
from transformer_jax.config.choices.texts import SENTINEL
from transformer_jax.data.batches.batch import (
    Batch,
    Placement,
    Ragged,
    lay_out,
    places,
    predicted,
    shifted,
)
from transformer_jax.data.codecs.codec import Codec
from transformer_jax.data.objectives import noise
from transformer_jax.data.objectives.noise import Texts
from transformer_jax.data.objectives.objective import BaseObjective
from transformer_jax.data.objectives.spans import Spans
from transformer_jax.data.random import Draw, random
from transformer_jax.data.store.token_store import Frame, Lengths, Selection, TokenStore, without

_STOPS = ".!?…。！？\n"  # ends of sentences
# Purposes of random numbers; the first three need two streams, and take the next number too.
_ORDER, _ROTATION, _SPANS, _MASKS, _DELETIONS = 0, 2, 4, 6, 7


class _Spanned(TokenStore):
    """Windows of a text, on the target side, from which spans are removed."""

    spans: Spans

    @property
    def lengths(self) -> Lengths:
        """See TokenStore."""
        return self.spans.sides(self.tgt.lengths)

    def sides(self, length: int) -> tuple[int, int]:
        """See TokenStore: targets are far shorter than inputs."""
        src, tgt = self.spans.sides(np.arange(1, self.spans.window(length) + 1))
        return int(src.max()), int(tgt.max())


class SpanCorruption(BaseObjective):
    """Predict the spans removed from a text, each after the sentinel that replaces it in the input
    (T5: Raffel et al. 2020, arXiv:1910.10683, section 3.1.4).

    The number of removed pieces and of spans follows from the length of the text. Their positions
    are random: all ways of cutting the removed and the kept pieces into that many parts are equally
    likely. A text begins with a kept part and ends with a removed one, so no sentinel follows the
    last span; this is as in the authors' code.
    """

    noun = "window"

    def frame(self, config: ObjectiveConfig) -> Frame:
        """See Objective: EOS between lines is an ordinary piece."""
        return Frame(bos=False, eos=config.document == "joined")

    def items(
        self, store: TokenStore, config: ObjectiveConfig, codec: Codec | None = None
    ) -> TokenStore:
        """See Objective.

        Raises:
          UserError: if there are fewer sentinels than spans.
        """
        assert codec is not None
        spans = Spans(config.noise_density, config.mean_span_length)
        longest = spans.window(config.window)
        most = int(spans.of(np.arange(1, longest + 1))[1].max())
        documents = store.tgt.joined() if config.document == "joined" else store.tgt
        windows = documents.windows(longest)
        items = _Spanned(windows.emptied(), windows, store.special.both())
        items.spans = spans._replace(sentinels=_sentinels(config, codec, most))
        return items

    def select(self, items: TokenStore, config: DataConfig) -> Selection:
        """See Objective: all windows from which something is removed."""
        return without({"of one piece": items.tgt.lengths < 2})

    def batch(
        self, items: TokenStore, placement: Placement, rows: int, src_length: int, tgt_length: int,
        draw: Draw,
    ) -> Batch:  # fmt: skip
        """See Objective."""
        spans = items.spans if isinstance(items, _Spanned) else Spans()
        texts = _texts(items.tgt, placement)
        lost, span, first = spans.lost(texts, draw)
        read, written = (
            Texts(np.where(gone, spans.sentinels[span], texts.ids)[stays], texts.owner[stays],
                  texts.numbers)
            for gone, stays in ((lost, first | ~lost), (~lost, first | lost))
        )  # fmt: skip
        return _batch(items, read, written, placement, rows, src_length, tgt_length)


def _sentinels(config: ObjectiveConfig, codec: Codec, count: int) -> np.ndarray:
    if count > config.sentinels:
        raise UserError(
            f"config.objective.sentinels={config.sentinels}: a window of objective.window="
            f"{config.window} loses up to {count} spans; raise it to that number"
        )
    return np.array([_named(config, codec, SENTINEL.format(i)) for i in range(count)], np.int32)


def _named(config: ObjectiveConfig, codec: Codec, piece: str) -> int:
    """Return the id of a named piece, which an imported tokenizer may have too."""
    try:
        return codec.piece_id(piece)
    except UserError:
        raise UserError(
            f"config.objective.name={config.name!r}: the tokenizer has no piece {piece}; one "
            "trained for this objective has it; set --config.init.tokenizer=False"
        ) from None


class Noising(NamedTuple):
    """The noise applied to a text, and the pieces it uses."""

    config: ObjectiveConfig
    mask: int
    ends: np.ndarray  # bool [V]: pieces that end a sentence

    def of(self, texts: Texts, draw: Draw) -> Texts:
        """Return texts with noise, never longer than without."""
        c, mask = self.config, self.mask
        texts = noise.permuted(texts, c.sentence_permutation_rate, self.ends, draw, _ORDER)
        texts = noise.rotated(texts, c.document_rotation_rate, draw, _ROTATION)
        rate, mean = c.text_infilling_rate, c.mean_span_length
        texts = noise.infilled(texts, rate, mean, mask, draw, _SPANS)
        texts = noise.masked(texts, c.token_masking_rate, mask, draw, _MASKS)
        return noise.deleted(texts, c.token_deletion_rate, mask, draw, _DELETIONS)


class _Noised(TokenStore):
    """Windows of a text, on the target side, whose input is noised."""

    noising: Noising

    @property
    def lengths(self) -> Lengths:
        """See TokenStore. For inputs this is an upper bound; their length is random."""
        return Lengths(self.tgt.lengths + 1, self.tgt.lengths + 1)


class Denoising(SpanCorruption):
    """Reconstruct a text from a noised version: sentences in another order, and spans replaced by
    one MASK each (BART: Lewis et al. 2020, arXiv:1910.13461, section 2.2).
    """

    def items(
        self, store: TokenStore, config: ObjectiveConfig, codec: Codec | None = None
    ) -> TokenStore:
        """See Objective.

        Raises:
          UserError: if the codec has no MASK.
        """
        assert codec is not None
        documents = store.tgt.joined() if config.document == "joined" else store.tgt
        windows = documents.windows(config.window - 1)
        ends = np.array([codec.decode([i])[-1:] in {*_STOPS} for i in range(codec.size)])
        ends[store.special.end] = True
        items = _Noised(windows.emptied(), windows, store.special.both())
        items.noising = Noising(config, _named(config, codec, "<mask>"), ends)
        return items

    def select(self, items: TokenStore, config: DataConfig) -> Selection:
        """See Objective: all windows."""
        return without({"empty": items.tgt.lengths < 1})

    def batch(
        self, items: TokenStore, placement: Placement, rows: int, src_length: int, tgt_length: int,
        draw: Draw,
    ) -> Batch:  # fmt: skip
        """See Objective."""
        texts = _texts(items.tgt, placement)
        read = items.noising.of(texts, draw) if isinstance(items, _Noised) else texts
        return _batch(items, read, texts, placement, rows, src_length, tgt_length)


class _Halves(TokenStore):
    """Windows of a text, on the target side, whose first part is the input."""

    @property
    def lengths(self) -> Lengths:
        """See TokenStore. An upper bound for either part, with EOS; the split is random."""
        most = np.maximum(self.tgt.lengths, 2)
        return Lengths(most, most)


class TextContinuation(SpanCorruption):
    """Read the first part of a window, predict the rest (prefix language modelling with an
    encoder-decoder: Raffel et al. 2020, arXiv:1910.10683, section 3.2.3). Every piece except the
    first may begin the rest, with equal probability.
    """

    def items(
        self, store: TokenStore, config: ObjectiveConfig, codec: Codec | None = None
    ) -> TokenStore:
        """See Objective."""
        documents = store.tgt.joined() if config.document == "joined" else store.tgt
        windows = documents.windows(config.window)
        return _Halves(windows.emptied(), windows, store.special.both())

    def batch(
        self, items: TokenStore, placement: Placement, rows: int, src_length: int, tgt_length: int,
        draw: Draw,
    ) -> Batch:  # fmt: skip
        """See Objective."""
        texts = _texts(items.tgt, placement)
        owner, within = places(texts.lengths)
        ways = np.maximum(texts.lengths - 1, 1).astype(np.uint64)
        first = within <= (random(*draw, texts.numbers) % ways).astype(np.int64)[owner]
        read, written = (Texts(texts.ids[x], owner[x], texts.numbers) for x in (first, ~first))
        return _batch(items, read, written, placement, rows, src_length, tgt_length)


def _texts(texts: Ragged, placement: Placement) -> Texts:
    """Return the placed texts, concatenated."""
    lengths = texts.lengths[placement.pairs]
    owner, within = places(lengths)
    return Texts(texts.ids[texts.starts[placement.pairs][owner] + within], owner, placement.pairs)


def _batch(
    items: TokenStore, read: Texts, written: Texts, placement: Placement, rows: int,
    src_length: int, tgt_length: int,
) -> Batch:  # fmt: skip
    """Return input and target texts, each followed by EOS, as a batch."""
    here = placement._replace(pairs=np.arange(len(placement.pairs)))
    read_, written_ = (_ended(side, items.special.end) for side in (read, written))
    src = lay_out(read_, here, here.src_offset, (rows, src_length))
    tgt = lay_out(written_, here, here.tgt_offset, (rows, tgt_length))
    return Batch(src, shifted(tgt, items.special.begin), {"tokens": predicted(tgt)})


def _ended(texts: Texts, eos: int) -> Ragged:
    """Return texts with EOS appended to each."""
    lengths = texts.lengths + 1
    ids = np.full(lengths.sum(), eos, np.int32)
    ids[np.arange(len(texts.ids)) + texts.owner] = texts.ids
    return Ragged(ids, np.cumsum(lengths) - lengths, lengths)


WORDS = {
    "span_corruption": SpanCorruption(),
    "denoising": Denoising(),
    "text_continuation": TextContinuation(),
}
