"""Validation of decoding."""

from typing import Any

from transformer_jax.config.bounds import check, default_unless


def check_decoding(decoding: Any) -> None:
    """Reject an impossible search."""
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
    check(
        decoding.repetition_penalty == 1 or not decoding.competes,
        f"repetition_penalty={decoding.repetition_penalty}: a beam compares hypotheses by the "
        "model's own probabilities; set beam_size=1, or search='sample'",
    )
    for other, plain in (("draft", None), ("shortlist", 0)):
        value = getattr(decoding, other)
        check(
            decoding.ctc_weight == 0 or value == plain,
            f"ctc_weight={decoding.ctc_weight}: CTC scores all pieces, one at a time, which "
            f"{other}={value!r} does not fit; set one of them to its default",
        )
    _check_draft(decoding)
    _check_cache(decoding)
    decoding.check_fits(1)


def check_decoding_reads(decoding: Any) -> None:
    """Reject fields of a draft or of a paged cache without one, and what no picture is drawn by."""
    default_unless(
        decoding.draft is not None, decoding, "draft_length",
        because="nothing is proposed without a draft", otherwise="set draft",
    )  # fmt: skip
    default_unless(
        decoding.cache == "paged", decoding, "cache_block",
        because="cache='contiguous' has no blocks", otherwise="set cache='paged'",
    )  # fmt: skip
    default_unless(
        not decoding.record.values, decoding, "compute_dtype",
        because=f"search={decoding.search!r} draws in the dtype of the model",
        otherwise="choose 'beam' or 'sample'",
    )  # fmt: skip


def _check_cache(decoding: Any) -> None:
    """Reject what a paged cache does not support."""
    paged = decoding.cache == "paged"
    check(
        not paged or not decoding.competes,
        "cache='paged': beam search reorders hypotheses at every step, and each would need copies "
        "of its blocks, where the contiguous cache moves bits; set beam_size=1, or "
        "search='sample'",
    )
    check(
        not paged or decoding.draft is None,
        f"cache='paged': a paged step writes one token, and draft={decoding.draft!r} needs "
        "several; remove one of them",
    )


def _check_draft(decoding: Any) -> None:
    """Reject what speculative decoding does not support."""
    check(
        decoding.draft is None or not decoding.competes,
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
