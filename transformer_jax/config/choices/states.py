"""Checks of the sizes of layers with states, for their records in `mixers.py`."""

from typing import Any

from transformer_jax.config.bounds import ELEMENTS, check


def check_inner_heads(model: Any, pattern: str) -> None:
    has, width, heads = f"{pattern}={getattr(model, pattern)}", model.inner_width, model.inner_heads
    check(
        width % heads == 0,
        f"state_width={width}: is not a multiple of state_heads={heads} of {has}; choose another",
    )
    groups = model.state_groups or heads
    check(
        heads % groups == 0,
        f"state_groups={groups}: must divide state_heads={heads} of {has}; choose another",
    )
    for name, size in (("state_width", width), ("state_size", groups * model.state_size)):
        check(
            model.d_model * size <= ELEMENTS,
            f"{name}={getattr(model, name)}: {has} has a matrix of d_model={model.d_model} x "
            f"{size}, more than {ELEMENTS} elements; lower it",
        )


def check_pairs(model: Any, pattern: str) -> None:
    check(
        model.state_size % 2 == 0,
        f"state_size={model.state_size}: {pattern}={getattr(model, pattern)} has pairs of numbers "
        "in a state; choose an even number",
    )


def check_retention(model: Any, pattern: str) -> None:
    check_inner_heads(model, pattern)
    check_pairs(model, pattern)


def check_channels_with_states(model: Any, pattern: str) -> None:
    has = f"{pattern}={getattr(model, pattern)}"
    for name, size in (("state_width", model.d_model), ("state_size", model.state_size)):
        check(
            model.inner_width * size <= ELEMENTS,
            f"{name}={getattr(model, name)}: {has} has a matrix of {model.inner_width} x {size}, "
            f"more than {ELEMENTS} elements; lower it",
        )


def check_width(model: Any, pattern: str) -> None:
    check(
        model.d_model % model.inner_heads == 0,
        f"state_heads={model.inner_heads}: must divide d_model={model.d_model}, the channels of "
        f"{pattern}={getattr(model, pattern)}; choose another",
    )


def check_values(model: Any, pattern: str) -> None:
    width, heads, d_model = model.inner_width, model.num_heads, model.d_model
    check(
        width % heads == 0,
        f"state_width={width}: is not a multiple of num_heads={heads} of "
        f"{pattern}={getattr(model, pattern)}; choose another",
    )
    check(
        d_model * width <= ELEMENTS,
        f"state_width={model.state_width}: a matrix of d_model={d_model} x {width} has more than "
        f"{ELEMENTS} elements; lower it",
    )


def check_both_ends(model: Any, pattern: str) -> None:
    check(
        model.d_model % 2 == 0,
        f"d_model={model.d_model}: {pattern}={getattr(model, pattern)} has a state of half that "
        "size for each direction; choose an even d_model",
    )
