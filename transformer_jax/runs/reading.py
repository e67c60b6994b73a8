"""Reading what Orbax wrote: each process reads its own parts of arrays, and waits for no other."""

import glob
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np
import orbax.checkpoint as ocp
import tensorstore
from etils.epath.gpath import PosixGPath

from transformer_jax.base import crc
from transformer_jax.base.disk import quiet
from transformer_jax.runs.integrity import DamagedCheckpoint, Divided

Index = tuple[slice, ...]


class Place(PosixGPath):
    """A path as Orbax uses it; brackets and stars in it are part of the name, not of a pattern."""

    def glob(self, pattern: str) -> Iterator["Place"]:
        """Yield what is here under names that match."""
        return (self._new(match) for match in glob.glob(f"{glob.escape(str(self))}/{pattern}"))


@dataclass(frozen=True)
class Outline:
    """An array without contents, and which parts of it one of several processes is to read back."""

    shape: tuple[int, ...]
    dtype: np.dtype
    indices: tuple[Index, ...]


def outline(leaf: Any) -> Any:
    """Return what an array is read back into: a host array that takes no memory, or in several
    processes an Outline, so that every byte is read by one of them.
    """
    if jax.process_count() == 1:
        return np.broadcast_to(np.zeros((), leaf.dtype), leaf.shape)
    parts = leaf.addressable_shards
    indices = tuple(part.index for part in parts if part.replica_id == 0)
    return Outline(leaf.shape, leaf.dtype, indices)


def restore(place: Path, like: Any) -> Any:
    """Return the arrays of an item, on the devices that abstract ones name.

    Raises:
      DamagedCheckpoint: if this process cannot read what its devices hold; others may be able to.
    """
    _ignore_late_answers()
    # Not by Orbax's manager, in which the others would wait for a process that cannot.
    handler = ocp.StandardCheckpointHandler()
    return _read(place, lambda: handler.restore(Place(place), args=ocp.args.StandardRestore(like)))


def read_back(place: Path, like: Any) -> Any:
    """Return, for a tree of Outline, what this process's parts of an item are on disk.

    They are on the host only, one at a time. Raises like `restore`.
    """

    def on_disk(path: Any, leaf: Outline) -> Divided:
        name = jax.tree_util.keystr(path, simple=True, separator=".")
        store = {"driver": "ocdbt", "base": place.as_uri(), "path": f"{name}/"}
        array = tensorstore.open({"driver": "zarr", "kvstore": store}, open=True).result()
        added = 0
        for index in leaf.indices:
            start = [axis.start or 0 for axis in index]
            added ^= crc.contribution(array[index].read().result(), leaf.shape, start)
        return Divided(leaf.shape, leaf.dtype, added)

    return _read(place, lambda: jax.tree_util.tree_map_with_path(on_disk, like))


def _read(place: Path, read: Callable[[], Any]) -> Any:
    try:
        with quiet():
            return read()
    except jax.errors.JaxRuntimeError:
        raise  # from the device, not the disk
    except Exception as error:  # Orbax and TensorStore raise many types
        reason = " ".join(str(error).split()).partition(". ")[0][:200]
        message = f"{place.parent}: damaged: cannot be read ({reason})"
        raise DamagedCheckpoint(message) from None


def _ignore_late_answers() -> None:
    """Keep Python from printing a traceback for each read that ends after another one failed: such
    a read reports to an event loop that Orbax has closed by then.
    """
    before = sys.unraisablehook
    if getattr(before, "func", None) is not _unless_late:
        sys.unraisablehook = partial(_unless_late, before)


def _unless_late(before: Callable[[Any], None], unraisable: Any) -> None:
    if str(unraisable.exc_value) != "Event loop is closed":
        before(unraisable)
