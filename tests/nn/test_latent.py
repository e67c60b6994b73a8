"""Latent attention stores one vector per token, from which it computes what all heads do."""

import dataclasses

import jax.numpy as jnp
import numpy as np
from tiny import VARIANTS, VOCAB, Stepping, make

from transformer_jax.data.batches.batch import Side
from transformer_jax.nn.cache import KeysValues


def begun(model, params, width: int, length: int):
    """Return a stepper, and its state after a source of three pieces."""
    stepper, ones = Stepping(model, params), jnp.ones((1, 3), jnp.int32)
    side = Side(VOCAB - ones, ones, ones)
    return stepper, stepper.start(model.context(side), width=width, length=length)


def test_the_cache_holds_the_latent_and_the_rotated_key_alone():
    """6 + 4 numbers per token, where the other layer has 6 + 3 for each of its heads."""
    config = VARIANTS["latent"]
    _, state = begun(*make(config), 2, 5)
    first, second, third = state.caches
    assert all(isinstance(cache, KeysValues) for cache in (first, second, third))
    slots = 2 * 5
    sizes = [sum(x.size for x in cache) for cache in (first, second, third)]
    assert sizes == [slots * 10, slots * (6 + 3), slots * 10]
    assert config.latent_size + config.rotated_channels == 10


def test_the_rotated_key_is_the_only_part_that_depends_on_the_position():
    """The same token at two positions: its latent is stored twice, its key rotated."""
    config = dataclasses.replace(VARIANTS["latent"], positions="none")
    stepper, state = begun(*make(config), 1, 4)
    token, active = jnp.full((1, 1, 1), VOCAB - 1), jnp.ones(1, bool)
    for position in range(2):
        _, _, state = stepper.step(state, token, jnp.full((1, 1), position), active)
    keys = np.asarray(state.caches[0].keys)[0, 0]  # of the first layer, whose input is the same
    turned = config.rotated_channels
    assert np.abs(keys[:turned, 0] - keys[:turned, 1]).min() > 1e-3
    np.testing.assert_allclose(keys[turned:, 0], keys[turned:, 1], rtol=1e-6)


def test_low_rank_matrices_join_the_latent_and_the_heads():
    """Not a latent and heads on one side and their channels on the other."""
    config = dataclasses.replace(VARIANTS["latent"], lora_rank=2, lora_maps=("query", "key"))
    adapted = make(config)[1]["encoder"]["layer_0"]["self_attention"]
    shapes = [adapted[name][f"lora_{part}"].shape for name in ("query", "key") for part in "ab"]
    assert shapes == [(5, 2), (2, 2, 6), (6, 2), (2, 2, 2)]
