"""Text tokenised once, into memory-mapped arrays that every later run and process shares."""

import hashlib
import json
import os
import shutil
import tempfile
from pathlib import Path
from typing import NamedTuple

import numpy as np

from transformer_jax.config import DataConfig
from transformer_jax.data.batch import Ragged
from transformer_jax.data.sources import Corpus
from transformer_jax.data.tokenizer import Tokenizer, TokenizerPair

_CHUNK = 100_000  # lines tokenised at a time: bounds memory
_FORMAT = 1  # part of the key: raise it when the layout below changes


class TokenStore(NamedTuple):
    """A tokenised corpus; both sides have the same number of sequences."""

    src: Ragged
    tgt: Ragged

    def __len__(self) -> int:
        return len(self.src.offsets) - 1


def open_store(corpus: Corpus, tokenizers: TokenizerPair, cache: Path) -> TokenStore:
    """Return the tokenised corpus, from the cache if its content is there already."""
    key = f"{_FORMAT} {corpus.fingerprint} {tokenizers.digest}".encode()
    directory = cache / "tokens" / hashlib.blake2b(key, digest_size=16).hexdigest()
    store = _read(directory)
    if store is None:
        _write(corpus, tokenizers, directory)
        store = _read(directory)
        assert store is not None, f"{directory} is unreadable just after it was written"
    return store


def _write(corpus: Corpus, tokenizers: TokenizerPair, directory: Path) -> None:
    directory.parent.mkdir(parents=True, exist_ok=True)
    partial = Path(tempfile.mkdtemp(prefix=f"{directory.name}.", dir=directory.parent))
    try:
        sizes = {}
        for name, lines, tokenizer in (
            ("src", corpus.src, tokenizers.src),
            ("tgt", corpus.tgt, tokenizers.tgt),
        ):
            sizes[name] = _write_side(partial, name, lines, tokenizer)
        (partial / "sizes.json").write_text(json.dumps(sizes))
        shutil.rmtree(directory, ignore_errors=True)
        try:
            os.replace(partial, directory)
        except OSError:  # another process finished the same store first
            if not directory.exists():
                raise
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _write_side(directory: Path, name: str, lines, tokenizer: Tokenizer) -> list[int]:
    offsets = [np.zeros(1, np.int64)]
    total = 0
    with open(directory / f"{name}.ids", "wb") as file:
        for start in range(0, len(lines), _CHUNK):
            part = Ragged.from_lists(tokenizer.encode(lines[start : start + _CHUNK]))
            file.write(part.ids.tobytes())
            offsets.append(part.offsets[1:] + total)
            total += len(part.ids)
    (directory / f"{name}.offsets").write_bytes(np.concatenate(offsets).tobytes())
    return [total, len(lines) + 1]


def _read(directory: Path) -> TokenStore | None:
    """Return the store, or None if there is none or it was cut short."""
    try:
        sizes = json.loads((directory / "sizes.json").read_text())
        sides = []
        for name in ("src", "tgt"):
            ids = np.memmap(directory / f"{name}.ids", np.int32, "r")
            offsets = np.fromfile(directory / f"{name}.offsets", np.int64)
            if [len(ids), len(offsets)] != sizes[name] or offsets[-1] != len(ids):
                return None
            sides.append(Ragged(ids, offsets))
        return TokenStore(*sides)
    except (OSError, ValueError, KeyError):
        return None


class Selection(NamedTuple):
    """The pairs that training uses, and how many were left out for which reason."""

    pairs: np.ndarray
    dropped: dict[str, int]


def select(store: TokenStore, config: DataConfig) -> Selection:
    """Leave out pairs that are empty, too long or too uneven, each counted under its first reason.

    Lengths count pieces with EOS, so an empty side has length 1.
    """
    src, tgt = store.src.lengths, store.tgt.lengths
    longer, shorter = np.maximum(src, tgt), np.minimum(src, tgt)
    reasons = {
        "empty": shorter <= 1,
        f"longer than {config.max_length} pieces": longer > config.max_length,
        f"more uneven than {config.max_length_ratio:g}": longer > config.max_length_ratio * shorter,
    }
    keep = np.ones(len(src), bool)
    dropped = {}
    for reason, bad in reasons.items():
        dropped[reason] = int((bad & keep).sum())
        keep &= ~bad
    return Selection(np.flatnonzero(keep), dropped)
