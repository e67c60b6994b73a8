"""Sources: where rows come from, and how they may be changed at reading."""

from dataclasses import dataclass
from typing import Any

from transformer_jax.config.bounds import check, default_unless, either
from transformer_jax.config.choices.codecs import CODECS, PICTURED
from transformer_jax.config.choices.record import Record, readers, with_


@dataclass(frozen=True, kw_only=True)
class Source(Record):
    """What is known about a source.

    made: whether it is generated, without files.
    text: whether it can have text, not only what becomes vectors.
    documents: whether its texts can be whole files, for objectives without a source side.
    lines: whether they can be lines.
    objectives: those that can read its rows, if not any.
    languages: whether its files, columns or generators have the names of languages.
    """

    made: bool = False
    text: bool = True
    documents: bool = False
    lines: bool = True
    objectives: tuple[str, ...] = ()
    languages: bool = False


def _check_numbers(data: Any, field: str) -> None:
    check(
        sum(data.num_examples) <= data.max_number,
        f"num_examples={data.num_examples}: more than max_number={data.max_number} in all",
    )


def _check_moving_digits(data: Any, field: str) -> None:
    check(
        not data.image_size or min(data.image_size) >= 16,
        f"image_size={data.image_size}: source='moving_digits' draws digits on at least 16 x 16 "
        "pixels; raise it",
    )


def _check_environment(data: Any, field: str) -> None:
    check(
        data.environment != "none",
        f"environment='none': {field}='environment' generates trajectories in one; choose "
        "'shortest_paths' or 'gymnasium'",
    )


_OF_AGENTS = "environment", "environment_seed", "max_steps", "best_share"
SOURCES = {
    "text": Source(documents=True, languages=True, reads=("columns",)),
    "tfds": Source(languages=True),
    "spelled_numbers": Source(
        made=True, languages=True, reads=("round_numbers",), check=_check_numbers
    ),
    "number_chats": Source(made=True, objectives=("chat", "reinforce")),
    "listops": Source(made=True, reads=("example_lengths", "list_depth", "list_arguments")),
    "copying": Source(made=True, reads=("example_lengths",)),
    "chess": Source(made=True),
    "moving_digits": Source(
        made=True, text=False, reads=("num_frames", "num_digits", "image_size"),
        check=_check_moving_digits,
    ),
    "standard_library": Source(made=True, documents=True, lines=False),
    "chains": Source(made=True, text=False, reads=("example_lengths",)),
    "arrays": Source(text=False, reads=("label_texts",)),
    "folders": Source(text=False, reads=("columns", "image_size")),
    "clips": Source(text=False, reads=("num_frames", "image_size")),
    "series": Source(text=False),
    "wavs": Source(text=False, reads=("columns", "label_pattern", "label_texts")),
    "trajectories": Source(text=False, reads=_OF_AGENTS),
    "environment": Source(made=True, text=False, reads=_OF_AGENTS, check=_check_environment),
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Augmentation(Record):
    """What is known about a change of training examples: the codecs whose values it changes."""

    codecs: tuple[str, ...]


_HEARD = with_(CODECS, sound=True)
AUGMENTATIONS = {
    "crop": Augmentation(codecs=PICTURED, reads=("crop_padding",)),
    "flip": Augmentation(codecs=PICTURED),
    "cutout": Augmentation(codecs=PICTURED, reads=("cutout_size",)),
    "frequency_mask": Augmentation(codecs=_HEARD, reads=("frequency_mask_size",)),
    "time_mask": Augmentation(codecs=_HEARD, reads=("time_mask_size", "time_mask_share")),
    "transpose": Augmentation(codecs=("notes",), reads=("transpose_range",)),
    "random_smiles": Augmentation(codecs=("smiles",), reads=("smiles_variants",)),
}


def check_source_kind(data: Any) -> None:
    """Reject parts and sizes that do not fit generated data."""
    source = SOURCES.get(data.source)
    if source is None:  # `parse` refuses it
        return
    for split in ("train", "validation", "test"):
        check(
            not source.made or getattr(data, split) == (split,),
            f"{split}={getattr(data, split)}: source={data.source!r} is generated, and its only "
            f"part is {split!r}; leave it at {(split,)}",
        )
    if source.check is not None:
        source.check(data, "source")


def check_data_reads(data: Any) -> None:
    """Reject settings that neither the source nor an augmentation reads."""
    for name, words in readers(AUGMENTATIONS).items():
        default_unless(
            not {*words}.isdisjoint(data.augment), data, name,
            because=f"has no effect without {either(words)} in augment={data.augment}",
        )  # fmt: skip
    for name, words in readers(SOURCES).items():
        default_unless(
            data.source in words, data, name,
            because=f"is for source={either(words)}, not {data.source!r}",
        )  # fmt: skip
