"""Save, restore, verify, choose and average checkpoints: with `reading`, all that knows Orbax.

A checkpoint is a directory <step>/ with the items params, training and record. The record is JSON:
host values, validation scores, a checksum of every array, and a hash of the record itself.
"""

import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple, cast

import jax
import orbax.checkpoint as ocp

from transformer_jax.base.arrays import mean
from transformer_jax.base.disk import DiskError, check_room, quiet, write_text, writing
from transformer_jax.base.errors import UserError
from transformer_jax.config import CheckpointConfig
from transformer_jax.runs import integrity, reading
from transformer_jax.runs.integrity import DamagedCheckpoint, checksums, seal
from transformer_jax.runs.reading import Place
from transformer_jax.runs.retention import Record, best, check_one_run, choose, kept, steps_in
from transformer_jax.sharding.processes import all_or_none, together

_ITEMS = ("params", "training", "record")
_OPTIONS = ocp.CheckpointManagerOptions(create=False)
_RECORD = "record/metadata"  # relative to a step's directory; where Orbax puts JSON


class _Begun(NamedTuple):
    """A save in progress."""

    step: int
    record: Record
    need: int  # bytes
    like: dict[str, Any]  # what its arrays are read back into


class Checkpoints:
    """The checkpoints of one run, by step.

    It keeps the newest, the last `keep_last` and the best by a validation score.
    """

    def __init__(self, directory: Path, config: CheckpointConfig) -> None:
        self.directory, self._config = directory.absolute(), config
        self._records: dict[int, Record] = {}
        self._begun: _Begun | None = None
        self._writes = jax.process_index() == 0  # only one of several; Orbax divides its own work
        self._open_manager: ocp.CheckpointManager | None = None

    @property
    def _manager(self) -> ocp.CheckpointManager:
        if self._open_manager is None:
            # Orbax keeps every step; `_prune`, which reads the records, decides which ones stay.
            self._open_manager = ocp.CheckpointManager(
                Place(self.directory), item_names=_ITEMS, options=_OPTIONS
            )
        return self._open_manager

    def steps(self) -> list[int]:
        """Return the saved steps, ascending."""
        # Does not ask Orbax, which would synchronise all processes.
        return steps_in(self.directory)

    def save(
        self,
        step: int,
        params: Any,
        training: Any,
        host: dict[str, Any],
        scores: dict[str, float] | None = None,
        passing: bool = False,
    ) -> None:
        """Start an atomic, asynchronous save of a step; `wait` reports its outcome.

        The arrays may be donated once this returns. `training` is {} for parameters that are not
        trained further; scores are {"bleu": ..., "loss": ...}, or None before the first validation.

        Raises:
          DiskError: if writing this step or the previous one fails; the message gives the space
            needed and the space free.
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
                self.directory.mkdir(exist_ok=True)  # the parent exists: it was claimed
                check_room(self.directory, need)  # fail now, not halfway through
            saved = self._manager.save(step, args=composite, force=True)
            assert saved, f"checkpoint {step} was not saved"
            self._begun = _Begun(step, record, need, jax.tree.map(reading.outline, tree))

    def wait(self) -> None:
        """Block until the save in progress, if any, can be chosen and restored: it is read back.

        Raises:
          DiskError: if writing it fails, or what is read differs from what was written.
        """
        begun, self._begun = self._begun, None
        if begun is not None:
            with self._writing(f"checkpoint {begun.step}", begun.need):
                self._manager.wait_until_finished()
                self._read_back(begun)
                self._records[begun.step] = begun.record
                self._prune()

    def _read_back(self, begun: _Begun) -> None:
        """Raise DiskError, and delete the step, if it cannot be restored as it was saved."""
        read = reading.restore if jax.process_count() == 1 else reading.read_back
        try:
            with all_or_none():
                try:
                    for name, part in begun.like.items():  # one at a time, to need less memory
                        self._read(begun.step, {name: part}, read)
                except DamagedCheckpoint as error:
                    raise DiskError(
                        f"checkpoint {begun.step} cannot be read back after it was written: {error}"
                    ) from None
        except DiskError:
            self.set_aside(begun.step, "deleted")
            raise

    def amend(self, step: int, **changes: Any) -> None:
        """Change the host values, scores or `passing` of a saved step.

        Raises:
          DiskError: if writing fails; the step is unchanged.
        """
        record = cast(Record, {**self.record(step), **changes})
        with self._writing(f"the record of checkpoint {step}"):
            with all_or_none():
                if self._writes:
                    write_text(self.directory / str(step) / _RECORD, json.dumps(seal({**record})))
            self._records[step] = record
            self._prune()

    @contextmanager
    def _writing(self, what: str, need: int = 0) -> Iterator[None]:
        try:
            with quiet(), writing(what, self.directory, need):
                yield
        except DiskError:
            self._open_manager = None  # it remembers the failure
            self.clean()  # half-written files only take up space
            raise

    def _prune(self) -> None:
        records = {}
        for step in self.steps():
            try:
                records[step] = self.record(step)
            except DamagedCheckpoint:  # without scores, so it ages out like the others
                records[step] = Record(host={}, scores=None, passing=False, arrays={})
        for step in sorted(records.keys() - kept(records, self._config)):
            # Rename first: a half-deleted directory must not look like a checkpoint.
            place = self.set_aside(step, "deleted")
            if self._writes:
                shutil.rmtree(place, ignore_errors=True)

    def set_aside(self, step: int, ending: str = "damaged") -> Path:
        """Rename a step to <step>.<ending>, so that it is no longer counted or chosen."""
        place = self.directory / f"{step}.{ending}"
        together(f"to set {step} aside")  # every process has finished reading it
        if self._writes:
            shutil.rmtree(place, ignore_errors=True)
            (self.directory / str(step)).rename(place)
        together(f"{step} is set aside")
        self._records.pop(step, None)
        self._manager.reload()
        return place

    def clean(self) -> list[str]:
        """Delete what an interrupted or failed save or deletion left behind; return its names."""
        endings = ("*.orbax-checkpoint-tmp*", "*.deleted")
        left = [path for ending in endings for path in self.directory.glob(ending)]
        together("to clean")
        if self._writes:
            for path in left:
                shutil.rmtree(path, ignore_errors=True)
        together("cleaned")
        return [path.name for path in left]

    def restore(self, step: int, params: Any, training: Any) -> tuple[Any, Any, dict[str, Any]]:
        """Return (params, training, host) of a step, sharded like the given abstract trees.

        Raises:
          UserError: if the step was saved without `training`, or for another model.
          DamagedCheckpoint: if the data differs from what was saved.
        """
        trees = self._read(step, {"params": params, "training": training})
        return trees["params"], trees["training"], self.record(step)["host"]

    def restore_params(self, step: int, params: Any) -> Any:
        """Return only the parameters of a step; raises like `restore`."""
        return self._read(step, {"params": params})["params"]

    def _read(
        self, step: int, like: dict[str, Any], read: Callable[[Path, Any], Any] = reading.restore
    ) -> dict[str, Any]:
        place = self.directory / str(step)
        stored = {k: v for k, v in self.record(step)["arrays"].items() if k.split("/")[0] in like}
        integrity.check_kinds(place, like, stored)
        with _damaged_for_all(place):
            trees = {name: read(place / name, part) for name, part in like.items()}
        with _damaged_for_all(place):
            integrity.check_sums(place, trees, stored)
        return trees

    def record(self, step: int) -> Record:
        """Return the record of a step.

        Raises:
          DamagedCheckpoint: if it differs from what was saved as this step.
        """
        if step not in self._records:
            path = self.directory / str(step) / _RECORD
            self._records[step] = cast(Record, integrity.read_record(path, step))
        return self._records[step]

    def hosts(self) -> dict[int, dict[str, Any]]:
        """Return the host values by step, newest first, skipping damaged checkpoints."""
        hosts = {}
        for step in reversed(self.steps()):
            with suppress(DamagedCheckpoint):
                hosts[step] = self.record(step)["host"]
        return hosts

    def best(self) -> int:
        """Return the step with the best score, or the last step if none has one."""
        records = {step: self.record(step) for step in self._require()}
        chosen = best(records, self._config.best_by)
        return max(records) if chosen is None else chosen

    def _require(self) -> list[int]:
        steps = self.steps()
        if not steps:
            raise UserError(f"{self.directory}: no checkpoints here; train first")
        return steps

    def choose(self, name: str) -> list[int]:
        """Return the steps that best, last, STEP or average:N stand for; see retention.choose."""
        return choose(name, self._require(), self._config.keep_last, self.best)

    def load_params(self, name: str, params: Any) -> tuple[Any, list[int]]:
        """Return the parameters that best, last, STEP or average:N stand for, and their steps,
        chosen only once, since a training run may save another checkpoint meanwhile.

        An average is the plain mean (paper 6.1), in float64, of checkpoints of one run.
        """
        steps = self.choose(name)
        if len(steps) == 1:
            return self.restore_params(steps[0], params), steps
        check_one_run({step: self.record(step)["host"] for step in steps})
        return mean((self.restore_params(step, params) for step in steps), params), steps

    def close(self) -> None:
        """Wait, as `wait` does, and stop Orbax's threads."""
        self.wait()
        if self._open_manager is not None:
            self._open_manager.close()


def _damaged_for_all(place: Path) -> AbstractContextManager[None]:
    """Raise DamagedCheckpoint in every process if one cannot read its part."""
    return all_or_none(
        (DamagedCheckpoint,),
        lambda process: DamagedCheckpoint(f"{place}: damaged: process {process} cannot read it"),
    )
