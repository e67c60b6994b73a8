"""Rollouts: the answers that a model writes to learn from them, and what they earn.

Answers are a pure function of the parameters, the seed and the step, so a run that resumes at the
first update after they were written writes the same ones again. A checkpoint of a later update has
them.
"""

import base64
import io
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.sharding import Mesh

from transformer_jax.base.disk import writing
from transformer_jax.base.errors import UserError
from transformer_jax.config import DecodingConfig, Experiment, ObjectiveConfig
from transformer_jax.config.choices.searches import samples
from transformer_jax.data.batches.batch import one_per_row
from transformer_jax.data.batches.batching import GroupPlan
from transformer_jax.data.conversations import asked_in
from transformer_jax.data.objectives import reinforcing
from transformer_jax.data.objectives.reinforcing import Prompts
from transformer_jax.decoding.loaded import Loaded
from transformer_jax.decoding.text.generate import Generator
from transformer_jax.decoding.text.score import log_probs_of
from transformer_jax.evaluation.rewards import digest_of, judge_of
from transformer_jax.experiments.prepare import Prepared
from transformer_jax.models import lora
from transformer_jax.models.model import Model
from transformer_jax.runs.workdir import (
    WorkDir,
    append_row,
    read_rows,
    write_rows,
)
from transformer_jax.sharding.mesh import on_every_device, own_copy, place_batches
from transformer_jax.training.state import TrainState


class Round(NamedTuple):
    """The answers to the prompts of some updates, in the order of their rows."""

    said: list[np.ndarray]  # pieces
    old: list[np.ndarray]  # their log-probabilities when they were written
    reference: list[np.ndarray] | None  # and under the reference
    rewards: np.ndarray  # [n]
    ended: np.ndarray  # [n], whether an answer was finished

    def part(self, rows: slice) -> "Round":
        """Return some of the answers."""
        reference = None if self.reference is None else self.reference[rows]
        return Round(
            self.said[rows], self.old[rows], reference, self.rewards[rows], self.ended[rows]
        )

    def as_text(self) -> str:
        """Return it as text, which `of` reads."""
        parts: dict[str, Any] = {
            "said": np.concatenate(self.said), "lengths": np.array([*map(len, self.said)]),
            "old": np.concatenate(self.old), "rewards": self.rewards, "ended": self.ended,
        }  # fmt: skip
        if self.reference is not None:
            parts["reference"] = np.concatenate(self.reference)
        held = io.BytesIO()
        np.savez_compressed(held, **parts)
        return base64.b64encode(held.getvalue()).decode()

    @classmethod
    def of(cls, text: str) -> "Round":
        """Return what a text says, as `as_text` writes it."""
        with np.load(io.BytesIO(base64.b64decode(text))) as parts:
            cuts = np.cumsum(parts["lengths"])[:-1]
            said, old = (np.split(parts[name], cuts) for name in ("said", "old"))
            reference = np.split(parts["reference"], cuts) if "reference" in parts else None
            return cls(said, old, reference, parts["rewards"], parts["ended"])


