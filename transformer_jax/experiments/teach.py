"""A teacher's predictions for the training data of another run."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np

from transformer_jax.api.trained import TrainedModel
from transformer_jax.base.errors import UserError
from transformer_jax.base.progress import LineProgress
from transformer_jax.config import Experiment
from transformer_jax.data.batches.batch import Ragged
from transformer_jax.data.store.teacher_files import Header, digest_of, write
from transformer_jax.decoding.text.teacher import predictions_of
from transformer_jax.decoding.text.teacher_forced import check_positions
from transformer_jax.experiments.prepare import Prepared, prepare
from transformer_jax.runs.workdir import WorkDir


def teach(
    experiment: Experiment, teacher: TrainedModel, output: Path, top_k: int,
    temperatures: tuple[float, ...],
) -> str:  # fmt: skip
    """Write what a teacher predicts for the training data of an experiment, and return a line about
    it. What an earlier call has written of it is kept.

    Raises:
      UserError: if the teacher has another vocabulary, or reads or writes other texts.
    """
    untaught = replace(experiment, data=replace(experiment.data, teacher=None))
    prepared = prepare(untaught, WorkDir(output))
    _check(experiment, teacher, prepared, top_k)
    items, kept = prepared.train, np.zeros(len(prepared.train), bool)
    kept[prepared.selection.pairs] = True
    loaded = replace(teacher.loaded, objective=experiment.objective, data=experiment.data)
    header = Header(
        digest_of(prepared.identity, experiment.objective.name, items),
        f"{teacher.path}, step {', '.join(map(str, teacher.steps))}",
        prepared.tokenizers.tgt.size, top_k, temperatures,
    )  # fmt: skip

    def parts(first: int) -> Iterator[Ragged]:
        done = first
        with LineProgress(len(items), begin=first, noun=prepared.noun) as progress:
            for part in predictions_of(loaded, items, kept, first, top_k, temperatures):
                yield part
                done += len(part.lengths)
                progress.reached(done)

    new = write(output, header, parts)
    count = int(kept.sum())
    return (
        f"the {top_k} likeliest of {header.vocabulary:,} pieces wherever one is predicted in "
        f"{count:,} training {prepared.noun}s; {'written to' if new else 'already in'} {output}"
    )


def _check(experiment: Experiment, teacher: TrainedModel, prepared: Prepared, top_k: int) -> None:
    """Check that the teacher predicts the same pieces from the same texts."""
    place, ours, theirs = (
        f"--workdir={teacher.path}", experiment.objective, teacher.experiment.objective
    )  # fmt: skip
    alike = (
        ours.record.prefix == theirs.record.prefix
        and ours.one_sided == theirs.one_sided
        and not {*ours.record.architectures}.isdisjoint(theirs.record.architectures)
    )
    if not alike:
        raise UserError(
            f"{place}: was trained with objective.name={theirs.name!r}, and predicts other pieces "
            f"than {ours.name!r}; name another teacher"
        )
    for one, other in zip(teacher.tokenizers, prepared.tokenizers, strict=True):
        if one.digest != other.digest:
            raise UserError(
                f"{place}: has another tokenizer than the config, and so its predictions are of "
                f"other pieces; take its tokenizer, with config.init.source={str(teacher.path)!r} "
                "and config.init.take=()"
            )
    size = prepared.tokenizers.tgt.size
    if top_k > size:
        raise UserError(f"--top-k={top_k}: the vocabulary has {size} pieces; lower it")
    chosen = prepared.selection.pairs
    longest = max(int(side[chosen].max()) for side in prepared.train.lengths if len(side))
    check_positions(teacher.model.config, longest)
