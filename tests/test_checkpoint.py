"""Which checkpoints are kept, what their names resolve to, and exact restoring from disk."""

import math
import sys
import time

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

from transformer_jax.base.disk import DiskError
from transformer_jax.base.errors import UserError
from transformer_jax.config import CheckpointConfig
from transformer_jax.runs.checkpoint import Checkpoints

SCORES = [10.0, 30.0, 20.0, None, 5.0, 25.0]  # of steps 1 to 6; step 4 had no validation


def params(step: int) -> dict:
    generator = np.random.default_rng(step)
    w = generator.normal(size=(8, 16)).astype(np.float32)
    return {"layer": {"w": jnp.asarray(w), "b": jnp.full((3,), step, jnp.float32)}}


def training(step: int) -> dict:
    return {"step": jnp.asarray(step, jnp.int32), "moments": params(100 + step)["layer"]}


def like(tree):
    return jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=x.sharding), tree)


def same(one, other) -> None:
    assert jax.tree.structure(one) == jax.tree.structure(other)
    for x, y in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        assert x.dtype == y.dtype
        np.testing.assert_array_equal(x, y)


def fill(directory, scores, **config) -> Checkpoints:
    checkpoints = Checkpoints(directory, CheckpointConfig(**config))
    for step, score in enumerate(scores, 1):
        found = None if score is None else {"bleu": score, "loss": -score / 10}
        host = {"step": step, "best": score, "window": {"loss": 0.1 + 0.2}}
        checkpoints.save(step, params(step), training(step), host, found)
    checkpoints.wait()
    return checkpoints


@pytest.fixture(scope="module")
def six(tmp_path_factory):
    """Six checkpoints, all kept; read-only."""
    checkpoints = fill(tmp_path_factory.mktemp("six") / "checkpoints", SCORES, keep_last=6)
    yield checkpoints
    checkpoints.close()


def refusal(call, *arguments) -> str:
    with pytest.raises(UserError) as caught:
        call(*arguments)
    assert "\n" not in str(caught.value)
    return str(caught.value)


# --- which are kept -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("scores", "keep_last", "kept"),
    [
        (SCORES, 2, [2, 5, 6]),  # the last two, and the best
        ([10.0, 20.0, 30.0], 2, [2, 3]),  # the best is among the last
        ([30.0, 20.0, 10.0], 1, [1, 3]),
        ([None, None, None], 2, [2, 3]),
    ],
)
def test_the_last_and_the_best_are_kept(tmp_path, scores, keep_last, kept):
    checkpoints = fill(tmp_path, scores, keep_last=keep_last)
    assert checkpoints.steps() == kept
    checkpoints.close()
    again = Checkpoints(tmp_path, CheckpointConfig(keep_last=keep_last))
    assert again.steps() == kept
    assert [again.record(step)["scores"] for step in kept] == [
        None if scores[step - 1] is None
        else {"bleu": scores[step - 1], "loss": -scores[step - 1] / 10}
        for step in kept
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("best_by", "last", "best"),
    [("bleu", 2.0, 2), ("bleu", 1.5, 4), ("bleu", math.nan, 2), ("loss", 2.0, 3), ("loss", 1.0, 3)],
)
def test_the_best_has_the_highest_bleu_or_the_lowest_loss(tmp_path, best_by, last, best):
    """Ties go to the lowest loss, then to the first, as in the table of a sweep."""
    checkpoints = Checkpoints(tmp_path, CheckpointConfig(keep_last=1, best_by=best_by))
    for step, (bleu, loss) in enumerate(((10.0, 3.0), (30.0, 2.0), (20.0, 1.0), (30.0, last)), 1):
        checkpoints.save(step, params(step), training(step), {}, {"bleu": bleu, "loss": loss})
    checkpoints.wait()
    assert checkpoints.steps() == sorted({best, 4})
    assert checkpoints.best() == best
    checkpoints.close()


def test_a_resumed_run_keeps_the_best_of_the_first_part(tmp_path):
    fill(tmp_path, [10.0, 30.0], keep_last=1).close()
    checkpoints = Checkpoints(tmp_path, CheckpointConfig(keep_last=1))
    for step in (3, 4):
        checkpoints.save(step, params(step), training(step), {}, {"bleu": 20.0, "loss": 1.0})
    checkpoints.wait()
    assert checkpoints.steps() == [2, 4]


@pytest.mark.parametrize(
    ("losses", "kept"),
    [([3.0, math.nan, 5.0], [1, 3]), ([math.nan, 3.0, 5.0], [2, 3]), ([math.inf, math.nan], [2])],
)
def test_a_non_finite_loss_is_never_the_best(tmp_path, losses, kept):
    checkpoints = Checkpoints(tmp_path, CheckpointConfig(keep_last=1, best_by="loss"))
    for step, loss in enumerate(losses, 1):
        checkpoints.save(step, params(step), training(step), {}, {"loss": loss})
    checkpoints.wait()
    assert checkpoints.steps() == kept
    assert checkpoints.best() == kept[0]


