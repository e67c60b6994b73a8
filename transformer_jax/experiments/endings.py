"""The trainer's final messages."""

from typing import Any

import jax

from transformer_jax.base.messages import program
from transformer_jax.runs.checkpoint import Checkpoints
from transformer_jax.runs.workdir import WorkDir
from transformer_jax.training.logs import log, log_to
from transformer_jax.training.loop import Outcome
from transformer_jax.training.report import Report


def already_finished(step: int, reason: str, changed: dict[str, Any]) -> Outcome:
    """Say that the run is finished, on the terminal only: train.log is not touched."""
    if jax.process_index() > 0:
        return Outcome.FINISHED
    log_to(None)
    log.info("already finished at step %d: %s", step, reason)
    if changed:
        listed = "; ".join(f"{path}: {old!r} -> {new!r}" for path, (old, new) in changed.items())
        log.warning(
            "not changed, because a finished run keeps its config.json: %s; pass fields of "
            "decoding and evaluation to eval.py or translate, or use another --workdir", listed,
        )  # fmt: skip
    return Outcome.FINISHED


def say_goodbye(
    outcome: Outcome,
    workdir: WorkDir,
    checkpoints: Checkpoints,
    report: Report,
    reason: str | None = None,
) -> None:
    """Say why a run ended, if it is finished for this reason, and what to do next."""
    if outcome == Outcome.DIVERGED:
        log.info(
            "stopped at step %d: %d updates in a row were not finite, on the lines named above; "
            "lower optimizer.learning_rate or set optimizer.clip_norm; checkpoints up to %s are "
            "kept",
            report.step, report.bad_steps, checkpoints.steps()[-1:],
        )  # fmt: skip
        return
    if outcome == Outcome.UNSAVED:
        log.info(
            "stopped at step %d, which is not saved; free disk space and run the same command "
            "again to resume from step %d", report.step, max(checkpoints.steps(), default=0),
        )  # fmt: skip
        return
    if outcome == Outcome.INTERRUPTED:
        log.info("saved; run the same command again to resume")
        return
    log.info("finished at step %d: %s", report.step, reason)
    best = checkpoints.best()
    scores = (checkpoints.record(best)["scores"] or {}).items()
    log.info("best checkpoint: step %d  %s", best, "  ".join(f"{k} {v:.4g}" for k, v in scores))
    log.info("everything is in %s", workdir.path)
    log.info("next: %s --workdir=%s", program("evaluate"), workdir.path)
