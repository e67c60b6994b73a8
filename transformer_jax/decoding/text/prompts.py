"""What a model reads of a prompt before it writes, and which models take prompts."""

import re
from collections.abc import Callable
from itertools import chain
from typing import NamedTuple

from transformer_jax.base.errors import UserError
from transformer_jax.config import DecodingConfig, ObjectiveConfig
from transformer_jax.config.choices.objectives import FIM_PIECES, OBJECTIVES
from transformer_jax.data.codecs.codec import Codec, shortened, special_of, symbols_of


def _continued(
    codec: Codec, prompt: str, objective: ObjectiveConfig, most: int | None
) -> list[int]:
    """Return what a language model reads: the beginning of a document, or of a part of one."""
    (ids,) = codec.encode([prompt], bos=objective.prompts_begin, eos=False)
    return ids or [_first(codec)]


def _first(codec: Codec) -> int:
    """Return what is read where there is no prompt."""
    bos = special_of(codec).bos
    if bos is None:
        raise UserError(
            "prompt: is empty, and the tokenizer has no BOS to begin a text with; give at least "
            "one character"
        )
    return bos


def _answered(codec: Codec, prompt: str, objective: ObjectiveConfig, most: int | None) -> list[int]:
    """Return what is read of a source, with its EOS, and the piece that a target begins with."""
    (ids,) = codec.encode([prompt])
    return [*(ids if most is None else shortened(ids, most)), special_of(codec).begin]


def _lost(codec: Codec, prompt: str, objective: ObjectiveConfig, most: int | None) -> list[int]:
    """Return what is read of a text with placeholders for its missing spans, <extra_id_0> or
    <mask>. As in training, nothing of a span is left: its first piece has the space before it.
    """
    named = {name: codec.piece_id(name) for name in symbols_of(codec.special)}
    (ids,) = codec.encode([prompt])
    if {*ids} & {*named.values()}:  # SentencePiece's, which knows these names
        alone = [piece == "▁" for piece in codec.pieces(ids)]
        marks = [piece in named.values() for piece in (*ids[1:], ids[-1])]
        ids = [x for x, *left in zip(ids, alone, marks, strict=True) if not all(left)]
    elif named:
        parts = re.split(f"({'|'.join(map(re.escape, named))})", prompt)
        texts = codec.encode(parts, eos=False)
        known = ([named[x]] if x in named else y for x, y in zip(parts, texts, strict=True))
        ids = [*chain(*known), ids[-1]]
    return [*ids, special_of(codec).begin]


class Prompting(NamedTuple):
    """How a model is prompted."""

    # What it reads before it writes; of a source, at most the given number of pieces. The last
    # piece is not yet in the cache.
    read: Callable[[Codec, str, ObjectiveConfig, int | None], list[int]]
    continued: bool  # its output continues the prompt, and is shown after it


# By what the record of an objective says of its prompts.
PROMPTINGS = {
    "beginning": Prompting(_continued, continued=True),
    "source": Prompting(_answered, continued=False),
    "gaps": Prompting(_lost, continued=False),
}
PROMPTS = {word: PROMPTINGS[of.prompt] for word, of in OBJECTIVES.items() if of.prompt}


def forbidden(codec: Codec, objective: ObjectiveConfig, config: DecodingConfig) -> list[int]:
    """Return the pieces that no text contains, besides padding and BOS, which no search writes."""
    ids = [codec.piece_id(piece) for piece in config.forbidden]
    prompting = PROMPTS.get(objective.kind)
    if objective.fim_rate:  # then EOS ends the middle of a text
        return [*ids, *map(codec.piece_id, FIM_PIECES)]
    if objective.document == "file" and prompting and prompting.continued:  # trained without EOS
        ids.append(special_of(codec).end)
    return ids


def check_prompts(objective: ObjectiveConfig, config: DecodingConfig) -> None:
    """Check that a model of this objective takes prompts, with these settings.

    Raises:
      UserError: if it does not, or a setting is one for translation.
    """
    translates = objective.record.searches
    if objective.kind not in PROMPTS:
        raise UserError(
            f"config.objective.name={objective.name!r}: such a model does not continue a "
            + ("prompt; to translate with it, use translate" if translates else "prompt")
        )
    for name, off in (("rerank", "none"), ("coverage_penalty", 0.0), ("constraint", "none"),
                      ("shortlist", 0)):  # fmt: skip
        value = getattr(config, name)
        if value != off:
            raise UserError(
                f"config.decoding.{name}={value!r}: is for translations; set it to {off!r} to "
                "generate text"
            )
