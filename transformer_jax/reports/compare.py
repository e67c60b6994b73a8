"""Does one system translate better than another? Paired tests over the sentences of a split.

The statistics are sacrebleu's: paired bootstrap resampling (Koehn 2004) and paired approximate
randomisation (Riezler and Maxwell 2005), with the numbers of its command line. They speak of these
outputs on sentences like these, not of other seeds of the same recipe: train several for that.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from sacrebleu.significance import PairedTest

from transformer_jax.choices import pick
from transformer_jax.config import EvaluationConfig, average_count
from transformer_jax.data import files
from transformer_jax.directions import TRANSLATION
from transformer_jax.errors import UserError
from transformer_jax.evaluation.metrics import METRICS, sentence_metric
from transformer_jax.evaluation.run import digest
from transformer_jax.messages import program
from transformer_jax.reports.evaluations import protocol_of, unlike
from transformer_jax.sweeps.scores import decoding_of
from transformer_jax.workdir import WorkDir

TESTS = {"bs": "paired bootstrap", "ar": "approximate randomisation"}  # sacrebleu's names
TITLES = {**TESTS, "mcnemar": "McNemar's exact test"}


@dataclass(frozen=True)
class System:
    """What a run wrote for a split."""

    name: str
    hypotheses: list[str]
    references: str  # their digest
    evaluation: EvaluationConfig
    decoding: dict[str, Any] | None = None  # the search settings; None if they were not recorded
    scores: tuple[str, ...] = ()  # the names of those that eval.py wrote
    classifies: bool = False  # what it wrote are classes


class Result(NamedTuple):
    """One metric of one system, and the tests of its difference from the baseline."""

    metric: str
    system: str
    score: float
    interval: float  # half the width of the bootstrap's 95 % interval
    p_values: dict[str, float]  # test -> p; {} for the baseline
    # Of accuracies: that from the baseline, and the ends of its 95 % interval.
    difference: tuple[float, float, float] | None = None

    @property
    def different(self) -> bool:
        """Whether every test finds p < 0.05."""
        return bool(self.p_values) and max(self.p_values.values()) < 0.05


class Difference(NamedTuple):
    """One sentence under two systems."""

    line: int  # from 1
    gain: float  # of the second over the first, in the metric's points; positive is better
    reference: str
    one: str
    other: str


def read_system(workdir: WorkDir, checkpoint: str | None, split: str) -> System:
    """Read eval/<split>.<checkpoint>.{hyp,json}; None takes the checkpoint eval.py does.

    The checkpoint may have settings behind it, as in "best,decoding.alpha=0.6": those of eval.py.

    Raises:
      UserError: if they are not there or do not belong together.
    """
    experiment = workdir.experiment()
    classifies = experiment.objective.kind in ("classify", "classify_pairs")
    if not experiment.objective.translates and not classifies:
        raise UserError(
            f"{workdir.path}: is of objective.name={experiment.objective.name!r}, which has no "
            "translations or classes to compare; its scores are those of eval.py"
        )
    name = checkpoint or experiment.evaluation.checkpoint
    name, *changed = name.split(",")
    average_count(name)  # refuses what is no checkpoint's name
    stem = workdir.eval / ",".join([f"{split}.{name.replace(':', '-')}", *changed])
    places = Path(f"{stem}.hyp"), Path(f"{stem}.json")
    words = [f"--workdir={workdir.path}", f"--checkpoint={name}", f"--split={split}"]
    command = " ".join([program("evaluate"), *words, *(f"--config.{text}" for text in changed)])
    try:
        hypotheses = files.read_lines(places[0])
        result = json.loads(places[1].read_text(encoding="utf-8"))
    except (UserError, OSError, ValueError):
        raise UserError(f"{places[0]}: no such translations; make them with: {command}") from None
    if "references" not in result or result["sentences"] != len(hypotheses):
        raise UserError(f"{places[1]}: incomplete or older than this version; run again: {command}")
    evaluation = protocol_of(result, f"{places[1]}: evaluation")
    label = f"{workdir.path}@{checkpoint}" if checkpoint else str(workdir.path)
    scores = tuple(result.get("scores", ()))
    found = hypotheses, result["references"], evaluation, decoding_of(result), scores
    return System(label, *found, classifies)


def testable(system: System) -> list[str]:
    """Return the scores that eval.py wrote and for which there is a paired test.

    Raises:
      UserError: if there are none.
    """
    found = [name for name in system.scores if name in METRICS]
    if not found:
        raise UserError(
            f"{system.name}: has no score that can be tested; give --metric, one of "
            f"{', '.join(METRICS)}"
        )
    return found


def check(systems: Sequence[System], references: Sequence[str]) -> None:
    """Check that all systems were scored on these references and by one protocol.

    Raises:
      UserError: if not.
    """
    expected = digest(references)
    first = systems[0].evaluation
    for system in systems:
        if system.classifies != systems[0].classifies:
            raise UserError(
                f"{system.name}, {systems[0].name}: one predicts classes and the other translates"
            )
        if system.references != expected:
            raise UserError(
                f"{system.name}: was scored on other references than {systems[0].name}; "
                "score both on the same files"
                if system.references != systems[0].references
                else f"{system.name}: its references have changed since; run eval.py again, or "
                "name the file with --reference"
            )
        field = unlike(first, system.evaluation)
        if field is not None:
            raise UserError(
                f"{system.name}: was scored with evaluation.{field}="
                f"{getattr(system.evaluation, field)!r}, {systems[0].name} with "
                f"{getattr(first, field)!r}; score both by one protocol"
            )


def paired_tests(
    systems: Sequence[System], references: Sequence[str], names: Sequence[str],
    tests: Sequence[str] = tuple(TESTS), samples: int = 0,
) -> list[Result]:  # fmt: skip
    """Return the results of each metric and system; the first system is the baseline.

    `samples` 0 takes sacrebleu's numbers: 1000 resamples, 10,000 trials.
    """
    config = systems[0].evaluation
    metrics = {name: pick(METRICS, name, "--metric") for name in names}
    found: dict[str, dict[str, list]] = {}
    for test in dict.fromkeys(["bs", *tests]):  # the bootstrap gives the intervals too
        fresh = {name: make(config) for name, make in metrics.items()}
        paired = PairedTest(
            [(system.name, system.hypotheses) for system in systems], fresh, [list(references)],
            test_type=test, n_samples=samples,
        )  # fmt: skip
        _, scores = paired()
        found[test] = dict(zip(names, list(scores.values())[1:], strict=True))
    results = []
    for name in names:
        for i, system in enumerate(systems):
            p_values = {test: float(found[test][name][i].p_value) for test in tests if i}
            one = found["bs"][name][i]
            results.append(Result(name, system.name, one.score, float(one.ci), p_values))
    return results


def differences(
    one: System, other: System, references: Sequence[str], name: str
) -> list[Difference]:
    """Return every sentence with the gain of `other` over `one`, the greatest gain first."""
    score = _of_classes if one.classifies else _of_sentences(one, name)
    rows = zip(references, one.hypotheses, other.hypotheses, strict=True)
    found = [
        Difference(i, score(b, reference) - score(a, reference), reference, a, b)
        for i, (reference, a, b) in enumerate(rows, 1)
    ]
    return sorted(found, key=lambda row: -row.gain)


def _of_classes(said: str, reference: str) -> float:
    return 100.0 * (said == reference)


def _of_sentences(system: System, name: str) -> Callable[[str, str], float]:
    """Return the score of a line, such that greater is better."""
    pick(METRICS, name, "--metric")
    metric, gain = sentence_metric(name, system.evaluation), TRANSLATION[name].gain
    return lambda line, reference: gain(metric.sentence_score(line, [reference]).score)
