"""A prompt cache changes how soon a text begins, not the text."""

import dataclasses
import os
from concurrent.futures import ThreadPoolExecutor

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from decoding.test_generate import CODEC, FILES, GREEDY
from tiny import VARIANTS, VOCAB, random_params

from transformer_jax.base.errors import UserError
from transformer_jax.decoding.text.generate import Generator
from transformer_jax.decoding.text.prompt_cache import PromptCache, digest
from transformer_jax.decoding.text.prompt_files import PromptFiles
from transformer_jax.decoding.text.searching import Draft
from transformer_jax.models.build import build

# One layer with keys and values, one with a state.
CONFIG = dataclasses.replace(
    VARIANTS["decoder"], num_decoder_layers=2, decoder_pattern=("full", "ssru"),
    positions="learned", max_positions=64,
)  # fmt: skip
MODEL = build(CONFIG, VOCAB, VOCAB, jnp.float64)
NARROW = build(CONFIG, VOCAB, VOCAB)
PARAMS = [jax.tree.map(np.float64, random_params(NARROW, seed)) for seed in (0, 1)]
LONG = "thequickbrownfoxjumps"  # five parts of four pieces, and one more; the last is not read


@pytest.fixture(autouse=True)
def exact():
    with jax.enable_x64(True):
        yield


def cache(directory, params=PARAMS[0], tokenizer="one", **sizes):
    return PromptCache(MODEL, params, tokenizer, directory, **{"part": 4, **sizes})


def written(prompts, text=LONG, decoding=GREEDY, params=PARAMS[0], draft=None):
    given, one = (MODEL, CODEC, FILES, decoding), jax.devices()[:1]
    generator = Generator(*given, draft=draft, prompts=prompts, devices=one)
    ((*found,),) = generator.generate(params, [text], 9)
    assert [item.text for item in found] == [
        CODEC.decode([*CODEC.encode([text], eos=False)[0], *item.ids]) for item in found
    ]
    return [(item.ids, item.score) for item in found]


def same(one, other):
    """Assert that texts are equal, and scores up to the order of summation."""
    assert [ids for ids, _ in one] == [ids for ids, _ in other] != []
    np.testing.assert_allclose([x for _, x in one], [x for _, x in other], rtol=1e-10)


@pytest.mark.thorough
def test_texts_match_those_without_a_cache(tmp_path):
    """Whether none, all or the beginning of a prompt is cached; bit for bit if all is."""
    fresh, again, shorter = (cache(tmp_path) for _ in range(3))
    whole, other = written([fresh]), LONG[:9] + "foxjumpszebra"
    assert (fresh.taken, fresh.computed) == (0, 5)
    same(whole, written(()))
    assert written([again]) == whole
    assert (again.taken, again.computed) == (5, 0)
    expected = written((), other)
    same(written([shorter], other), expected)
    assert (shorter.taken, shorter.computed) == (2, 3)
    draft = Draft(MODEL, PARAMS[1])
    drafted = dataclasses.replace(GREEDY, draft="another", draft_length=2)
    same(written([again, cache(tmp_path, PARAMS[1])], decoding=drafted, draft=draft), whole)


def test_entries_of_another_setup_are_not_used(tmp_path):
    """Other parameters (even one bit), tokenizer or part size; models without such a cache."""
    own = cache(tmp_path)
    own.state(range(4, 12), 8, 1, 4, 1)
    assert own.computed == 2
    almost = jax.tree.map(np.copy, PARAMS[0])
    jax.tree.leaves(almost)[-1].reshape(-1).view(np.uint64)[-1] ^= 1
    others = cache(tmp_path, PARAMS[1]), cache(tmp_path, almost), cache(tmp_path, tokenizer="two")
    for other in (*others, cache(tmp_path, part=2)):
        other.state(range(4, 12), 8, 1, 4, 1)
        assert other.taken == 0
    assert digest(PARAMS[0]) == digest(jax.device_put(PARAMS[0]))
    with pytest.raises(UserError, match="architecture='encoder_decoder': a prompt cache keeps"):
        PromptCache(build(VARIANTS["deeper"], VOCAB, VOCAB), {}, "one", tmp_path)
    with pytest.raises(UserError, match=r"prefix_lm'.* reads a prompt in both directions"):
        PromptCache(build(CONFIG, VOCAB, VOCAB, order="ranked"), {}, "one", tmp_path)
    windows = dataclasses.replace(CONFIG, decoder_pattern=("local", "full"), window=3)
    with pytest.raises(UserError, match=r"\('local', 'full'\): layers of local keep only"):
        PromptCache(build(windows, VOCAB, VOCAB), {}, "one", tmp_path)


