"""benchmarks/gpu.py where there is no GPU: its own stages run, and its sums are right."""

import importlib.util
import json
from pathlib import Path

import pytest

FILE = Path(__file__).parents[1] / "benchmarks/gpu.py"


@pytest.fixture(scope="module")
def gpu():
    spec = importlib.util.spec_from_file_location("gpu", FILE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("stage", ["matmul", "train-base-ours-fused", "decode-base-ours-beam"])
def test_a_dry_run(gpu, stage):
    row = gpu.measure(stage, dry=True)
    assert (row["stage"], row["dry_run"]) == (stage, True)
    assert (row["operations_per_s"] or 0) + (row["target_tokens_per_s"] or 0) > 0


def test_fused_attention_agrees_with_dense(gpu):
    """In float32, as dry runs are, by XLA; with rows of every length, padding and dropout."""
    row = gpu.measure("agree", dry=True)
    assert 0 < row["fused_from_dense"] < 1e-5
    assert row["dense_from_float32"] == 0
    assert row["same_bits"] == dict.fromkeys(("float32", "dense", "fused"), True)


def test_summary(gpu, tmp_path, capsys):
    """A ratio to the faster peer of the same search and size, and a share of the matmul rate."""
    stages = {
        "matmul": (None, 100.0),
        "train-base-ours-fused": (300.0, 50.0),
        "train-base-torch": (100.0, 20.0), "train-base-torch-compile": (200.0, 40.0),
        "train-big-torch": (900.0, 40.0),
        "decode-base-ours-beam": (60.0, None),
        "decode-base-transformers-beam": (20.0, None),
        "decode-base-transformers-greedy": (99.0, None),
    }  # fmt: skip
    keys = "target_tokens_per_s", "operations_per_s"
    rows = [{"stage": s} | dict(zip(keys, both, strict=True)) for s, both in stages.items()]
    path = tmp_path / "results.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    gpu.summary(path)
    first, *told = capsys.readouterr().out.splitlines()
    assert first == "bfloat16 matmul: 100 operations/s"
    assert [json.loads(line) for line in told] == [
        {"stage": "train-base-ours-fused", "target_tokens_per_s": 300.0,
         "ratio_to_best_peer": 1.5, "share_of_matmul_rate": 0.5},
        {"stage": "decode-base-ours-beam", "target_tokens_per_s": 60.0, "ratio_to_best_peer": 3.0},
    ]  # fmt: skip
