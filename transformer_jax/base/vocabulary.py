"""The four reserved piece ids, set when a tokenizer is trained and asserted when one loads.

Imported tokenizers have other ids: code that may meet one asks the codec.
"""

from typing import NamedTuple

from transformer_jax.base.errors import UserError

PAD = 0
BOS = 1
EOS = 2
UNK = 3
RESERVED = 4


class Special(NamedTuple):
    """The ids of padding and of the beginning and end of a text; None if there is no such piece."""

    pad: int = PAD  # fills what is not read; may equal EOS
    bos: int | None = BOS  # may equal one of the others
    eos: int | None = EOS

    @property
    def begin(self) -> int:
        """The id of BOS, for those who put it before a text.

        Raises:
          UserError: if there is none.
        """
        return _known("BOS", "begin", self.bos)

    @property
    def end(self) -> int:
        """The id of EOS, for those who put it behind a text or wait for it.

        Raises:
          UserError: if there is none.
        """
        return _known("EOS", "end", self.eos)

    @property
    def unwritten(self) -> set[int]:
        """The pieces that no search writes."""
        return {piece for piece in (self.pad, self.bos) if piece is not None} - {self.eos}

    def both(self) -> "Special":
        """Return the same ids, for those who put BOS and EOS around a text.

        Raises:
          UserError: if one of them is missing.
        """
        return Special(self.pad, self.begin, self.end)


def _known(name: str, what: str, piece: int | None) -> int:
    if piece is None:
        raise UserError(
            f"the tokenizer has no {name}, with which this model's texts {what}; train another one "
            "with --config.init.tokenizer=False"
        )
    return piece


OURS = Special()
