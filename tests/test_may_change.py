"""Which fields a resumed run may change, and that none of them affects what is learned."""

import dataclasses
import functools
import typing

import flax.linen as nn
import jax
import numpy as np
import pytest
from declared import choices, later, unworded, with_value
from tiny import MODEL, VOCAB, alone, random_params, random_store

from transformer_jax.config import DataConfig, Experiment, OptimizerConfig, TrainingConfig, resuming
from transformer_jax.config.allowed import ANY
from transformer_jax.config.fields import declarations
from transformer_jax.data.batches.batching import BucketPlan
from transformer_jax.data.store.token_store import select
from transformer_jax.models.build import build, roles_of
from transformer_jax.training.optimizer import make_optimizer
from transformer_jax.training.schedule import make_schedule
from transformer_jax.training.state import abstract_state
from transformer_jax.training.step import batch_sums, keys_of, make_train_step

# tests/models/test_stack.py, tests/nn/test_feed_forward.py and tests/sharding/test_pipeline.py
# compile these, and check that they change neither loss nor gradient.
TESTED_ELSEWHERE = {
    "model.layer_loop", "model.remat", "model.feed_forward_chunks", "model.stage_repeats",
}  # fmt: skip
BATCH = alone(random_store([(5, 7)] * 2), 2, 8, 8)


MUST_STAY = tuple(path for path in choices(Experiment) if path not in resuming.MAY_CHANGE)


def test_a_new_field_stays_until_it_is_declared_otherwise():
    """Also a word of one that may change."""
    kind = later(Experiment, "new", int, 0)
    assert [path for path, known in declarations(kind) if path == "new" and known.may_change] == []
    assert not resuming.may_change("new", 0, 1)
    assert unworded(resuming.MAY_CHANGE, Experiment) == []


def test_every_choice_is_declared():
    """The entry of a field that may change lists all of its choices, or is ANY."""
    words = {path: set(found) for path, found in choices(Experiment).items()}
    listed = {path: set(v) for path, v in resuming.MAY_CHANGE.items() if v is not ANY}
    assert listed == {path: words[path] for path in listed}


@pytest.mark.parametrize("path", MUST_STAY)
def test_changes_to_fixed_fields_are_rejected(path):
    assert not resuming.may_change(path, None, "another")
    assert not resuming.may_change(path, "another", None)


def test_unlisted_choices_of_a_field_that_may_change_are_rejected():
    assert resuming.may_change("model.attention", "dense", "fused")
    assert not resuming.may_change("model.attention", "dense", "local")
    assert not resuming.may_change("model.attention", "local", "dense")


def changes_what_is_learned(allowed) -> list[str]:
    """Return the listed fields that the loss, the update or the order of the batches depends on.

    A field of the model counts if another value gives another loss, dropout included; any other
    field, if the code there reads it. (The schedule gets the number of steps from outside, and a
    run reports how later learning rates change with it.)
    """
    read = {f"training.{name}" for name in _read_by_the_step()[0]}
    read |= {f"optimizer.{name}" for name in _read_by_the_step()[1]}
    read |= {f"data.{name}" for name in _read_by_the_batches()}
    model = {
        path
        for path in allowed.keys() - TESTED_ELSEWHERE
        if path.startswith("model.") and _other_losses(path.removeprefix("model."), allowed[path])
    }
    return sorted(model | (read & allowed.keys()))


def _other_losses(field, values) -> bool:
    if values is ANY:
        return True  # future values included
    batch, losses = jax.device_put(BATCH), []
    for value in values:
        config = with_value(dataclasses.replace(MODEL, dropout_rate=0.3), field, value)
        model = build(config, VOCAB, VOCAB)
        params, keys = random_params(model), keys_of(0, 0, 1)
        losses.append(float(batch_sums(model, TrainingConfig(), params, batch, keys).loss))
    return not np.allclose(losses, losses[0], rtol=1e-5)


def _watched(kind, read: set[str]):
    """Return a config of a kind that records which of its fields are read."""
    names = {item.name for item in dataclasses.fields(kind)}

    class Watched(kind):
        def __getattribute__(self, name):
            if name in names:
                read.add(name)
            return super().__getattribute__(name)

    config = Watched()
    read.clear()
    return config


@functools.cache
def _read_by_the_step() -> tuple[set[str], set[str]]:
    """Return the fields read: those of training, and those of the optimizer."""
    read: tuple[set[str], set[str]] = set(), set()
    training, optimizer = _watched(TrainingConfig, read[0]), _watched(OptimizerConfig, read[1])
    model = build(MODEL, VOCAB, VOCAB)
    schedule = make_schedule(optimizer, MODEL.d_model, 10)
    tx = make_optimizer(optimizer, schedule, roles_of(model))
    state = nn.unbox(abstract_state(model, tx, training.ema_decay is not None))
    jax.eval_shape(make_train_step(model, tx, training, 0), state, BATCH)
    return read


def _read_by_the_batches() -> set[str]:
    read: set[str] = set()
    data = _watched(DataConfig, read)
    store = random_store([(5, 7)] * 9)
    BucketPlan(store, select(store, data).pairs, data, seed=0)
    return read


@pytest.mark.thorough
def test_no_field_that_may_change_changes_what_is_learned():
    assert changes_what_is_learned(resuming.MAY_CHANGE) == []


@pytest.mark.parametrize(
    ("path", "values"),
    [
        ("model.residual", ("post_norm", "pre_norm")),
        ("model.dropout_rate", (0.1, 0.3)),
        ("model.norm_epsilon", ANY),
        ("training.label_smoothing", ANY),
        ("optimizer.b2", ANY),
        ("data.tokens_per_batch", ANY),
    ],
)
def test_a_field_that_changes_what_is_learned_is_detected(path, values):
    assert changes_what_is_learned({path: values}) == [path]


def test_any_does_not_cover_a_field_with_named_choices():
    allowed = {**resuming.MAY_CHANGE, "model.attention": ANY}
    assert unworded(allowed, Experiment) == ["model.attention"]
    assert typing.get_origin(typing.get_type_hints(type(MODEL))["attention"]) is typing.Literal
