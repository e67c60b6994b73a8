"""Validation of an objective."""

from typing import TYPE_CHECKING

from transformer_jax.config.bounds import (
    SIZE,
    above,
    check,
    default_unless,
    either,
    is_part,
    rate,
    within,
)
from transformer_jax.config.words import ARCHITECTURES, BESIDE, JOINS, ONE_SIDED, READ_BY

if TYPE_CHECKING:
    from transformer_jax.config.manual import ObjectiveConfig


def check_objective(objective: "ObjectiveConfig") -> None:
    """Reject windows that are too short, and fields that are not read."""
    within(1, SIZE, window=objective.window, horizon=objective.horizon)
    above(0, 0.9, mask_rate=objective.mask_rate, noise_density=objective.noise_density)
    within(1, 1000, partial_prediction=objective.partial_prediction)
    check(
        objective.kind in ARCHITECTURES,
        f"like={objective.like!r}: must say which objective name={objective.name!r} is like, as in "
        f"--config.objective.like=language_model; one of {', '.join(ARCHITECTURES)}",
    )
    check(
        objective.like is None or is_part(objective.name),
        f"like={objective.like!r}: is for user-defined parts, and name={objective.name!r} is not "
        "one; leave it at None",
    )
    _check_parts(objective)
    within(1, 1000, mean_span_length=objective.mean_span_length)
    within(1, 2**15, sentinels=objective.sentinels)
    rate(text_infilling_rate=objective.text_infilling_rate)
    rate(token_masking_rate=objective.token_masking_rate)
    rate(token_deletion_rate=objective.token_deletion_rate)
    within(0, 1, sentence_permutation_rate=objective.sentence_permutation_rate)
    within(0, 1, document_rotation_rate=objective.document_rotation_rate)
    for name, readers in READ_BY.items():
        others = ("language_model",) if name in ("window", "document") else readers
        default_unless(
            not objective.kinds.isdisjoint(readers), objective, name,
            because=f"has no effect with name={objective.name!r}",
            otherwise=f"choose {' or '.join(f'name={other!r}' for other in others)}",
        )  # fmt: skip
    check(
        objective.kinds & {*ONE_SIDED} <= {*JOINS} or objective.document != "joined",
        f"document='joined': name={objective.name!r} reads documents separately; choose 'line', or "
        f"{' or '.join(f'name={name!r}' for name in JOINS)}",
    )
    needs = {
        "permutation_lm": (2, "a piece that is read and one that is predicted"),
        "bidirectional_lm": (2, "a piece that is read and one that is predicted"),
        "masked_lm": (2, "BOS and a piece"),
        "masked_lm_nsp": (5, "BOS and two segments of a piece and EOS"),
        "answer": (5, "BOS and two segments of a piece and EOS"),
        "tag": (3, "BOS, a piece and EOS"),
        "regress": (2, "BOS and a piece"),
        "classify": (2, "BOS and a piece"),
        "policy": (78, "BOS and the 77 characters of a position"),
        "classify_pairs": (5, "BOS and two segments of a piece and EOS"),
        "span_corruption": (3, "a piece, a sentinel and EOS"),
        "denoising": (2, "a piece and EOS"),
        "text_continuation": (2, "a piece that is read and one that is written"),
    }
    least, what = needs.get(objective.kind, (1, ""))
    check(
        objective.window >= least,
        f"window={objective.window}: name={objective.name!r} needs at least {least}: {what}",
    )


def _check_parts(objective: "ObjectiveConfig") -> None:
    """Reject parts with an objective that cannot be combined with the main one."""
    beside = BESIDE.get(objective.kind, ())
    named = [entry.partition("=")[0] for entry in objective.parts]
    for part, entry in zip(named, objective.parts, strict=True):
        check(
            bool(beside),
            f"parts={entry!r}: name={objective.name!r} cannot be combined with another; set parts "
            f"to (), or choose {either(BESIDE)}",
        )
        check(
            named.count(part) == 1 and entry.partition("=")[2] in beside,
            f"parts={entry!r}: must be PART=NAME, once for each part, with a NAME that can be "
            f"combined with name={objective.name!r}: {either(beside)}",
        )
    for name in objective.kinds - {objective.kind}:
        objective.alone(name)  # runs its own checks
