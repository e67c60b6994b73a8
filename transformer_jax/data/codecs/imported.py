"""A Hugging Face tokenizer: a tokenizer.json, with the special ids of the model it came with."""

import json
from collections.abc import Iterable, Mapping, Sequence
from itertools import takewhile
from typing import Any

from transformer_jax.config import TokenizerConfig
from transformer_jax.data.codecs.codec import hashed
from transformer_jax.errors import UserError

NONE = -1  # id of special pieces that a model lacks
LEAD = "lead"  # the special piece before every text, source or target, as in BART


class Imported:
    """A tokenizer.json loaded by `tokenizers`. It is imported and never trained.

    A special piece that the model lacks has id -1.
    """

    file = "tokenizer{}.json"

    def __init__(self, model: bytes) -> None:
        try:
            from tokenizers import Tokenizer
        except ImportError:
            raise UserError(
                "codec='huggingface' needs tokenizers: pip install tokenizers"
            ) from None
        content = json.loads(model)
        if not isinstance(content, dict) or content.keys() != {"special", "size", "tokenizer"}:
            raise ValueError("not written by an import")
        self.model = model
        self.special: Mapping[str, int] = content["special"]
        self._size: int = content["size"]
        try:
            self._tokenizer: Any = Tokenizer.from_str(json.dumps(content["tokenizer"]))
        except Exception as error:  # tokenizers has no exception type of its own
            raise ValueError(str(error)) from None
        self._lead = [self.special[LEAD]] if LEAD in self.special else []
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()

    @classmethod
    def of(cls, tokenizer: str, special: Mapping[str, int], size: int) -> "Imported":
        """Return the codec of the content of a tokenizer.json, for an embedding of `size` rows."""
        content = {"special": dict(special), "size": size, "tokenizer": json.loads(tokenizer)}
        return cls(json.dumps(content, ensure_ascii=False).encode())

    @property
    def size(self) -> int:
        """Number of rows of the embedding; some may have no piece."""
        return self._size

    @property
    def digest(self) -> str:
        """A hash of the model's bytes."""
        return hashed(self.model)

    def encode(self, texts: Sequence[str], bos: bool = False, eos: bool = True) -> list[list[int]]:
        """See Codec. The tokenizer's own special pieces around a text are omitted, except one that
        leads every text.
        """
        found = self._tokenizer.encode_batch(list(texts), add_special_tokens=False)
        before = [self._known("bos")] if bos else self._lead
        after = [self._known("eos")] if eos else []
        return [before + item.ids + after for item in found]

    def _known(self, name: str) -> int:
        if self.special[name] == NONE:
            raise UserError(f"the tokenizer has no {name} piece, which this model needs")
        return self.special[name]

    def decode(self, ids: Iterable[int]) -> str:
        """See Codec. A BOS at the beginning may be the same piece as EOS."""
        ids = [int(i) for i in ids]
        if ids[:1] == [self.special["bos"]]:
            ids = ids[1:]
        text = takewhile(lambda i: i != self.special["eos"], ids)
        return self._tokenizer.decode(list(text), skip_special_tokens=True)

    def pieces(self, ids: Iterable[int]) -> list[str]:
        """See Codec. Rows of the embedding without a piece are written as <unused 5>."""
        found = ((int(i), self._tokenizer.id_to_token(int(i))) for i in ids)
        return [f"<unused {i}>" if piece is None else piece for i, piece in found]

    def piece_id(self, piece: str) -> int:
        """See Codec."""
        found = self._tokenizer.token_to_id(piece)
        if found is None:
            raise UserError(f"{piece!r} is not a piece of the tokenizer")
        return found

    def has(self, piece: str) -> bool:
        """Return whether there is such a piece."""
        return self._tokenizer.token_to_id(piece) is not None

    def leads(self) -> dict[str, int]:
        """Return the piece that the tokenizer puts before a text that ends with EOS, if any."""
        found = self.around
        return {LEAD: found[0]} if len(found) == 2 and found[1] == self.special["eos"] else {}

    @property
    def around(self) -> list[int]:
        """The tokenizer's own special pieces around a text."""
        return self._tokenizer.encode("").ids

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


def train(config: TokenizerConfig, texts: Sequence[str], symbols: Sequence[str] = ()) -> Imported:
    """Refuse to train: it is imported.

    Raises:
      UserError: always.
    """
    raise UserError(
        "codec='huggingface': such a tokenizer cannot be trained; start from an imported "
        "model with --config.init.source=WORKDIR, or choose another codec"
    )