class Rollouts:
    """Batches of answers for `loop.train`; see `training.loop.Rollouts`."""

    def __init__(
        self, experiment: Experiment, model: Model, prepared: Prepared, mesh: Mesh,
        workdir: WorkDir, reference: Any = None,
    ) -> None:  # fmt: skip
        """`reference` are the parameters of the reference, if it counts. `identity` has the digests
        of other models that the answers depend on.

        Raises:
          UserError: if there are several processes, or the reward is none.
        """
        if jax.process_count() > 1:
            raise UserError(
                f"config.objective.name={experiment.objective.name!r}: writes answers in one "
                f"process, and there are {jax.process_count()}; start one, with all devices"
            )
        assert isinstance(prepared.plan, GroupPlan)
        assert isinstance(prepared.train, Prompts)
        assert prepared.texts is not None
        self._config, self._seed = experiment.objective, experiment.seed
        self._plan, self._items, self._texts = prepared.plan, prepared.train, prepared.texts.tgt
        self._mesh, self._workdir = mesh, workdir
        self._tokens = experiment.data.tokens_per_batch
        self._objective = prepared.objective
        self._judge, self.identity = judge_of(self._config)
        if reference is not None:
            self.identity |= {"reference": digest_of(reference)}
        window = self._config.window + self._config.answer_length
        chat = ObjectiveConfig(name="chat", window=window)
        self._loaded = Loaded(lora.plain(model), reference, prepared.tokenizers, chat)
        decoding = DecodingConfig(
            **samples(self._config.group_size), seed=self._seed,
            tokens_per_batch=experiment.decoding.tokens_per_batch,
            compute_dtype=experiment.decoding.compute_dtype,
        )  # fmt: skip
        self._generator = Generator(
            self._loaded.model, prepared.tokenizers.tgt, chat, decoding, self._config.group_size,
            template=prepared.tokenizers.template,
        )  # fmt: skip
        self._whole = jax.jit(
            lambda params: lora.merged(params, model.config), out_shardings=on_every_device(mesh)
        )
        self._begun = 0
        self._round: Round | None = None

    def resume(self, host: Mapping[str, Any]) -> None:
        """Go on from what a checkpoint holds, or from nothing; later answers are dropped."""
        step, held = int(host.get("step", 0)), host.get("rollout")
        self._begun, self._round = self._first(step), Round.of(held) if held else None
        kept = [
            row for row in read_rows(self._workdir.answers) if row["step"] <= self._written(step)
        ]
        if kept or self._workdir.answers.exists():
            write_rows(self._workdir.answers, kept)

    def __call__(self, step: int, state: TrainState) -> tuple[Any, dict[str, float]]:
        """See training.loop.Rollouts."""
        first = self._first(step)
        if self._round is None or step == first:
            self._begun, self._round = first, self._written_by(first, own_copy(state.params))
        size, now = self._config.group_size, self._round.part(self._rows(step))
        items = np.repeat(self._plan.chosen(step), size)
        grouped = now.rewards.reshape(-1, size)
        answers = reinforcing.answers(
            [self._items.prompt(item) for item in items], now.said,
            reinforcing.advantages(grouped, self._config).ravel(), now.old, now.reference,
            self._config,
        )  # fmt: skip
        shape, _ = self._plan.batch(step)
        batch = self._objective.examples(answers, one_per_row(np.arange(len(items))), *shape)
        measured = {
            "reward": float(grouped.mean()),
            "answer_length": float(np.mean([*map(len, now.said)])),
            "equal_groups": float((np.ptp(grouped, axis=1) == 0).mean()),
            "cut_answers": float(1 - now.ended.mean()),
        }
        if now.reference is not None:
            behind = np.concatenate(now.reference) - np.concatenate(now.old)
            measured["kl"] = float((np.exp(behind) - behind - 1).mean())
        return place_batches([batch], self._mesh), measured

    def state(self, step: int) -> dict[str, Any]:
        """See training.loop.Rollouts: nothing between two rounds."""
        assert self._round is not None
        return {} if step == self._first(step) else {"rollout": self._round.as_text()}

    def _first(self, step: int) -> int:
        """Return the step before the updates of a round."""
        return step - step % self._config.rollout_updates

    def _written(self, step: int) -> int:
        """Return the last step whose answers have been written before that which follows `step`."""
        first = self._first(step)
        return step if step == first else first + self._config.rollout_updates

    def _rows(self, step: int) -> slice:
        """Return the rows of a round that the step after this one learns from."""
        counts = [len(self._plan.chosen(n)) for n in range(self._begun, step + 1)]
        size = self._config.group_size
        return slice(sum(counts[:-1]) * size, sum(counts) * size)

    def _written_by(self, first: int, params: Any) -> Round:
        """Return the answers that a model writes to the prompts of a round."""
        size, steps = self._config.group_size, range(first, first + self._config.rollout_updates)
        chosen = [self._plan.chosen(step) for step in steps]
        items = np.concatenate(chosen)
        prompts = [self._items.prompt(item) for item in items]
        params = self._whole(params)
        found = self._generator.generate(
            params, prompts, self._config.answer_length, first=first * self._plan.most + 1
        )
        texts = [text for group in found for text in group]
        talks, wanted = zip(
            *(
                asked_in(self._texts[int(self._items.origin[item])], self._items.answers(item) - 1)
                for item in items
                for _ in range(size)
            ),
            strict=True,
        )
        earned = self._judge(talks, [text.text for text in texts], wanted)
        read = [prompt for prompt in prompts for _ in range(size)]
        encoded = [
            [*prompt, *(~piece for piece in text.ids)]
            for prompt, text in zip(read, texts, strict=True)
        ]
        reference = self._loaded.params
        rows = [
            {
                "step": int(step) + 1,
                "prompt": talk.messages[-1]["content"] if talk.messages else "",
                "answer": text.text, "wanted": right, "reward": float(reward),
            }
            for step, talk, text, right, reward in zip(
                np.repeat([*steps], [len(part) * size for part in chosen]),
                talks, texts, wanted, earned, strict=True,
            )
        ]  # fmt: skip
        with writing(f"the answers of {self._workdir.path}", self._workdir.path):
            for row in rows:
                append_row(self._workdir.answers, row)
        return Round(
            [np.array(text.ids) for text in texts],
            self._log_probs(params, encoded),
            None if reference is None else self._log_probs(reference, encoded),
            earned,
            np.array([text.ids[-1] == self._generator.special.end for text in texts]),
        )

    def _log_probs(self, params: Any, encoded: list[list[int]]) -> list[np.ndarray]:
        loaded = replace(self._loaded, params=params)
        return log_probs_of(loaded, [], encoded, self._tokens)
