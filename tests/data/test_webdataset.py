"""Pictures and sounds in tar files of samples, and which samples are rejected."""

import io
import json
import tarfile
import wave
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from transformer_jax.base.errors import UserError
from transformer_jax.config import DataConfig
from transformer_jax.data import sources

RNG = np.random.default_rng(0)
PICTURES = RNG.integers(0, 256, (5, 6, 8, 3), np.uint8)
SOUNDS = RNG.integers(-999, 999, (3, 90))


def png(picture) -> bytes:
    file = io.BytesIO()
    Image.fromarray(picture).save(file, "PNG")
    return file.getvalue()


def wav(samples) -> bytes:
    file = io.BytesIO()
    with wave.open(file, "wb") as out:
        out.setnchannels(1)
        out.setsampwidth(2)
        out.setframerate(8000)
        out.writeframes(np.asarray(samples, "<i2").tobytes())
    return file.getvalue()


def write(path: Path, files: dict[str, bytes], mode: str = "w") -> None:
    path.parent.mkdir(exist_ok=True)
    with tarfile.open(path, mode) as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))


def sample(number: int, **more: bytes) -> dict[str, bytes]:
    said = json.dumps({"label": {"name": "cat", "id": number}, "text": None})
    files = {"png": png(PICTURES[number]), "cls": f"{number}\n".encode(), "json": said.encode()}
    return {f"./a.b/{number:04}.{name}": content for name, content in (files | more).items()}


def pictures(directory: Path, *columns: str) -> DataConfig:
    return DataConfig(
        source="folders", directory=str(directory), train=("pictures/*.tar",), columns=columns
    )


def test_pictures_are_read_with_their_labels(tmp_path):
    """In the order of files and samples, from several tar files, one of them compressed."""
    write(tmp_path / "pictures" / "0.tar", sample(3) | sample(1))
    write(tmp_path / "pictures" / "1.tar", sample(0), "w:gz")
    found = sources.load(pictures(tmp_path), "train")
    assert found.tgt == ["3", "1", "0"]
    assert np.array_equal(np.stack(found.src), PICTURES[[3, 1, 0]])
    named = pictures(tmp_path, "source=png", "target=json.label.name")
    assert sources.load(named, "train").tgt == ["cat"] * 3
    assert sources.load(pictures(tmp_path, "target=json.label.id"), "train").tgt == ["3", "1", "0"]


def test_sounds_are_read_with_what_they_say(tmp_path):
    for number, sound in enumerate(SOUNDS):
        files = {f"{number}.wav": wav(sound), f"{number}.txt": f"say {number}".encode()}
        write(tmp_path / "sounds" / f"{number}.tar", files)
    config = DataConfig(source="wavs", directory=str(tmp_path), train=("sounds/*.tar",))
    found = sources.load(config, "train")
    assert found.tgt == ["say 0", "say 1", "say 2"]
    assert np.array_equal(np.stack(found.src), SOUNDS)
    assert found.src[0].rate == 8000


@pytest.mark.parametrize(
    ("more", "columns", "said"),
    [
        ({"jpg": b""}, (), "has more than one file for the source side among 'png', 'cls', "),
        ({}, ("source=webp",), "has no webp file for the source side among 'png', 'cls', 'json'; "),
        ({}, ("target=txt",), "has no 'txt', the target side; it has 'png', 'cls', 'json'; add it"),
        ({}, ("target=json.text",), "'json.text', the target side, is null, not text"),
        ({}, ("target=json.label",), "'json.label', the target side, is an object, not text"),
        ({}, ("target=json.kind",), "has no 'json.kind', the target side; it has"),
        ({"json": b"{"}, ("target=json.label.id",), "'json.label.id', the target side, cannot be "),
        ({"cls": b"\xff"}, (), "'cls', the target side, cannot be read ("),
        ({"CLS": b"0"}, (), "has two files .CLS; remove one"),
    ],
)  # fmt: skip
def test_samples_that_do_not_fit_are_named(tmp_path, more, columns, said):
    write(tmp_path / "pictures" / "0.tar", sample(3) | sample(4, **more))
    with pytest.raises(UserError) as caught:
        sources.load(pictures(tmp_path, *columns), "train")
    number = 3 if columns and not more else 4
    place = f"{tmp_path}/pictures/0.tar: a.b/{number:04}"
    assert str(caught.value).startswith(f"{place}: {said}")


def test_unusable_tar_files_are_rejected(tmp_path):
    with pytest.raises(UserError, match=r"train='pictures/\*\.tar': there are no such files"):
        sources.load(pictures(tmp_path), "train")
    path = tmp_path / "pictures" / "0.tar"
    write(path, sample(3) | sample(4, png=b"no picture"))
    with pytest.raises(UserError, match=r"a\.b/0004\.png: cannot be read as a picture"):
        sources.load(pictures(tmp_path), "train")
    path.write_bytes(path.read_bytes()[:700])
    with pytest.raises(UserError, match=r"0\.tar: cannot be read as \.tar"):
        sources.load(pictures(tmp_path), "train")
    config = DataConfig(source="folders", directory=str(tmp_path), columns=("target=cls",))
    with pytest.raises(UserError, match=r"columns=\('target=cls',\): are of tar files"):
        sources.load(config, "train")
