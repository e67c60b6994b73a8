"""Masked language modelling, and helpers for texts read in both directions."""

from typing import NamedTuple

import numpy as np

from transformer_jax.base.errors import UserError
from transformer_jax.base.vocabulary import PAD, Special
from transformer_jax.config import DataConfig, ObjectiveConfig
from transformer_jax.data.batches.batch import (
    Batch,
    Placement,
    Ragged,
    Side,
    Target,
    lay_out,
    places,
)
from transformer_jax.data.codecs.codec import Codec, special_of
from transformer_jax.data.objectives.objective import BaseObjective, Order
from transformer_jax.data.random import VALIDATION, Draw, random
from transformer_jax.data.store.token_store import Frame, Lengths, Selection, TokenStore, without

_WORD, _FATE, _PIECE = range(3)  # purposes of random numbers


class Begun(TokenStore):
    """Texts read after a BOS in the first position, BERT's CLS. The labels of a text take one
    position, however many they are.
    """

    @property
    def lengths(self) -> Lengths:
        """See TokenStore."""
        return Lengths(self.src.lengths + 1, np.minimum(self.tgt.lengths, 1))


class Masks(NamedTuple):
    """What is masked in a text, and what replaces it."""

    rate: float  # share to predict
    mask: int  # the piece that replaces masked ones
    special: np.ndarray  # bool [V]: pieces that are never masked
    begins: np.ndarray  # bool [V]: pieces that begin a unit of masking, a piece or a word

    @classmethod
    def of(cls, config: ObjectiveConfig, codec: Codec) -> "Masks":
        """Return the masks of pieces, or of words.

        Raises:
          UserError: if the codec has no MASK, or no word boundaries.
        """
        if "mask" not in codec.special:
            raise UserError(
                f"config.objective.name={config.name!r}: the tokenizer has no piece <mask>; one "
                "trained for this objective has it; set --config.init.tokenizer=False"
            )
        special = np.zeros(codec.size, bool)
        special[[*codec.special.values()]] = True
        begins = codec.word_starts() if config.whole_words else np.ones(codec.size, bool)
        if begins is None:
            raise UserError("config.objective.whole_words=True: the codec has no word boundaries")
        return cls(config.mask_rate, codec.special["mask"], special, begins)


class Masked(Begun):
    """Windows of a text with masked pieces."""

    masks: Masks
    alone: np.ndarray | None = None  # the only masked position of each item


class MaskedLM(BaseObjective):
    """Mask some pieces of a text and predict them from all others (BERT: Devlin et al. 2019,
    arXiv:1810.04805, section 3.1). Of ten, eight are replaced by MASK, one by a random piece, and
    one is kept.

    The number of predicted pieces is their share, rounded, as in the authors' code, and not random.
    With whole words, words are chosen; the replacement is drawn for each piece separately.
    """

    order: Order = "all"
    noun = "window"

    def frame(self, config: ObjectiveConfig) -> Frame:
        """See Objective."""
        return Frame(bos=False, eos=config.document != "file")

    def items(
        self, store: TokenStore, config: ObjectiveConfig, codec: Codec | None = None
    ) -> TokenStore:
        """See Objective. BOS precedes each window and counts towards its length."""
        assert codec is not None
        documents = store.tgt.joined() if config.document == "joined" else store.tgt
        windows = documents.windows(config.window - 1)
        items = Masked(windows, windows.emptied(), special_of(codec).both())
        items.masks = Masks.of(config, codec)
        return items

    def select(self, items: TokenStore, config: DataConfig) -> Selection:
        """See Objective: all windows except those of empty lines."""
        return without({"empty": is_empty(items)})

    def batch(
        self, items: TokenStore, placement: Placement, rows: int, src_length: int, tgt_length: int,
        draw: Draw,
    ) -> Batch:  # fmt: skip
        """See Objective."""
        side = begun(items, placement, (rows, src_length))
        item, within = places(items.src.lengths[placement.pairs])
        at = placement.rows[item], placement.src_offset[item] + 1 + within
        side, target = hide(items, side, Pieces(at, item, placement.pairs[item], within), draw)
        return Batch(side, None, {"tokens": target})


class Pieces(NamedTuple):
    """The maskable pieces of a batch, item after item; arrays [n]."""

    at: tuple[np.ndarray, np.ndarray]  # row and column
    item: np.ndarray  # their item, as an index into the batch
    number: np.ndarray  # their item, as an index into all items
    within: np.ndarray  # their positions in the item


def hide(items: TokenStore, side: Side, found: Pieces, draw: Draw) -> tuple[Side, Target]:
    """Return a side with some of its pieces masked, and these as the target."""
    labels, weight = np.full_like(side.inputs, PAD), np.zeros(side.inputs.shape, np.float32)
    if isinstance(items, Masked):
        pieces = side.inputs[found.at]
        if items.alone is None:
            keys = *draw, found.number, found.within
            hidden = chosen(items.masks, pieces, found.item, keys)
            read = replaced(items.masks, pieces, keys)
        else:
            hidden = found.within == items.alone[found.number]
            read = np.full_like(pieces, items.masks.mask)
        labels[found.at], weight[found.at] = np.where(hidden, pieces, PAD), hidden
        inputs = side.inputs.copy()
        inputs[found.at] = np.where(hidden, read, pieces)
        side = side._replace(inputs=inputs)
    return side, Target(labels, weight)


