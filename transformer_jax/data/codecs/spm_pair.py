"""Marian's tokenizer: two SentencePiece models, of sources and of targets, and one vocabulary."""

import base64
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import sentencepiece

KIND = "sentencepiece pair"  # of a description, where a tokenizer.json has another content
_CODE = re.compile(r">>.*?<<", re.DOTALL)  # the language of the output, at the start of a source


class Encoded(NamedTuple):
    """What `encode_batch` returns of a text, as `tokenizers` does."""

    ids: list[int]


def described(
    source: bytes, target: bytes, vocabulary: Mapping[str, int], special: Mapping[str, str]
) -> dict[str, Any]:
    """Return a description that JSON can hold; `special` has unk, eos and pad."""
    return {
        "type": KIND,
        "model": {"unk_token": special["unk"]},
        "source": base64.b64encode(source).decode(),
        "target": base64.b64encode(target).decode(),
        "vocabulary": dict(vocabulary),
        "special": dict(special),
    }


def models_of(description: Mapping[str, Any]) -> tuple[bytes, bytes]:
    """Return both SentencePiece models."""
    source, target = (base64.b64decode(description[side]) for side in ("source", "target"))
    return source, target


class SpmPair:
    """One side of it, with the methods of a `tokenizers.Tokenizer` that `Imported` calls.

    A text is cut by its side's model, and pieces have the numbers of the vocabulary, which also
    knows characters that the model does not. As there, texts are put together by the source's.
    """

    def __init__(self, description: Mapping[str, Any], side: str = "source") -> None:
        models = dict(zip(("source", "target"), models_of(description), strict=True))
        self._cuts = sentencepiece.SentencePieceProcessor(model_proto=models[side])
        self._joins = sentencepiece.SentencePieceProcessor(model_proto=models["source"])
        self._ids: dict[str, int] = description["vocabulary"]
        self._pieces = {number: piece for piece, number in self._ids.items()}
        self._special: dict[str, str] = description["special"]
        self._unknown = self._ids[self._special["unk"]]
        spelled = "|".join(re.escape(piece) for piece in self._special.values())
        self._spelled = re.compile(f"({spelled})")

    def encode_batch(self, texts: Sequence[str], add_special_tokens: bool = True) -> list[Encoded]:
        """Return the ids of each text, with EOS unless `add_special_tokens` is False."""
        end = [self._ids[self._special["eos"]]] if add_special_tokens else []
        return [
            Encoded([self._ids.get(piece, self._unknown) for piece in self._cut(text)] + end)
            for text in texts
        ]

    def encode(self, text: str, add_special_tokens: bool = True) -> Encoded:
        """Return the ids of a text, with EOS unless `add_special_tokens` is False."""
        return self.encode_batch([text], add_special_tokens)[0]

    def _cut(self, text: str) -> list[str]:
        pieces: list[str] = []
        for part in self._spelled.split(text):
            if part in self._special.values():
                pieces.append(part)
                continue
            code = _CODE.match(part)
            pieces += [code[0]] if code else []
            pieces += self._cuts.encode(part[code.end() if code else 0 :], out_type=str)
        return pieces

    def decode(self, ids: Iterable[int], skip_special_tokens: bool = True) -> str:
        """Return the text of pieces, without special ones."""
        pieces = [self.id_to_token(i) for i in ids]
        skipped = {*self._special.values()} if skip_special_tokens else set()
        kept = [piece for piece in pieces if piece is not None and piece not in skipped]
        return self._joins.decode_pieces(kept).replace("▁", " ").strip()

    def id_to_token(self, number: int) -> str | None:
        """Return a piece, or None if the number has none."""
        return self._pieces.get(number)

    def token_to_id(self, piece: str) -> int | None:
        """Return a piece's number, or None if there is no such piece."""
        return self._ids.get(piece)

    def get_vocab(self) -> dict[str, int]:
        """Return the numbers of all pieces."""
        return self._ids

    def no_truncation(self) -> None:
        """Texts are never cut short."""

    def no_padding(self) -> None:
        """Texts are never padded."""
