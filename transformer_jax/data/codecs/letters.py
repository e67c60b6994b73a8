"""Letters of a fixed alphabet: the residues of proteins, and the bases of DNA and RNA."""

import json
from collections.abc import Callable, Iterable, Sequence

from transformer_jax.base.errors import UserError
from transformer_jax.base.vocabulary import RESERVED
from transformer_jax.config import TokenizerConfig
from transformer_jax.data.codecs.codec import (
    SPELLED,
    Kind,
    before_eos,
    framed,
    symbols_of,
    with_symbols,
)
from transformer_jax.data.codecs.listed import Listed


class Letters(Listed):
    """Each letter is a piece. Lower case, which marks what is repetitive or uncertain (soft
    masking), is read as upper case, and spaces are not read.
    """

    alphabet: str  # in the order of ids
    noun: str  # what a letter stands for
    remedy: str  # what to write for an unknown one

    def __init__(self, model: bytes | None = None) -> None:
        model = self.written() if model is None else model
        try:
            symbols = symbols_of(json.loads(model)["special"])
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
            symbols = []
        if model != self.written(symbols):
            raise ValueError("not the alphabet of this version")
        special = with_symbols(symbols, RESERVED + len(self.alphabet))
        super().__init__(model, [*SPELLED, *self.alphabet, *symbols], special)

    @classmethod
    def written(cls, symbols: Sequence[str] = ()) -> bytes:
        """Return the content of its file; `symbols` are further special pieces."""
        special = with_symbols(symbols, RESERVED + len(cls.alphabet))
        return json.dumps({"alphabet": cls.alphabet, "special": special}).encode()

    @property
    def HINT(self) -> str:  # type: ignore[override]
        """See Listed."""
        return f": pieces are the letters {self.alphabet}"

    def encode(self, texts: Sequence[str], bos: bool = False, eos: bool = True) -> list[list[int]]:
        """See Codec.

        Raises:
          UserError: if a text has another letter.
        """
        return [framed(self._letters(text), bos, eos) for text in texts]

    def _letters(self, text: str) -> list[int]:
        upper = text.replace(" ", "").upper()
        if strange := {*upper} - {*self.alphabet}:
            at = min(map(upper.index, strange))
            raise UserError(
                f"letter {at + 1} is {upper[at]!r}, which is no {self.noun}; they are "
                f"{self.alphabet}: {self.remedy}"
            )
        return [self._ids[letter] for letter in upper]

    def decode(self, ids: Iterable[int]) -> str:
        """See Codec."""
        return "".join(self._all[i] for i in before_eos(ids) if self.is_text(i))

    def is_text(self, piece: int) -> bool:
        """See Codec."""
        return RESERVED <= piece < RESERVED + len(self.alphabet)

    def word_starts(self) -> None:
        """See Codec: there are no words."""


class Residues(Letters):
    """Amino acids in ESM's order, from the most frequent one on; X is any, B is D or N, Z is E or
    Q, U selenocysteine, O pyrrolysine; dots and hyphens are gaps of alignments.
    """

    file = "residues{}.json"
    alphabet = "LAGVSERTIDPKQNFYMHWCXBUZO.-"
    noun = "residue"
    remedy = "write X for one that is unknown"


class Nucleotides(Letters):
    """The bases of DNA, U of RNA, N for any, IUPAC's letters for two or three, and gaps."""

    file = "nucleotides{}.json"
    alphabet = "ACGTUNRYSWKMBDHV.-"
    noun = "base"
    remedy = "write N for one that is unknown"


def _train(codec: type[Letters]) -> Callable[..., Letters]:
    def train(
        config: TokenizerConfig, texts: Sequence[str], symbols: Sequence[str] = ()
    ) -> Letters:
        """Return the codec, which learns nothing; `config` and `texts` are ignored."""
        return codec(codec.written(symbols))

    return train


WORDS = {
    "residues": Kind(Residues, _train(Residues), "the alphabet of residues"),
    "nucleotides": Kind(Nucleotides, _train(Nucleotides), "the alphabet of bases"),
}
SIZES = {
    word: RESERVED + len(codec.alphabet)
    for word, codec in (("residues", Residues), ("nucleotides", Nucleotides))
}
