"""A text in characters after tags that say something about it, each of which is one piece: for
inflection, a language and grammatical features before a lemma.
"""

import json
import re
from collections.abc import Iterable, Sequence

from transformer_jax.base.errors import UserError
from transformer_jax.base.vocabulary import RESERVED, UNK
from transformer_jax.config import TokenizerConfig
from transformer_jax.data.codecs.codec import (
    SPELLED,
    Kind,
    before_eos,
    framed,
    symbols_of,
    with_symbols,
)
from transformer_jax.data.codecs.listed import UNKNOWN, Listed

_BETWEEN = re.compile("[;\t]")


class Tagged(Listed):
    r"""Pieces are tags, which `pieces` writes as [TAG], and characters. In a text, tags are
    separated by semicolons or TABs, and the last TAB is before the characters:
    "finnish\tN;PL\tkala". What training has not is `unk`.
    """

    file = "tagged{}.json"
    HINT = ": pieces are characters of the training text, and [TAG]"

    def __init__(self, model: bytes) -> None:
        tags, characters, special = _read(model)
        self.tags = len(tags)  # their ids are the first after those of the special pieces
        spelled = [f"[{tag}]" for tag in tags]
        super().__init__(model, [*SPELLED, *spelled, *characters, *symbols_of(special)], special)
        self._tags = {tag: RESERVED + i for i, tag in enumerate(tags)}
        first = RESERVED + len(tags)
        self._characters = {letter: first + i for i, letter in enumerate(characters)}

    def encode(self, texts: Sequence[str], bos: bool = False, eos: bool = True) -> list[list[int]]:
        """See Codec.

        Raises:
          UserError: if a tag is empty, or there are tags but no characters.
        """
        return [framed(self._cut(text), bos, eos) for text in texts]

    def _cut(self, text: str) -> list[int]:
        tags, characters = divided(text)
        if not all(tags) or (tags and not characters.strip()):
            raise UserError(
                f"{text!r:.60}: must be tags, with semicolons or TABs between, a TAB and "
                "characters, none of them empty; correct the row, or remove it"
            )
        found = [self._tags.get(tag, UNK) for tag in tags]
        return found + [self._characters.get(letter, UNK) for letter in characters]

    def decode(self, ids: Iterable[int]) -> str:
        """See Codec: with semicolons between all tags."""
        left_out = set(self.special.values()) - {UNK}
        kept = [i for i in before_eos(ids) if i not in left_out]
        marked = range(RESERVED, RESERVED + self.tags)
        tags = ";".join(self._all[i][1:-1] for i in kept if i in marked)
        said = (UNKNOWN if i == UNK else self._all[i] for i in kept if i not in marked)
        return f"{tags}\t{''.join(said)}" if tags else "".join(said)

    def word_starts(self) -> None:
        """See Codec: where a word begins depends on the character before it."""


def divided(text: str) -> tuple[list[str], str]:
    """Return the tags of a text and its characters."""
    head, tab, characters = text.rpartition("\t")
    return [tag.strip() for tag in _BETWEEN.split(head)] if tab else [], characters


def _read(model: bytes) -> tuple[list[str], str, dict[str, int]]:
    try:
        content = json.loads(model)
        tags, characters, special = content["tags"], content["characters"], content["special"]
        expected = with_symbols(symbols_of(special), RESERVED + len(tags) + len(characters))
        listed = tags == sorted(set(tags)) and characters == "".join(sorted(set(characters)))
        if special == expected and listed:
            return tags, characters, special
    except (ValueError, TypeError, KeyError, RecursionError):
        pass
    raise ValueError("not lists of tags and characters")


def train(config: TokenizerConfig, texts: Sequence[str], symbols: Sequence[str] = ()) -> Tagged:
    """Return the codec of all tags and characters in the texts; `config` is ignored.

    Raises:
      UserError: if there are no characters.
    """
    tags: set[str] = set()
    letters: set[str] = set()
    for text in texts:
        before, characters = divided(text)
        tags.update(filter(None, before))
        letters.update(characters)
    if not letters:
        raise UserError(
            "config.data.train: no text has characters; write TAG;TAG, a TAB and the characters"
        )
    content = {
        "special": with_symbols(symbols, RESERVED + len(tags) + len(letters)),
        "tags": sorted(tags), "characters": "".join(sorted(letters)),
    }  # fmt: skip
    return Tagged(json.dumps(content, ensure_ascii=False).encode("utf-8", "surrogatepass"))


WORDS = {"tagged": Kind(Tagged, train, "lists of tags and characters")}
