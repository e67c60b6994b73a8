"""Relative position schemes of self-attention. A scheme's `look` sets any of three on a view:

    rotate   a rotation of queries and keys
    bias     a term added to scores
    values   a term added to the weighted sum of values

It runs once for all layers of a stack, or in each layer with that layer's own tables.
"""

from typing import Literal

from transformer_jax.config import ModelConfig
from transformer_jax.config.registry import pick
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
    """Return the scheme for a whole stack or for each of its layers: no scheme for whichever of the
    two does not apply it.
    """
    scheme = pick(RELATIVE_POSITIONS, config.relative_positions, "config.model.relative_positions")
    shared = config.share_relative_positions
    shared = scheme.shared if shared is None else shared
    return (scheme if shared == (place == "stack") else NoRelativePositions)(config)
