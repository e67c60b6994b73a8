"""Encoding a store: the same bytes from any number of processes, however often they are killed."""

import os
import re
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from transformer_jax.base.errors import UserError
from transformer_jax.config import TokenizerConfig
from transformer_jax.data.codecs.pair import TokenizerPair, train_pair
from transformer_jax.data.codecs.subword_dropout import Sampling
from transformer_jax.data.codecs.utf8 import Bytes
from transformer_jax.data.sources import Corpus
from transformer_jax.data.store import token_store
from transformer_jax.data.store.encoding import Encoder, WorkerDied, encoded
from transformer_jax.data.store.store_files import GrowingSide, intact
from transformer_jax.data.store.token_store import Frame, open_store


@pytest.fixture(scope="module")
def tokenizers(numbers) -> TokenizerPair:
    return train_pair(TokenizerConfig(vocab_size=64, joint=False), numbers.src, numbers.tgt)


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch):
    monkeypatch.setattr(token_store, "_CHUNK", 13)


def content(cache) -> dict[str, bytes]:
    """Return the files of the only store in a cache."""
    (place,) = [path for path in (cache / "tokens").iterdir() if path.is_dir()]
    return {path.name: path.read_bytes() for path in place.iterdir()}


@pytest.mark.parametrize(
    ("sampling", "frame"),
    [(Sampling(0.3, 3, 5), Frame()), (None, Frame(bos=True, eos=False, cut="words"))],
)
def test_a_store_does_not_depend_on_the_number_of_processes(
    numbers, tokenizers, tmp_path, sampling, frame
):
    for processes in (1, 2):
        place = tmp_path / str(processes)
        open_store(numbers, tokenizers, place, sampling, frame, processes=processes)
    assert content(tmp_path / "1") == content(tmp_path / "2")
    assert set(content(tmp_path / "1")) == {
        "src.ids", "src.offsets", "tgt.ids", "tgt.offsets", "sums.json",
    }  # fmt: skip


class Stopped(BaseException):
    """An interruption like a kill: nothing is cleaned up."""


@pytest.mark.parametrize("damage", ["none", "cut", "flipped", "row", "journal"])
@pytest.mark.parametrize("side", ["src", "tgt"])
def test_interrupted_encoding_resumes(numbers, tokenizers, tmp_path, monkeypatch, damage, side):
    """From the parts that are intact, which are not encoded again."""
    open_store(numbers, tokenizers, tmp_path / "whole", processes=1)
    append, parts = GrowingSide.append, 0

    def stopping(self, part):
        nonlocal parts
        parts += 1
        if parts == 20:  # of 24; each side has 12
            raise Stopped
        append(self, part)

    with monkeypatch.context() as patch:
        patch.setattr(GrowingSide, "append", stopping)
        with pytest.raises(Stopped):
            open_store(numbers, tokenizers, tmp_path / "cut", processes=1)
    (partial,) = (tmp_path / "cut" / "tokens").glob("*.partial")
    ids, journal = partial / f"{side}.ids", partial / f"{side}.journal"
    raw, rows = ids.read_bytes(), journal.read_text()
    middle = len(raw) // 2
    if damage == "cut":
        ids.write_bytes(raw[:middle])
    if damage == "flipped":
        ids.write_bytes(raw[:middle] + bytes([raw[middle] ^ 1]) + raw[middle + 1 :])
    if damage == "row":
        journal.write_text(rows[:-9])
    if damage == "journal":
        journal.unlink()
    (partial / "tgt.ids").open("ab").write(b"half a part")  # in no row of the journal
    encoding = []
    monkeypatch.setattr(GrowingSide, "append", lambda *x: (encoding.append(x), append(*x)))
    open_store(numbers, tokenizers, tmp_path / "cut", processes=1)
    assert content(tmp_path / "cut") == content(tmp_path / "whole")
    whole = 12 if side == "src" else 7  # parts of that side already written
    again = {"none": 0, "row": 1, "journal": whole}
    if damage in again:
        assert len(encoding) == 5 + again[damage]
    else:
        assert 5 < len(encoding) < 5 + whole


PROGRAM = """
import sys
from pathlib import Path
from transformer_jax.data.store import token_store
from transformer_jax.data.codecs.pair import TokenizerPair
from transformer_jax.data.sources import Corpus
token_store._CHUNK = 100
place = Path(sys.argv[1])
lines = [f"{i} eins zwei {i * i}" for i in range(6_000)]
pair = TokenizerPair.load(place, joint=False)
token_store.open_store(Corpus(lines, lines[::-1], "lines"), pair, place, processes=2)
"""  # without a `__name__` guard, like users' scripts


