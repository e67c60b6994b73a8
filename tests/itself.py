"""A law of all evaluations: units add up to the scores, and a system equals itself."""

import json
from pathlib import Path

import pytest

from transformer_jax.reports.compare import paired_tests, testable
from transformer_jax.reports.systems import check, read_system
from transformer_jax.runs.workdir import WorkDir


def scores_tested(path: Path | str, split: str, checkpoint: str = "best") -> set[str]:
    """Check the law, and return the scores of an evaluation that have a significance test."""
    systems = [read_system(WorkDir(path), checkpoint, split) for _ in range(2)]
    check(systems, None)
    written = json.loads((Path(path) / f"eval/{split}.{checkpoint}.json").read_text())["scores"]
    for result in paired_tests(systems, None, testable(systems[0]), samples=50):
        assert result.score == pytest.approx(written[result.metric]["value"], rel=1e-4, abs=1e-6)
        assert result.interval >= 0
        if result.p_values:
            assert set(result.p_values.values()) == {1.0}
            assert result.difference[0] == 0
            assert result.difference[1] <= 0 <= result.difference[2]
    return set(testable(systems[0]))
