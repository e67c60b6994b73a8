"""Model fields that other engines and formats have no setting for, and the values they may have."""

import typing
from typing import Any

from transformer_jax.allowed import ANY, Allowed, Anything, declared
from transformer_jax.config import ModelConfig
from transformer_jax.config.fields import Declaration, declarations

_TYPES = typing.get_type_hints(ModelConfig)


def _expressed_by_its_word(name: str, known: Declaration) -> tuple[Any, ...] | Anything:
    """Return the values of a field that belongs to some words of a choice: any, as an exporter that
    does not know these refuses the words; but of a field that has words of its own, none.
    """
    worded = typing.get_origin(_TYPES[name]) is typing.Literal
    return () if worded else ANY


# Fields that are not part of an exported model, or have no effect without one that is: settings of
# training and execution, and sizes, which an exporter may restrict further. An exporter that
# supports another one says so in a list of its own; what is on neither must have its default.
NEUTRAL: Allowed = {
    name: declared(known.neutral) or _expressed_by_its_word(name, known)
    for name, known in declarations(ModelConfig)
    if known.neutral is not False or known.of
}
