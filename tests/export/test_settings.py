"""Decoding settings that CTranslate2 lacks, and those that it takes as options of its own."""

import dataclasses

import pytest

from transformer_jax.config import DecodingConfig
from transformer_jax.export.ctranslate2.search_options import lacks, options

SAME = DecodingConfig(length_penalty="power", stop="width")


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({}, []),
        ({"length_penalty": "gnmt"}, ["length_penalty"]),
        ({"length_penalty": "gnmt", "alpha": 0.0}, []),
        ({"length_penalty": "gnmt", "stop": "optimal", "beam_size": 1}, []),
        ({"stop": "optimal", "min_length_ratio": 0.5}, ["stop", "min_length_ratio"]),
        ({"search": "sample", "stop": "optimal", "rerank": "chrf"}, ["seed", "rerank"]),
        ({"coverage_penalty": 0.2, "no_repeat_ngram": 3, "forbidden": ("a",)}, []),
    ],
)
def test_settings_it_lacks_are_named(changes, named):
    """Each with its value; settings that have no effect are not named."""
    config = dataclasses.replace(SAME, **changes)
    warnings = [warning.partition(": ")[0] for warning in lacks(config)]
    assert warnings == [f"decoding.{name}={getattr(config, name)!r}" for name in named]


def test_settings_are_translated_into_its_options():
    beam = dataclasses.replace(
        SAME, beam_size=3, alpha=0.7, coverage_penalty=0.2, no_repeat_ngram=2, forbidden=("a", "b")
    )
    assert options(beam) == {
        "beam_size": 3, "length_penalty": 0.7, "coverage_penalty": 0.2, "min_decoding_length": 0,
        "no_repeat_ngram_size": 2, "suppress_sequences": [["a"], ["b"]],
    }  # fmt: skip
    sample = DecodingConfig(search="sample", num_samples=5, temperature=0.5, top_k=9, top_p=0.9)
    assert options(sample) == {
        "beam_size": 1, "num_hypotheses": 5, "sampling_temperature": 0.5, "sampling_topk": 9,
        "sampling_topp": 0.9, "min_decoding_length": 0, "no_repeat_ngram_size": 0,
        "suppress_sequences": [],
    }  # fmt: skip
