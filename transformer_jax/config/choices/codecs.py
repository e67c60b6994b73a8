"""Codecs: how one side's values become ids or vectors."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from transformer_jax.config.bounds import default_unless
from transformer_jax.config.choices.record import Record, readers, with_


@dataclass(frozen=True, kw_only=True)
class Codec(Record):
    """What is known about a codec. `reads` names fields of a source side.

    sources: the sources of what becomes vectors; none: pieces.
    axes: of the grid that its vectors form, as in `model.grid`: 2 for rows and columns, 3 with
      times before them; 0: they form none.
    noun, read_as: what messages call one of these, and reports several.
    sound: whether it is audio.
    text: whether a line of text becomes its pieces; not if it is a class, a number or a span.
    tokenizer: the fields of `tokenizer` that it reads besides `joint`; not none: it has
      `vocab_size` pieces, and marks where words begin.
    classes: whether it can stand for "classes": of several right ones, or from a fixed list.
    trees: whether its pieces are the brackets of trees.
    chess: whether its texts are chess positions.
    tasks: the Hugging Face Hub's names of tasks of text, and those of the same with these values.
    strict: whether there are texts that it cannot encode, although no piece of them is unknown.
    parts: whether a text may be cut anywhere and its parts encoded apart; of imported tokenizers,
      some keep a part as it was, and each is tried.
    """

    sources: tuple[str, ...] = ()
    axes: int = 0
    noun: str = ""
    read_as: str = "texts"
    sound: bool = False
    text: bool = True
    tokenizer: tuple[str, ...] = ()
    classes: bool = False
    trees: bool = False
    chess: bool = False
    tasks: Mapping[str, str] = field(default_factory=dict)
    strict: bool = False
    parts: bool = False

    @property
    def vectors(self) -> bool:
        """Whether it produces vectors, not pieces."""
        return bool(self.sources)


CODECS = {
    "subwords": Codec(
        tokenizer=(
            "algorithm", "vocab_size", "byte_fallback", "character_coverage", "normalization",
            "max_lines", "symbols", "model", "unk_surface",
        )
    ),
    "wordpiece": Codec(tokenizer=("vocab_size", "max_lines", "symbols", "lowercase")),
    "words": Codec(tokenizer=("vocab_size", "max_lines", "symbols", "lowercase")),
    "repeats": Codec(),
    "trees": Codec(trees=True),
    "bytes": Codec(parts=True),
    "characters": Codec(parts=True),
    "residues": Codec(strict=True),
    "nucleotides": Codec(strict=True),
    "classes": Codec(text=False, classes=True),
    "labels": Codec(text=False, classes=True),
    "values": Codec(text=False),
    "spans": Codec(text=False),
    "smiles": Codec(),
    "notes": Codec(strict=True),
    "tagged": Codec(strict=True),
    "fen": Codec(chess=True),
    "board": Codec(chess=True),
    "moves": Codec(text=False, classes=True),
    "huggingface": Codec(parts=True),
    "patches": Codec(
        sources=("arrays", "folders", "tfds"), axes=2, noun="picture", read_as="pictures",
        reads=("patch_size", "pixel_scale"),
        tasks={"translation": "image-to-text", "text-classification": "image-classification"},
    ),
    "tubelets": Codec(
        sources=("arrays", "clips", "moving_digits"), axes=3, noun="clip", read_as="clips",
        reads=("patch_size", "tubelet_frames", "pixel_scale"),
        tasks={"translation": "video-text-to-text", "text-classification": "video-classification"},
    ),
    "latents": Codec(sources=("arrays",), axes=2, noun="picture", read_as="pictures in latents"),
    "series": Codec(sources=("series",), noun="series", read_as="time series"),
    "log_mel": Codec(
        sources=("wavs",), noun="sound", read_as="sounds", sound=True,
        reads=("sample_rate", "n_fft", "hop_length", "num_mels"),
        tasks={"translation": "automatic-speech-recognition",
               "text-classification": "audio-classification"},
    ),
    "frames": Codec(
        sources=("arrays",), noun="sound", read_as="sounds", sound=True,
        tasks={"translation": "automatic-speech-recognition",
               "text-classification": "audio-classification"},
    ),
    "states": Codec(
        sources=("trajectories", "environment"), noun="trajectory", read_as="trajectories",
        tasks={"reinforcement-learning": "reinforcement-learning"},
    ),
    "actions": Codec(
        sources=("trajectories", "environment"), noun="trajectory", text=False,
    ),
    "coordinates": Codec(sources=("chains", "arrays"), noun="chain", read_as="chains of points"),
}  # fmt: skip
VECTORS = with_(CODECS, vectors=True)
GRIDDED = tuple(word for word, codec in CODECS.items() if codec.axes)
PICTURED = tuple(word for word, codec in CODECS.items() if "pixel_scale" in codec.reads)
STRICT = with_(CODECS, strict=True)
PARTS = with_(CODECS, parts=True)
SIZED = tuple(word for word, codec in CODECS.items() if codec.tokenizer)


def check_source_reads(source: Any) -> None:
    """Reject settings of vectors that the codec does not read."""
    for name, words in readers(CODECS).items():  # no user-defined codec reads them
        default_unless(
            source.codec in words, source, name,
            because=f"has no effect with codec={source.codec!r}",
        )  # fmt: skip
