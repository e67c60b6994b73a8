"""What self-attention knows of distances. A scheme looks at a view and gives it any of three:

    rotate   what is done to queries and keys
    bias     what is added to scores
    values   what is added to what weights gather

It looks once for all layers of a stack, or in each layer for that one, with tables of its own.
"""

from typing import Literal

from transformer_jax.choices import pick
from transformer_jax.config import ModelConfig
from transformer_jax.nn.relative_fixed import Alibi, NoRelativePositions, Rope, RopeInterleaved
from transformer_jax.nn.relative_trained import T5, Shaw, ShawValues, Toeplitz, XLNet

RELATIVE_POSITIONS = {
    "none": NoRelativePositions,
    "rope": Rope,
    "rope_interleaved": RopeInterleaved,
    "alibi": Alibi,
    "t5": T5,
    "shaw": Shaw,
    "shaw_values": ShawValues,
    "toeplitz": Toeplitz,
    "xlnet": XLNet,
}


def scheme_of(place: Literal["stack", "layer"], config: ModelConfig) -> NoRelativePositions:
    """Return the scheme that looks for a whole stack, or in each of its layers: none where the
    other does.
    """
    scheme = pick(RELATIVE_POSITIONS, config.relative_positions, "config.model.relative_positions")
    shared = config.share_relative_positions
    shared = scheme.shared if shared is None else shared
    return (scheme if shared == (place == "stack") else NoRelativePositions)(config)
