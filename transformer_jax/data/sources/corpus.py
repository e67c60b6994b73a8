"""Data sources: files, TFDS or a generator. Each yields a `Corpus`."""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

import numpy as np

from transformer_jax.base.errors import UserError
from transformer_jax.config import DataConfig, ObjectiveConfig
from transformer_jax.config.choices.sources import SOURCES as RECORDS
from transformer_jax.config.registry import pick
from transformer_jax.data.conversations import check_conversations, compared
from transformer_jax.data.sources import (
    array_files,
    chains,
    chess_positions,
    clip_folders,
    copying,
    image_folders,
    labelled,
    listops,
    moving_digits,
    number_chats,
    series_files,
    spelled_numbers,
    standard_library,
    text_files,
    tfds,
    trajectories,
    wav_files,
)
from transformer_jax.data.sources.fingerprint import fingerprint
from transformer_jax.data.sources.questions import located
from transformer_jax.data.texts import joined, prefixed

log = logging.getLogger("transformer_jax")

Split = Literal["train", "validation", "test"]
Source = Callable[[DataConfig, Split], tuple[Sequence, Sequence]]
Place = Callable[[int, bool], str]  # names a line, from 1, of the source side or of the target side


@dataclass(frozen=True)
class Corpus:
    """The pairs of one split, `src[i]` and `tgt[i]`; or only targets, with an empty `src`.

    They are texts, or arrays for non-text sources such as pictures.
    """

    src: Sequence
    tgt: Sequence[str]
    fingerprint: str  # changes with the content
    sizes: tuple[int, ...] = ()  # number of pairs of each part, in order

    def __len__(self) -> int:
        return len(self.tgt)

    def __getitem__(self, index: int) -> dict[str, Any]:
        return {"src": self.src[index], "tgt": self.tgt[index]}


def load(
    config: DataConfig,
    split: Split,
    objective: ObjectiveConfig = ObjectiveConfig(),  # noqa: B008 (immutable)
) -> Corpus:
    """Return the pairs of a split, or only the targets if the objective has no sources.

    Training skips pairs with an empty side; in the other splits a warning reports them.

    Raises:
      UserError: if files are missing, unreadable or do not match.
    """
    source = pick(SOURCES, config.source, "config.data.source")
    place = f"config.data.{split}={getattr(config, split)}"
    if objective.one_sided:
        config = replace(config, source_language=config.target_language)
    whole_files = objective.one_sided and objective.document == "file"  # else that of its parts
    if config.source == "text":
        source = partial(text_files.load, one_sided=objective.one_sided, labels=objective.labels)
    if not (RECORDS[config.source].lines or whole_files):
        raise UserError(
            f"config.data.source={config.source!r}: its texts are whole files; choose "
            "objective.name='language_model' or another without a source side, and "
            "objective.document='file'"
        )
    if whole_files and not RECORDS[config.source].made:
        source = text_files.documents
    rows = objective.record.lines in ("conversations", "preferences", "pairs")
    if rows and config.source == "text":
        source = text_files.conversations
    if config.source == "series":
        source = partial(series_files.load, context=objective.window)
    src, tgt, sizes = _joined(config, split, source)
    if objective.record.reproduces:  # labels are ignored
        tgt = src
    if objective.one_sided:
        if not any(map(len, tgt)):
            raise UserError(f"{place}: contains no text; name other parts")
        tgt = checked(
            objective, src, tgt,
            lambda number, side: text_files.place(config, split, number, side, rows),
        )  # fmt: skip
        # The hash of whole files has always been without their ends.
        return Corpus((), tgt, fingerprint(tgt, breaks=not whole_files), sizes)
    if not len(src):
        raise UserError(f"{place}: contains no pairs; name other parts")
    tgt = checked(objective, src, tgt, lambda *line: text_files.place(config, split, *line))
    if split != "train" and not isinstance(src[0], np.ndarray):
        _mention_empty(place, src, tgt)
    return Corpus(src, tgt, fingerprint(src, tgt), sizes)


def tasks(config: DataConfig, objective: ObjectiveConfig) -> dict[str, Corpus]:
    """Return the training text of each objective, by name, from the parts assigned to it.

    Raises:
      UserError: if files are missing, unreadable or do not match.
    """
    return {
        name: load(config.only("train", parts), "train", objective.alone(name))
        for name, parts in objective.of_parts(config.train).items()
    }


