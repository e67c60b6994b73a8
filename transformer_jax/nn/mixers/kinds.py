"""The table of mixers by their words, in the order of the manual: those of the modules beside it.

A module calls `WORDS` what its classes are in `encoder_pattern` and `decoder_pattern`;
`config/choices/mixers.py` says what is known about each word.
"""

import flax.linen as nn

from transformer_jax.config.choices import mixers
from transformer_jax.config.registry import found_in
from transformer_jax.nn import mixers as here


def found() -> dict[str, type[nn.Module]]:
    """Return {word: class} of all modules of this folder."""
    return found_in(here, besides=__name__)


_FOUND = found()
MIXERS = {word: _FOUND[word] for word in mixers.MIXERS if word in _FOUND}
