"""What the answers of a chat model earn: by a rule, a function of one's own or a reward model."""

import hashlib
import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

from transformer_jax.api.load import load
from transformer_jax.base.errors import UserError
from transformer_jax.config import ObjectiveConfig
from transformer_jax.data.conversations import Conversation, asked_in
from transformer_jax.data.rewards import reward_named
from transformer_jax.decoding.text.generate import Generator
from transformer_jax.decoding.text.rewards import rewards
from transformer_jax.runs.workdir import run_and_checkpoint

# Of the messages of each conversation before an answer, the answers, and those wanted: what they
# earn.
Judge = Callable[[Sequence[Conversation], Sequence[str], Sequence[str]], np.ndarray]


def judge_of(config: ObjectiveConfig) -> tuple[Judge, dict[str, str]]:
    """Return what says what answers earn, and the digest of its model, if it has one.

    Raises:
      UserError: if there is no such reward, or `reward_model` is none.
    """
    if config.reward_model is not None:
        return _by_model(config.reward_model)
    reward = reward_named(config.reward)

    def judge(
        talks: Sequence[Conversation], said: Sequence[str], wanted: Sequence[str]
    ) -> np.ndarray:
        earned = []
        for talk, text, right in zip(talks, said, wanted, strict=True):
            number: Any = reward(talk.messages, text, right)
            if not isinstance(number, int | float | np.number) or not math.isfinite(number):
                raise UserError(
                    f"config.objective.reward={config.reward!r}: returns {number!r:.40} for the "
                    f"answer {text!r:.60}; return a finite number"
                )
            earned.append(float(number))
        return np.array(earned)

    return judge, {}


def _by_model(place: str) -> tuple[Judge, dict[str, str]]:
    path, checkpoint = run_and_checkpoint(place)
    try:
        loaded = load(path, checkpoint).loaded
        rewards(loaded, [])
    except UserError as error:
        raise UserError(f"config.objective.reward_model={place!r}: {error}") from None

    def judge(
        talks: Sequence[Conversation], said: Sequence[str], wanted: Sequence[str]
    ) -> np.ndarray:
        return rewards(
            loaded,
            [
                talk._replace(messages=[*talk.messages, {"role": "assistant", "content": text}])
                for talk, text in zip(talks, said, strict=True)
            ],
        )

    return judge, {"reward_model": digest_of(loaded.params)}


def digest_of(params: Any) -> str:
    """Return a digest of parameters."""
    digest = hashlib.blake2b(digest_size=16)
    for leaf in jax.tree.leaves(params):
        digest.update(np.ascontiguousarray(leaf).tobytes())
    return digest.hexdigest()


def earned(
    generator: Generator, params: Any, texts: Sequence[str], most: int, judge: Judge
) -> np.ndarray:
    """Return what the answers of at most `most` pieces earn [n] that a generator writes in place of
    the last ones of conversations, JSON texts.
    """
    talks, wanted = zip(*map(asked_in, texts), strict=True)
    read = [generator.reader.asked(*talk) for talk in talks]
    said = [texts[0].text for texts in generator.generate(params, read, most)]
    return judge(talks, said, wanted)
