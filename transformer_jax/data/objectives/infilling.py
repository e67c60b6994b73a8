"""Fill in the middle: a text is rearranged so that its middle comes last (Bavarian et al. 2022,
arXiv:2207.14255).
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from transformer_jax.base.errors import UserError
from transformer_jax.base.vocabulary import Special
from transformer_jax.config import ObjectiveConfig
from transformer_jax.config.bounds import either
from transformer_jax.config.choices.codecs import PARTS
from transformer_jax.config.choices.texts import FIM_PIECES
from transformer_jax.data.codecs.codec import Codec, special_of
from transformer_jax.data.random import Draw, uniform

_WHETHER, _FIRST, _SECOND, _FORM = range(4)  # purposes of random numbers
# How many pieces may be left out at the beginning and the end of a window, fewest first: it may
# begin and end within a character, of up to four bytes.
_EDGES = sorted(((a, b) for a in range(4) for b in range(4)), key=sum)


class Sentinels(NamedTuple):
    """The pieces before the parts of a rearranged text, by StarCoder's names."""

    prefix: int
    middle: int
    suffix: int

    @classmethod
    def of(cls, codec: Codec) -> "Sentinels | None":
        """Return those of a codec; None if it lacks one."""
        try:
            return cls(*map(codec.piece_id, FIM_PIECES))
        except UserError:
            return None

    def before_middle(
        self, prefix: Sequence[int], suffix: Sequence[int], suffix_first: bool
    ) -> list[int]:
        """Return what is read before the middle is written: prefix, suffix, middle (PSM); or, in
        the second variant of suffix, prefix, middle (SPM), where the middle goes on from the prefix
        as texts do.
        """
        if suffix_first:
            return [self.prefix, self.suffix, *suffix, self.middle, *prefix]
        return [self.prefix, *prefix, self.suffix, *suffix, self.middle]


class Infilling(NamedTuple):
    """Rearranges windows of a text: their characters are cut at two places, each part is encoded by
    itself, and EOS ends the middle, so that a model knows when a gap is filled.
    """

    codec: Codec
    sentinels: Sentinels
    special: Special
    rate: float  # the share of windows that are rearranged
    spm_rate: float  # the share of these that begin with their suffix

    @classmethod
    def of(cls, config: ObjectiveConfig, codec: Codec) -> "Infilling":
        """Return what a config asks for.

        Raises:
          UserError: if the codec lacks a sentinel, or an encoded text is not read back as it was.
        """
        sentinels = Sentinels.of(codec)
        field = f"config.objective.fim_rate={config.fim_rate}"
        if sentinels is None:
            raise UserError(
                f"{field}: the tokenizer has no pieces {', '.join(FIM_PIECES)}; one trained for "
                "this objective has them; set --config.init.tokenizer=False"
            )
        parts = codec.encode([" a", "a"], eos=False)
        if [codec.decode(ids) for ids in parts] != [" a", "a"]:
            raise UserError(
                f"{field}: a text is cut anywhere, and this tokenizer does not keep the spaces at "
                f"the ends of a part; choose another tokenizer, or tgt.codec={either(PARTS)}"
            )
        return cls(codec, sentinels, special_of(codec), config.fim_rate, config.fim_spm_rate)

    def rearranged(self, windows: Sequence[np.ndarray], draw: Draw, numbers: np.ndarray) -> list:
        """Return windows [pieces], some of them rearranged, none longer than before.

        Which ones, where they are cut and in what order the parts come are functions of `draw` and
        their `numbers`.
        """
        whether, first, second, form = (
            uniform(*draw, numbers, purpose) for purpose in (_WHETHER, _FIRST, _SECOND, _FORM)
        )
        made = list(windows)
        for i in np.flatnonzero(whether < self.rate).tolist():
            begins = int(windows[i][0] == self.special.bos)
            room = len(windows[i]) - begins
            text = self._text(windows[i][begins : begins + max(room - 4, 0)].tolist())
            if not text:
                continue
            cuts = sorted(int(share[i] * (len(text) + 1)) for share in (first, second))
            texts = text[: cuts[0]], text[cuts[0] : cuts[1]], text[cuts[1] :]
            prefix, middle, suffix = self.codec.encode(texts, eos=False)
            new = self._joined(prefix, middle, suffix, room, bool(form[i] < self.spm_rate))
            made[i] = np.array([*windows[i][:begins], *new], windows[i].dtype)
        return made

    def _text(self, ids: list[int]) -> str | None:
        """Return the text of pieces, without parts of characters at its ends; None if it is not
        encoded as it was, so that it could not be put together again.
        """
        for a, b in _EDGES:
            text = self.codec.decode(part := ids[a : len(ids) - b])
            if self.codec.encode([text], eos=False) == [part]:
                return text
        return None

    def _joined(
        self, prefix: list[int], middle: list[int], suffix: list[int], room: int, spm: bool
    ) -> list[int]:
        """Return the parts in order: at most `room` pieces, of which a suffix loses its end and a
        prefix its beginning, as windows do.
        """
        over = len(prefix) + len(middle) + len(suffix) + 4 - room
        suffix = suffix[: max(len(suffix) - max(over, 0), 0)]
        over = len(prefix) + len(middle) + len(suffix) + 4 - room
        prefix = prefix[max(over, 0) :]
        before = self.sentinels.before_middle(prefix, suffix, spm)
        return [*before, *middle, self.special.end][:room]
