"""Fuzzing the loaders: input is read, or rejected with a one-line message, never a traceback.

A short run by default; the long one (e2e) gives each loader its share of 100,000 inputs.
"""

import gzip
import json
import re
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from transformer_jax.base.errors import UserError
from transformer_jax.config import CheckpointConfig, Experiment
from transformer_jax.config.convert import door, override, parse, to_json
from transformer_jax.data.codecs import utf8
from transformer_jax.data.codecs.pair import TokenizerPair
from transformer_jax.data.sources.files import read_lines
from transformer_jax.data.store import store_files, token_store
from transformer_jax.runs.checkpoint import Checkpoints, DamagedCheckpoint
from transformer_jax.runs.integrity import seal
from transformer_jax.runs.workdir import WorkDir, read_rows

SHORT, LONG = 60, 17_000
FIELDS = [
    f"{group}.{name}" if isinstance(value, dict) else group
    for group, value in json.loads(to_json(Experiment())).items()
    for name in (value if isinstance(value, dict) else [""])
]
PLACE = Path(tempfile.mkdtemp(prefix="fuzz"))  # shared by all inputs: hypothesis has no tmp_path


def counted(strategy):
    """Turn a check of one input into a test of many: a short one, and a long one marked e2e."""

    def wrap(check):
        def run(count: int) -> None:
            quiet = settings(
                max_examples=count, deadline=None, database=None, derandomize=True,
                suppress_health_check=list(HealthCheck),
            )  # fmt: skip
            seen = []

            def once(value):
                seen.append(1)
                check(value)

            quiet(given(strategy)(once))()
            print(f"{check.__name__}: {len(seen)} inputs")

        run.__doc__ = check.__doc__
        counts = [SHORT, pytest.param(LONG, marks=pytest.mark.e2e)]
        return pytest.mark.parametrize("count", counts)(run)

    return wrap


def one_line(error: UserError, start: object = "") -> None:
    assert str(error)
    assert "\n" not in str(error)
    assert str(error).startswith(str(start))


leaves = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8)
json_values = st.recursive(
    leaves,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3)
    ),
    max_leaves=6,
)


def damaged(good: bytes):
    """Return a strategy for bytes: arbitrary, or good ones truncated, changed or inserted into."""
    place = st.integers(0, len(good) - 1)
    return st.one_of(
        st.binary(max_size=60),
        place.map(lambda at: good[:at]),
        st.tuples(place, st.integers(0, 255)).map(
            lambda change: good[: change[0]] + bytes([change[1]]) + good[change[0] + 1 :]
        ),
        st.tuples(place, st.binary(max_size=6)).map(
            lambda change: good[: change[0]] + change[1] + good[change[0] :]
        ),
    )


ODD = ["None", "True", "1e999", "-1", "0", "nan", "()", "(1,", "9" * 5000, "١", "1_0"]


@counted(
    st.tuples(
        st.sampled_from(FIELDS) | st.text(max_size=20),
        st.text(max_size=20) | st.sampled_from(ODD) | st.integers().map(str) | st.floats().map(str),
    )
)
def test_overrides(change):
    path, text = change
    config = door(Experiment())
    try:
        override(config, path, text)
        assert isinstance(parse(config), Experiment)
    except UserError as error:
        one_line(error)


def _config(change) -> bytes:
    path, value, cut = change
    values = json.loads(to_json(Experiment()))
    group, _, name = path.partition(".")
    if name and isinstance(values.get(group), dict):
        values[group][name] = value
    else:
        values[path] = value
    return json.dumps(values).encode()[: None if cut else -1]


@counted(
    st.tuples(st.sampled_from(FIELDS) | st.text(max_size=9), json_values, st.booleans()).map(
        _config
    )
    | json_values.map(lambda values: json.dumps(values).encode())
    | damaged(to_json(Experiment()).encode())
)
def test_config_json(raw):
    workdir = WorkDir(PLACE)
    workdir.config.write_bytes(raw)
    try:
        assert isinstance(workdir.experiment(), Experiment)
    except UserError as error:
        one_line(error)


