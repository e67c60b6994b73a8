"""A paged cache holds what a contiguous one does, and stores shared prompt beginnings once."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from decoding.test_generate import CODEC, FILES
from decoding.test_prompt_cache import MODEL as MIXED
from tiny import VARIANTS, VOCAB, random_params

from transformer_jax.base.errors import UserError
from transformer_jax.base.vocabulary import BOS, UNK
from transformer_jax.config import DecodingConfig
from transformer_jax.decoding.batching.paged import Blocks, PagedStream
from transformer_jax.decoding.batching.stream import Sentence
from transformer_jax.decoding.search.sampling import Sampling
from transformer_jax.decoding.search.state import SearchRequest, complete
from transformer_jax.decoding.text.generate import Generator
from transformer_jax.decoding.text.searching import check_pages
from transformer_jax.models.build import build
from transformer_jax.nn.cache import KeysValues
from transformer_jax.nn.pages import Pages

CONFIG = dataclasses.replace(
    VARIANTS["llama"], num_decoder_layers=2, decoder_pattern=("full", "latent"), latent_size=4,
    rope_fraction=0.67,
)  # fmt: skip
RNG = np.random.default_rng(0)
LONG = RNG.integers(UNK, VOCAB, 11).tolist()
SENTENCES = [
    Sentence(ids, limit, seed=seed, first=BOS)
    for seed, (ids, limit) in enumerate(
        [(LONG, 9), (LONG[:8], 5), (LONG, 3), ([], 9), ([7, *LONG[1:]], 9), (LONG[:9], 1)]
    )
]


def alone(model, params, search):
    request = SearchRequest.empty(len(SENTENCES), 11)
    for row, s in enumerate(SENTENCES):
        request.src_ids[row, : len(s.ids)], request.src_lengths[row] = s.ids, len(s.ids)
        request.limits[row], request.seeds[row] = s.limit, s.seed
    return jax.jit(lambda r: complete(search, model.stepper(params), r, 9))(request)


@pytest.mark.thorough
def test_texts_match_those_of_contiguous_caches():
    """Greedy and sampled, in float64, however few blocks there are and whatever is evicted."""
    with jax.enable_x64(True):
        model = build(CONFIG, VOCAB, VOCAB, jnp.float64)
        params = jax.tree.map(jnp.float64, random_params(build(CONFIG, VOCAB, VOCAB)))
        used = []
        greedy = Sampling.of(DecodingConfig(beam_size=1))
        sampled = Sampling.of(DecodingConfig(search="sample", num_samples=2))
        expected = {search: alone(model, params, search) for search in (greedy, sampled)}
        for search, budget in ((greedy, 1), (sampled, 4096), (sampled, 1)):
            tokens, scores = map(np.asarray, expected[search])
            stream = PagedStream(model.stepper, search, params, 4, budget)
            found = {number: found for number, *found in stream.run(SENTENCES)}
            assert sorted(found) == list(range(len(SENTENCES)))
            for number, (mine, score) in found.items():
                np.testing.assert_array_equal(mine[:, :9], tokens[number])
                np.testing.assert_allclose(score, scores[number], rtol=1e-10)
            used.append(stream.most_used)
        assert used[2] < used[1]  # some were evicted


def test_common_beginnings_of_prompts_are_stored_once():
    """Whole blocks are shared; a shared block is copied before it is written to."""
    blocks = Blocks(6)
    first = [blocks.take(name) for name in ("a", "ab")]
    second = [blocks.share("a"), blocks.share("ab"), blocks.take("abc")]
    assert second[:2] == first
    assert blocks.free == 3
    copy = blocks.own(second[1])
    assert copy not in (*first, *second)
    assert (blocks.own(first[1]), blocks.uses(first[1])) == (first[1], 1)  # no longer shared
    assert blocks.share("b") is None
    for block in (first[0], first[1], copy, second[2]):
        blocks.release(block)
    assert blocks.share("ab") is None  # forgotten with its last user
    assert blocks.share("a") == first[0]
    assert blocks.free == 5


def test_permuting_pages_changes_nothing():
    """What a row sees depends only on its table; a write leaves everything else as it is."""
    pages = Pages(*(jnp.asarray(RNG.normal(size=s)) for s in ((7, 2, 3, 4), (7, 2, 4, 5))))
    table, order = jnp.array([[0, 3], [5, 1]]), RNG.permutation(7)
    place, active = jnp.array([6, 2]), jnp.array([True, False])
    cache = KeysValues(*(jnp.asarray(RNG.normal(size=s)) for s in ((2, 2, 3, 8), (2, 2, 8, 5))))
    moved, elsewhere = Pages(*(x[order] for x in pages)), jnp.asarray(np.argsort(order))[table]
    for one, other in zip(pages.gathered(table), moved.gathered(elsewhere), strict=True):
        np.testing.assert_array_equal(one, other)
    after = pages.write(table, place, active, cache)
    again = moved.write(elsewhere, place, active, cache).gathered(elsewhere)
    seen, before = after.gathered(table), pages.gathered(table)
    for axis, *arrays in zip((3, 2), cache, before, seen, again, strict=True):
        new, old, now, other = (np.moveaxis(np.asarray(x), axis, 1) for x in arrays)
        np.testing.assert_array_equal(now, other)
        np.testing.assert_array_equal(now[1], old[1])
        np.testing.assert_array_equal(now[0, 6], new[0, 6])
        np.testing.assert_array_equal(np.delete(now[0], 6, 0), np.delete(old[0], 6, 0))
    some = KeysValues(cache.keys[:1, ..., :5], cache.values[:1, :, :5])
    filled = pages.fill(jnp.array([2, 7]), some)
    np.testing.assert_array_equal(filled.keys[2], cache.keys[0, ..., :4])
    np.testing.assert_array_equal(filled.values[3:], pages.values[3:])
    copied = pages.copied(jnp.array([1, 0]), jnp.array([6, 7]))
    np.testing.assert_array_equal(copied.keys[6], pages.keys[1])


def test_unsupported_models_and_uses_are_rejected():
    config = DecodingConfig(beam_size=1, cache="paged")
    windows = dataclasses.replace(VARIANTS["llama"], decoder_pattern=("local",), window=2)
    for model in (MIXED, build(windows, VOCAB, VOCAB)):
        with pytest.raises(UserError, match="layers whose past has a constant size"):
            Generator(model, CODEC, FILES, config)
    plain = build(CONFIG, VOCAB, VOCAB)
    with pytest.raises(UserError, match="pages are for one model"):
        Generator([plain, plain], CODEC, FILES, config)
    with pytest.raises(UserError, match="reads from left to right can share"):
        check_pages([build(CONFIG, VOCAB, VOCAB, order="ranked")])
    with pytest.raises(
        UserError, match=r"cache='paged': is .* not for a text that is written by its"
    ):
        list(Generator(plain, CODEC, FILES, config).stream({}, "ab", 2))
