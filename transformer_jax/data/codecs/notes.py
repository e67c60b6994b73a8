"""Music as notes: a line is a piece, such as "74,70,65,58 75,70,-1,55": steps of equal duration
with a MIDI pitch for each voice, and -1 where it is silent.

A model reads one note after another, the voices of a step in their order (the serial form in which
Huang et al. 2019, arXiv:1809.04281, score Bach's chorales), so its loss is per note.
"""

import json
from collections.abc import Iterable, Sequence

import numpy as np

from transformer_jax.base.errors import UserError
from transformer_jax.base.vocabulary import RESERVED
from transformer_jax.config import TokenizerConfig
from transformer_jax.data.codecs.codec import (
    SPELLED,
    Kind,
    before_eos,
    framed,
    symbols_of,
    with_symbols,
)
from transformer_jax.data.codecs.listed import Listed

PITCHES = 128  # of MIDI; 60 is the middle C
SILENCE = -1


class Notes(Listed):
    """The pieces are -1 and the pitches 0 to 127; all texts have the same number of voices."""

    file = "notes{}.json"
    HINT = ": pieces are MIDI pitches, 0 to 127, and -1, which is silence"

    def __init__(self, model: bytes) -> None:
        self.voices, special = _read(model)
        pitches = map(str, range(SILENCE, PITCHES))
        super().__init__(model, [*SPELLED, *pitches, *symbols_of(special)], special)

    def encode(self, texts: Sequence[str], bos: bool = False, eos: bool = True) -> list[list[int]]:
        """See Codec.

        Raises:
          UserError: if a text is not of this form.
        """
        encoded = []
        for text in texts:
            if problem := fault(text, self.voices):
                raise UserError(
                    f"{problem}; write a pitch for each voice, with commas between, and a space "
                    "between steps, as in 74,70,65,58 75,70,-1,55"
                )
            notes = text.replace(",", " ").split()
            encoded.append(framed([self._ids[str(int(x))] for x in notes], bos, eos))
        return encoded

    def decode(self, ids: Iterable[int]) -> str:
        """See Codec. A step that lacks voices at the end of the text is left out."""
        notes = [self._all[i] for i in before_eos(ids) if i in self._pitches]
        whole = len(notes) - len(notes) % self.voices
        steps = (notes[i : i + self.voices] for i in range(0, whole, self.voices))
        return " ".join(map(",".join, steps))

    @property
    def _pitches(self) -> range:
        return range(RESERVED, RESERVED + 1 + PITCHES)

    def word_starts(self) -> np.ndarray | None:
        """See Codec: where a step begins depends on the notes before."""
        return None


def _read(model: bytes) -> tuple[int, dict[str, int]]:
    try:
        content = json.loads(model)
        voices, special = content["voices"], content["special"]
        size = RESERVED + 1 + PITCHES
        if (
            type(voices) is int
            and voices > 0
            and special == with_symbols(symbols_of(special), size)
        ):
            return voices, special
    except (ValueError, TypeError, KeyError, RecursionError):
        pass
    raise ValueError("not the number of voices")


def fault(text: str, voices: int) -> str | None:
    """Return why a text is not music of so many voices, or None if it is."""
    for number, step in enumerate(text.split(), 1):
        notes = step.split(",")
        if len(notes) != voices:
            return (
                f"step {number}, {step!r}, has {len(notes)} voices, not {voices} as the first one"
            )
        for note in notes:
            sign, digits = note[:1] == "-", note.removeprefix("-")
            known = digits.isascii() and digits.isdigit() and len(digits) <= 3
            if not (known and SILENCE <= int(note) < PITCHES) or (sign and int(note) == 0):
                return (
                    f"step {number}, {step!r}: {note!r} is neither a MIDI pitch, 0 to 127, nor -1"
                )
    return None


def pitches(text: str) -> np.ndarray:
    """Return the notes of a piece without faults, [steps voices]; SILENCE where there is none."""
    return np.array([[int(note) for note in step.split(",")] for step in text.split()])


def written(steps: np.ndarray) -> str:
    """Return the text of notes [steps voices]."""
    return " ".join(",".join(map(str, step)) for step in steps.tolist())


def train(config: TokenizerConfig, texts: Sequence[str], symbols: Sequence[str] = ()) -> Notes:
    """Return the codec of as many voices as the first step of the texts has; `config` is ignored.

    Raises:
      UserError: if there are no notes.
    """
    first = next((step for text in texts for step in text.split()), None)
    if first is None:
        raise UserError("config.data.train: has no notes; tgt.codec='notes' reads 74,70,65,58")
    special = with_symbols(symbols, RESERVED + 1 + PITCHES)
    content = {"voices": first.count(",") + 1, "special": special}
    return Notes(json.dumps(content).encode())


WORDS = {"notes": Kind(Notes, train, "the number of voices")}
