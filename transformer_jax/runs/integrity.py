"""Checksums of arrays and records: reading returns what was stored, or raises an error."""

import hashlib
import json
import math
import zlib
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax.experimental import multihost_utils

from transformer_jax.base import crc
from transformer_jax.base.errors import UserError


class DamagedCheckpoint(UserError):
    """The data read differs from the data saved."""


@dataclass(frozen=True)
class Divided:
    """What one process knows of an array that is divided among several."""

    shape: tuple[int, ...]
    dtype: np.dtype
    added: int  # by its parts to the CRC-32; see base/crc.py

    @property
    def nbytes(self) -> int:
        """Return the size of the whole array."""
        return math.prod(self.shape) * self.dtype.itemsize


def kinds(tree: Any) -> dict[str, str]:
    """Return {"layer/w": "float32[8,16]"} for arrays or their abstract shapes."""
    return {name: _kind(leaf) for name, leaf in _leaves(tree)}


def checksums(tree: Any) -> dict[str, str]:
    """Return {"layer/w": "float32[8,16] 1b2c3d4e"}: the CRC-32 of each array's bytes, in C order.

    It covers the whole array, however it is sharded. A CRC-32 detects every error burst of at most
    32 bits, and all but one in 2^32 of the others. If arrays are divided among processes, all of
    them must call this: each reads its own part alone.
    """
    leaves = _leaves(tree)
    sums = _sums([leaf for _, leaf in leaves])
    return {
        name: f"{_kind(leaf)} {total:08x}" for (name, leaf), total in zip(leaves, sums, strict=True)
    }


def mismatch(like: Any, stored: dict[str, str]) -> str | None:
    """Return which array differs in name, type or shape from the stored checksums, or None."""
    wanted, there = kinds(like), {name: line.split()[0] for name, line in stored.items()}
    names = sorted(name for name, _ in wanted.items() ^ there.items())
    if not names:
        return None
    name = names[0]
    return f"{name} is {there.get(name, 'missing')}, expected {wanted.get(name, 'no such array')}"


def check_kinds(place: Path, like: dict[str, Any], stored: dict[str, str]) -> None:
    """Raise UserError if the checksums stored at `place` are not those of arrays like these."""
    if "training" in like and not any(name.startswith("training/") for name in stored):
        raise UserError(
            f"{place}: has parameters only, as `average` writes them, so training "
            "cannot resume from it; resume in the work directory that they come from"
        )
    difference = mismatch(like, stored)
    if difference is not None:
        part = "optimizer" if difference.startswith("training/") else "model"
        raise UserError(f"{place}: {difference}: not a checkpoint of the {part} of config.json")


def check_sums(place: Path, found: Any, stored: dict[str, str]) -> None:
    """Raise DamagedCheckpoint if the checksums of arrays differ from those stored."""
    wrong = [name for name, line in checksums(found).items() if stored[name] != line]
    if wrong:
        names = ", ".join(wrong[:3]) + ", ..." * (len(wrong) > 3)
        raise DamagedCheckpoint(f"{place}: damaged: checksum mismatch in {names}")


def _leaves(tree: Any) -> list[tuple[str, Any]]:
    leaves = jax.tree_util.tree_leaves_with_path(tree)
    return [(jax.tree_util.keystr(path, simple=True, separator="/"), leaf) for path, leaf in leaves]


def _kind(leaf: Any) -> str:
    return f"{leaf.dtype}[{','.join(map(str, leaf.shape))}]"


def _sums(leaves: Sequence[Any]) -> list[int]:
    """Return the CRC-32 of each array."""
    with ThreadPoolExecutor() as pool:  # zlib lets others run
        known = [*pool.map(_sum, leaves)]
    mine = [own.added if isinstance(own, Divided) else 0 for own in known]
    if any(isinstance(own, Divided) for own in known):
        every = multihost_utils.process_allgather(np.array(mine, np.uint32))
        mine = np.bitwise_xor.reduce(every, 0).tolist()
    return [
        crc.completed(added, own.nbytes) if isinstance(own, Divided) else own
        for own, added in zip(known, mine, strict=True)
    ]


def _sum(leaf: Any) -> int | Divided:
    """Return the CRC-32 of an array, or what this process's parts of it add to that."""
    if isinstance(leaf, Divided):
        return leaf
    if not isinstance(leaf, jax.Array) or leaf.is_fully_addressable:
        return zlib.crc32(_bytes(leaf))
    if leaf.is_fully_replicated:
        return zlib.crc32(_bytes(leaf.addressable_data(0)))
    added = 0
    for part in leaf.addressable_shards:
        if part.replica_id == 0:  # of equal parts, one device's counts
            start = [axis.start or 0 for axis in part.index]
            added ^= crc.contribution(np.asarray(part.data), leaf.shape, start)
    return Divided(leaf.shape, leaf.dtype, added)


def _bytes(leaf: Any) -> memoryview:
    return np.ascontiguousarray(leaf).reshape(-1).view(np.uint8).data


def seal(values: dict[str, Any]) -> dict[str, Any]:
    """Return JSON values with their hash added under "seal"."""
    return values | {"seal": _hash(values)}


def unseal(text: bytes) -> dict[str, Any]:
    """Return the values that were sealed.

    Raises:
      ValueError: if the text is not JSON or does not match its hash.
    """
    values = json.loads(text)
    if not isinstance(values, dict) or values.pop("seal", None) != _hash(values):
        raise ValueError("does not match its own hash")
    return values


def read_record(path: Path, step: int) -> dict[str, Any]:
    """Return the record of a checkpoint: the sealed file `path`, <step>/record/metadata.

    Raises:
      DamagedCheckpoint: if it differs from what was saved, or belongs to another step.
    """
    place = path.parents[1]
    try:
        record = unseal(path.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise DamagedCheckpoint(f"{place}: damaged: {path}: {error}") from None
    saved = record["host"].get("step", step)
    if saved != step:
        raise DamagedCheckpoint(
            f"{place}: holds step {saved}, not step {step}; delete it, or rename it to {saved}"
        )
    return record


def _hash(values: dict[str, Any]) -> str:
    text = json.dumps(values, sort_keys=True)
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()
