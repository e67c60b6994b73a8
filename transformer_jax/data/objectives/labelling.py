"""Classification and regression: a class or a number for a whole text."""

import numpy as np

from transformer_jax.base.errors import UserError
from transformer_jax.config import DataConfig, ObjectiveConfig
from transformer_jax.data.batches.batch import Batch, Placement, Side, Target, places
from transformer_jax.data.codecs.codec import Codec, special_of
from transformer_jax.data.objectives.masked_lm import Begun, begun, is_empty
from transformer_jax.data.objectives.objective import BaseObjective, Order
from transformer_jax.data.random import Draw
from transformer_jax.data.store.token_store import Selection, TokenStore, without


def said(items: TokenStore, placement: Placement, shape: tuple[int, int]) -> tuple[Side, Target]:
    """Return a position for each placed text, with no input, and its labels: ids [B T], or
    [B T K] if texts of the store have up to K labels, which share the text's weight.
    """
    row, at = placement.rows, placement.tgt_offset
    inputs, pos, seg = (np.zeros(shape, np.int32) for _ in range(3))
    seg[row, at] = placement.segment
    starts, lengths = (x[placement.pairs] for x in (items.tgt.starts, items.tgt.lengths))
    text, number = places(lengths)
    size = *shape, max_labels(items)
    labels, weight = np.zeros(size, np.int32), np.zeros(size, np.float32)
    labels[row[text], at[text], number] = items.tgt.ids[starts[text] + number]
    weight[row[text], at[text], number] = 1 / lengths[text]
    if size[2] == 1:
        labels, weight = labels[..., 0], weight[..., 0]
    return Side(inputs, pos, seg), Target(labels, weight)


CHOICES = {"class", "move"}  # predictions of which a text may have several correct ones


def max_labels(items: TokenStore) -> int:
    """Return K, the largest number of labels of any text."""
    return max(int(items.tgt.lengths.max(initial=1)), 1)


class Classify(BaseObjective):
    """Read a text, predict its class. The target side has one position for each text, without
    input, where the class is predicted. For a text with several classes the target is their
    distribution: each has an equal share, and a repeated one two.
    """

    order: Order = "all"
    predicts: tuple[str, ...] = ("class",)
    noun = "text"

    def items(
        self, store: TokenStore, config: ObjectiveConfig, codec: Codec | None = None
    ) -> TokenStore:
        """See Objective. Each text starts with BOS; one longer than the window is cut before EOS.

        Raises:
          UserError: if vectors, which must not be cut, exceed the window.
        """
        src, most = store.src, config.window - 1
        longest = int(src.lengths.max(initial=0))
        if src.read is not None and longest > most:
            raise UserError(
                f"config.objective.window={config.window}: does not hold {longest} vectors and the "
                f"position before them; raise it to {longest + 1}, and data.max_length "
                "and model.max_positions with it"
            )
        special = special_of(codec)
        if src.read is None:
            special = special.both()
        return Begun(src.cut(most, special.end) if longest > most else src, store.tgt, special)

    def select(self, items: TokenStore, config: DataConfig) -> Selection:
        """See Objective: all texts except empty ones."""
        return without({"empty": is_empty(items)})

    def batch(
        self, items: TokenStore, placement: Placement, rows: int, src_length: int, tgt_length: int,
        draw: Draw,
    ) -> Batch:  # fmt: skip
        """See Objective."""
        src = begun(items, placement, (rows, src_length), draw)
        tgt, target = said(items, placement, (rows, tgt_length))
        return Batch(src, tgt, {self.predicts[0]: target})


class Policy(Classify):
    """Read a chess position, predict its best moves: see `models.move_head`."""

    predicts: tuple[str, ...] = ("move",)


class Regress(Classify):
    """Read a text, predict a number, whose float32 bits are stored as the id."""

    predicts: tuple[str, ...] = ("value",)

    def batch(
        self, items: TokenStore, placement: Placement, rows: int, src_length: int, tgt_length: int,
        draw: Draw,
    ) -> Batch:  # fmt: skip
        """See Objective."""
        batch = super().batch(items, placement, rows, src_length, tgt_length, draw)
        labels, weight = batch.targets["value"]
        return batch._replace(targets={"value": Target(labels.view(np.float32), weight)})


WORDS = {"regress": Regress(), "classify": Classify(), "policy": Policy()}
