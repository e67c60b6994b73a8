"""Axes of a sweep: their syntax, and the points they produce."""

import math

import numpy as np
import pytest

from transformer_jax.base.errors import UserError
from transformer_jax.sweeps.grid import draw, grid, read_axis


def values(text: str) -> tuple[str, ...]:
    return read_axis(text).values


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("model.d_ff=256,512", ("256", "512")),
        ("model.d_ff=256", ("256",)),
        ("seed= 1 , 2", ("1", "2")),
        ("model.head_dim=None,4", ("None", "4")),
        ("model.residual=pre_norm,post_norm", ("pre_norm", "post_norm")),
        ("data.train=(a,b),(c,),[d,e]", ("(a,b)", "(c,)", "[d,e]")),
        ("data.how_to_get='x, y',\"z (\",w", ("x, y", "z (", "w")),
        ("data.how_to_get=it's, 'fine, too'", ("it's", "fine, too")),
        ("data.how_to_get=a=b", ("a=b",)),
        ("data.name=", ("",)),
        ("model.dropout_rate=linspace(0,0.3,4)", ("0", "0.1", "0.2", "0.3")),
        ("model.d_ff=linspace(64,256,4)", ("64", "128", "192", "256")),
        ("optimizer.learning_rate=geomspace(1e-4,1e-2,3)", ("0.0001", "0.001", "0.01")),
        ("training.early_stopping=geomspace(1,8,4)", ("1", "2", "4", "8")),
        ("model.num_heads=linspace(1,2,5)", ("1", "2")),  # whole numbers, each once
    ],
)
def test_values_of_an_axis(text, expected):
    assert values(text) == expected


@pytest.mark.parametrize("name", ["linspace", "geomspace"])
def test_linspace_and_geomspace_match_numpy(name):
    expected = getattr(np, name)(0.003, 0.7, 9)
    found = values(f"optimizer.learning_rate={name}(0.003,0.7,9)")
    assert [float(x) for x in found] == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("model.d_ff", "--grid=model.d_ff: must be FIELD=VALUES, for example model.d_ff=256,512"),
        ("model.d_fff=1", "config.model.d_fff: unknown field (did you mean 'model.d_ff'?)"),
        ("model=1", "config.model: is a group of fields; set one of ["),
        ("seed=linspace(1,2)", "--grid=seed=linspace(1,2): must be linspace(LOW,HIGH,COUNT), in"),
        (
            "seed=uniform(1,2,3)",
            "--grid=seed=uniform(1,2,3): must be uniform(LOW,HIGH), in numbers",
        ),
        ("seed=uniform(a,2)", "--grid=seed=uniform(a,2): must be uniform(LOW,HIGH), in numbers"),
        ("seed=uniform(2,1)", "--grid=seed=uniform(2,1): uniform(LOW,HIGH) needs LOW < HIGH"),
        ("seed=uniform(nan,1)", "--grid=seed=uniform(nan,1): uniform(LOW,HIGH) needs LOW < HIGH"),
        ("seed=loguniform(0,1)", "--grid=seed=loguniform(0,1): loguniform(LOW,HIGH) needs 0 < LOW"),
        ("seed=linspace(1,2,1)", "--grid=seed=linspace(1,2,1): COUNT=1: must be at least 2"),
    ],
)
def test_invalid_axes_are_rejected(text, message):
    with pytest.raises(UserError) as caught:
        read_axis(text)
    assert str(caught.value).startswith(message)


def test_a_grid_is_every_combination():
    axes = [read_axis("model.d_ff=1,2"), read_axis("seed=3,4,5")]
    points = [(settings["model.d_ff"], settings["seed"]) for settings in grid(axes)]
    assert points == [(a, b) for a in "12" for b in "345"]
    assert grid([]) == [{}]


def test_distributions_are_rejected_without_random():
    with pytest.raises(UserError, match=r"--grid=model\.dropout_rate: .*; add --random=N"):
        grid([read_axis("model.dropout_rate=uniform(0,0.5)")])


@pytest.mark.parametrize("combine", [grid, lambda axes: draw(axes, 1, 0)])
def test_two_axes_of_one_field_are_rejected(combine):
    with pytest.raises(UserError, match="--grid=seed: given twice"):
        combine([read_axis("seed=1"), read_axis("seed=2")])


AXES = [read_axis("optimizer.learning_rate=loguniform(1e-4,1e-2)"),
        read_axis("model.dropout_rate=uniform(0.1,0.3)"),
        read_axis("model.d_ff=loguniform(16,1024)"), read_axis("model.norm=a,b,c")]  # fmt: skip


def test_more_random_points_extend_fewer():
    assert draw(AXES, 20, seed=1)[:5] == draw(AXES, 5, seed=1)
    assert draw(AXES, 5, seed=1) != draw(AXES, 5, seed=2)


def test_random_points_fill_their_ranges_evenly():
    """Half of a uniform draw is below the midpoint; of a log-uniform one, the geometric mean."""
    points = draw(AXES, 400, seed=0)
    for path, low, high, middle in (
        ("optimizer.learning_rate", 1e-4, 1e-2, 1e-3),
        ("model.dropout_rate", 0.1, 0.3, 0.2),
        ("model.d_ff", 16, 1024, 128),
    ):
        drawn = [float(settings[path]) for settings in points]
        assert low <= min(drawn) < max(drawn) <= high
        assert abs(sum(x < middle for x in drawn) - 200) < 4 * math.sqrt(100)  # 4 sigma
    assert {settings["model.norm"] for settings in points} == {"a", "b", "c"}
    assert all(settings["model.d_ff"].isdecimal() for settings in points)


def test_random_points_are_distinct():
    axes = [read_axis("seed=1,2"), read_axis("model.d_ff=3,4")]
    points = draw(axes, 4, seed=0)
    assert sorted(map(tuple, (p.values() for p in points))) == [
        ("1", "3"), ("1", "4"), ("2", "3"), ("2", "4")
    ]  # fmt: skip
    with pytest.raises(UserError, match="--random=5: the axes hold only 4 different points"):
        draw(axes, 5, seed=0)
