"""What of our decoding settings CTranslate2 has, and by which names."""

from typing import Any

from transformer_jax.config import DecodingConfig


def lacks(decoding: DecodingConfig) -> list[str]:
    """Return a warning for each decoding setting that CTranslate2 does not have."""
    beam = decoding.search == "beam"
    several = beam and decoding.beam_size > 1
    missing = (
        ("length_penalty", several and decoding.alpha > 0 and decoding.length_penalty != "power",
         "divides by length^alpha ('power') alone"),
        ("stop", several and decoding.stop != "width",
         "stops when beam_size hypotheses are finished ('width')"),
        ("min_length_ratio", decoding.min_length_ratio > 0,
         "takes numbers of pieces alone; give it min_decoding_length"),
        ("seed", not beam, "draws other random numbers; see ctranslate2.set_random_seed"),
        ("shortlist", decoding.shortlist > 0, "writes with all pieces"),
        ("constraint", decoding.constraint != "none", "has no such constraint"),
        ("rerank", decoding.rerank != "none", "gives hypotheses in the order of their scores"),
    )  # fmt: skip
    return [
        f"decoding.{name}={getattr(decoding, name)!r}: CTranslate2 {what}"
        for name, differs, what in missing
        if differs
    ]


def options(decoding: DecodingConfig, two_sided: bool = True) -> dict[str, Any]:
    """Return the arguments of `ctranslate2.Translator.translate_batch` that say the same; of
    `Generator.generate_batch` where there is no source.

    They are no part of an exported model. The longest output is a number of pieces there, and not
    relative to the source.
    """
    if decoding.search == "sample":
        search = {
            "beam_size": 1,
            "num_hypotheses": decoding.num_samples,
            "sampling_temperature": decoding.temperature,
            "sampling_topk": decoding.top_k,
            "sampling_topp": decoding.top_p,
        }
    else:
        search = {
            "beam_size": decoding.beam_size,
            "length_penalty": decoding.alpha,
        }
        if two_sided:
            search["coverage_penalty"] = decoding.coverage_penalty
    return search | {
        # By default a Translator finds no empty translation.
        "min_decoding_length" if two_sided else "min_length": 0,
        "no_repeat_ngram_size": decoding.no_repeat_ngram,
        "suppress_sequences": [[piece] for piece in decoding.forbidden],
    }
