"""Every parameter has a role, which its own layer states."""

import ast
import dataclasses
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import flax.linen as nn
import jax
import pytest
from flax.traverse_util import unflatten_dict
from tiny import RECURRENT, UNPACKED, VARIANTS, VOCAB, boxes, make

import transformer_jax
from transformer_jax.models.build import abstract_params, build, roles_of
from transformer_jax.nn import norm
from transformer_jax.nn.initializers import named
from transformer_jax.nn.linear import Project
from transformer_jax.nn.roles import (
    HEAD,
    INWARD,
    MAP,
    OUTWARD,
    PLAIN,
    QUERY,
    TABLE,
    roles_in,
    unstated,
)  # fmt: skip

EVERY = VARIANTS | RECURRENT | UNPACKED


def calls(*names: str) -> Iterator[tuple[str, ast.Call]]:
    """Return the calls of functions or classes in layers and models, and their places."""
    root = Path(transformer_jax.__file__).parent
    for path in sorted([*root.glob("nn/**/*.py"), *root.glob("models/**/*.py")]):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and getattr(node.func, "id", None) in names:
                yield f"{path.relative_to(root)}:{node.lineno}", node


def test_every_parameter_states_its_role():
    trees = [boxes(build(config, VOCAB, VOCAB)) for config in EVERY.values()]
    assert [name for params in trees for name in unstated(params)] == []


def test_every_initialiser_states_a_role():
    """Also those of layers that no small model has."""
    found = [*calls("named")]
    assert len(found) > 40
    assert [at for at, call in found if "role" not in {word.arg for word in call.keywords}] == []


def test_every_map_states_a_role():
    """By keyword, or in its place among arguments, if some are not given as a tuple."""
    found = [*calls("Project")]
    assert len(found) > 30
    through_role = [field.name for field in dataclasses.fields(Project)].index("role") + 1
    for at, call in found:
        whole = len(call.args) >= through_role
        some = any(isinstance(given, ast.Starred) for given in call.args)
        assert whole or some or "role" in {word.arg for word in call.keywords}, at


@pytest.mark.parametrize("boxed", [True, False], ids=["no role", "no box"])
def test_a_forgotten_role_is_detected(monkeypatch, boxed):
    """Of a norm's scale, whose layer names its axes alone, or nothing."""

    def careless(init, *names, role=None):
        return named(init, *names) if boxed else init

    monkeypatch.setattr(norm, "named", careless)
    model = build(VARIANTS["llama"], VOCAB, VOCAB)
    params = abstract_params.__wrapped__(model)  # not from the cache, nor into it
    scales = [name for name in roles_in(params) if name.endswith("/scale")]
    assert unstated(params) == scales != []


@pytest.mark.parametrize(
    ("name", "role"),
    [
        ("decoder/layer_0/self_attention/query/kernel", QUERY),
        ("decoder/layer_0/self_attention/value/kernel", INWARD),
        ("decoder/layer_0/feed_forward/down/kernel", OUTWARD),
        ("decoder/layer_0/feed_forward/up/kernels", INWARD.each()),
        ("decoder/layer_0/mine/kernel", MAP),
        ("decoder/layer_0/mine/table", TABLE),
        ("decoder/layer_0/mine/decay", PLAIN),
        ("scale", PLAIN),
    ],
)
def test_a_part_of_ones_own_states_a_role_or_has_that_of_its_name(name, role):
    """So it need not know of roles; what a box states counts more."""
    path = tuple(name.split("/"))
    assert roles_in(unflatten_dict({path: 0})) == {name: role}
    box = named(nn.initializers.zeros, None, role=HEAD)(jax.random.key(0), (2,))
    assert roles_in(unflatten_dict({path: box})) == {name: HEAD}


def test_roles_are_found_without_boxes():
    """By name, as those of gradients and of optimizer state."""
    model, params = make(VARIANTS["experts"])
    roles = roles_of(model)
    assert roles.keys() == roles_in(params).keys()
    assert Counter(role.kind for role in roles.values()).keys() == {
        "map", "maps", "table", "plain", "moved",
    }  # fmt: skip
