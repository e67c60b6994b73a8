"""A Hugging Face tokenizer: a tokenizer.json, with the special ids of the model it came with."""

import functools
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import takewhile
from typing import Any

from transformer_jax.base.errors import UserError
from transformer_jax.config import TokenizerConfig
from transformer_jax.data.codecs import spm_pair
from transformer_jax.data.codecs.codec import Kind, hashed, special_of

LEAD = "lead"  # the special piece before every text, source or target, as in BART
BEGINS = "begins"  # key of what documents begin with; if it is absent, with BOS
CLEANED = "cleaned"  # key of codecs whose decoded text is cleaned, as in T5; absent in the others
_KEYS = {"special", "size", "tokenizer"}
# What transformers replaces in a text whose tokenizer has clean_up_tokenization_spaces, in order.
_CONTRACTIONS = ("n't", "'m", "'s", "'ve", "'re")
_REPLACED = (*((f" {x}", x) for x in ".?!,"), (" ' ", "'"), *((f" {x}", x) for x in _CONTRACTIONS))
_UNCLEAR = re.compile(r"[ .?!,'ntmsver]*\Z")  # an end whose spaces may go, by what comes behind it


class Imported:
    """A tokenizer.json loaded by `tokenizers`. It is imported and never trained.

    Special pieces that the model lacks are missing from `special`.
    """

    file = "tokenizer{}.json"

    def __init__(self, model: bytes, side: str = "source") -> None:
        content = json.loads(model)
        if not isinstance(content, dict) or content.keys() - {BEGINS, CLEANED} != _KEYS:
            raise ValueError("not written by an import")
        self.model = model
        # Earlier imports wrote -1 for a missing piece, and had BOS before every document.
        self.special: Mapping[str, int] = {k: v for k, v in content["special"].items() if v >= 0}
        self._begins: list[int] | None = content.get(BEGINS)
        self._size: int = content["size"]
        self.side = side
        self.cleaned: bool = content.get(CLEANED, False)
        self._tokenizer: Any = _opened(content["tokenizer"], side)
        self._lead = [self.special[LEAD]] if LEAD in self.special else []
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()
        self._bytes = self._byte_pieces(content["tokenizer"].get("decoder"))

    @classmethod
    def of(
        cls, tokenizer: str, special: Mapping[str, int], size: int,
        begins: Sequence[int] | None = None, cleaned: bool = False,
    ) -> "Imported":  # fmt: skip
        """Return the codec of the content of a tokenizer.json, for an embedding of `size` rows.
        `begins`: the pieces that each document begins with, in place of BOS; `cleaned`: spaces are
        removed from decoded text, as in T5.
        """
        content = {"special": dict(special), "size": size, "tokenizer": json.loads(tokenizer)}
        content |= {} if begins is None else {BEGINS: list(begins)}
        content |= {CLEANED: True} if cleaned else {}
        return cls(json.dumps(content, ensure_ascii=False).encode())

    @property
    def size(self) -> int:
        """Number of rows of the embedding; some may have no piece."""
        return self._size

    @property
    def digest(self) -> str:
        """A hash of the model's bytes, and of its side if it has two."""
        return hashed(self.model + b"target" * (self.side == "target"))

    @property
    def of_targets(self) -> "Imported":
        """The codec of target texts: itself, unless its tokenizer has two sides."""
        if self.tokenizer.get("type") != spm_pair.KIND or self.side == "target":
            return self
        return Imported(self.model, "target")

    def encode(self, texts: Sequence[str], bos: bool = False, eos: bool = True) -> list[list[int]]:
        """See Codec. The tokenizer's own special pieces around a text are omitted, except one that
        leads every text.
        """
        encodings = self._tokenizer.encode_batch(list(texts), add_special_tokens=False)
        before = self.begins if bos else self._lead
        after = [special_of(self).end] if eos else []
        return [before + item.ids + after for item in encodings]

    def named_too(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the pieces of texts alone, in which named pieces are known by their names."""
        encodings = self._tokenizer.encode_batch(list(texts), add_special_tokens=False)
        return [item.ids for item in encodings]

    @functools.cached_property
    def symbols(self) -> dict[str, int]:
        """The pieces that a text can name."""
        return {x["content"]: x["id"] for x in self.tokenizer.get("added_tokens") or ()}

    @functools.cached_property
    def control(self) -> frozenset[str]:
        """Those of them that are left out of decoded text, and that no text has of its own."""
        added = self.tokenizer.get("added_tokens") or ()
        return frozenset(x["content"] for x in added if x.get("special"))

    @property
    def begins(self) -> list[int]:
        """The pieces that each document begins with.

        Raises:
          UserError: if that is BOS, and there is none.
        """
        return [special_of(self).begin] if self._begins is None else self._begins

    def decode(self, ids: Iterable[int]) -> str:
        """See Codec. A BOS at the beginning may be the same piece as EOS."""
        text = self._decoded([int(i) for i in ids])
        return _cleaned(text) if self.cleaned else text

    def _decoded(self, ids: list[int]) -> str:
        if ids[:1] == [self.special.get("bos")]:
            ids = ids[1:]
        text = takewhile(lambda i: i != self.special.get("eos"), ids)
        return self._tokenizer.decode(list(text), skip_special_tokens=True)

    def settled(self, ids: Sequence[int]) -> str:
        """See `codec.settled`. Bytes in a row are spelled together: one that belongs to no
        character makes all of them unreadable.
        """
        known = [int(i) for i in ids]
        while self._bytes and known and self._in_bytes(known[-1]):
            known.pop()
        text = self._decoded(known).rstrip("\ufffd")
        return _cleaned(_UNCLEAR.sub("", text)) if self.cleaned else text

    def _in_bytes(self, piece: int) -> bool:
        """Return whether a piece is a byte, or has no text and so does not part two bytes."""
        return piece in self._bytes or not self._decoded([piece])

    def _byte_pieces(self, decoder: Any) -> set[int]:
        """Return the pieces that stand for bytes and are decoded in rows."""
        if '"ByteFallback"' not in json.dumps(decoder):
            return set()
        ids = (self._tokenizer.token_to_id(f"<0x{byte:02X}>") for byte in range(256))
        return {piece for piece in ids if piece is not None}

    def pieces(self, ids: Iterable[int]) -> list[str]:
        """See Codec. Rows of the embedding without a piece are written as <unused 5>."""
        pairs = ((int(i), self._tokenizer.id_to_token(int(i))) for i in ids)
        return [f"<unused {i}>" if piece is None else piece for i, piece in pairs]

    def piece_id(self, piece: str) -> int:
        """See Codec."""
        number = self._tokenizer.token_to_id(piece)
        if number is None:
            raise UserError(f"{piece!r} is not a piece of the tokenizer")
        return number

    def has(self, piece: str) -> bool:
        """Return whether there is such a piece."""
        return self._tokenizer.token_to_id(piece) is not None

    def leads(self) -> dict[str, int]:
        """Return the piece that the tokenizer puts before a text that ends with EOS, if any."""
        before, after = self.around
        return {LEAD: before[0]} if len(before) == 1 and after == [self.special["eos"]] else {}

    @property
    def around(self) -> tuple[list[int], list[int]]:
        """The tokenizer's own special pieces before and after a text."""
        both = self._tokenizer.encode("").ids
        if not both:
            return [], []
        texts = (self._tokenizer.id_to_token(i) for i in range(self._size))
        for text in filter(None, texts):
            inner = self._tokenizer.encode(text, add_special_tokens=False).ids
            if inner and not {*inner} & {*both}:
                first = self._tokenizer.encode(text).ids.index(inner[0])
                return both[:first], both[first:]
        return both, []  # it has no other piece

    @property
    def rows_needed(self) -> int:
        """Number of rows that its pieces need."""
        return max(self._tokenizer.get_vocab().values(), default=-1) + 1

    def is_text(self, piece: int) -> bool:
        """See Codec: only the tokenizer knows which pieces are bytes."""
        return False

    def word_starts(self) -> None:
        """See Codec: only the tokenizer knows how a word begins."""

    @property
    def tokenizer(self) -> dict[str, Any]:
        """The content of its tokenizer.json."""
        return json.loads(self.model)["tokenizer"]


def _opened(tokenizer: dict[str, Any], side: str) -> Any:
    """Return a tokenizer from its description."""
    try:
        if tokenizer.get("type") == spm_pair.KIND:
            return spm_pair.SpmPair(tokenizer, side)
        from tokenizers import Tokenizer

        return Tokenizer.from_str(json.dumps(tokenizer))
    except ImportError:
        raise UserError("codec='huggingface' needs tokenizers: pip install tokenizers") from None
    except Exception as error:  # tokenizers has no exception type of its own
        raise ValueError(str(error)) from None


def _cleaned(text: str) -> str:
    """Remove spaces before punctuation and contractions, as transformers does."""
    for written, shown in _REPLACED:
        text = text.replace(written, shown)
    return text


def train(config: TokenizerConfig, texts: Sequence[str], symbols: Sequence[str] = ()) -> Imported:
    """Refuse to train: it is imported.

    Raises:
      UserError: always.
    """
    raise UserError(
        "codec='huggingface': such a tokenizer cannot be trained; start from an imported "
        "model with --config.init.source=WORKDIR, or choose another codec"
    )


WORDS = {"huggingface": Kind(Imported, train, "an imported tokenizer")}
