"""Audio files, .wav in a folder, a .zip or .tar files, and their transcripts or labels."""

import io
import re
import wave
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from transformer_jax.base.disk import user_path
from transformer_jax.base.errors import UserError
from transformer_jax.config import DataConfig
from transformer_jax.data.sources import webdataset
from transformer_jax.data.sources.files import read_lines
from transformer_jax.data.sources.labelled import text_of

_PART = re.compile(r"(.+?)\[(\w+):(!?)(.+)\]")


class Sound(np.ndarray):
    """Samples [n] of int16, with their origin and sample rate."""

    name: str
    rate: int

    @classmethod
    def of(cls, samples: np.ndarray, name: str, rate: int) -> "Sound":
        """Return samples as a sound."""
        sound = samples.view(cls)
        sound.name, sound.rate = name, rate
        return sound

    def __array_finalize__(self, whole: Any) -> None:
        self.name, self.rate = getattr(whole, "name", "a sound"), getattr(whole, "rate", 0)


class _Part(NamedTuple):
    """A part of a split: some of the files of a folder or a .zip."""

    name: str
    group: str | None  # of label_pattern
    value: str
    other: bool  # negated: all files except those

    @classmethod
    def read(cls, text: str) -> "_Part":
        matched = _PART.fullmatch(text)
        if matched is None:
            return cls(text, None, "", False)
        name, group, negated, value = matched.groups()
        return cls(name, group, value, bool(negated))


def load(config: DataConfig, split: str) -> tuple[list[np.ndarray], list[str]]:
    """Return the sounds of a split, ordered by name, and the text of each.

    Raises:
      UserError: if a file is missing, damaged or in an unsupported format, or has no text.
    """
    sounds: list[np.ndarray] = []
    texts: list[str] = []
    for word in getattr(config, split):
        samples = webdataset.samples_of(config, split, word)
        if samples is not None:
            _take(config, samples, sounds, texts)
            continue
        part = _Part.read(word)
        manifest = None if config.label_pattern else _manifest(config, split, part)
        for name, place, content in _files(config, split, part.name):
            text = _matched(config, part, name, place) if manifest is None else manifest.get(name)
            if text is None:
                if manifest is not None:
                    raise UserError(f"{place}: {part.name}.tsv has no line for this file; add one")
                continue
            sounds.append(read(content, place))
            texts.append(text)
    return sounds, texts


def _take(
    config: DataConfig, samples: Iterator[webdataset.Sample], sounds: list, texts: list[str]
) -> None:
    """Append the sounds of samples, and their texts."""
    source, target = (webdataset.column(config, *x) for x in (("source", "wav"), ("target", "txt")))
    for sample in samples:
        name, content = sample.content(source)
        sounds.append(read(content, name))
        texts.append(text_of(config, sample.text(target), sample.place))


def open_sound(path: str | Path) -> Sound:
    """Return the sound in a file.

    Raises:
      UserError: if it cannot be opened, or is not 16-bit, single-channel and complete.
    """
    try:
        return read(user_path(path).read_bytes(), str(path))
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror})") from None


def read(content: bytes, place: str) -> Sound:
    """Return the sound in the content of a .wav file; `place` is for messages."""
    try:
        with wave.open(io.BytesIO(content)) as file:
            form, said = file.getparams(), file.getnframes()
            samples = file.readframes(said)
    except (wave.Error, EOFError) as error:
        raise UserError(
            f"{place}: cannot be read as .wav ({str(error) or 'it is cut off'})"
        ) from None
    convert = f"convert it, with `sox {Path(place).name} -b 16 -c 1 OTHER.wav` for example"
    if form.sampwidth != 2:
        raise UserError(f"{place}: has {8 * form.sampwidth} bits per sample, not 16; {convert}")
    if form.nchannels != 1:
        raise UserError(f"{place}: has {form.nchannels} channels, not one; {convert}")
    if len(samples) != 2 * said:
        raise UserError(
            f"{place}: is truncated: has {len(samples) // 2:,} of {said:,} samples; get it "
            "again, or remove it"
        )
    return Sound.of(np.frombuffer(samples, "<i2").astype(np.int16), place, form.framerate)


def _files(config: DataConfig, split: str, name: str) -> Iterator[tuple[str, str, bytes]]:
    """Yield (name, place, content) of each .wav of a part, by name."""
    folder = user_path(config.directory or ".") / name
    archive = folder.with_name(f"{folder.name}.zip")
    if folder.is_dir():
        for path in sorted(folder.glob("*.wav")):
            yield path.name, str(path), path.read_bytes()
    elif archive.is_file():
        try:
            with zipfile.ZipFile(archive) as file:
                for inner in sorted(file.namelist()):
                    if inner.endswith(".wav"):
                        yield Path(inner).name, f"{archive}: {inner}", file.read(inner)
        except (OSError, zipfile.BadZipFile, EOFError, NotImplementedError) as error:
            raise UserError(f"{archive}: cannot be read as .zip ({error})") from None
    else:
        raise UserError(
            f"config.data.{split}: there is neither a folder {folder.absolute()} nor "
            f"{archive.name} beside it; set --config.data.directory to their location, or "
            f"--config.data.{split} to their names"
            + (f". Get them with: {config.how_to_get}" if config.how_to_get else "")
        )


def _matched(config: DataConfig, part: _Part, name: str, place: str) -> str | None:
    """Return the text of a file according to its name, or None if it is not in the part."""
    groups = re.fullmatch(config.label_pattern, name)
    if groups is None or groups["label"] is None:
        raise UserError(
            f"{place}: its name does not match config.data.label_pattern={config.label_pattern!r}; "
            f"rename it, change the pattern, or set it to '' to read {part.name}.tsv"
        )
    if part.group is not None:
        if part.group not in groups.groupdict():
            raise UserError(
                f"config.data.label_pattern={config.label_pattern!r}: has no group {part.group!r}, "
                f"which a part [{part.group}:...] needs; add (?P<{part.group}>...)"
            )
        if (groups[part.group] == part.value) == part.other:
            return None
    return text_of(config, groups["label"], place)


def _manifest(config: DataConfig, split: str, part: _Part) -> dict[str, str]:
    """Return the text of each file according to PART.tsv."""
    if part.group is not None:
        raise UserError(
            f"config.data.{split}: [{part.group}:{part.value}] needs a group of label_pattern, "
            "which is not set; set --config.data.label_pattern"
        )
    path = user_path(config.directory or ".") / f"{part.name}.tsv"
    if not path.is_file():
        raise UserError(
            f"config.data.{split}: there is no {path.absolute()}, which gives each file its text "
            "(NAME.wav, a TAB, the text); write it, or set --config.data.label_pattern"
        )
    said: dict[str, str] = {}
    for number, line in enumerate(read_lines(path), 1):
        name, tab, text = line.partition("\t")
        if not tab or name in said:
            raise UserError(f"{path}:{number}: must be NAME.wav, a TAB and the text, one per name")
        said[name] = text_of(config, text, f"{path}:{number}")
    return said
