"""A directory of a model's states for the beginnings of prompts; bounded in size, and verified.

A file holds one part of a prompt after one beginning, so what prompts have in common is stored
once. Its name is a hash of all that its content depends on. The file holds that too, including the
ids of the prompt, and it is compared on every hit: no hash is trusted.
"""

import contextlib
import hashlib
import io
import json
import logging
import os
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from transformer_jax.base.disk import DiskError, writing

log = logging.getLogger("transformer_jax")

_VERSION = 1  # of the format, and of the content of parts
_SUFFIX, _ASIDE = ".prompt", ".aside"
_DIGEST = 32  # bytes
_ABANDONED = 3600  # seconds after which a temporary file counts as abandoned


class PromptFiles:
    """Parts of prompts as flat arrays of bytes; `facts` are all else that they depend on, as JSON.

    Files together have at most `limit` bytes: the least recently used are evicted. Any number of
    processes may use a directory; what one of them writes, others find whole or not at all.
    """

    def __init__(self, directory: Path, facts: dict[str, Any], limit: int) -> None:
        self._directory, self._limit, self._failed = directory, limit, False
        self._facts = json.dumps({"version": _VERSION, **facts}, sort_keys=True)
        with writing(f"the prompt cache {directory}", directory):
            directory.mkdir(parents=True, exist_ok=True)

    def get(self, ids: Sequence[int]) -> list[np.ndarray] | None:
        """Return the last part of a beginning, or None if it is missing or damaged."""
        path = self._path(ids)
        try:
            content = path.read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            log.warning("%s: cannot be read (%s); its part is computed", path, error.strerror)
            return None
        try:
            arrays = self._unpacked(content, ids)
        except (ValueError, KeyError, EOFError, OSError) as error:
            log.warning("%s: damaged (%s); its part is computed and written again", path, error)
            return None
        with contextlib.suppress(OSError):  # another process may have evicted it by now
            os.utime(path)
        return arrays

    def put(self, ids: Sequence[int], arrays: Sequence[np.ndarray]) -> None:
        """Store the last part of a beginning. If the disk refuses it, warn once."""
        content, path = self._packed(ids, arrays), self._path(ids)
        if len(content) > self._limit:
            return
        try:
            with writing(f"the prompt cache {path}", path.parent, len(content)):
                with tempfile.NamedTemporaryFile(
                    dir=path.parent, suffix=_ASIDE, delete=False
                ) as aside:
                    try:
                        aside.write(content)
                        aside.close()
                        os.replace(aside.name, path)
                    except OSError:
                        Path(aside.name).unlink(missing_ok=True)
                        raise
        except DiskError as error:
            if not self._failed:
                log.warning("%s; prompts are read without the cache", error)
            self._failed = True
            return
        self._evict(path)

    def _evict(self, newest: Path) -> None:
        """Delete the least recently used files until the others fit."""
        entries = []
        for path in self._directory.iterdir():
            with contextlib.suppress(OSError):  # gone
                stat = path.stat()
                if path.suffix == _SUFFIX:
                    entries.append((path == newest, stat.st_mtime_ns, stat.st_size, path))
                elif path.suffix == _ASIDE and stat.st_mtime < time.time() - _ABANDONED:
                    path.unlink()
        total = sum(size for _, _, size, _ in entries)
        for _, _, size, path in sorted(entries):
            if total <= self._limit:
                return
            path.unlink(missing_ok=True)
            total -= size

    def _path(self, ids: Sequence[int]) -> Path:
        name = hashlib.blake2b(self._facts.encode(), digest_size=20)
        name.update(np.asarray(ids, np.int64).tobytes())
        return self._directory / f"{name.hexdigest()}{_SUFFIX}"

    def _packed(self, ids: Sequence[int], arrays: Sequence[np.ndarray]) -> bytes:
        named = {f"part_{i}": _flat(array) for i, array in enumerate(arrays)}
        facts = _flat(np.frombuffer(self._facts.encode(), np.uint8))
        file = io.BytesIO()
        np.savez(file, facts=facts, ids=np.asarray(ids, np.int64), **named)  # type: ignore[arg-type]
        payload = file.getvalue()
        return hashlib.blake2b(payload, digest_size=_DIGEST).digest() + payload

    def _unpacked(self, content: bytes, ids: Sequence[int]) -> list[np.ndarray]:
        digest, payload = content[:_DIGEST], content[_DIGEST:]
        if hashlib.blake2b(payload, digest_size=_DIGEST).digest() != digest:
            raise ValueError("not what was written")
        with np.load(io.BytesIO(payload), allow_pickle=False) as file:
            if file["facts"].tobytes().decode() != self._facts:
                raise ValueError("of another model")
            if file["ids"].tolist() != list(ids):
                raise ValueError("of another prompt")
            return [file[f"part_{i}"] for i in range(len(file.files) - 2)]


def _flat(array: np.ndarray) -> np.ndarray:
    """Return the bytes of an array of any type."""
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)
