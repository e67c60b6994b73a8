"""Pairs of answers as pieces, with what is known of them."""

from collections.abc import Sequence

import numpy as np

from transformer_jax.data.codecs.chat import ChatTemplate
from transformer_jax.data.codecs.codec import Codec
from transformer_jax.data.conversations import Compared

KNOWN = 4  # numbers before the pieces of a pair; see `encoded`


def encoded(template: ChatTemplate, codec: Codec, texts: Sequence[str]) -> list[list[int]]:
    """Return pairs of conversations: KNOWN numbers and the pieces of both, see
    `ChatTemplate.encode`, of which only the last answers are predicted. The numbers are how many
    pieces the first has; the bits of the log-probabilities of both answers under the reference, as
    float32, NaN if they are not known; and -1 if the first answer is not desirable, else 1.
    """
    pairs = [Compared.of(text) for text in texts]
    talks = template.encoded(codec, [talk for pair in pairs for talk in pair[:2]])
    known = [pair.reference or (np.nan, np.nan) for pair in pairs]
    bits = np.array(known, np.float32).view(np.int32).tolist()
    rows = []
    for place, (pair, both) in enumerate(zip(pairs, bits, strict=True)):
        one, other = (last_answer(ids) for ids in talks[2 * place : 2 * place + 2])
        rows.append([len(one), *both, -1 if pair.desirable is False else 1, *one, *other])
    return rows


def last_answer(ids: Sequence[int]) -> list[int]:
    """Return a conversation of which only the last answer is predicted, and nothing follows it."""
    end = max((n for n, piece in enumerate(ids, 1) if piece < 0), default=0)
    begin = end
    while begin and ids[begin - 1] < 0:
        begin -= 1
    return [*(~piece if piece < 0 else piece for piece in ids[:begin]), *ids[begin:end]]
