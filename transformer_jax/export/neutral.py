"""Model fields that other engines and formats have no setting for, and the values they may have."""

import typing

from transformer_jax.config import ModelConfig
from transformer_jax.config.allowed import ANY, Allowed, declared
from transformer_jax.config.fields import Declaration, declarations

_TYPES = typing.get_type_hints(ModelConfig)


def _follows(name: str, known: Declaration) -> bool:
    """Return whether a field says nothing without some words of a choice, which an exporter that
    does not know them refuses; a field with words of its own is refused by them.
    """
    return bool(known.of) and not _has_words(_TYPES[name])


def _has_words(hint: typing.Any) -> bool:
    parts = typing.get_args(hint)
    return typing.get_origin(hint) is typing.Literal or any(map(_has_words, parts))


# Fields that are not part of an exported model, or have no effect without one that is: settings of
# training and execution, and sizes, which an exporter may restrict further. An exporter that
# supports another one says so in a list of its own; what is on neither must have its default.
NEUTRAL: Allowed = {
    name: declared(known.neutral) if known.neutral else ANY
    for name, known in declarations(ModelConfig)
    if known.neutral or _follows(name, known)
}
