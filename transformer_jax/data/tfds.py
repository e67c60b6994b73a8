"""TensorFlow Datasets through `tfds.data_source`: random access and no TensorFlow."""

import importlib
import importlib.util
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from transformer_jax.config import DataConfig
from transformer_jax.errors import UserError


class _Column(Sequence):
    """One language of a data source, decoded when it is read."""

    def __init__(self, rows: Any, key: str) -> None:
        self._rows, self._key = rows, key

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, index: Any) -> Any:
        value = self._rows[index][self._key]
        return value.decode() if isinstance(value, bytes) else str(value)


def load(config: DataConfig, split: str) -> tuple[list[str], list[str]]:
    """Return the pairs of a split of a prepared data set.

    Raises:
      UserError: if the data set is unknown, lacks the languages, or is not prepared on this disk.
    """
    builder = _builder(config)
    sides: tuple[list[str], list[str]] = ([], [])
    for part in getattr(config, split):
        try:
            rows = builder.as_data_source(split=part)
        except ValueError as error:
            raise UserError(f"config.data.{split}={part!r}: {error}") from None
        for side, key in zip(sides, (config.source_language, config.target_language), strict=True):
            if key not in builder.info.features:
                raise UserError(
                    f"config.data.source_language, target_language: {config.name} has no "
                    f"{key!r}; it has {sorted(builder.info.features)}"
                )
            # One line a sentence: a line end inside would shift files against each other.
            side += [text.replace("\n", " ") for text in _Column(rows, key)]
    return sides


def _builder(config: DataConfig) -> Any:
    import tensorflow_datasets as tfds

    name = config.name.partition("/")[0]
    # Data sets register when their module is imported, which TFDS does lazily.
    module = name.removesuffix("_translate")
    if importlib.util.find_spec(f"tensorflow_datasets.translate.{module}"):
        importlib.import_module(f"tensorflow_datasets.translate.{module}")
    try:
        builder = tfds.builder(config.name, data_dir=config.directory, file_format="array_record")
    except tfds.core.registered.DatasetNotFoundError:
        raise UserError(f"config.data.name={config.name!r}: TFDS has no such data set") from None
    if not Path(builder.data_dir, "dataset_info.json").exists():
        where = f", data_dir={config.directory!r}" if config.directory else ""
        raise UserError(
            f"config.data.name={config.name!r}: not prepared, looked in {builder.data_dir}. "
            'Prepare it once with: python -c "import tensorflow_datasets as tfds, '
            f"tensorflow_datasets.translate.{module}; tfds.builder('{config.name}'{where}, "
            "file_format='array_record').download_and_prepare()\""
        )
    return builder
