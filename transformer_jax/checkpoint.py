"""Orbax behind one door: save, restore, choose, average."""

import math
from pathlib import Path
from typing import Any

import jax
import numpy as np
import orbax.checkpoint as ocp
from orbax.checkpoint import checkpoint_managers as policies

from transformer_jax.config import CheckpointConfig, average_count
from transformer_jax.errors import UserError


class Checkpoints:
    """The checkpoints of one run: parameters, optimizer and a JSON of host values, by step.

    Kept are the last `keep_last` and the best by a validation score, which is given when saving.
    """

    def __init__(self, directory: Path, config: CheckpointConfig) -> None:
        self._directory = directory.absolute()
        sign = 1 if config.best_by == "bleu" else -1

        def value(scores: dict[str, float]) -> float:
            score = sign * scores[config.best_by]
            return score if math.isfinite(score) else -math.inf  # NaN has no place in an order

        best = policies.BestN(
            get_metric_fn=value, reverse=False, n=1, keep_checkpoints_without_metrics=False
        )
        # Without LatestN, keeping the best would delete the newest (and lose the progress).
        policy = policies.AnyPreservationPolicy([policies.LatestN(config.keep_last), best])
        # best_fn makes Orbax store scores at all; which steps stay is the policy's to say.
        options = ocp.CheckpointManagerOptions(
            preservation_policy=policy,
            best_fn=value,
            create=False,
            enable_async_checkpointing=False,
        )
        self._value = value
        self._options = options
        self._open_manager: ocp.CheckpointManager | None = None

    @property
    def _manager(self) -> ocp.CheckpointManager:
        if self._open_manager is None:
            names = ("params", "training", "host")
            self._open_manager = ocp.CheckpointManager(
                self._directory, item_names=names, options=self._options
            )
        return self._open_manager

    def steps(self) -> list[int]:
        """Return the steps that are saved, ascending."""
        return sorted(self._manager.all_steps()) if self._directory.is_dir() else []

    def save(
        self, step: int, params: Any, training: Any, host: dict, scores: dict[str, float] | None
    ) -> None:
        """Save a step; scores is {"bleu": ..., "loss": ...} where validation ran.

        `training` is {} for parameters that nobody goes on training.
        """
        self._directory.mkdir(parents=True, exist_ok=True)
        items = {"params": ocp.args.StandardSave(params), "host": ocp.args.JsonSave(host)}
        if training:  # Orbax saves no empty tree
            items["training"] = ocp.args.StandardSave(training)
        if step in self.steps():
            return  # a resumed run reached its own last save
        composite = ocp.args.Composite(**items)
        saved = self._manager.save(step, args=composite, metrics=scores, force=True)
        assert saved, f"checkpoint {step} was not saved"

    def restore(self, step: int, params: Any, training: Any) -> tuple[Any, Any, dict]:
        """Return (params, training, host) of a step, laid out like the given abstract trees.

        Raises:
          UserError: if the step was saved without `training`.
        """
        if not (self._directory / str(step) / "training").exists():
            raise UserError(
                f"{self._directory / str(step)}: parameters alone, as `average` writes them, "
                "cannot be trained on; go on in the work directory that they come from"
            )
        items = ocp.args.Composite(
            params=ocp.args.StandardRestore(params),
            training=ocp.args.StandardRestore(training),
            host=ocp.args.JsonRestore(),
        )
        restored = self._manager.restore(step, args=items)
        return restored["params"], restored["training"], restored["host"]

    def restore_params(self, step: int, params: Any) -> Any:
        """Return the parameters of a step alone."""
        items = ocp.args.Composite(params=ocp.args.StandardRestore(params))
        return self._manager.restore(step, args=items)["params"]

    def scores(self, step: int) -> dict[str, float] | None:
        """Return the validation scores saved with a step, or None if validation did not run."""
        return self._manager.metrics(step) or None

    def best(self) -> int:
        """Return the step with the best score, or the last step if none has a score."""
        scored = [(step, self.scores(step)) for step in self._require()]
        ranked = [(self._value(scores), step) for step, scores in scored if scores]
        return max(ranked)[1] if ranked else self.steps()[-1]

    def _require(self) -> list[int]:
        steps = self.steps()
        if not steps:
            raise UserError(f"{self._directory}: no checkpoints here; train first")
        return steps

    def choose(self, name: str) -> list[int]:
        """Return the steps that best, last, STEP or average:N stand for.

        Raises:
          UserError: if there are none such.
        """
        count, steps = average_count(name), self._require()
        if count is not None:
            if len(steps) < count:
                raise UserError(f"checkpoint={name}: only {len(steps)} are saved, {steps}")
            return steps[-count:]
        step = self.best() if name == "best" else steps[-1] if name == "last" else int(name)
        if step not in steps:
            raise UserError(f"checkpoint={name}: not saved; there are {steps}")
        return [step]

    def load_params(self, name: str, params: Any) -> Any:
        """Return the parameters that best, last, STEP or average:N stand for.

        An average is the plain mean (paper 6.1), taken in float64.
        """
        steps = self.choose(name)
        if len(steps) == 1:
            return self.restore_params(steps[0], params)
        total = None
        for step in steps:
            one = jax.tree.map(
                lambda x: np.asarray(x, np.float64), self.restore_params(step, params)
            )
            total = one if total is None else jax.tree.map(np.add, total, one)
        return jax.tree.map(
            lambda x, like: jax.device_put((x / len(steps)).astype(like.dtype), like.sharding),
            total,
            params,
        )

    def close(self) -> None:
        """Finish what is being written."""
        if self._open_manager is not None:
            self._open_manager.close()
