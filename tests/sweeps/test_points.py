"""Points of a sweep: overrides of every type, names and work directories."""

import fcntl

import pytest

from transformer_jax.base.errors import UserError
from transformer_jax.cli.arguments import Parser, load_config
from transformer_jax.config import Experiment
from transformer_jax.config.convert import differences, parse, to_json
from transformer_jax.sweeps.grid import grid, read_axis
from transformer_jax.sweeps.points import make_points, shown, value_at


def load(config, overrides) -> Experiment:
    return parse(load_config(config, overrides))


@pytest.fixture
def config(tmp_path) -> str:
    path = tmp_path / "mine.py"
    path.write_text(
        "from transformer_jax.config import Experiment\n"
        "from transformer_jax.config.convert import door\n\n\n"
        "def get_config(variant='plain'):\n"
        "    c = door(Experiment())\n"
        "    c.data.name = variant\n"
        "    return c\n"
    )
    return str(path)


def make(config, tmp_path, *axes, variants=("",), fixed=()):
    settings = grid([read_axis(axis) for axis in axes])
    return make_points(config, variants, fixed, settings, tmp_path / "sweep", load)


# Every type of field in config.py, as it is written and as it must arrive.
EVERY_TYPE = [
    ("model.d_ff=256,512", [256, 512]),  # a whole number
    ("optimizer.learning_rate=5e-2,2", [0.05, 2.0]),  # a number
    ("tokenizer.byte_fallback=True,false", [True, False]),
    ("data.name=x,'y, z','it''s'", ["x", "y, z", "it''s"]),  # text, also with commas
    ("model.residual=pre_norm,post_norm", ["pre_norm", "post_norm"]),  # a choice
    ("model.head_dim=None,32", [None, 32]),
    ("optimizer.clip_norm=none,0.5", [None, 0.5]),
    ("data.directory=None,/a b/c", [None, "/a b/c"]),
    ("data.train=train,(train,more),(),[x]", None),  # () names nothing to train on
    ("data.validation=val,(a,b),()", [("val",), ("a", "b"), ()]),
    ("data.num_examples=(9,2,2),(8,1,1)", [(9, 2, 2), (8, 1, 1)]),
    ("seed=1,4294967295", [1, 4294967295]),  # not in a group
]


@pytest.mark.parametrize(("axis", "expected"), EVERY_TYPE, ids=lambda x: str(x)[:20])
def test_overrides_of_every_type_reach_the_training_program(axis, expected, config, tmp_path):
    """It parses a point's arguments as the point's experiment."""
    path = axis.partition("=")[0]
    if expected is None:
        with pytest.raises(UserError, match=r"train=\(\): names no part to train on"):
            make(config, tmp_path, axis)
        return
    points = make(config, tmp_path, axis)
    assert [value_at(point.experiment, path) for point in points] == expected
    for point in points:
        parser = Parser("train")
        parser.add_argument("--config")
        parser.add_argument("--workdir")
        known, overrides = parser.read(point.train_command()[3:])
        assert load(known.config, overrides) == point.experiment
        assert known.workdir == str(point.workdir.path)
        assert set(differences(load(config, []), point.experiment)) <= {path}


def test_names_list_the_variant_and_its_settings(config, tmp_path):
    points = make(config, tmp_path, "model.d_ff=256,512", "optimizer.learning_rate=5e-2")
    assert [point.name for point in points] == [
        "model.d_ff=256,optimizer.learning_rate=0.05",
        "model.d_ff=512,optimizer.learning_rate=0.05",
    ]
    points = make(config, tmp_path, "seed=1", variants=("plain", "other"))
    assert [point.name for point in points] == ["plain,seed=1", "other,seed=1"]
    assert [point.experiment.data.name for point in points] == ["plain", "other"]
    assert points[1].arguments[0] == f"--config={config}:other"


def test_names_are_safe_in_paths_and_distinct(config, tmp_path):
    texts = ["a/b", "a b", "a_b", "../x", "y" * 500, "y" * 501]
    points = make(config, tmp_path, "data.name=" + ",".join(texts))
    names = {point.name for point in points}
    assert len(names) == len(texts)
    assert all(len(name) < 140 and not set(name) & set("/ ") for name in names)
    assert all(point.workdir.path.parent == tmp_path / "sweep" for point in points)


def test_fixed_overrides_apply_to_all_points(config, tmp_path):
    points = make(config, tmp_path, "seed=1,2", fixed=[("model.d_ff", "99")])
    assert [point.experiment.model.d_ff for point in points] == [99, 99]


@pytest.mark.parametrize(
    ("axes", "fixed", "message"),
    [
        (["model.d_ff=8,x"], [], "config.model.d_ff='x': must be a whole number"),
        (["model.residual=pre_norm,post"], [], "config.model.residual='post': must be one of"),
        (["seed=1,1.5"], [], "config.seed='1.5': must be a whole number"),
        # Each value is valid, but not with every value of the other axis.
        (["model.d_model=512,500", "model.num_heads=8,10"], [],
         "config.model.d_model=512 is not a multiple of num_heads=10"),
        (["evaluation.every_steps=1000,1500"], [],
         "config.evaluation.every_steps=1500 is not a multiple of checkpoint.every_steps=1000"),
        (["seed=1"], [("seed", "2")], "config.seed: is both fixed and swept; leave one out"),
        (["seed=1,01"], [], "two points of the sweep are the same: seed=1"),
    ],
)  # fmt: skip
def test_one_invalid_point_rejects_the_sweep(axes, fixed, message, config, tmp_path):
    with pytest.raises(UserError) as caught:
        make(config, tmp_path, *axes, fixed=fixed)
    assert str(caught.value).startswith(message)
    assert not (tmp_path / "sweep").exists()


def test_a_directory_with_another_experiment_is_rejected(config, tmp_path):
    (point,) = make(config, tmp_path, "seed=1")
    point.workdir.path.mkdir(parents=True)
    point.workdir.config.write_text(to_json(Experiment(seed=2)))
    with pytest.raises(UserError, match=r"holds another experiment; .*seed: 2 -> 1"):
        make(config, tmp_path, "seed=1")


def test_a_point_is_busy_while_its_trainer_runs(config, tmp_path):
    (point,) = make(config, tmp_path, "seed=1")
    assert not point.busy()
    with point.workdir.claim(point.experiment):
        assert point.busy()
        assert point.belongs()
    assert not point.busy()
    with open(point.workdir.path / ".lock", "w") as lock:
        assert not point.busy()
        fcntl.flock(lock, fcntl.LOCK_EX)  # checking did not keep the lock


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, "None"), (0.001, "0.001"), (("a", "b"), "a+b"), ((), ""), (True, "True"), ("x", "x")],
)
def test_shown_values(value, text):
    assert shown(value) == text
