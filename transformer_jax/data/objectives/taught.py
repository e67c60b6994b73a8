"""Distillation: examples with what a teacher predicts at the same positions."""

import numpy as np

from transformer_jax.base.errors import UserError
from transformer_jax.config import DataConfig, ObjectiveConfig
from transformer_jax.data.batches.batch import Batch, Placement, Teacher
from transformer_jax.data.codecs.codec import Codec
from transformer_jax.data.objectives.objective import BaseObjective, Objective
from transformer_jax.data.random import Draw
from transformer_jax.data.store.teacher_files import TeacherStore
from transformer_jax.data.store.token_store import Frame, Selection, TokenStore


class Taught(BaseObjective):
    """The examples of another objective, with a teacher's predictions of their pieces (Hinton et
    al. 2015, arXiv:1503.02531).

    The items must be those of the teacher, in the same order, and predict the same pieces in every
    epoch.
    """

    def __init__(self, objective: Objective, teacher: TeacherStore) -> None:
        self._objective, self._teacher = objective, teacher
        self.order, self.strict = objective.order, objective.strict
        self.predicts, self.noun = objective.predicts, objective.noun

    def frame(self, config: ObjectiveConfig) -> Frame:
        """See Objective."""
        return self._objective.frame(config)

    def items(
        self, store: TokenStore, config: ObjectiveConfig, codec: Codec | None = None
    ) -> TokenStore:
        """See Objective."""
        return self._objective.items(store, config, codec)

    def select(self, items: TokenStore, config: DataConfig) -> Selection:
        """See Objective."""
        return self._objective.select(items, config)

    def batch(
        self, items: TokenStore, placement: Placement, rows: int, src_length: int, tgt_length: int,
        draw: Draw,
    ) -> Batch:  # fmt: skip
        """See Objective."""
        batch = self._objective.examples(items, placement, rows, src_length, tgt_length, draw)
        assert batch.tgt is not None
        place = np.nonzero(batch.targets["tokens"].weight)  # row by row
        order = np.lexsort((placement.segment, placement.rows))
        count = self._teacher.counts(placement.pairs[order])
        expected = placement.rows[order], placement.segment[order]
        found = place[0], batch.tgt.seg[place]
        if not all(
            np.array_equal(np.repeat(one, count), other)
            for one, other in zip(expected, found, strict=True)
        ):
            raise UserError(
                "config.data.teacher: has predictions at other positions than this objective's, "
                "which must be the same in every epoch; set it to None"
            )
        ids, log_probs = self._teacher.of(placement.pairs[order])
        shape = rows, tgt_length
        teacher = Teacher(
            np.zeros((*shape, ids.shape[1]), np.int32),
            np.zeros((*shape, log_probs.shape[1]), np.float32),
        )
        teacher.ids[place], teacher.log_probs[place] = ids, log_probs
        return batch._replace(teacher=teacher)
