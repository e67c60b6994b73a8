"""Log-probabilities of tokens, in the form of OpenAI's completions.

They are the model's own, whatever the temperature, and computed from the whole text once it is
written, as `transformer-jax score` does.
"""

import time
from collections.abc import Sequence
from typing import Any

from transformer_jax.data.codecs.codec import Codec, settled, special_of
from transformer_jax.decoding.text.likelihood import Likelihood
from transformer_jax.server.model import ALTERNATIVES, Served
from transformer_jax.server.service import Service
from transformer_jax.server.texts import called

_AT_A_TIME = 8  # texts; searches continue in between
_NEARBY = 8  # pieces before one, on which its spelling may depend: a character has up to 4 bytes


def refusal(model: Served, asked: int) -> str | None:
    """Return why a model cannot give this many log-probabilities for each token, if so."""
    if not model.gives_log_probs:
        return ": this model gives none; leave it out"
    if not 0 <= asked <= ALTERNATIVES:
        return f"={asked}: must be between 0 and {ALTERNATIVES}"
    return None


async def likelihoods(
    service: Service, model: Served, sequences: Sequence[Sequence[int]], seconds: float
) -> list[Likelihood]:
    """Return what a model gives for sequences of tokens.

    Raises:
      Refusal: if that takes too long.
    """
    last, results = time.monotonic() + seconds, list[Likelihood]()
    for start in range(0, len(sequences), _AT_A_TIME):
        call = _scoring(model, sequences[start : start + _AT_A_TIME])
        results += await called(service.worker, call, max(last - time.monotonic(), 0), goes_on=True)
    return results


def _scoring(model: Served, sequences: Sequence[Sequence[int]]) -> Any:
    return lambda: model.likelihoods(sequences)


def rows(
    codec: Codec, ids: Sequence[int], said: Likelihood, first: int, best: int,
    offset: int = 0, as_ids: bool = False,
) -> tuple[dict[str, list[Any]], int]:  # fmt: skip
    """Return the log-probabilities of a text's tokens from the one numbered `first` on, each with
    the `best` most probable ones in its place and itself, and where the next token begins. The
    first token of all, which is not predicted, has none.

    A token is spelled as what it adds to the text; as its piece, such as </s> or <0xE2>, if that is
    nothing, or what a more probable one adds. `offset` is where the first begins in the text that
    is shown. `as_ids`: as token_id:N.
    """
    columns: dict[str, list[Any]] = {
        "tokens": [], "token_logprobs": [], "top_logprobs": [], "text_offset": []
    }  # fmt: skip
    for place in range(first, len(ids)):
        before, piece = ids[max(place - _NEARBY, 0) : place], ids[place]
        added = _added(codec, before, piece)
        name, log_prob, top = _named(codec, piece, added, as_ids), None, None
        if place > 0:
            log_prob = float(said.log_probs[place - 1])
            likely = said.best[place - 1, :best], said.best_log_probs[place - 1, :best]
            top = {name: log_prob}
            for other, value in zip(*(array.tolist() for array in likely), strict=True):
                spelled = _named(codec, other, _added(codec, before, other), as_ids)
                if other != piece:
                    top[_named(codec, other, "", as_ids) if spelled in top else spelled] = value
            top = dict(sorted(top.items(), key=lambda pair: -pair[1]))
        for column, value in zip(columns.values(), (name, log_prob, top, offset), strict=True):
            column.append(value)
        offset += len(added)
    return columns, offset


def _added(codec: Codec, before: Sequence[int], piece: int) -> str:
    """Return what a piece adds to the text of those before it."""
    eos = special_of(codec).eos
    known = [i for i in before if i != eos]
    if piece == eos:
        return ""
    text, whole = settled(codec, known), settled(codec, [*known, piece])
    return whole[len(text) :] if whole.startswith(text) else ""


def _named(codec: Codec, piece: int, added: str, as_ids: bool) -> str:
    return f"token_id:{piece}" if as_ids else added or codec.pieces([piece])[0]