def one_by_one(items: TokenStore, most: int) -> TokenStore:
    """Return items with a single piece masked, by MASK: each maskable piece in turn.

    They come from as many windows, in a fixed random order, as have at most `most` positions
    together, and from at least one.
    """
    assert isinstance(items, Masked)
    windows = np.argsort(random(np.arange(len(items))), kind="stable")
    lengths = items.src.lengths[windows]
    windows = windows[: max(int((np.cumsum(lengths * (lengths + 1)) <= most).sum()), 1)]
    lengths = items.src.lengths[windows]
    window = np.repeat(windows, lengths)
    place = np.arange(len(window)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    may = ~items.masks.special[items.src.ids[items.src.starts[window] + place]]
    return hidden_at(items, window[may], place[may])


def hidden_at(items: Masked, window: np.ndarray, place: np.ndarray) -> Masked:
    """Return items with a single piece masked, by MASK: that at each place of each window."""
    repeated = Ragged(items.src.ids, items.src.starts[window], items.src.lengths[window])
    every = Masked(repeated, repeated.emptied(), items.special)
    every.masks, every.alone = items.masks, place
    return every


def chosen(masks: Masks, pieces: np.ndarray, item: np.ndarray, keys: tuple) -> np.ndarray:
    """Return which pieces are masked, item after item: bool [n].

    `keys` determine the random numbers, each a number or as long as the pieces.
    """
    first = np.diff(item, prepend=-1) > 0  # first of its item
    begins = first | masks.begins[pieces]
    unit = np.cumsum(begins) - 1  # a piece or a word
    may = np.zeros(begins.sum(), bool)
    np.logical_or.at(may, unit, ~masks.special[pieces])
    owner = item[begins]
    many = np.bincount(owner, may, minlength=item.max(initial=-1) + 1)
    count = np.minimum(np.maximum(np.rint(masks.rate * many), 1), many)
    value = random(*keys, _WORD)[begins]
    order = np.lexsort((value, ~may, owner))
    place = np.empty_like(order)
    place[order] = np.arange(len(order)) - np.searchsorted(owner, owner[order])
    return (place < count[owner])[unit] & ~masks.special[pieces]


def replaced(masks: Masks, pieces: np.ndarray, keys: tuple) -> np.ndarray:
    """Return the replacement of each piece if it is masked."""
    ordinary = np.flatnonzero(~masks.special)
    fate = random(*keys, _FATE) % np.uint64(10)
    other = ordinary[(random(*keys, _PIECE) % np.uint64(len(ordinary))).astype(np.int64)]
    return np.select([fate < 8, fate == 8], [np.full_like(pieces, masks.mask), other], pieces)


def begun(
    items: TokenStore,
    placement: Placement,
    shape: tuple[int, int],
    draw: Draw = VALIDATION,
) -> Side:
    """Copy the placed texts into an array [B L], each after BOS; vectors after zeros."""
    at = placement.rows, placement.src_offset
    side = lay_out(items.src, placement, placement.src_offset + 1, shape, draw=draw)
    side = side._replace(pos=np.where(side.seg > 0, side.pos + 1, 0).astype(np.int32))
    side.inputs[at] = items.special.begin if items.src.read is None else 0
    side.seg[at] = placement.segment
    return side


def two_segments(
    first: Ragged, second: Ragged, placement: Placement, shape: tuple[int, int], special: Special
) -> tuple[Side, Pieces]:
    """Return BOS, first segment, EOS, second segment, EOS for each placed item, and the locations
    of the pieces. The sequences are those of the placed items, in their order.
    """
    one, two = first.lengths, second.lengths
    item, within = places(one + two + 3)
    at = placement.rows[item], placement.src_offset[item] + within
    ids, pos, seg, kind = (np.zeros(shape, np.int32) for _ in range(4))
    pos[at], seg[at], kind[at] = within, placement.segment[item], within > one[item] + 1
    ids[at] = special.end
    ids[placement.rows, placement.src_offset] = special.begin
    piece = (within != 0) & (within != one[item] + 1) & (within != (one + two)[item] + 2)
    at, item, within = (at[0][piece], at[1][piece]), item[piece], within[piece]
    behind = within > one[item]
    ids[at] = np.where(
        behind,
        second.ids[np.where(behind, (second.starts - one - 2)[item] + within, 0)],
        first.ids[np.where(behind, 0, first.starts[item] - 1 + within)],
    )
    return Side(ids, pos, seg, None, kind), Pieces(at, item, placement.pairs[item], within)


def is_empty(items: TokenStore) -> np.ndarray:
    """Return which texts consist only of EOS."""
    texts = items.src
    if texts.read is not None:
        return texts.lengths == 0
    return (texts.lengths == 1) & (texts.ids[texts.starts] == items.special.end)


WORDS = {"masked_lm": MaskedLM()}
