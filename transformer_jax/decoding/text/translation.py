"""The translation of a line, whole or joined from parts."""

import re
from collections.abc import Sequence
from typing import NamedTuple

from transformer_jax.decoding.text.attention import Alignments
from transformer_jax.vocabulary import EOS


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


def join(
    parts: Sequence[Translation],
    source_words: Sequence[int],
    target_words: Sequence[int],
    eos: int = EOS,
) -> Translation:
    """Join the translations of a line's parts; only the last EOS stays.

    The other arguments are the numbers of words in each part. Scores and log-probabilities add up.
    """
    ids = [token for part in parts for token in part.ids if token != eos]
    last = parts[-1].ids[-1:]
    pairs: Alignments = []
    log_probs = [part.log_prob for part in parts if part.log_prob is not None]
    source = target = 0
    for part, sources, targets in zip(parts, source_words, target_words, strict=True):
        pairs += [(source + s, target + t) for s, t in part.alignments or ()]
        source, target = source + sources, target + targets
    return Translation(
        " ".join(part.text for part in parts if part.text),
        ids + (last if last == [eos] else []),
        sum(part.score for part in parts),
        None if parts[0].alignments is None else pairs,
        sum(log_probs) if len(log_probs) == len(parts) else None,
    )