def whole(corpora: Sequence[Corpus]) -> Corpus:
    """Return all texts of corpora, for use of each side by itself."""
    if len(corpora) == 1:
        return corpora[0]
    src, tgt = (joined([getattr(one, side) for one in corpora]) for side in ("src", "tgt"))
    return Corpus(src, tgt, fingerprint([one.fingerprint for one in corpora]))


def checked(
    objective: ObjectiveConfig,
    src: Sequence[str],
    tgt: Sequence[str],
    place: Place,
) -> Sequence[str]:
    """Validate the target side, and return it as the codec of an objective reads it; `place` names
    a line, from 1, of the source side (True) or of the target side.

    Raises:
      UserError: if a line is malformed; names the line.
    """
    lines = objective.record.lines
    return tgt if lines is None else LINES[lines](src, tgt, place)


def _words(src: Sequence[str], tgt: Sequence[str], place: Place) -> Sequence[str]:
    labelled.check_words(src, tgt, lambda number: place(number, True))
    return tgt


def _texts(src: Sequence[str], tgt: Sequence[str], place: Place) -> Sequence[str]:
    labelled.check_pairs(src, lambda number: place(number, True))
    return tgt


def _numbers(src: Sequence[str], tgt: Sequence[str], place: Place) -> Sequence[str]:
    labelled.check_numbers(tgt, lambda number: place(number, False))
    return tgt


def _conversations(src: Sequence[str], tgt: Sequence[str], place: Place) -> Sequence[str]:
    check_conversations(tgt, lambda number: place(number, False))
    return tgt


def _preferences(src: Sequence[str], tgt: Sequence[str], place: Place) -> Sequence[str]:
    return [pair.as_json() for pair in compared(tgt, lambda number: place(number, False))]


def _pairs(src: Sequence[str], tgt: Sequence[str], place: Place) -> Sequence[str]:
    for number, pair in enumerate(rows := compared(tgt, lambda number: place(number, False)), 1):
        if pair.desirable is not None:
            raise UserError(
                f"{place(number, False)}: has a label, and no answer that is better or worse; "
                'write {"prompt": "...", "chosen": "...", "rejected": "..."}'
            )
    return [pair.as_json() for pair in rows]


def _questions(src: Sequence[str], tgt: Sequence[str], place: Place) -> Sequence[str]:
    return located(src, tgt, lambda number: place(number, True))


# By what the record of an objective says of its lines.
LINES: dict[str, Callable[..., Sequence[str]]] = {
    "words": _words, "texts": _texts, "numbers": _numbers, "questions": _questions,
    "conversations": _conversations, "preferences": _preferences, "pairs": _pairs,
}  # fmt: skip


def _joined(
    config: DataConfig, split: Split, source: Source
) -> tuple[Sequence, Sequence[str], tuple[int, ...]]:
    """Return the concatenated parts of a split, with their prefixes, and the sizes of the parts."""
    parts = []
    prefixes = config.named("prefixes")
    for part in getattr(config, split):
        one, other = source(config.alone(split, part), split)
        if part in prefixes:
            one = prefixed(one, prefixes[part])
        parts.append((one, other))
    src, tgt = (joined(side) for side in zip(*parts, strict=True)) if parts else ([], [])
    return src, tgt, tuple(len(other) for _, other in parts)


def _mention_empty(name: str, src: Sequence[str], tgt: Sequence[str]) -> None:
    pairs = enumerate(zip(src, tgt, strict=True), 1)
    empty = [number for number, pair in pairs if not all(line.strip() for line in pair)]
    if empty:
        log.warning(
            "%s: an empty line in %d of %d pairs (first: pair %d); these are scored like any other",
            name, len(empty), len(src), empty[0],
        )  # fmt: skip


SOURCES: dict[str, Source] = {
    "text": text_files.load,
    "tfds": tfds.load,
    "spelled_numbers": spelled_numbers.load,
    "number_chats": number_chats.load,
    "listops": listops.load,
    "copying": copying.load,
    "chess": chess_positions.load,
    "moving_digits": moving_digits.load,
    "standard_library": standard_library.load,
    "chains": chains.load,
    "arrays": array_files.load,
    "folders": image_folders.load,
    "clips": clip_folders.load,
    "series": partial(series_files.load, context=0),
    "wavs": wav_files.load,
    "trajectories": trajectories.load,
    "environment": trajectories.generate,
}
