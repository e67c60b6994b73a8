"""The fields of an experiment that a resumed run may change."""

from typing import Any

from transformer_jax.config import Experiment, parts
from transformer_jax.config.allowed import Allowed, allows, declared
from transformer_jax.config.fields import declarations

# Fields, and the values between which they may change, as the manual declares them: these affect
# what is monitored, and where and how fast the run executes, but not what is learned. All other
# fields must stay the same, including those that define the score of the best checkpoint.
MAY_CHANGE: Allowed = {
    path: declared(known.may_change)
    for path, known in declarations(Experiment)
    if known.may_change is not False
}


def may_change(path: str, old: Any, new: Any) -> bool:
    """Return whether a resumed run may have a different value of a field."""
    if parts.same(old, new):  # user-defined, in a file that has moved
        return True
    return all(allows(MAY_CHANGE.get(path, ()), value) for value in (old, new))
