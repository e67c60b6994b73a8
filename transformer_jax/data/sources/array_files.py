"""NumPy .npz files of non-text inputs, such as pictures, with a label for each."""

import itertools
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from transformer_jax.base.disk import user_path
from transformer_jax.base.errors import UserError
from transformer_jax.config import DataConfig
from transformer_jax.data.sources.chosen import Chosen
from transformer_jax.data.sources.labelled import text_of


def load(config: DataConfig, split: str) -> tuple[list[np.ndarray], list[str]]:
    """Return the arrays of a split, and their labels as text.

    In PART.npz the source side is the array that `source_language` names, [n ...], and the target
    side the one that `target_language` names, [n]; if both name the same, there are no labels. If
    the file also has an array `names`, labels are indices into it, from 0. Where `label_texts` has
    entries, a label becomes its text. With an array `offsets`, [n+1], entries differ in length:
    entry i is rows offsets[i] up to offsets[i+1] of the source side's array. Of PART[::20] and
    PART[!::20] only some entries are meant: see `Chosen`.

    Raises:
      UserError: if a file or an array is missing or damaged, or the arrays differ in length.
    """
    values: list[np.ndarray] = []
    labels: list[str] = []
    for part in getattr(config, split):
        chosen, path = _part(config, split, part)
        arrays = _read(path, config, split)
        src, tgt = arrays[config.source_language], arrays[config.target_language]
        if src.ndim < 2:
            raise UserError(
                f"config.data.source_language={config.source_language!r}: {path} has one number or "
                "text for each example there, not an array such as a picture; name another"
            )
        entries = _entries(path, src, arrays.get("offsets"), config.source_language)
        kept = chosen.of(entries, f"config.data.{split}")
        values += kept
        if config.source_language == config.target_language:
            labels += [""] * len(kept)
            continue
        if len(entries) != len(tgt):
            raise UserError(
                f"{path}: {config.source_language} has {len(entries)} entries, "
                f"{config.target_language} {len(tgt)}; entry i of one must belong to entry i of "
                "the other"
            )
        names = _named(path, tgt, arrays.get("names"))
        texts = {name: text_of(config, name, str(path)) for name in dict.fromkeys(names)}
        labels += chosen.of([texts[name] for name in names], f"config.data.{split}")
    return values, labels


def _part(config: DataConfig, split: str, part: str) -> tuple[Chosen, Path]:
    """Return a part of a split, and its file."""
    chosen = Chosen.read(part, f"config.data.{split}")
    return chosen, user_path(config.directory or ".") / f"{chosen.name}.npz"


def _entries(
    path: Path, array: np.ndarray, offsets: np.ndarray | None, name: str
) -> list[np.ndarray]:
    """Return the entries of an array; offsets, if any, say where each begins and the last ends."""
    if offsets is None:
        return list(array)
    whole = offsets.ndim == 1 and offsets.dtype.kind in "iu" and len(offsets) > 0
    if not whole or offsets[0] != 0 or offsets[-1] != len(array):
        raise UserError(
            f"{path}: offsets must be whole numbers [n+1] from 0 to {len(array)}, the rows of "
            f"{name}: entry i is rows offsets[i] up to offsets[i+1]"
        )
    falls = offsets[1:] < offsets[:-1]
    if falls.any():
        first = int(falls.argmax())
        raise UserError(
            f"{path}: offsets fall from {offsets[first]} to {offsets[first + 1]} at entry "
            f"{first + 1}; each entry must end where or after it begins"
        )
    return [array[begin:end] for begin, end in itertools.pairwise(offsets.tolist())]


def _read(path: Path, config: DataConfig, split: str) -> dict[str, Any]:
    if not path.is_file():
        raise UserError(
            f"config.data.{split}: there is no {path.absolute()}; set --config.data.directory to "
            f"its location, or --config.data.{split} to the names of its files without .npz"
            + (f". Get it with: {config.how_to_get}" if config.how_to_get else "")
        )
    fields = ("source_language", "target_language")
    wanted = {getattr(config, field): f"config.data.{field}" for field in fields}
    return read_arrays(path, wanted, ["names", "offsets"])


def made_by(config: DataConfig, split: str) -> str:
    """Return the digest of the autoencoder that wrote the files of a split, from their array
    `autoencoder`; "" if they have none.

    Raises:
      UserError: if they are of several.
    """
    found: dict[str, Path] = {}
    for part in getattr(config, split):
        _, path = _part(config, split, part)
        array = read_arrays(path, [], ["autoencoder"]).get("autoencoder", [""])
        found.setdefault(str(array[0]), path)
    if len(found) > 1:
        one, other, *_ = found.values()
        raise UserError(
            f"config.data.{split}: {one} and {other} have latents of different autoencoders; "
            "encode both with one"
        )
    return next(iter(found))


def read_arrays(
    path: Path, wanted: Mapping[str, str] | Sequence[str], others: Sequence[str] = ()
) -> dict[str, np.ndarray]:
    """Return arrays of a NumPy file by name: those wanted, and any of `others` that it has. A
    mapping gives the field that each name comes from, for messages.

    Raises:
      UserError: if the file cannot be read, lacks an array, or an array is a single value.
    """
    try:
        with np.load(path, allow_pickle=False) as file:
            for name in wanted:
                if name not in file.files:
                    field = wanted[name] if isinstance(wanted, Mapping) else "--array"
                    raise UserError(
                        f"{field}={name!r}: {path} has no such array; it has "
                        f"{', '.join(file.files)}"
                    )
            names = dict.fromkeys([*wanted, *others])
            arrays = {name: file[name] for name in names if name in file.files}
    except (OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
        raise UserError(f"{path}: cannot be read as .npz ({error})") from None
    for name, array in arrays.items():
        if array.ndim == 0:
            raise UserError(f"{path}: {name} is a single value, not an entry for each example")
    return arrays


def _named(path: Path, labels: np.ndarray, names: np.ndarray | None) -> list[str]:
    """Return labels as text."""
    if labels.ndim != 1:
        raise UserError(f"{path}: labels have shape {labels.shape}; give one per row, as in [n]")
    if names is None:
        return _texts(labels)
    if labels.dtype.kind not in "iub" or names.ndim != 1:
        raise UserError(
            f"{path}: with names, labels must be whole numbers and names one text each, as in [k], "
            f"not {labels.dtype} and an array of shape {names.shape}"
        )
    bad = ~((labels >= 0) & (labels < len(names)))
    if bad.any():
        first = int(bad.argmax())
        raise UserError(
            f"{path}: label {labels[first]} of entry {first + 1} is outside the {len(names)} names"
        )
    texts = _texts(names)
    return [texts[label] for label in labels.tolist()]


def _texts(values: np.ndarray) -> list[str]:
    """Return values as text; bytes are decoded as UTF-8."""
    if values.dtype.kind == "S":
        values = np.char.decode(values, "utf-8", "replace")
    return [str(value) for value in values.tolist()]
