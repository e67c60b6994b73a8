"""What a model reads of a prompt before it writes, and which models take prompts."""

import re
from collections.abc import Callable, Sequence
from itertools import chain
from typing import Any, NamedTuple

from transformer_jax.base.errors import UserError
from transformer_jax.config import DecodingConfig, ObjectiveConfig
from transformer_jax.config.choices.objectives import OBJECTIVES
from transformer_jax.config.choices.texts import FIM_PIECES
from transformer_jax.data.codecs.chat import ChatTemplate
from transformer_jax.data.codecs.codec import Codec, shortened, special_of, symbols_of
from transformer_jax.data.codecs.pair import TokenizerPair
from transformer_jax.data.conversations import messages_of, options_of
from transformer_jax.data.objectives.infilling import Sentinels


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
    # piece is not yet in the cache. None: a chat template makes it of a message.
    read: Callable[[Codec, str, ObjectiveConfig, int | None], list[int]] | None
    continued: bool  # its output continues the prompt
    shown: bool = True  # if so: and is shown after it


# By what the record of an objective says of its prompts.
PROMPTINGS = {
    "beginning": Prompting(_continued, continued=True),
    "source": Prompting(_answered, continued=False),
    "gaps": Prompting(_lost, continued=False),
    "messages": Prompting(None, continued=True, shown=False),
}
PROMPTS = {word: PROMPTINGS[of.prompt] for word, of in OBJECTIVES.items() if of.prompt}


class Reader:
    """What a model with this codec and objective reads before it writes. A source is truncated to
    `cut_at` pieces; a chat template makes a prompt of messages.
    """

    def __init__(
        self, codec: Codec, objective: ObjectiveConfig, cut_at: int | None = None,
        template: ChatTemplate | None = None,
    ) -> None:  # fmt: skip
        self.prompting = PROMPTS[objective.kind]
        self.codec, self.objective, self.cut_at = codec, objective, cut_at
        self.template = template
        self.special = TokenizerPair(codec, codec, template).special(template is not None)
        self._sentinels = Sentinels.of(codec) if self.prompting.continued else None

    def fills(self, read: Sequence[int]) -> bool:
        """Return whether what is read asks for the text between two others."""
        return self._sentinels is not None and self._sentinels.middle in read

    def read(self, prompt: str | Sequence[int]) -> list[int]:
        """Return what the model reads of a prompt: a text, or its pieces, those of a source with
        its EOS.

        Raises:
          UserError: if there are no pieces, or no such ones.
        """
        if isinstance(prompt, str):
            if self.prompting.read is None:
                return self.asked([{"role": "user", "content": prompt}])
            return self.prompting.read(self.codec, prompt, self.objective, self.cut_at)
        if not prompt:
            raise UserError("prompt: holds no pieces; give at least one")
        if min(prompt) < 0 or max(prompt) >= self.codec.size:
            raise UserError(
                f"prompt: holds pieces from {min(prompt)} to {max(prompt)}, but the model's are "
                f"0 to {self.codec.size - 1}; encode it with the model's own tokenizer"
            )
        if self.prompting.continued:
            return [*prompt]
        most = len(prompt) if self.cut_at is None else self.cut_at
        return [*shortened([*prompt], most), self.special.begin]

    def asked(
        self, messages: Any, tools: Sequence[Any] | None = None, options: Any = None
    ) -> list[int]:
        """Return what the model reads of a conversation before it answers; `options` are those of
        the chat template.

        Raises:
          UserError: if the messages are malformed, or there is no chat template.
        """
        if self.template is None:
            raise UserError(
                "messages: this model has no chat template, which would make one prompt of them; "
                "train with objective.name='chat', or write the prompt yourself"
            )
        return self.template.prompt(self.codec, messages_of(messages), tools, options_of(options))

    def gap(self, prefix: str, suffix: str) -> list[int]:
        """Return what the model reads before it writes the text between two others: the suffix
        first, if it was trained so (see `Sentinels`).

        Raises:
          UserError: if it was not trained to.
        """
        if self._sentinels is None:
            raise UserError(
                f"suffix={suffix[:40]!r}: the tokenizer has no pieces {', '.join(FIM_PIECES)}; "
                "train a language model with objective.fim_rate=0.5, or leave the suffix out"
            )
        (begins,) = self.codec.encode([""], bos=self.objective.prompts_begin, eos=False)
        before, after = self.codec.encode([prefix, suffix], eos=False)
        suffix_first = self.objective.fim_rate > 0 and self.objective.fim_spm_rate > 0
        return [*begins, *self._sentinels.before_middle(before, after, suffix_first)]


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
