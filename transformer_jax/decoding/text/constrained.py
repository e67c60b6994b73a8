"""Checks of lines whose output must satisfy a constraint."""

from transformer_jax.base.errors import UserError
from transformer_jax.config import DecodingConfig
from transformer_jax.decoding.batching.stream import Sentence
from transformer_jax.decoding.search.state import Constraint


def check_whole(config: DecodingConfig, number: int, length: int, longest: int) -> None:
    """Check that a line too long for the model may be translated in parts.

    Raises:
      UserError: if the output must be whole.
    """
    if config.constraint != "none":
        raise UserError(
            f"line {number}: {length} pieces, at most {longest} allowed, and output with "
            f"decoding.constraint={config.constraint!r} cannot be in parts; shorten it"
        )


def check_room(
    config: DecodingConfig, constraint: Constraint | None, number: int, sentence: Sentence
) -> None:
    """Check that there is room for an output that satisfies the constraint.

    Raises:
      UserError: if there is not, or a prefix is given.
    """
    if constraint is None:
        return
    name = f"line {number}: decoding.constraint={config.constraint!r}"
    least = constraint.fewest(sentence.words)
    if sentence.limit < least:
        raise UserError(
            f"{name} needs {least} pieces for {sentence.words} words, and decoding."
            f"max_length_ratio={config.max_length_ratio} with max_extra_length="
            f"{config.max_extra_length} leaves {sentence.limit}; raise them"
        )
    if sentence.prefix:
        raise UserError(f"{name}: such an output cannot begin with a prefix; give none")
