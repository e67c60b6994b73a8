"""A paged cache holds what a contiguous one does, in fewer blocks where prompts have much in common."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
from tiny import VARIANTS, VOCAB, random_params

from transformer_jax.config import DecodingConfig
from transformer_jax.decoding.batching.paged import PagedStream
from transformer_jax.decoding.batching.stream import Sentence
from transformer_jax.decoding.search.sampling import Sampling
from transformer_jax.decoding.search.state import SearchRequest, complete
from transformer_jax.models.build import build
from transformer_jax.vocabulary import BOS, UNK

CONFIG = dataclasses.replace(
    VARIANTS["llama"], num_decoder_layers=2, decoder_pattern=("full", "local"), window=3,
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


def test_texts_are_those_of_contiguous_caches():
    """Greedy and sampled, in float64, however few blocks there are and whoever makes room."""
    with jax.enable_x64(True):
        model = build(CONFIG, VOCAB, VOCAB, jnp.float64)
        params = jax.tree.map(jnp.float64, random_params(build(CONFIG, VOCAB, VOCAB)))
        for fields in ({"beam_size": 1}, {"search": "sample", "num_samples": 2}):
            search = Sampling.of(DecodingConfig(**fields))
            tokens, scores = map(np.asarray, alone(model, params, search))
            used = []
            for budget in (4096, 1):
                stream = PagedStream(model.stepper, search, params, 4, budget)
                found = {number: found for number, *found in stream.run(SENTENCES)}
                assert sorted(found) == list(range(len(SENTENCES)))
                for number, (mine, score) in found.items():
                    np.testing.assert_array_equal(mine[:, :9], tokens[number])
                    np.testing.assert_allclose(score, scores[number], rtol=1e-10)
                used.append(stream.most_used)
            assert used[1] < used[0]
