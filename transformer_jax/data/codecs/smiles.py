"""Molecules as SMILES (Weininger 1988, doi:10.1021/ci00057a005), in the units of the notation: an
atom is one piece, also of two letters or in brackets with its charge, chirality and hydrogens.
"""

import json
import re
from collections.abc import Iterable, Sequence

from transformer_jax.base.errors import UserError
from transformer_jax.base.vocabulary import RESERVED, UNK
from transformer_jax.config import TokenizerConfig
from transformer_jax.data.codecs.codec import SPELLED, Kind, before_eos, with_symbols
from transformer_jax.data.codecs.listed import UNKNOWN
from transformer_jax.data.codecs.words import Words

# An atom in brackets, the two organic atoms of two letters, a ring closure of two digits; any other
# character: an atom, a bond, a branch, a ring closure, the dot between molecules.
TOKEN = re.compile(r"\[[^\[\]\s]+\]|Br|Cl|%\d\d|[^\n]")


class Smiles(Words):
    """Each token of the training text is a piece; an unknown one is `unk`, written [UNK]."""

    file = "smiles{}.json"
    HINT = ": pieces are the atoms, bonds and other signs of the training molecules"

    def _cut(self, text: str) -> list[int]:
        return [self._words.get(token, UNK) for token in TOKEN.findall(text)]

    def decode(self, ids: Iterable[int]) -> str:
        """See Codec."""
        left_out = set(self.special.values()) - {UNK}
        kept = (i for i in before_eos(ids) if i not in left_out)
        return "".join(UNKNOWN if i == UNK else self._all[i] for i in kept)

    def word_starts(self) -> None:
        """See Codec: there are no words."""


def train(config: TokenizerConfig, texts: Sequence[str], symbols: Sequence[str] = ()) -> Smiles:
    """Return the codec of all tokens in the texts, ordered by code point; `config` is ignored.

    Raises:
      UserError: if there are none.
    """
    tokens = {token for text in texts for token in TOKEN.findall(text)} - {*SPELLED, *symbols}
    if not any(map(str.strip, tokens)):
        raise UserError("config.data.train: all texts are empty; they have no atoms to learn")
    content = {
        "special": with_symbols(symbols, RESERVED), "lowercase": False, "words": sorted(tokens),
    }  # fmt: skip
    return Smiles(json.dumps(content, ensure_ascii=False).encode())


WORDS = {"smiles": Kind(Smiles, train, "a list of words")}
