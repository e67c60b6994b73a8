"""What is given to a trained model: one text or several, or files, images and arrays for a model
that reads vectors.
"""

from collections.abc import Sequence
from os import PathLike
from pathlib import Path
from typing import Any

from transformer_jax.base.errors import UserError
from transformer_jax.config import DataConfig
from transformer_jax.data.codecs.codec import Codec, VectorCodec


def read(given: Any, codec: Codec, data: DataConfig, verb: str) -> tuple[list, bool]:
    """Return what a codec encodes, a list even of one, and whether one was given and not several:
    texts, or for a codec of vectors values prepared as in training.

    Raises:
      UserError: if something else is given; says what and to which verb.
    """
    if not isinstance(codec, VectorCodec):
        return texts(given, verb)
    one = codec.is_one(given)
    several = [given] if one else _listed(given, verb, f"{codec.noun}, or a list of them")
    return [
        codec.prepared(value, f"{codec.noun} {number}", data)
        for number, value in enumerate(several, 1)
    ], one


def check_exist(paths: Sequence[Path]) -> None:
    """Check that all files and folders exist.

    Raises:
      UserError: if one does not.
    """
    for path in paths:
        if not path.exists():
            raise UserError(f"{path}: there is no such file or folder; check the path")


def files(paths: Sequence[Path], codec: Codec) -> list[Path]:
    """Return the files that are named, and all files in named folders, and in folders in these,
    that a codec of vectors opens, or for text all, in order; hidden ones only if named. A folder
    that is one value for the codec, as one of frames is, counts as a file.

    Raises:
      UserError: if one does not exist, or a folder has none.
    """
    check_exist(paths)
    endings = codec.endings if isinstance(codec, VectorCodec) else None
    listed: list[Path] = []
    for path in paths:
        if not path.is_dir() or _is_value(path, codec):
            listed.append(path)
            continue
        inside = [
            file
            for file in sorted(path.rglob("*"))
            if not any(part.startswith(".") for part in file.relative_to(path).parts)
            and (
                _is_value(file, codec)
                if file.is_dir()
                else (endings is None or file.suffix.lower() in endings) and file.is_file()
            )
        ]
        if not inside:
            few = endings is not None and len(endings) < 10
            named = f" named *{', *'.join(sorted(endings or ()))}" if few else ""
            noun = codec.noun if isinstance(codec, VectorCodec) else "text"
            raise UserError(f"{path}: holds no {noun} files{named}; name a folder that does")
        listed += inside
    return listed


def _is_value(folder: Path, codec: Codec) -> bool:
    return isinstance(codec, VectorCodec) and codec.is_folder(folder)


def uploaded(content: bytes, name: str, codec: Codec, data: DataConfig) -> Any:
    """Return what a codec of vectors encodes, of the content of a file, prepared as in training.

    Raises:
      UserError: if it is malformed; begins with `name`.
    """
    assert isinstance(codec, VectorCodec)
    return codec.prepared(codec.opened(content, name), name, data)


def texts(given: Any, verb: str) -> tuple[list[str], bool]:
    """Return texts, a list even of one, and whether one was given and not several.

    Raises:
      UserError: if something else is given; says what and to which verb.
    """
    if isinstance(given, str):
        return [given], True
    several = _listed(given, verb, "text, or a list of texts")
    for number, text in enumerate(several, 1):
        if not isinstance(text, str):
            raise UserError(f"{verb}: text {number} is {_kind(text)}; give a text")
    return several, False


def one_text(given: Any, verb: str) -> str:
    """Return a text.

    Raises:
      UserError: if something else is given.
    """
    if not isinstance(given, str):
        raise UserError(f"{verb}: is given {_kind(given)}; give one text")
    return given


def pairs(one: Any, two: Any, verb: str, need: str) -> tuple[list[str], list[str], bool]:
    """Return the texts of two sides, as many of both, and whether one of each was given.

    Raises:
      UserError: if these are not two texts, or two lists; `need` is the remedy.
    """
    (first, single), (second, other) = texts(one, verb), texts(two, verb)
    if single != other or len(first) != len(second):
        raise UserError(f"{verb}: {need}: two texts, or two lists")
    return first, second, single


def _listed(given: Any, verb: str, expected: str) -> list:
    if isinstance(given, bytes | PathLike | dict):  # whose items nobody means
        raise UserError(f"{verb}: is given {_kind(given)}; give a {expected}")
    try:
        return list(given)
    except TypeError:
        raise UserError(f"{verb}: is given {_kind(given)}; give a {expected}") from None


def _kind(given: Any) -> str:
    """Return what a message calls a value."""
    shape = getattr(given, "shape", None)
    of = "" if shape is None else f" of shape {tuple(shape)}"
    return f"None{of}" if given is None else f"of type {type(given).__name__}{of}"
