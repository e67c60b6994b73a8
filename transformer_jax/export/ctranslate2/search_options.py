"""Decoding settings as options of CTranslate2, and warnings about those that it lacks."""

from collections.abc import Sequence
from typing import Any

from transformer_jax.config import DecodingConfig, ObjectiveConfig
from transformer_jax.config.registry import pick
from transformer_jax.data.codecs.codec import Codec
from transformer_jax.decoding.search.state import NEVER
from transformer_jax.decoding.text.prompts import forbidden


def lacks(decoding: DecodingConfig) -> list[str]:
    """Return a warning for each decoding setting that CTranslate2 does not have."""
    several = decoding.competes
    missing = (
        ("length_penalty", several and decoding.alpha > 0 and decoding.length_penalty != "power",
         "only divides by length^alpha ('power')"),
        ("stop", several and decoding.stop != "width",
         "stops when beam_size hypotheses are finished ('width')"),
        ("min_length_ratio", decoding.min_length_ratio > 0,
         "accepts only numbers of pieces; set its min_decoding_length"),
        ("min_p", decoding.min_p > 0, "has no such truncation"),
        ("repetition_penalty", decoding.repetition_penalty != 1,
         "counts other pieces in its own; set its repetition_penalty"),
        ("seed", decoding.draws, "draws other random numbers; see ctranslate2.set_random_seed"),
        ("shortlist", decoding.shortlist > 0, "uses the whole vocabulary"),
        ("constraint", decoding.constraint != "none", "has no such constraint"),
        ("rerank", decoding.rerank != "none", "returns hypotheses in the order of their scores"),
    )  # fmt: skip
    return [
        f"decoding.{name}={getattr(decoding, name)!r}: CTranslate2 {what}"
        for name, differs, what in missing
        if differs
    ]


def unwritten(codec: Codec, objective: ObjectiveConfig, decoding: DecodingConfig) -> list[str]:
    """Return the pieces that no text contains here: CTranslate2 would write any."""
    return codec.pieces([*NEVER, *forbidden(codec, objective, decoding)])


def options(
    decoding: DecodingConfig, two_sided: bool = True, never: Sequence[str] | None = None
) -> dict[str, Any]:
    """Return the equivalent arguments of `ctranslate2.Translator.translate_batch`, or of
    `Generator.generate_batch` if there is no source.

    They are not part of an exported model. `never` are pieces that no text contains; by default
    those of decoding.forbidden. The maximum output length is a number of pieces in
    CTranslate2, not relative to the source.
    """
    search = pick(_SEARCHES, decoding.search, "config.decoding.search")
    return search(decoding, two_sided) | {
        # By default, a Translator never returns an empty translation.
        "min_decoding_length" if two_sided else "min_length": 0,
        "no_repeat_ngram_size": decoding.no_repeat_ngram,
        "suppress_sequences": [
            [piece] for piece in (decoding.forbidden if never is None else never)
        ],
    }


def _beam(decoding: DecodingConfig, two_sided: bool) -> dict[str, Any]:
    covers = {"coverage_penalty": decoding.coverage_penalty} if two_sided else {}
    return {"beam_size": decoding.beam_size, "length_penalty": decoding.alpha, **covers}


def _sample(decoding: DecodingConfig, two_sided: bool) -> dict[str, Any]:
    return {
        "beam_size": 1,
        "num_hypotheses": decoding.num_samples,
        "sampling_temperature": decoding.temperature,
        "sampling_topk": decoding.top_k,
        "sampling_topp": decoding.top_p,
    }


_SEARCHES = {"beam": _beam, "sample": _sample}  # those that CTranslate2 has
