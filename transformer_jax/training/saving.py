"""Saving checkpoints: written while training continues, then amended with validation scores."""

import functools
from collections.abc import Callable
from typing import Any

from transformer_jax.base.disk import DiskError
from transformer_jax.runs.checkpoint import Checkpoints
from transformer_jax.sharding.processes import all_or_none
from transformer_jax.training.profiling import Times
from transformer_jax.training.report import Report, log


class Saving:
    """The saves of one training run.

    `ok` is whether the last save succeeded, as far as known; if a failed save is to stop training,
    whether all of them did.
    """

    def __init__(
        self, checkpoints: Checkpoints, report: Report, times: Times, on_failed: str
    ) -> None:
        self._checkpoints, self._report, self._times = checkpoints, report, times
        self._on_failed = on_failed
        self.ok = True

    def begin(self, step: int, items: tuple[Any, Any], host: dict[str, Any], passing: bool) -> None:
        """Begin to save a step, after settling the previous save."""
        before = self.settle()
        save = functools.partial(self._checkpoints.save, step, *items, host, passing=passing)
        self.ok = self._try(save) and (before or self._on_failed == "continue")

    def settle(self) -> bool:
        """Wait for the save in progress, and return `ok`."""
        self.ok = self._try(self._checkpoints.wait) and self.ok
        return self.ok

    def amend(self, step: int, scores: dict[str, float], changed: dict[str, Any]) -> bool:
        """Add scores and host values to the checkpoint of a step, if there is one.

        Returns whether it now has them.
        """
        self.settle()
        if step not in self._checkpoints.steps():
            return True
        host = self._checkpoints.record(step)["host"] | changed
        amend = functools.partial(self._checkpoints.amend, step, scores=scores, host=host)
        return self._try(amend)

    def _try(self, write: Callable[[], None]) -> bool:
        try:
            with self._times.on("checkpoint"):
                with all_or_none():
                    self._report.make_durable()  # a checkpoint is never ahead of the rows
                write()
        except DiskError as error:
            log.warning("step %d: %s; what was saved before is intact", self._report.step, error)
            return False
        return True
