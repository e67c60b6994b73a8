"""Texts read on demand: they, and all that is derived from them, equal those held in memory."""

import gzip
import pickle
import random
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from transformer_jax.base.errors import UserError
from transformer_jax.config import DataConfig
from transformer_jax.data import sources
from transformer_jax.data.sources import lines, spelled_numbers
from transformer_jax.data.sources.files import read_lines
from transformer_jax.data.sources.fingerprint import fingerprint
from transformer_jax.data.sources.lines import Lines, lines_of
from transformer_jax.data.sources.spelled_numbers import Spelled
from transformer_jax.data.texts import Texts, joined, prefixed

ENDINGS = [b"", b"\n", b"a", b"a\n\n", b"\r\n", b"\n\n", b"\xef\xbb\xbf", b"\xef\xbb\xbfone\ntwo",
           "grün\r\nb\rc\u2028d\n\nend".encode()]  # fmt: skip


@pytest.fixture(autouse=True)
def small_blocks(tmp_path, monkeypatch):
    """Treat every file as large, and process it a few bytes at a time."""
    monkeypatch.setenv("TRANSFORMER_JAX_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(lines, "HELD", -1)
    monkeypatch.setattr(lines, "_BLOCK", 3)
    monkeypatch.setattr(spelled_numbers, "_HELD", 0)


@pytest.mark.parametrize("raw", ENDINGS)
@pytest.mark.parametrize("packed", [False, True])
def test_lines_equal_those_of_a_file_held_in_memory(tmp_path, raw, packed):
    path = tmp_path / ("x.en.gz" if packed else "x.en")
    path.write_bytes(gzip.compress(raw) if packed else raw)
    held = read_lines(path)
    for _ in range(2):  # indexed, then cached
        found = lines_of(path)
        assert isinstance(found, Lines)
        assert list(found) == held == [found[i] for i in range(len(held))]
        assert len(found) == len(held)


def test_slices_equal_those_of_a_list(tmp_path):
    path = tmp_path / "x"
    path.write_text("\n".join(map(str, range(50))))
    held = read_lines(path)
    several = joined([lines_of(path), held, lines_of(path)])
    tagged = prefixed(several, "<2de>"), [f"<2de> {line}" for line in held * 3]
    for texts, expected in ((lines_of(path), held), (several, held * 3), tagged):
        chance = random.Random(0)
        for _ in range(200):
            start, stop = (chance.randint(-170, 170) for _ in range(2))
            part = texts[start:stop]
            assert isinstance(part, Texts)
            assert list(pickle.loads(pickle.dumps(part))) == list(part) == expected[start:stop]
            assert list(part[1:-1]) == expected[start:stop][1:-1]
            assert texts[start:stop:-3] == expected[start:stop:-3]
        with pytest.raises(IndexError):
            texts[len(expected)]
        assert texts[-1] == expected[-1]


def test_joined_texts_held_in_memory_are_a_list():
    assert joined([["a"], (), ["b"]]) == ["a", "b"]
    arrays = [np.zeros(2), np.ones(2)]
    assert joined([arrays[:1], arrays[1:]]) == arrays


@pytest.mark.parametrize("raw", [b"one\ntwo\nth\xffree\n", b"one\ntw\xc3", b"\xef\xbb\xbf\xff"])
def test_invalid_utf8_is_rejected_with_the_same_message(tmp_path, raw):
    path = tmp_path / "x"
    path.write_bytes(raw)
    with pytest.raises(UserError) as held:
        read_lines(path)
    with pytest.raises(UserError) as caught:
        lines_of(path)
    assert str(caught.value) == str(held.value)
    assert {x.suffix for x in (tmp_path / "cache" / "lines").iterdir()} == {".lock"}


def test_unreadable_files_are_rejected(tmp_path):
    with pytest.raises(UserError, match="cannot be read"):
        lines_of(tmp_path / "x")
    path = tmp_path / "x.gz"
    path.write_bytes(gzip.compress(b"a line\n" * 1000)[:-9])
    with pytest.raises(UserError, match=r"x\.gz: cannot be read"):
        lines_of(path)


def test_a_changed_file_is_detected(tmp_path):
    path = tmp_path / "x"
    path.write_text("one\ntwo\n")
    found = lines_of(path)
    path.write_text("another\n")
    with pytest.raises(UserError, match="changed while being read; start again"):
        found[0]
    assert list(lines_of(path)) == ["another"]


@pytest.mark.parametrize("packed", [False, True])
def test_runs_that_start_together_prepare_a_file_once(tmp_path, monkeypatch, packed):
    """Each with a cold cache: the others wait, and none replaces a file that another one reads."""
    path, prepared = tmp_path / ("x.gz" if packed else "x"), []
    path.write_bytes(gzip.compress(b"one\ntwo\n") if packed else b"one\ntwo\n")
    for name in ("_unpack", "_index"):
        work = getattr(lines, name)
        monkeypatch.setattr(lines, name, lambda *on, work=work: _slowly(work, prepared, *on))
    with ThreadPoolExecutor(3) as runs:
        found = list(runs.map(lambda _: list(lines_of(path)), range(3)))
    assert found == [["one", "two"]] * 3
    assert len(prepared) == 1 + packed


def _slowly(work, prepared: list, *on) -> None:
    """Prepare a file, while the others have time to start doing so."""
    before = {x.name: x.stat().st_ino for x in (on[1], on[-1]) if x.exists()}
    time.sleep(0.05)
    work(*on)
    time.sleep(0.05)
    after = {x.name: x.stat().st_ino for x in (on[1], on[-1]) if x.exists()}
    if before != after:
        prepared.append(on)


def test_the_fingerprint_equals_that_of_texts_held_in_memory(tmp_path, monkeypatch):
    """Also for several parts with prefixes; it is cached until a file changes."""
    for part in "ab":
        for language in ("en", "de"):
            (tmp_path / f"{part}.{language}").write_text(f"{part} {language}\n\n" * 30)
    config = DataConfig(directory=str(tmp_path), train=("a", "b"), prefixes=("b=<x>",))
    lazy = sources.load(config, "train")
    assert isinstance(lazy.src, Texts)
    with monkeypatch.context() as patch:
        patch.setattr(lines, "HELD", 10**9)
        held = sources.load(config, "train")
    assert isinstance(held.src, list)
    assert (list(lazy.src), list(lazy.tgt), lazy.sizes) == (held.src, held.tgt, held.sizes)
    assert lazy.fingerprint == held.fingerprint == fingerprint(held.src, held.tgt)
    with monkeypatch.context() as patch:
        patch.setattr(Lines, "between", lambda *_: pytest.fail("read again"))
        assert sources.load(config, "train").fingerprint == held.fingerprint
    (tmp_path / "a.en").write_text("other\n\n" * 30)
    assert sources.load(config, "train").fingerprint != held.fingerprint


NUMBERS = DataConfig(source="spelled_numbers", source_language="de", target_language="en",
                     num_examples=(300, 40, 20), max_number=1_000_000)  # fmt: skip


def test_numbers_are_spelled_on_demand(monkeypatch):
    lazy = [sources.load(NUMBERS, split) for split in spelled_numbers.SPLITS]
    with monkeypatch.context() as patch:
        patch.setattr(spelled_numbers, "_HELD", 10**9)
        held = [sources.load(NUMBERS, split) for split in spelled_numbers.SPLITS]
    for one, other in zip(lazy, held, strict=True):
        assert isinstance(one.src, Spelled)
        assert (list(one.src), list(one.tgt)) == (other.src, other.tgt)
        part = pickle.loads(pickle.dumps(one.src[5:10][1:]))
        assert list(part) == other.src[6:10]
    assert len({one.fingerprint for one in lazy}) == 3


def test_many_numbers_are_fingerprinted_without_being_drawn(monkeypatch):
    monkeypatch.setattr(spelled_numbers, "draw", lambda *_: pytest.fail("drawn"))
    config = DataConfig(source="spelled_numbers", source_language="de", target_language="en",
                        num_examples=(36_000_000, 500, 500))  # fmt: skip
    found = sources.load(config, "train")
    assert len(found) == 36_000_000
    assert found.fingerprint != sources.load(NUMBERS, "train").fingerprint
