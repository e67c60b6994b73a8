"""Checkpoint retention: which one is the best, which are kept, and how names resolve to steps."""

import itertools
import logging
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypedDict

from transformer_jax.base.errors import UserError
from transformer_jax.config import CheckpointConfig, average_count
from transformer_jax.config.metrics import standing

log = logging.getLogger("transformer_jax")


class Record(TypedDict):
    """The contents of a checkpoint besides its arrays."""

    host: dict[str, Any]  # host values, to resume from
    scores: dict[str, float] | None  # of validation; None if it has not run yet
    passing: bool  # a run that continues past this step would not have it, or not its scores
    arrays: dict[str, str]  # a checksum of each


def steps_in(directory: Path) -> list[int]:
    """Return the steps saved in a directory, ascending."""
    paths = directory.glob("[0-9]*")
    names = (path.name for path in paths if path.name.isdecimal() and path.is_dir())
    return sorted(int(name) for name in names if name == str(int(name)))


def best(records: Mapping[int, Record], by: str) -> int | None:
    """Return the step with the best score, by a name in VALIDATION, or None if none has a score.

    Ties go to the lowest loss, then to the earliest step.
    """
    ranked = [
        (standing(record["scores"], by), -step)
        for step, record in records.items()
        if record["scores"] and math.isfinite(record["scores"][by])
    ]
    return -max(ranked)[1] if ranked else None


def kept(records: Mapping[int, Record], config: CheckpointConfig) -> set[int]:
    """Return the newest step, the last `keep_last` and the best; passing ones only as the newest.

    So neither the steps kept nor those averaged by `average:N` depend on interruptions.
    """
    newest = max(records)
    lasting = {step: record for step, record in records.items() if not record["passing"]}
    chosen = best(lasting | {newest: records[newest]}, config.best_by)
    return {newest, *sorted(lasting)[-config.keep_last :], newest if chosen is None else chosen}


def check_one_run(hosts: Mapping[int, dict[str, Any]]) -> None:
    """Check the host values, by step, of checkpoints to be averaged.

    Checkpoints from versions without run identities are accepted, with a warning.

    Raises:
      UserError: if two of them belong to different runs or have different tokenizers.
    """
    for what in ("run", "tokenizer"):
        known = {step: host[what] for step, host in hosts.items() if what in host}
        for step, other in itertools.pairwise(known):
            if known[step] != known[other]:
                raise UserError(
                    f"checkpoints {step} and {other}: not of one run (different {what}); only "
                    "checkpoints of one run can be averaged: remove the one that was copied here"
                )
    warn_of_unnamed(hosts)


def warn_of_unnamed(hosts: Mapping[int, dict[str, Any]]) -> None:
    """Log which checkpoints, by step, do not record the run they belong to."""
    unnamed = ", ".join(str(step) for step, host in sorted(hosts.items()) if "run" not in host)
    if unnamed:
        log.warning(
            "checkpoints %s do not record which run they belong to, as older versions wrote them; "
            "treating them as checkpoints of this run", unnamed,
        )  # fmt: skip


def choose(
    name: str, steps: Sequence[int], keep_last: int, best_step: Callable[[], int]
) -> list[int]:
    """Return the saved steps that best, last, STEP or average:N stand for.

    Raises:
      UserError: if there are none.
    """
    count = average_count(name)
    if count is not None:
        if len(steps) < count:
            raise UserError(
                f"checkpoint={name}: only {len(steps)} are saved, {steps}; average fewer"
            )
        if count > keep_last:  # an older one may remain because it is the best
            raise UserError(
                f"checkpoint={name}: the last {keep_last} are kept (checkpoint.keep_last); "
                f"average at most these, or train with checkpoint.keep_last={count}"
            )
        return list(steps[-count:])
    step = best_step() if name == "best" else steps[-1] if name == "last" else int(name)
    if step not in steps:
        raise UserError(f"checkpoint={name}: not saved; the saved steps are {steps}")
    return [step]
