"""Functions and dataclasses of layers check their shapes and types, in these tests alone."""

import jax
import jax.numpy as jnp
import pytest
from beartype.roar import BeartypeCallHintViolation
from jaxtyping import TypeCheckError

from transformer_jax.nn import norm
from transformer_jax.nn.view import cross_view


def test_named_sizes_are_those_of_one_call():
    """They agree among its arguments, and are others in the next."""
    one, two = jnp.ones((2, 3), jnp.int32), jnp.ones((4, 5), jnp.int32)
    cross_view(one, one, one, one)
    cross_view(two, two, two, two)
    with pytest.raises(BeartypeCallHintViolation, match="q_seg"):
        cross_view(one, two, one, one)
    with pytest.raises(BeartypeCallHintViolation, match="q_pos"):
        cross_view(1.0 * one, one, one, one)


def test_results_have_the_sizes_of_arguments(monkeypatch):
    monkeypatch.setattr(norm, "normalised", lambda x, *_: x[:, :1])
    layer, x = norm.LayerNorm(1e-6), jnp.ones((2, 3, 4))
    with pytest.raises(BeartypeCallHintViolation, match="return"):
        layer.init(jax.random.key(0), x)


def test_fields_of_layers_have_their_types():
    with pytest.raises(TypeCheckError, match="epsilon"):
        norm.LayerNorm(epsilon="small")
