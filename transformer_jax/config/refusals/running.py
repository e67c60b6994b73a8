"""Validation of training, checkpoints and evaluation."""

import dataclasses
from typing import Any

from transformer_jax.config.bounds import SIZE, STEPS, check, check_pattern, default_unless
from transformer_jax.config.choices.optimizers import check_optimizer_choices
from transformer_jax.config.metrics import average_count


def check_optimizer(optimizer: Any) -> None:
    """Reject invalid rates and patterns."""
    check_optimizer_choices(optimizer)
    for name in ("frozen", "unfrozen"):
        for pattern in getattr(optimizer, name):
            check_pattern(name, pattern)
    for pattern, _ in optimizer.factors:
        check_pattern("rate_factors", pattern)


def check_init(init: Any) -> None:
    """Reject invalid patterns."""
    for pattern in init.take:
        check_pattern("take", pattern)
    for entry in init.rename:
        check(
            len(entry.split("=")) == 2,
            f"rename={entry!r}: must be THEIRS=OURS, prefixes of names",
        )


def check_init_reads(init: Any) -> None:
    """Reject fields that have no effect without a source."""
    default_unless(
        init.source is not None, init, "also", "take", "rename", "tokenizer",
        because="has no effect without source", otherwise="name a source",
    )  # fmt: skip


def check_evaluation(evaluation: Any) -> None:
    """Reject invalid metrics and checkpoints."""
    average_count(evaluation.checkpoint)
    check(
        0 < len({*evaluation.metrics}) == len(evaluation.metrics),
        f"metrics={evaluation.metrics}: must name at least one, each only once",
    )


def check_mesh(mesh: Any) -> None:
    """Reject invalid mesh sizes."""
    sizes = dataclasses.asdict(mesh)
    for name, size in sizes.items():
        check(
            size == -1 or 1 <= size <= SIZE,
            f"{name}={size}: must be at least 1 and at most {SIZE}, or -1",
        )
    check(
        list(sizes.values()).count(-1) <= 1,
        ", ".join(f"{name}={size}" for name, size in sizes.items()) + ": only one may be -1",
    )


def check_profile(profile: Any) -> None:
    """Reject an invalid range of steps."""
    check(
        not profile.steps
        or (len(profile.steps) == 2 and 1 <= profile.steps[0] <= profile.steps[1] <= STEPS),
        f"steps={profile.steps}: must be the first and the last step to trace, as in 10,15",
    )