@pytest.mark.thorough
def test_a_killed_process_resumes(tokenizers, tmp_path):
    """Killed at any moment, it continues where its journal ends."""
    tokenizers.save(tmp_path)
    (tmp_path / "program.py").write_text(PROGRAM)
    command = [sys.executable, str(tmp_path / "program.py"), str(tmp_path)]
    process = subprocess.Popen(command)
    while not (rows := list(tmp_path.glob("tokens/*.partial/src.journal"))) or (
        rows[0].stat().st_size < 500
    ):
        assert process.poll() is None
        time.sleep(0.001)
    process.send_signal(signal.SIGKILL)
    process.wait()
    lines = int(re.findall(r"^\[(\d+)", rows[0].read_text(), re.MULTILINE)[-1])
    assert 0 < lines < 6_000
    subprocess.run(command, check=True)
    texts = [f"{i} eins zwei {i * i}" for i in range(6_000)]
    open_store(Corpus(texts, texts[::-1], "lines"), tokenizers, tmp_path / "whole", processes=1)
    assert content(tmp_path) == content(tmp_path / "whole")


def test_a_killed_worker_is_reported(numbers, tokenizers, tmp_path, monkeypatch):
    started = []

    class Noted(subprocess.Popen):
        def __init__(self, *arguments, **named):
            super().__init__(*arguments, **named)
            started.append(self)

    monkeypatch.setattr(subprocess, "Popen", Noted)
    append = GrowingSide.append

    def killing(self, part):
        append(self, part)
        for process in started:
            process.kill()

    with monkeypatch.context() as patch:
        patch.setattr(GrowingSide, "append", killing)
        with pytest.raises(WorkerDied, match=r"exit code -9.*start again to resume"):
            open_store(numbers, tokenizers, tmp_path / "killed", processes=2)
    assert all(process.poll() is not None for process in started)
    for name in ("killed", "whole"):
        open_store(numbers, tokenizers, tmp_path / name, processes=1)
    assert content(tmp_path / "killed") == content(tmp_path / "whole")


class Picky(Bytes):
    """A codec that rejects a line, defined here so that no other process knows it."""

    def encode(self, texts, bos=False, eos=True):
        if "x" in texts:
            raise UserError("x is refused")
        return super().encode(texts, bos, eos)


@pytest.mark.parametrize("processes", [1, 2])
def test_encoding_errors_are_raised(tokenizers, processes):
    codec = Picky(train_pair(TokenizerConfig(), ["a"], ["a"], ("bytes", "bytes")).src.model)
    with pytest.raises(UserError, match="x is refused"):
        list(encoded(Encoder(codec), [(["a"], 0), (["x"], 1)], processes))
    with pytest.raises(TypeError):
        list(encoded(Encoder(tokenizers.src), [([3], 0)], processes))


@pytest.mark.thorough
def test_encoding_many_texts_takes_little_memory(tokenizers, tmp_path):
    """No process holds more than a few of the lines."""
    program = PROGRAM.replace("_CHUNK = 100", "_CHUNK = 5000").replace(
        'lines = [f"{i} eins zwei {i * i}" for i in range(6_000)]',
        "from transformer_jax.data.sources import lines as files; files.HELD = 0\n"
        "lines = files.lines_of(place / 'text')",
    )
    program = program.replace(
        'Corpus(lines, lines[::-1], "lines")', "Corpus(lines, lines, str(len(lines)))"
    )
    program += (
        "import re, resource\n"
        "print(*re.findall(r'VmHWM:\\s*(\\d+)', open('/proc/self/status').read()))\n"
        "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)\n"
    )
    (tmp_path / "program.py").write_text(program)
    tokenizers.save(tmp_path)
    peaks = []
    for count in (5_000, 200_000):
        with open(tmp_path / "text", "w") as file:
            file.writelines(f"ab{i}\n" for i in range(count))
        found = subprocess.run(
            [sys.executable, str(tmp_path / "program.py"), str(tmp_path)], check=True,
            capture_output=True, text=True,
            env=os.environ | {"TRANSFORMER_JAX_CACHE": str(tmp_path / "cache")},
        )  # fmt: skip
        peaks.append(np.array(found.stdout.split(), int) / 1e3)
    own, children = peaks[1] - peaks[0]
    assert own < 20  # MB; 13 measured, 25 with the lines in memory
    assert children < 20


def test_flipped_bits_are_detected(numbers, tokenizers, tmp_path):
    open_store(numbers, tokenizers, tmp_path, processes=1)
    (place,) = [path for path in (tmp_path / "tokens").iterdir() if path.is_dir()]
    assert intact(place)
    for name in ("src.ids", "src.offsets", "tgt.ids", "tgt.offsets"):
        raw = (place / name).read_bytes()
        chance = np.random.default_rng(0)
        for bit in chance.integers(0, 8 * len(raw), 20).tolist():
            flipped = bytearray(raw)
            flipped[bit // 8] ^= 1 << bit % 8
            (place / name).write_bytes(flipped)
            assert not intact(place)
        (place / name).write_bytes(raw)
