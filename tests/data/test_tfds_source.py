"""TensorFlow Datasets without TensorFlow and without a network."""

import dataclasses
import socket

import numpy as np
import pytest
import tensorflow_datasets as tfds
from tensorflow_datasets.testing import mocking

from transformer_jax.base.errors import UserError
from transformer_jax.config import DataConfig
from transformer_jax.data import sources
from transformer_jax.data.sources import tfds as source

ROWS = {"train": 25, "validation": 3}


class TinyTranslate(tfds.core.GeneratorBasedBuilder):
    """Numbered sentences."""

    VERSION = tfds.core.Version("1.0.0")

    def _info(self):
        features = tfds.features.Translation(languages=["de", "en"])
        return tfds.core.DatasetInfo(builder=self, features=features)

    def _split_generators(self, dl_manager):
        return {split: self._generate_examples(split) for split in ROWS}

    def _generate_examples(self, split):
        for i in range(ROWS[split]):
            yield i, {"de": f"{split} säß\r\n{i}", "en": f"{split} sat {i}"}


@pytest.fixture(scope="module", autouse=True)
def quiet():
    tfds.disable_progress_bar()
    yield
    tfds.enable_progress_bar()


@pytest.fixture(autouse=True)
def no_network(monkeypatch):
    def refuse(*_, **__):
        raise AssertionError("went to the network")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)


@pytest.fixture(scope="module")
def prepared(tmp_path_factory) -> DataConfig:
    directory = str(tmp_path_factory.mktemp("tfds"))
    TinyTranslate(data_dir=directory, file_format="array_record").download_and_prepare()
    return DataConfig(
        source="tfds", name="tiny_translate", directory=directory,
        source_language="de", target_language="en",
    )  # fmt: skip


def refusal(config: DataConfig, split: str = "train") -> str:
    with pytest.raises(UserError) as caught:
        sources.load(config, split)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("chunk", [10, 10_000])
def test_a_prepared_data_set_is_read_completely(prepared, monkeypatch, chunk):
    """Every pair once, kept together, on one line, whatever the chunk size."""
    monkeypatch.setattr(source, "_CHUNK", chunk)
    for split, count in ROWS.items():
        found = sources.load(prepared, split)
        numbers = [int(line.rpartition(" ")[2]) for line in found.tgt]
        assert sorted(numbers) == list(range(count))
        assert found.src == [f"{split} säß {i}" for i in numbers]
        assert found.tgt == [f"{split} sat {i}" for i in numbers]


def test_parts_and_slices(prepared):
    everything = sources.load(prepared, "train").src
    config = dataclasses.replace(prepared, train=("train[:4]", "train[20:]"))
    assert sources.load(config, "train").src == everything[:4] + everything[20:]
    config = dataclasses.replace(prepared, train=("validation", "train"))
    assert len(sources.load(config, "train")) == 28


def test_languages_can_be_swapped(prepared):
    swapped = dataclasses.replace(prepared, source_language="en", target_language="de")
    one, other = sources.load(prepared, "train"), sources.load(swapped, "train")
    assert (one.src, one.tgt) == (other.tgt, other.src)


@pytest.mark.parametrize("field", ["source_language", "target_language"])
def test_languages_missing_from_the_data_set_are_rejected(prepared, field):
    assert refusal(dataclasses.replace(prepared, **{field: "fr"})) == (
        f"config.data.{field}='fr': tiny_translate has no such feature; it has ['de', 'en']"
    )


@pytest.mark.parametrize("part", ["test", "train[", "train[:99]", ""])
def test_nonexistent_parts_are_rejected(prepared, part):
    message = refusal(dataclasses.replace(prepared, test=(part,)), "test")
    assert message.startswith(f"config.data.test={part!r}: ")
    assert part not in ("test", "train[:99]") or "train" in message  # lists the existing parts


@pytest.mark.parametrize(
    ("name", "module"),
    [
        ("wmt14_translate/de-en", ", tensorflow_datasets.translate.wmt14"),
        ("wmt14_translate/de-en:1.0.0", ", tensorflow_datasets.translate.wmt14"),
        ("mnist", ""),
    ],
)
def test_unprepared_data_sets_are_reported_with_the_remedy(tmp_path, name, module):
    config = DataConfig(source="tfds", name=name, directory=str(tmp_path))
    message = refusal(config)
    assert message.startswith(f"config.data.name='{name}': not prepared, looked in {tmp_path}/")
    assert message.endswith(
        f'Prepare it once with: python -c "import tensorflow_datasets as tfds{module}; '
        f"tfds.builder('{name}', data_dir='{tmp_path}', file_format='array_record')"
        '.download_and_prepare()"'
    )
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "name",
    [
        "",
        "no_such_set",
        "wmt14_translate/xx-en",
        "wmt14_translate/de-en:9.9.9",
        "a.b",
        "../x",
        "a b",
    ],
)
def test_nonexistent_data_sets_are_rejected(tmp_path, name):
    config = DataConfig(source="tfds", name=name, directory=str(tmp_path))
    assert refusal(config).startswith(f"config.data.name={name!r}: ")


def test_wmt14_mocked_by_tfds(tmp_path, monkeypatch):
    """With the real builder's names and features, and made-up sentences."""
    from tensorflow_datasets.core import naming, splits
    from tensorflow_datasets.translate import wmt14  # noqa: F401 (registers)

    # mock_data forgets that its __getitems__ is called without self.
    monkeypatch.setattr(
        mocking, "_getitems", lambda keys, generator: [generator[int(key)] for key in keys]
    )
    builder = tfds.builder("wmt14_translate/de-en", data_dir=tmp_path, file_format="array_record")
    template = naming.ShardedFileTemplate(
        dataset_name=builder.name, data_dir=builder.data_path, filetype_suffix="array_record"
    )
    split = splits.SplitInfo(
        name="train", shard_lengths=[5], num_bytes=0,
        filename_template=template.replace(split="train"),
    )  # fmt: skip
    builder.info.set_splits(splits.SplitDict([split]))
    builder.data_path.mkdir(parents=True)
    builder.info.write_to_directory(builder.data_dir)
    config = DataConfig(source="tfds", name="wmt14_translate/de-en", directory=str(tmp_path))
    with tfds.testing.mock_data(num_examples=5, data_dir=str(tmp_path)):
        found = sources.load(config, "train")
    assert len(found.src) == len(found.tgt) == 5
    assert all(isinstance(line, str) and line for line in [*found.src, *found.tgt])
    assert np.unique(found.src + found.tgt).size > 5  # the sides differ
