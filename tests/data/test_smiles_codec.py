"""Molecules in SMILES: the tokens are those of the notation, and texts round-trip."""

import pytest

from transformer_jax.base.errors import UserError
from transformer_jax.base.vocabulary import EOS, UNK
from transformer_jax.config import TokenizerConfig
from transformer_jax.data.codecs.smiles import Smiles, train

CONFIG = TokenizerConfig()


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("CC(=O)O.Cl", "C C ( = O ) O . Cl"),
        ("Brc1cc[nH]c1", "Br c 1 c c [nH] c 1"),
        ("[C@@H](F)%12", "[C@@H] ( F ) %12"),
        (r"C/C=C\[N+](C)[O-]", r"C / C = C \ [N+] ( C ) [O-]"),
        ("[Cl-]#BrB", "[Cl-] # Br B"),
        ("C[", "C ["),  # no molecule, but a text
        ("7\tCO \u2003N", "7|\t|C|O| |\u2003|N"),  # nor this, a class before one
        ("", ""),
    ],
)
def test_tokens_of_the_notation(text, tokens):
    codec = train(CONFIG, [text, "C"])
    (ids,) = codec.encode([text])
    assert codec.pieces(ids) == [*tokens.split("|" if "|" in tokens else None), "</s>"]
    assert codec.decode(ids) == text
    again = Smiles(codec.model)
    assert (again.digest, again.encode([text])) == (codec.digest, [ids])


def test_unknown_atoms_are_unknown():
    codec = train(CONFIG, ["CC(=O)"])
    assert codec.encode(["C[Zn]"]) == [[codec.piece_id("C"), UNK, EOS]]
    assert codec.decode([codec.piece_id("C"), UNK, EOS, UNK]) == "C[UNK]"


def test_texts_without_atoms_are_rejected():
    with pytest.raises(UserError, match="no atoms to learn"):
        train(CONFIG, ["", " "])
