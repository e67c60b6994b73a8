"""The translation of a line, whole or joined from parts."""

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple, Protocol, TypeVar, runtime_checkable

from transformer_jax.base.vocabulary import EOS
from transformer_jax.data.scripts import separator
from transformer_jax.decoding.text.attention import Alignments


@runtime_checkable
class _Text(Protocol):
    @property
    def text(self) -> str: ...


T = TypeVar("T", bound=_Text)


class Translation(NamedTuple):
    """One hypothesis."""

    text: str
    ids: list[int]  # pieces, with EOS if the search reached it
    score: float  # log-probability / length penalty + coverage penalty: what the search ranks by
    alignments: Alignments | None = None  # (source word, target word), if asked for
    log_prob: float | None = 0.0  # of the pieces, nats; unknown if there is a coverage penalty


def on_one_line(text: str) -> str:
    """Replace line breaks by spaces: a translation is one line."""
    return re.sub(r"[\r\n]", " ", text)


def first_of_each(found: Iterable[T]) -> Iterator[T]:
    """Yield the first hypothesis of each text, in order."""
    seen: set[str] = set()
    for item in found:
        if item.text not in seen:
            seen.add(item.text)
            yield item


def join(parts: Sequence[Translation], words_before: Sequence[int], eos: int = EOS) -> Translation:
    """Join the translations of a line's parts; only the last EOS stays.

    `words_before` is the number of words of the line before the first word of each part. Scores and
    log-probabilities add up.
    """
    ids = [token for part in parts for token in part.ids if token != eos]
    last = parts[-1].ids[-1:]
    pairs: Alignments = []
    log_probs = [part.log_prob for part in parts if part.log_prob is not None]
    text = ""
    for part, before in zip(parts, words_before, strict=True):
        if text and part.text:
            text += separator(text, part.text)
        # A part may go on with the last word of the one before it.
        written = len(f"{text}.".split()) - 1
        pairs += [(before + s, written + t) for s, t in part.alignments or ()]
        text += part.text
    return Translation(
        text,
        ids + (last if last == [eos] else []),
        sum(part.score for part in parts),
        None if parts[0].alignments is None else sorted({*pairs}),
        sum(log_probs) if len(log_probs) == len(parts) else None,
    )