@counted(damaged("ein Wort\r\nzwei\u2028Wörter\n\n\x85drei\n".encode()))
def test_text(raw):
    path = PLACE / "text.de"
    path.write_bytes(raw)
    try:
        lines = read_lines(path)
        assert not any("\n" in line for line in lines)
        raw = raw.removeprefix("\ufeff".encode())
        assert len(lines) == raw.count(b"\n") + (raw[-1:] not in (b"", b"\n"))
    except UserError as error:
        one_line(error, path)


@counted(damaged(gzip.compress("ein Wort\nzwei Wörter\n".encode(), mtime=0)))
def test_gz(raw):
    path = PLACE / "text.de.gz"
    path.write_bytes(raw)
    try:
        assert isinstance(read_lines(path), list)
    except UserError as error:
        one_line(error)


def _store() -> dict[str, bytes]:
    parts = {"ids": np.array([5, 6, 2, 7, 2], np.int32), "offsets": np.array([0, 3, 5])}
    files = {
        f"{name}.{part}": array.tobytes()
        for name in ("src", "tgt")
        for part, array in parts.items()
    }
    place = PLACE / "good"
    place.mkdir()
    sums = {}
    for name, raw in files.items():
        (place / name).write_bytes(raw)
        sums[name] = store_files.sum_of(place / name)
    return {**files, "sums.json": json.dumps(sums).encode()}


STORE = _store()


@counted(
    st.sampled_from(sorted(STORE)).flatmap(
        lambda name: st.tuples(st.just(name), damaged(STORE[name]))
    )
    | json_values.map(lambda values: ("sums.json", json.dumps(values).encode()))
)
def test_token_store(change):
    """It is read complete and correct, or rebuilt."""
    place = PLACE / "store"
    place.mkdir(exist_ok=True)
    for name, raw in (STORE | dict([change])).items():
        (place / name).write_bytes(raw)
    codec = utf8.Bytes()
    store = token_store._read(place, TokenizerPair(codec, codec))
    if store is not None:
        for side in store[:2]:
            np.testing.assert_array_equal(side.ids, [5, 6, 2, 7, 2])
            np.testing.assert_array_equal(side.starts, [0, 3])


RECORD = {"host": {"step": 3}, "scores": {"loss": 2.5}, "passing": False, "arrays": {"a": "b c"}}


@counted(
    damaged(json.dumps(seal(RECORD)).encode())
    | json_values.map(lambda values: json.dumps(values).encode())
)
def test_checkpoint_record(raw):
    place = PLACE / "checkpoints/3/record"
    place.mkdir(parents=True, exist_ok=True)
    (place / "metadata").write_bytes(raw)
    try:
        assert Checkpoints(PLACE / "checkpoints", CheckpointConfig()).record(3) == RECORD
    except DamagedCheckpoint as error:
        one_line(error)


@counted(damaged(b'{"step": 1, "loss": 0.5}\n{"step": 2, "loss": null}\n'))
def test_rows(raw):
    path = PLACE / "rows.jsonl"
    path.write_bytes(raw)
    try:
        assert all(type(row["step"]) is int for row in read_rows(path))
    except UserError as error:
        one_line(error, path)


def test_loaded_files_cannot_run_code():
    """No pickle, which a NumPy file could hold, and no eval. A Python config file is run only for
    `train --config`, and a file of user-defined parts only once admitted (tests/test_parts.py).
    Pickles go only to and from processes that a program started itself.
    """
    known = {("exec(", "parts.py")}
    known |= {("pickle", name) for name in ("encoding.py", "pool.py", "child.py")}
    sources = {
        path: path.read_text() for path in Path(token_store.__file__).parents[1].rglob("*.py")
    }
    for path, text in sources.items():
        text = re.sub(r"np\.load\([^=]*, allow_pickle=False\)", "", text)
        for word in ("pickle", "eval(", "exec(", "marshal", "shelve", "dill", "np.load(", "yaml"):
            admitted = (word, path.name) in known
            assert (word in text.replace(".eval(", "")) == admitted, (path, word)
        assert ("runpy" in text) == (path.name == "arguments.py")