def test_without_scores_the_best_is_the_last(tmp_path):
    assert fill(tmp_path, [None, None]).best() == 2


def test_saving_a_step_again_keeps_the_first(tmp_path):
    checkpoints = fill(tmp_path, [1.0])
    checkpoints.save(1, params(9), training(9), {}, None)
    same(checkpoints.restore_params(1, like(params(1))), params(1))


def test_asynchronous_saves_hold_the_values_given(tmp_path):
    """Even if the arrays are donated immediately, as a training step does."""
    checkpoints = Checkpoints(tmp_path, CheckpointConfig())
    grown = jax.jit(lambda tree: jax.tree.map(lambda x: x + 1, tree), donate_argnums=0)
    state = grown(params(1))
    wanted = jax.tree.map(np.array, state)
    checkpoints.save(1, state, training(1), {}, None)
    for _ in range(20):
        state = grown(state)
    checkpoints.wait()
    same(checkpoints.restore_params(1, like(state)), wanted)


# --- restoring ----------------------------------------------------------------------------------


def test_everything_is_restored_bit_for_bit(six):
    for step in (1, 6):
        found = six.restore(step, like(params(step)), like(training(step)))
        same(found[0], params(step))
        same(found[1], training(step))
        score = SCORES[step - 1]
        assert found[2] == {"step": step, "best": score, "window": {"loss": 0.1 + 0.2}}
        same(six.restore_params(step, like(params(step))), params(step))


def test_parameters_are_restored_on_another_sharding(six):
    mesh = jax.make_mesh((4, 2), ("data", "tensor"), axis_types=(AxisType.Auto,) * 2)
    assert mesh.size == jax.device_count() == 8
    for spec in (P("data", "tensor"), P(None, "tensor"), P()):
        shardings = {"layer": {"w": NamedSharding(mesh, spec), "b": NamedSharding(mesh, P())}}
        abstract = jax.tree.map(
            lambda x, s: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=s), params(1), shardings
        )
        for name, expected in (("3", params(3)), ("average:1", params(6))):
            found, _ = six.load_params(name, abstract)
            same(found, expected)
            assert jax.tree.map(lambda x: x.sharding, found) == shardings
        assert six.load_params("average:2", abstract)[0]["layer"]["w"].sharding == NamedSharding(
            mesh, spec
        )


@pytest.mark.parametrize("count", [1, 2, 3, 6])
def test_an_average_is_the_mean_in_float64(six, count):
    found, steps = six.load_params(f"average:{count}", like(params(1)))
    assert steps == [*range(7 - count, 7)]
    for key in ("w", "b"):
        parts = [np.asarray(params(step)["layer"][key], np.float64) for step in steps]
        assert found["layer"][key].dtype == jnp.float32
        np.testing.assert_array_equal(
            found["layer"][key], np.mean(parts, axis=0).astype(np.float32)
        )


@pytest.mark.parametrize("what", ["run", "tokenizer"])
def test_averaging_different_runs_is_rejected(tmp_path, caplog, what):
    """Every member is checked, not only the last; those that record no run are accepted."""
    one, other = {"run": "a", "tokenizer": "t"}, {"run": "a", "tokenizer": "t", what: "b"}
    checkpoints = Checkpoints(tmp_path, CheckpointConfig())
    for step, host in enumerate(({}, other, one, one, {}), 1):
        checkpoints.save(step, params(step), training(step), host)
    checkpoints.wait()
    checkpoints.load_params("average:3", like(params(1)))
    assert caplog.messages == [
        "checkpoints 5 do not record which run they belong to, as older versions wrote "
        "them; treating them as checkpoints of this run"
    ]
    message = refusal(checkpoints.load_params, "average:4", like(params(1)))
    assert message.startswith(f"checkpoints 2 and 3: not of one run (different {what})")


def test_training_cannot_resume_from_parameters_alone(tmp_path):
    """What `average` writes is enough to translate."""
    checkpoints = Checkpoints(tmp_path, CheckpointConfig())
    checkpoints.save(5, params(5), {}, {"average_of": [4, 5]}, None)
    checkpoints.wait()
    same(checkpoints.load_params("last", like(params(5)))[0], params(5))
    message = refusal(checkpoints.restore, 5, like(params(5)), like(training(5)))
    assert message.startswith(f"{tmp_path}/5: has parameters only")


