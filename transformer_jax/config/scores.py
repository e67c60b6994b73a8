"""Scores: how they are compared, and which checkpoint they are of."""

from transformer_jax.base.errors import UserError
from transformer_jax.config.bounds import STEPS

# Fields of evaluation: scores that differ in one of them cannot be compared.
PROTOCOL = ("bleu_tokenize", "lowercase")


def average_count(checkpoint: str) -> int | None:
    """Return the N of the checkpoint name "average:N", or None for best, last and a step.

    Raises:
      UserError: if the name is none of these.
    """
    head, colon, tail = checkpoint.partition(":")
    number = tail if colon else head
    short = number.isdecimal() and len(number) <= len(str(STEPS))  # longer is not a step
    if head == "average" and colon and short and int(tail) > 0:
        return int(tail)
    if checkpoint in ("best", "last") or (short and not colon):
        return None
    raise UserError(f"checkpoint={checkpoint!r}: must be best, last, a step, or average:N")
