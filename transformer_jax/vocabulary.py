"""The four reserved piece ids, set when a tokenizer is trained and asserted when one loads.

Imported tokenizers have other ids: code that may meet one asks the codec.
"""

from typing import NamedTuple

PAD = 0
BOS = 1
EOS = 2
UNK = 3
RESERVED = 4


class Special(NamedTuple):
    """The ids of padding and of the beginning and end of a text; -1 if there is no such piece."""

    pad: int = PAD
    bos: int = BOS  # may equal one of the others
    eos: int = EOS


OURS = Special()
