"""Orbax behind one door: save, restore, verify, choose, average.

A checkpoint is a directory <step>/ with the items params, training and record. The record is JSON:
values of the host, validation scores, a checksum of every array, and a hash of itself.
"""

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, cast

import jax
import orbax.checkpoint as ocp

from transformer_jax import integrity
from transformer_jax.arrays import mean
from transformer_jax.config import CheckpointConfig
from transformer_jax.disk import DiskError, check_room, quiet, write_text, writing
from transformer_jax.errors import UserError
from transformer_jax.integrity import DamagedCheckpoint, checksums, seal
from transformer_jax.retention import Record, best, check_one_run, choose, kept, steps_in
from transformer_jax.sharding.processes import all_or_none, together

_ITEMS = ("params", "training", "record")
_OPTIONS = ocp.CheckpointManagerOptions(create=False)
_RECORD = "record/metadata"  # in the directory of a step; where Orbax puts JSON


class Checkpoints:
    """The checkpoints of one run, by step.

    Kept are the newest, the last `keep_last` and the best by a validation score.
    """

    def __init__(self, directory: Path, config: CheckpointConfig) -> None:
        self._directory, self._config = directory.absolute(), config
        self._records: dict[int, Record] = {}
        self._begun: tuple[int, Record, int] | None = None  # and the bytes that it needs
        self._writes = jax.process_index() == 0  # of several processes; Orbax divides its own work
        self._open_manager: ocp.CheckpointManager | None = None

    @property
    def _manager(self) -> ocp.CheckpointManager:
        if self._open_manager is None:
            # Orbax keeps all: which of them stay is for `_prune` to say, for it reads the records.
            self._open_manager = ocp.CheckpointManager(
                self._directory, item_names=_ITEMS, options=_OPTIONS
            )
        return self._open_manager

    def steps(self) -> list[int]:
        """Return the steps that are saved, ascending."""
        # Not asked of Orbax, which would make all processes wait for one another.
        return steps_in(self._directory)

    def save(
        self,
        step: int,
        params: Any,
        training: Any,
        host: dict[str, Any],
        scores: dict[str, float] | None = None,
        passing: bool = False,
    ) -> None:
        """Begin to save a step, whole or not at all: `wait` says how it ended.

        The arrays may be donated when this returns. `training` is {} for parameters that are not
        trained further; scores are {"bleu": ..., "loss": ...}, or None as long as validation did
        not run.

        Raises:
          DiskError: if the disk does not take it, or did not take the step before; says what was
            needed and what room there is.
        """
        self.wait()
        if step in self.steps():
            return  # a resumed run reached its own last save
        tree = {"params": params} | ({"training": training} if training else {})  # no empty trees
        record = Record(host=host, scores=scores, passing=passing, arrays=checksums(tree))
        items = {name: ocp.args.StandardSave(part) for name, part in tree.items()}
        composite = ocp.args.Composite(**items, record=ocp.args.JsonSave(seal({**record})))
        need = sum(leaf.nbytes for leaf in jax.tree.leaves(tree))
        with self._writing(f"checkpoint {step}", need):
            with all_or_none():
                self._directory.mkdir(exist_ok=True)  # its parent was claimed
                check_room(self._directory, need)  # sooner than after half of it
            saved = self._manager.save(step, args=composite, force=True)
            assert saved, f"checkpoint {step} was not saved"
            self._begun = step, record, need

    def wait(self) -> None:
        """Return when the step that is being saved, if one is, can be chosen and restored.

        Raises:
          DiskError: if the disk does not take it.
        """
        begun, self._begun = self._begun, None
        if begun is not None:
            step, record, need = begun
            with self._writing(f"checkpoint {step}", need):
                self._manager.wait_until_finished()
                self._records[step] = record
                self._prune()

    def amend(self, step: int, **changes: Any) -> None:
        """Change host, scores or passing of a saved step.

        Raises:
          DiskError: if the disk does not take it; the step is as it was.
        """
        record = cast(Record, {**self.record(step), **changes})
        with self._writing(f"the record of checkpoint {step}"):
            with all_or_none():
                if self._writes:
                    write_text(self._directory / str(step) / _RECORD, json.dumps(seal({**record})))
            self._records[step] = record
            self._prune()

    @contextmanager
    def _writing(self, what: str, need: int = 0) -> Iterator[None]:
        try:
            with quiet(), writing(what, self._directory, need):
                yield
        except DiskError:
            self._open_manager = None  # it remembers the failure
            self.clean()  # what is half-written only takes room
            raise

    def _prune(self) -> None:
        records = {}
        for step in self.steps():
            try:
                records[step] = self.record(step)
            except DamagedCheckpoint:  # without scores it ages out like the others
                records[step] = Record(host={}, scores=None, passing=False, arrays={})
        for step in sorted(records.keys() - kept(records, self._config)):
            # Renamed first: what is half-deleted must not look like a checkpoint.
            place = self.set_aside(step, "deleted")
            if self._writes:
                shutil.rmtree(place, ignore_errors=True)

    def set_aside(self, step: int, ending: str = "damaged") -> Path:
        """Rename a step to <step>.<ending>, so that it is counted and chosen no more."""
        place = self._directory / f"{step}.{ending}"
        together(f"to set {step} aside")  # every process has read what it wants of it
        if self._writes:
            shutil.rmtree(place, ignore_errors=True)
            (self._directory / str(step)).rename(place)
        together(f"{step} is set aside")
        self._records.pop(step, None)
        self._manager.reload()
        return place

    def clean(self) -> list[str]:
        """Delete what a killed or failed save or deletion left, and return the names of it."""
        endings = ("*.orbax-checkpoint-tmp*", "*.deleted")
        left = [path for ending in endings for path in self._directory.glob(ending)]
        together("to clean")
        if self._writes:
            for path in left:
                shutil.rmtree(path, ignore_errors=True)
        together("cleaned")
        return [path.name for path in left]

    def restore(self, step: int, params: Any, training: Any) -> tuple[Any, Any, dict[str, Any]]:
        """Return (params, training, host) of a step, laid out like the given abstract trees.

        Raises:
          UserError: if the step was saved without `training`, or for another model.
          DamagedCheckpoint: if it is not what was saved.
        """
        found = self._read(step, {"params": params, "training": training})
        return found["params"], found["training"], self.record(step)["host"]

    def restore_params(self, step: int, params: Any) -> Any:
        """Return the parameters of a step alone; raises like `restore`."""
        return self._read(step, {"params": params})["params"]

    def _read(self, step: int, like: dict[str, Any]) -> dict[str, Any]:
        place = self._directory / str(step)
        stored = {k: v for k, v in self.record(step)["arrays"].items() if k.split("/")[0] in like}
        integrity.check_kinds(place, like, stored)
        items = {name: ocp.args.StandardRestore(part) for name, part in like.items()}
        try:
            with quiet():
                restored = self._manager.restore(step, args=ocp.args.Composite(**items))
        except jax.errors.JaxRuntimeError:
            raise  # the devices', not the disk's
        except Exception as error:  # Orbax and TensorStore raise many kinds
            reason = " ".join(str(error).split()).partition(". ")[0][:200]
            raise DamagedCheckpoint(f"{place}: damaged: cannot be read ({reason})") from None
        found = {name: restored[name] for name in like}
        integrity.check_sums(place, found, stored)
        return found

    def record(self, step: int) -> Record:
        """Return the record of a step.

        Raises:
          DamagedCheckpoint: if it is not what was saved as this step.
        """
        if step not in self._records:
            path = self._directory / str(step) / _RECORD
            self._records[step] = cast(Record, integrity.read_record(path, step))
        return self._records[step]

    def hosts(self) -> dict[int, dict[str, Any]]:
        """Return the values of the host by step, newest first, of those that are not damaged."""
        hosts = {}
        for step in reversed(self.steps()):
            with suppress(DamagedCheckpoint):
                hosts[step] = self.record(step)["host"]
        return hosts

    def best(self) -> int:
        """Return the step with the best score, or the last step if none has a score."""
        records = {step: self.record(step) for step in self._require()}
        chosen = best(records, self._config.best_by)
        return max(records) if chosen is None else chosen

    def _require(self) -> list[int]:
        steps = self.steps()
        if not steps:
            raise UserError(f"{self._directory}: no checkpoints here; train first")
        return steps

    def choose(self, name: str) -> list[int]:
        """Return the steps that best, last, STEP or average:N stand for; see retention.choose."""
        return choose(name, self._require(), self._config.keep_last, self.best)

    def load_params(self, name: str, params: Any) -> tuple[Any, list[int]]:
        """Return the parameters that best, last, STEP or average:N stand for, and of which steps
        they are, which is chosen once: a training may save another meanwhile.

        An average is the plain mean (paper 6.1), taken in float64, of checkpoints of one run.
        """
        steps = self.choose(name)
        if len(steps) == 1:
            return self.restore_params(steps[0], params), steps
        check_one_run({step: self.record(step)["host"] for step in steps})
        return mean((self.restore_params(step, params) for step in steps), params), steps

    def close(self) -> None:
        """Wait, as `wait` does, and end Orbax's threads."""
        self.wait()
        if self._open_manager is not None:
            self._open_manager.close()