def files(directory, limit=1 << 20, **facts) -> PromptFiles:
    return PromptFiles(directory, {"model": "a", **facts}, limit)


ARRAYS = [np.arange(6.0).reshape(2, 3), np.array([True]), np.zeros((0, 2), np.int32)]


def stored(kept: PromptFiles, ids=(1, 2)) -> bool:
    """Return whether a part is stored, asserting that it is as it was written."""
    found = kept.get(ids)
    if found is not None:
        assert [x.tobytes() for x in found] == [x.tobytes() for x in ARRAYS]
    return found is not None


def test_damaged_files_are_detected(tmp_path, caplog):
    """Any flipped bit, any truncation, another file's content; a rewritten file is used again."""
    kept = files(tmp_path)
    kept.put([1, 2], ARRAYS)
    (path,) = tmp_path.iterdir()
    whole = path.read_bytes()
    damaged = [whole[:size] for size in range(0, len(whole), 97)]
    for place in range(0, len(whole), 61):
        damaged.append(whole[:place] + bytes([whole[place] ^ 1 << place % 8]) + whole[place + 1 :])
    for content in damaged:
        caplog.clear()
        path.write_bytes(content)
        assert not stored(kept)
        assert f"{path}: damaged" in caplog.text
    kept.put([1, 2], ARRAYS)
    assert stored(kept)
    for other, ids, reason in (
        (files(tmp_path, model="b"), (1, 2), "model"),
        (kept, (1, 3), "prompt"),
    ):
        other.put(ids, ARRAYS)
        other._path(ids).replace(path)  # as if two names were equal
        assert not stored(kept)
        assert f"of another {reason}" in caplog.text


def test_the_least_recently_used_entry_is_evicted_first(tmp_path):
    kept = files(tmp_path, limit=4 * 2000)
    for number in range(3):
        kept.put([number], ARRAYS)
        os.utime(kept._path([number]), (number + 1, number + 1))
    size = kept._path([0]).stat().st_size
    kept = files(tmp_path, limit=3 * size)
    assert stored(kept, [0])  # which counts as a use
    abandoned, in_use = (tmp_path / f"{name}.aside" for name in "ab")
    for path in (abandoned, in_use):
        path.write_bytes(b"half")
    os.utime(abandoned, (1, 1))
    kept.put([3], ARRAYS)
    assert [stored(kept, [number]) for number in range(4)] == [True, False, True, True]
    assert (abandoned.exists(), in_use.exists()) == (False, True)
    files(tmp_path, limit=size - 1).put([4], ARRAYS)  # larger than the limit
    assert not stored(kept, [4])


def test_reads_and_writes_may_be_concurrent(tmp_path):
    """What is read is complete, whatever is written, evicted or deleted meanwhile."""

    def work(seed: int) -> int:
        kept, rng, hits = files(tmp_path, limit=9000), np.random.default_rng(seed), 0
        for number in rng.integers(0, 9, 60).tolist():
            hits += stored(kept, [number])
            kept.put([number], ARRAYS)
        return hits

    with ThreadPoolExecutor(4) as pool:
        assert sum(pool.map(work, range(4))) > 0
    assert not list(tmp_path.glob("*.aside"))


def test_a_full_disk_gives_one_warning(tmp_path, caplog, monkeypatch):
    kept = files(tmp_path)

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    for ids in ([1], [2]):
        kept.put(ids, ARRAYS)
        assert not stored(kept, ids)
    assert caplog.text.count("No space left on device") == 1
    assert not list(tmp_path.iterdir())
