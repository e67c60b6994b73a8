"""Validation of decoding."""

import math
from typing import TYPE_CHECKING

from transformer_jax.config.bounds import (
    HELD_POSITIONS,
    SIZE,
    above,
    check,
    default_unless,
    within,
)

if TYPE_CHECKING:
    from transformer_jax.config.manual import DecodingConfig

# Beyond it, the penalty of the longest text, length^alpha, is infinite in float32, and so all
# scores are 0.
MOST_ALPHA = int(127 / math.log2(HELD_POSITIONS))


def check_decoding(decoding: "DecodingConfig") -> None:
    """Reject an impossible search, or one with fields that have no effect."""
    within(1, 1000, beam_size=decoding.beam_size)
    within(1, 10_000, num_samples=decoding.num_samples)
    within(1, 2**22, tokens_per_batch=decoding.tokens_per_batch)
    within(0, 100, max_length_ratio=decoding.max_length_ratio)
    within(0, 10_000, max_extra_length=decoding.max_extra_length)
    within(0, 2**32 - 1, seed=decoding.seed)
    within(0, SIZE, top_k=decoding.top_k)
    within(0, 1000, no_repeat_ngram=decoding.no_repeat_ngram)
    within(0, SIZE, shortlist=decoding.shortlist)
    within(0, 100, coverage_penalty=decoding.coverage_penalty)
    within(0, MOST_ALPHA, alpha=decoding.alpha)
    within(1e-6, 1000, temperature=decoding.temperature)
    above(0, 1, top_p=decoding.top_p)
    check(
        0 <= decoding.min_length_ratio <= decoding.max_length_ratio,
        f"min_length_ratio={decoding.min_length_ratio}: must lie between 0 and "
        f"max_length_ratio={decoding.max_length_ratio}",
    )
    check(
        decoding.max_length_ratio > 0 or decoding.max_extra_length > 0,
        f"max_length_ratio={decoding.max_length_ratio} and "
        f"max_extra_length={decoding.max_extra_length}: leave no room for an output",
    )
    default_unless(
        decoding.constraint == "none", decoding,
        "no_repeat_ngram", "forbidden", "min_length_ratio", "shortlist",
        because=f"may leave constraint={decoding.constraint!r} no valid piece",
        otherwise="choose 'none'",
    )  # fmt: skip
    _check_draft(decoding)
    _check_cache(decoding)
    decoding.check_fits(1)


def _check_cache(decoding: "DecodingConfig") -> None:
    """Reject what a paged cache does not support, and what has no effect without one."""
    paged = decoding.cache == "paged"
    within(1, 4096, cache_block=decoding.cache_block)
    default_unless(
        paged, decoding, "cache_block",
        because="cache='contiguous' has no blocks", otherwise="set cache='paged'",
    )  # fmt: skip
    check(
        not paged or decoding.search == "sample" or decoding.beam_size == 1,
        "cache='paged': beam search reorders hypotheses at every step, and each would need copies "
        "of its blocks, where the contiguous cache moves bits; set beam_size=1, or "
        "search='sample'",
    )
    check(
        not paged or decoding.draft is None,
        f"cache='paged': a paged step writes one token, and draft={decoding.draft!r} needs "
        "several; remove one of them",
    )


def _check_draft(decoding: "DecodingConfig") -> None:
    """Reject what speculative decoding does not support, and fields without effect."""
    within(1, 64, draft_length=decoding.draft_length)
    default_unless(
        decoding.draft is not None, decoding, "draft_length",
        because="nothing is proposed without a draft", otherwise="set draft",
    )  # fmt: skip
    check(
        decoding.draft is None or decoding.search == "sample" or decoding.beam_size == 1,
        f"draft={decoding.draft!r}: beam search needs the best continuations over all hypotheses "
        "at every position, and a draft proposes one text; set beam_size=1, or "
        "search='sample'",
    )
    check(
        decoding.draft is None or decoding.constraint == "none",
        f"draft={decoding.draft!r}: proposals may violate constraint={decoding.constraint!r}; "
        "remove one of them",
    )
    check(
        decoding.draft is None or not decoding.shortlist,
        f"draft={decoding.draft!r}: proposes any piece, and shortlist={decoding.shortlist} scores "
        "only some; set one of them to its default",
    )
    check(decoding.draft != "", "draft='': names no directory; remove it, or write None")
