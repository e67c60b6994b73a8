"""IBM Model 1 against its formula, and shortlists of its likeliest pieces."""

from collections import defaultdict

import numpy as np
import pytest

from transformer_jax.base.errors import UserError
from transformer_jax.data.batches.batch import Ragged
from transformer_jax.data.store import lexicon
from transformer_jax.data.store.lexicon import Lexicon, estimate, passes, sample
from transformer_jax.data.store.token_store import TokenStore

SIZES = SOURCES, TARGETS = 9, 12
RNG = np.random.default_rng(0)


def texts(size: int) -> list[list[int]]:
    return [RNG.integers(2, size, RNG.integers(1, 7)).tolist() for _ in range(40)]


STORE = TokenStore(Ragged.from_lists(texts(SOURCES)), Ragged.from_lists(texts(TARGETS)))
EMPTY = SOURCES  # index of the empty word


def naively(rounds: int) -> dict[tuple[int, int], float]:
    """Return p(target piece | source piece) by EM in loops, for pairs that occur together."""
    p: dict = defaultdict(lambda: 1.0)
    for _ in range(rounds):
        counts: dict = defaultdict(float)
        for i in range(len(STORE)):
            src = [*STORE.src.sequence(i).tolist(), EMPTY]
            tgt = STORE.tgt.sequence(i).tolist()
            if len(src) < 3 or len(tgt) < 2:  # a side with EOS only
                continue
            for t in tgt:
                total = sum(p[s, t] for s in src)
                for s in src:
                    counts[s, t] += p[s, t] / total
        totals: dict = defaultdict(float)
        for (s, _), count in counts.items():
            totals[s] += count
        p = defaultdict(float, {(s, t): n / totals[s] for (s, t), n in counts.items()})
    return p


def table(found: Lexicon) -> np.ndarray:
    """Return all probabilities, [S+1 V], with those given the empty word last."""
    p = np.zeros((SOURCES + 1, TARGETS))
    rows = np.repeat(np.arange(SOURCES), np.diff(found.starts))
    p[rows, found.pieces], p[EMPTY] = found.probabilities, found.empty
    return p


@pytest.mark.parametrize("rounds", [1, 4])
def test_estimates_match_ibm_model_1(rounds):
    expected = np.zeros((SOURCES + 1, TARGETS))
    for (s, t), p in naively(rounds).items():
        expected[s, t] = p
    np.testing.assert_allclose(
        table(estimate(STORE, SIZES, "", rounds)), expected, rtol=1e-5, atol=lexicon._LEAST
    )


def test_chunking_does_not_change_the_estimate(monkeypatch):
    whole = table(estimate(STORE, SIZES, ""))
    monkeypatch.setattr(lexicon, "_CHUNK", 50)
    done: list[int] = []
    np.testing.assert_allclose(table(estimate(STORE, SIZES, "", progress=done.append)), whole)
    assert done == sorted(done)
    assert done[-1] == passes(STORE)
    assert len(done) > 2 * (lexicon.ROUNDS + 1)


def test_a_large_corpus_is_sampled():
    """Within the limit, the same pairs every time, and not only the first ones."""
    src, tgt = STORE.lengths
    chosen = sample(STORE, 300)
    assert 200 < ((src[chosen] + 1) * tgt[chosen]).sum() <= 300
    np.testing.assert_array_equal(chosen, sample(STORE, 300))
    assert chosen.max() > len(STORE) / 2


@pytest.mark.parametrize("size", [1, 4, 7, TARGETS, 99])
def test_a_shortlist_contains_the_likeliest_pieces(size):
    found = estimate(STORE, SIZES, "")
    p = table(found)
    for ids in ([3], [4, 4, 5], [8, 2, 7, 6]):
        scores = p[ids].sum(0) + p[EMPTY]
        best = np.sort(np.argsort(-scores, kind="stable")[:size])
        listed = found.shortlist(ids, size)
        np.testing.assert_array_equal(listed, best)
        needed = [1, 0][: size - 1]
        listed = found.shortlist(ids, size, needed)
        assert {*needed} <= {*listed.tolist()}
        assert len({*listed.tolist()}) == min(size, TARGETS)


def test_saving_and_loading(tmp_path):
    """A file loads as saved; one for other tokenizers, a damaged or a missing one is rejected."""
    made = estimate(STORE, SIZES, "mine")
    path = made.save(tmp_path)
    np.testing.assert_array_equal(table(Lexicon.load(tmp_path, "mine")), table(made))
    with pytest.raises(UserError, match=r"npz: is for other tokenizers .*shortlist --workdir="):
        Lexicon.load(tmp_path, "another")
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(UserError, match=r"npz: damaged; run transformer-jax sho"):
        Lexicon.load(tmp_path, "mine")
    path.unlink()
    with pytest.raises(UserError, match=r"npz: no such file; run transformer-jax shortlist --wor"):
        Lexicon.load(tmp_path, "mine")
