"""What is said of a whole text: its class, or a number."""

from typing import Literal

import numpy as np

from transformer_jax.config import DataConfig, ObjectiveConfig
from transformer_jax.data.batch import Batch, Placement, Target, lay_out
from transformer_jax.data.codecs.codec import Codec, special_of
from transformer_jax.data.random import Draw
from transformer_jax.data.reading import Begun, begun, is_empty
from transformer_jax.data.token_store import Frame, Selection, TokenStore, without
from transformer_jax.errors import UserError


class Classify:
    """Read a text, say its class. The target side has a place for each text, and nothing to read:
    a class is asked for there.
    """

    order: Literal["all", "causal", "ranked"] = "all"
    strict = False
    predicts: tuple[str, ...] = ("class",)
    noun = "text"

    def frame(self, config: ObjectiveConfig) -> Frame:
        """See Objective."""
        return Frame()

    def items(
        self, store: TokenStore, config: ObjectiveConfig, codec: Codec | None = None
    ) -> TokenStore:
        """See Objective. BOS is read before each text; one beyond the window is cut before EOS.

        Raises:
          UserError: if vectors, of which nothing may be left out, are beyond it.
        """
        src, most = store.src, config.window - 1
        longest = int(src.lengths.max(initial=0))
        if src.read is not None and longest > most:
            raise UserError(
                f"config.objective.window={config.window}: of {longest} vectors and the place "
                f"before them it leaves out some; raise it to {longest + 1}, and data.max_length "
                "and model.max_positions with it"
            )
        special = special_of(codec)
        return Begun(src.cut(most, special.eos) if longest > most else src, store.tgt, special)

    def select(self, items: TokenStore, config: DataConfig) -> Selection:
        """See Objective: all texts but empty ones."""
        return without({"empty": is_empty(items)})

    def examples(
        self, items: TokenStore, placement: Placement, rows: int, src_length: int, tgt_length: int,
        draw: Draw = Draw(),  # noqa: B008 (immutable)
    ) -> Batch:  # fmt: skip
        """See Objective."""
        src = begun(items, placement, (rows, src_length), draw)
        tgt = lay_out(items.tgt, placement, placement.tgt_offset, (rows, tgt_length))
        target = Target(tgt.inputs, (tgt.seg > 0).astype(np.float32))
        return Batch(src, tgt._replace(inputs=np.zeros_like(tgt.inputs)), {"class": target})


class Regress(Classify):
    """Read a text, say a number: the bits of its id are those of a float32."""

    predicts: tuple[str, ...] = ("value",)

    def examples(
        self, items: TokenStore, placement: Placement, rows: int, src_length: int, tgt_length: int,
        draw: Draw = Draw(),  # noqa: B008 (immutable)
    ) -> Batch:  # fmt: skip
        """See Objective."""
        batch = super().examples(items, placement, rows, src_length, tgt_length, draw)
        labels, weight = batch.targets["class"]
        return batch._replace(targets={"value": Target(labels.view(np.float32), weight)})
