"""A hash of the contents of a corpus."""

import hashlib
import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from transformer_jax.base.disk import cache_dir, write_text, writing
from transformer_jax.data.texts import Texts, origin_of

_BLOCK = 10_000  # texts hashed at a time


def fingerprint(*sides: Sequence, breaks: bool = False) -> str:
    """Return a hash of texts or arrays, which changes with their content.

    breaks: whether texts may contain line breaks, and where these are must be hashed as well.

    For texts not held in memory the hash is cached for as long as their files are unchanged; for
    texts generated from a description it is the hash of the description.

    Raises:
      DiskError: if the cache cannot be written.
    """
    if not any(isinstance(side, Texts) for side in sides):
        return _content(sides, breaks)
    origins = [f"{len(side)} {origin_of(side)}" for side in sides]
    name = hashlib.blake2b(repr(origins).encode(), digest_size=16).hexdigest()
    if all(side.made if isinstance(side, Texts) else not len(side) for side in sides):
        return name
    place = cache_dir() / "lines" / f"{name}.fingerprint"
    kept = place.read_text(encoding="utf-8", errors="replace") if place.is_file() else ""
    if not re.fullmatch("[0-9a-f]{32}", kept):
        kept = _content(sides, breaks)
        with writing(f"the fingerprint of a text in the cache {cache_dir()}", place.parent):
            place.parent.mkdir(parents=True, exist_ok=True)
            write_text(place, kept)
    return kept


def _content(sides: Sequence[Sequence], breaks: bool) -> str:
    hasher = hashlib.blake2b(digest_size=16)
    for side in sides:
        hasher.update(len(side).to_bytes(8, "little"))
        if len(side) and isinstance(side[0], np.ndarray):
            for array in side:
                hasher.update(f"{array.dtype}{array.shape}".encode() + array.tobytes())
        else:
            _hash_texts(hasher, side, breaks)
    return hasher.hexdigest()


def _hash_texts(hasher: Any, texts: Sequence[str], breaks: bool) -> None:
    for start in range(0, len(texts), _BLOCK):  # "\n" separates texts
        some = texts[start : start + _BLOCK]
        block = "\n".join(some)
        hasher.update(f"{chr(10) * (start > 0)}{block}".encode())
        if breaks and block.count("\n") >= len(some):
            hasher.update(np.array([*map(len, some)], np.int64).tobytes())
