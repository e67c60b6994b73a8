"""The four reserved piece ids, set when a tokenizer is trained and asserted when one loads.

Tokenizers that are imported have others: whoever may meet one asks the codec.
"""

from typing import NamedTuple

PAD = 0
BOS = 1
EOS = 2
UNK = 3
RESERVED = 4


class Special(NamedTuple):
    """The ids that mark where a text begins and ends; -1: there is no such piece."""

    pad: int = PAD
    bos: int = BOS  # may be one of the others
    eos: int = EOS


OURS = Special()