# --- checkpoint names ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "steps"),
    [
        ("best", [2]), ("last", [6]), ("4", [4]), ("004", [4]),
        ("average:1", [6]), ("average:3", [4, 5, 6]), ("average:6", [1, 2, 3, 4, 5, 6]),
    ],
)  # fmt: skip
def test_names_resolve_to_steps(six, name, steps):
    assert six.choose(name) == steps


def test_an_average_of_the_last_excludes_an_older_best(tmp_path):
    """The best is kept in addition to the last ones."""
    checkpoints = fill(tmp_path, SCORES[:5], keep_last=2)
    assert checkpoints.steps() == [2, 4, 5]
    assert checkpoints.choose("average:2") == [4, 5]
    with pytest.raises(UserError, match=r"average:3: the last 2 are kept .*keep_last=3"):
        checkpoints.choose("average:3")
    checkpoints.close()


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("7", "checkpoint=7: not saved; the saved steps are [1, 2, 3, 4, 5, 6]"),
        ("0", "checkpoint=0: not saved; the saved steps are [1, 2, 3, 4, 5, 6]"),
        (
            "average:7",
            "checkpoint=average:7: only 6 are saved, [1, 2, 3, 4, 5, 6]; average fewer",
        ),
        ("average:0", "checkpoint='average:0': must be best, last, a step, or average:N"),
        ("average:", "checkpoint='average:': must be best, last, a step, or average:N"),
        ("foo", "checkpoint='foo': must be best, last, a step, or average:N"),
        ("-1", "checkpoint='-1': must be best, last, a step, or average:N"),
        ("", "checkpoint='': must be best, last, a step, or average:N"),
    ],
)
def test_unresolvable_names_are_rejected(six, name, message):
    assert refusal(six.choose, name) == message
    assert refusal(six.load_params, name, like(params(1))) == message


@pytest.mark.parametrize("name", ["best", "last", "1", "average:2"])
def test_a_missing_directory_is_rejected_and_not_created(tmp_path, name):
    place = tmp_path / "checkpoints"
    checkpoints = Checkpoints(place, CheckpointConfig())
    assert checkpoints.steps() == []
    assert refusal(checkpoints.choose, name) == f"{place}: no checkpoints here; train first"
    checkpoints.close()
    assert list(tmp_path.iterdir()) == []  # looking creates nothing


# --- any path, and what was written is read back ------------------------------------------------


@pytest.mark.parametrize(
    "name", ["[2024] thesis/lr[1e-3]", "a*b?c", "{x},y=1", "~", " a  b ", "%2e#&", "x:y@z", "é"]
)
def test_checkpoints_can_be_read_whatever_their_path_is_called(tmp_path, name):
    directory = tmp_path / name
    directory.mkdir(parents=True)
    fill(directory / "checkpoints", [1.0, 2.0], keep_last=2).close()
    again = Checkpoints(directory / "checkpoints", CheckpointConfig())
    for step in (1, 2):
        found, rest, _ = again.restore(step, like(params(step)), like(training(step)))
        same(found, params(step))
        same(rest, training(step))


def test_a_checkpoint_that_cannot_be_read_back_does_not_count(tmp_path, monkeypatch):
    """Whatever goes wrong between the arrays and the disk: here files that lose a byte."""
    checkpoints = fill(tmp_path, [1.0])
    finish = checkpoints._manager.wait_until_finished

    def lossy() -> None:
        finish()
        for path in (tmp_path / "2/training").rglob("d/*"):
            path.write_bytes(path.read_bytes()[:-1])

    monkeypatch.setattr(checkpoints._manager, "wait_until_finished", lossy)
    checkpoints.save(2, params(2), training(2), {"step": 2})
    with pytest.raises(DiskError, match="checkpoint 2 cannot be read back after it was written"):
        checkpoints.wait()
    assert checkpoints.steps() == [1]
    assert [path.name for path in tmp_path.iterdir()] == ["1"]
    checkpoints.save(2, params(2), training(2), {"step": 2})
    checkpoints.wait()
    assert checkpoints.steps() == [1, 2]


def test_an_unreadable_checkpoint_is_reported_once(tmp_path, monkeypatch, capfd):
    """Not once for each array that was being read when the first one failed."""
    many = {f"w{i}": jnp.full((1000,), i, jnp.float32) for i in range(60)}
    checkpoints = Checkpoints(tmp_path, CheckpointConfig())
    checkpoints.save(1, many, {}, {"step": 1})
    checkpoints.close()
    (tmp_path / "1/params/manifest.ocdbt").unlink()
    late: list[str] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda it: late.append(repr(it.exc_value)))
    for _ in range(10):
        message = refusal(Checkpoints(tmp_path, CheckpointConfig()).restore_params, 1, like(many))
        assert message.startswith(f"{tmp_path}/1: damaged: cannot be read")
    time.sleep(0.2)  # the other reads have ended
    assert late == []
    assert capfd.readouterr().err == ""
