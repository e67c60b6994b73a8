"""Shares of the time, and traces of the requested steps."""

import gzip
import json
import time
from collections.abc import Iterable, Iterator

import jax
import jax.numpy as jnp
import pytest

from transformer_jax.training.profiling import Times, Trace


def test_shares_of_the_time(monkeypatch):
    """Unnamed time belongs to the step; the shares add up to the whole."""
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    times = Times()
    for what, seconds in (
        ("input", 1),
        ("", 70),
        ("evaluation", 9),
        ("input", 4),
        ("checkpoint", 16),
    ):
        with times.on(what):
            now[0] += seconds
    assert times.summary() == (
        "100 s since the start of training: step 70.0%, input 5.0%, evaluation 9.0%, "
        "checkpoint 16.0%"
    )


def test_laps_add_up(monkeypatch):
    """A lap covers the time since the previous one."""
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    times = Times()
    now[0] += 2
    with times.on("input"):
        now[0] += 1
    first = times.lap()
    with times.on("evaluation"):
        now[0] += 4
    now[0] += 8
    assert first == {"step": 2, "input": 1, "evaluation": 0, "checkpoint": 0}
    assert times.lap() == {"step": 8, "input": 0, "evaluation": 4, "checkpoint": 0}
    assert sum(times.lap().values()) == 0


def traced_steps(directory) -> set[int]:
    (path,) = directory.rglob("perfetto_trace.json.gz")
    events = json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]
    return {int(e["args"]["step_num"]) for e in events if "step_num" in e.get("args", {})}


def counted(trace: Trace, steps: Iterable[int]) -> Iterator[int]:
    """Yield the number of each step after running it."""
    count, state = jax.jit(lambda state: (state + 1, state)), jnp.zeros(())
    with trace:
        for number in steps:
            state, before = trace.of(lambda state=state: count(state), state)
            assert float(state) == float(before) + 1
            yield number


@pytest.mark.thorough
def test_requested_steps_are_traced(tmp_path):
    """Steps 12 and 13 of a run resumed after 10 are in the trace, for TensorBoard and Perfetto."""
    for number in counted(Trace((12, 13), tmp_path / "profile", 10), range(11, 16)):
        assert bool(list(tmp_path.rglob("*.xplane.pb"))) == (number >= 13)
    assert traced_steps(tmp_path) == {12, 13}


@pytest.mark.thorough
@pytest.mark.parametrize(("done", "until", "expected"), [(11, 14, {12, 13}), (9, 11, {10, 11})])
def test_steps_outside_the_run_are_left_out_of_the_trace(tmp_path, done, until, expected):
    """A run that begins within 10 to 13 traces the rest; one that ends there, what it has run."""
    list(counted(Trace((10, 13), tmp_path, done), range(done + 1, until + 1)))
    assert traced_steps(tmp_path) == expected


@pytest.mark.parametrize("steps", [(), (1, 5)])
def test_no_trace_without_steps_left_to_trace(tmp_path, steps):
    """None were requested, or the run is past them."""
    list(counted(Trace(steps, tmp_path, 5), range(6, 8)))
    assert not list(tmp_path.iterdir())
