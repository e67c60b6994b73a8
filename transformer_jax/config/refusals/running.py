"""Validation of training, checkpoints and evaluation."""

import dataclasses
from typing import TYPE_CHECKING

from transformer_jax.config.bounds import (
    SIZE,
    STEPS,
    above,
    check,
    check_pattern,
    default_unless,
    rate,
    within,
)
from transformer_jax.config.words import average_count

if TYPE_CHECKING:
    from transformer_jax.config.manual import (
        CheckpointConfig,
        EvaluationConfig,
        InitConfig,
        MeshConfig,
        OptimizerConfig,
        ProfileConfig,
        TrainingConfig,
    )


def check_optimizer(optimizer: "OptimizerConfig") -> None:
    """Reject invalid rates and patterns."""
    rate(momentum=optimizer.momentum, b1=optimizer.b1, b2=optimizer.b2)
    above(0, 100, update_rms=optimizer.update_rms)
    above(0, 1, epsilon=optimizer.epsilon)
    above(0, 100, learning_rate=optimizer.learning_rate)
    said = f"learning_rate={optimizer.learning_rate}: with schedule={optimizer.schedule!r} it is"
    if optimizer.schedule == "paper":
        check(optimizer.learning_rate >= 0.01, f"{said} a factor, about 1; must be at least 0.01")
    else:
        check(optimizer.learning_rate < 0.1, f"{said} the peak, about 0.001; must be below 0.1")
    within(1, STEPS, warmup_steps=optimizer.warmup_steps)
    above(0, 1, layer_decay=optimizer.layer_decay)
    for name in ("frozen", "unfrozen"):
        for pattern in getattr(optimizer, name):
            check_pattern(name, pattern)
    for pattern, _ in optimizer.factors:
        check_pattern("rate_factors", pattern)
    # With a learning rate below 0.1, a decay above 10 could remove more than the whole weight.
    within(0, 10, weight_decay=optimizer.weight_decay)
    above(0, 10**9, ", or None for no clipping", clip_norm=optimizer.clip_norm)


def check_init(init: "InitConfig") -> None:
    """Reject fields that have no effect without a source, and invalid patterns."""
    default_unless(
        init.source is not None, init, "also", "take", "rename", "tokenizer",
        because="has no effect without source", otherwise="name a source",
    )  # fmt: skip
    for pattern in init.take:
        check_pattern("take", pattern)
    for entry in init.rename:
        check(
            len(entry.split("=")) == 2,
            f"rename={entry!r}: must be THEIRS=OURS, prefixes of names",
        )


def check_training(training: "TrainingConfig") -> None:
    """Reject numbers out of bounds."""
    within(1, STEPS, steps=training.steps, log_every=training.log_every)
    within(1, STEPS, max_bad_steps=training.max_bad_steps, early_stopping=training.early_stopping)
    within(1, SIZE, accumulation_steps=training.accumulation_steps)
    within(1, STEPS, steps_per_execution=training.steps_per_execution)
    rate(label_smoothing=training.label_smoothing, ema_decay=training.ema_decay)
    above(0, 1000, ", or None for a single pass", r_drop=training.r_drop)
    above(1, 10**6, ", or None for no reports", loss_spike=training.loss_spike)
    above(0, 10**7, ", or None for no limit", max_minutes=training.max_minutes)


def check_checkpoint(checkpoint: "CheckpointConfig") -> None:
    """Reject numbers out of bounds."""
    within(1, STEPS, every_steps=checkpoint.every_steps, keep_last=checkpoint.keep_last)


def check_evaluation(evaluation: "EvaluationConfig") -> None:
    """Reject invalid metrics and checkpoints."""
    within(1, STEPS, every_steps=evaluation.every_steps)
    within(0, 10**9, bleu_sentences=evaluation.bleu_sentences)
    within(1, SIZE, season=evaluation.season)
    average_count(evaluation.checkpoint)
    check(
        0 < len({*evaluation.metrics}) == len(evaluation.metrics),
        f"metrics={evaluation.metrics}: must name at least one, each only once",
    )


def check_mesh(mesh: "MeshConfig") -> None:
    """Reject invalid mesh sizes."""
    sizes = dataclasses.asdict(mesh)
    for name, size in sizes.items():
        check(
            size == -1 or 1 <= size <= SIZE,
            f"{name}={size}: must be at least 1 and at most {SIZE}, or -1",
        )
    check(
        list(sizes.values()).count(-1) <= 1,
        f"data={mesh.data}, fsdp={mesh.fsdp}, tensor={mesh.tensor}: only one may be -1",
    )


def check_profile(profile: "ProfileConfig") -> None:
    """Reject an invalid range of steps."""
    check(
        not profile.steps
        or (len(profile.steps) == 2 and 1 <= profile.steps[0] <= profile.steps[1] <= STEPS),
        f"steps={profile.steps}: must be the first and the last step to trace, as in 10,15",
    )
