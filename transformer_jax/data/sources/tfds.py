"""TensorFlow Datasets through `tfds.data_source`: random access without TensorFlow."""

import importlib
import importlib.util
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from transformer_jax.base.disk import user_path
from transformer_jax.base.errors import UserError
from transformer_jax.config import DataConfig

_CHUNK = 10_000  # rows per read: one at a time is four times slower


def load(config: DataConfig, split: str) -> tuple[list, list[str]]:
    """Return the pairs of a split of a prepared data set: text, class names or pictures.

    Raises:
      UserError: if the data set is unknown, lacks the languages, or is not prepared on this disk.
    """
    builder = _builder(config)
    src: list = []
    tgt: list[str] = []
    for part in getattr(config, split):
        try:
            rows = builder.as_data_source(split=part)
        except ValueError as error:
            reason = " ".join(str(error).split())
            raise UserError(f"config.data.{split}={part!r}: {reason}") from None
        for field in ("source_language", "target_language"):
            if getattr(config, field) not in builder.info.features:
                raise UserError(
                    f"config.data.{field}={getattr(config, field)!r}: {config.name} has no such "
                    f"feature; it has {sorted(builder.info.features)}"
                )
        one, other = (
            _reader(builder.info.features[name])
            for name in (config.source_language, config.target_language)
        )
        for start in range(0, len(rows), _CHUNK):
            for row in rows.__getitems__(range(start, min(start + _CHUNK, len(rows)))):
                src.append(one(row[config.source_language]))
                tgt.append(other(row[config.target_language]))
    return src, tgt


def _reader(feature: Any) -> Callable[[Any], Any]:
    """Return the function that converts a value to what a codec reads."""
    if hasattr(feature, "int2str"):  # a class
        return lambda value: feature.int2str(int(value))
    if len(getattr(feature, "shape", None) or ()) > 1:  # a picture
        return np.asarray
    return _line


def _line(value: Any) -> str:
    """Return the text on one line: a newline inside would misalign parallel files."""
    text = value.decode() if isinstance(value, bytes) else str(value)
    return re.sub(r"[\r\n]+", " ", text)


def _builder(config: DataConfig) -> Any:
    import tensorflow_datasets as tfds

    # Data sets register when their module is imported, which TFDS does lazily.
    name = re.split("[/:]", config.name)[0].removesuffix("_translate")
    module = f"tensorflow_datasets.translate.{name}"
    known = name.isidentifier() and importlib.util.find_spec(module) is not None
    if known:
        importlib.import_module(module)
    place = None if config.directory is None else str(user_path(config.directory))
    try:
        builder = tfds.builder(config.name, data_dir=place, file_format="array_record")
    except tfds.core.registered.DatasetNotFoundError:
        raise UserError(f"config.data.name={config.name!r}: TFDS has no such data set") from None
    except (ValueError, AssertionError) as error:  # no such configuration or version
        reason = " ".join(str(error).split())
        raise UserError(f"config.data.name={config.name!r}: {reason}") from None
    if not Path(builder.data_dir, "dataset_info.json").exists():
        where = f", data_dir={place!r}" if place else ""
        raise UserError(
            f"config.data.name={config.name!r}: not prepared, looked in {builder.data_dir}. "
            'Prepare it once with: python -c "import tensorflow_datasets as tfds'
            f"{', ' + module if known else ''}; tfds.builder('{config.name}'{where}, "
            "file_format='array_record').download_and_prepare()\""
        )
    return builder
