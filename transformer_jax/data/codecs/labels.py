"""Labels of the words of a text, or of the whole text, from those in the training set."""

import json
from collections.abc import Iterable, Sequence

from transformer_jax.base.errors import UserError
from transformer_jax.config import TokenizerConfig
from transformer_jax.data.codecs.classes import Classes
from transformer_jax.data.codecs.codec import Kind
from transformer_jax.data.scripts import words_in


class Labels(Classes):
    """Each label is a piece, from 0, and a text is a space-separated list of labels."""

    file = "labels{}.json"
    noun = "label"

    def encode(self, texts: Sequence[str], bos: bool = False, eos: bool = True) -> list[list[int]]:
        """See Codec.

        Raises:
          UserError: if a label is unknown.
        """
        return [[self.piece_id(label) for label in words_in(text)] for text in texts]

    def decode(self, ids: Iterable[int]) -> str:
        """Return the labels."""
        return " ".join(self.pieces(ids))


def train(config: TokenizerConfig, texts: Sequence[str], symbols: Sequence[str] = ()) -> Labels:
    """Return the codec of the distinct labels; `config` and `symbols` are ignored.

    Raises:
      UserError: if there is only one label.
    """
    names = sorted({label for text in texts for label in words_in(text)})
    if len(names) < 2:
        raise UserError(f"config.data.train: has only one label, {names}")
    return Labels(json.dumps({"classes": names}).encode())


WORDS = {"labels": Kind(Labels, train, "a list of labels")}
