"""The built wheel on its own, in a bare environment outside the checkout. Needs the network."""

import os
import subprocess
import sys
import venv
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TINY = {
    "model.d_model": 16, "model.d_ff": 16, "model.num_heads": 2, "model.num_encoder_layers": 1,
    "model.num_decoder_layers": 1, "data.num_examples": "200,20,4", "data.max_number": 1000,
    "data.num_buckets": 1, "tokenizer.vocab_size": 48, "training.steps": 2,
    "checkpoint.every_steps": 2, "evaluation.every_steps": 2, "evaluation.bleu_sentences": 0,
    "checkpoint.best_by": "loss", "decoding.beam_size": 1,
}  # fmt: skip


def run(*command: str | Path, place: Path) -> str:
    """Run a command, which must succeed, and return its output."""
    environment = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "VIRTUAL_ENV")}
    environment["TRANSFORMER_JAX_CACHE"] = str(place / "cache")
    done = subprocess.run(
        list(map(str, command)), cwd=place, env=environment, text=True, check=False,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
    return done.stdout


@pytest.mark.e2e
def test_an_installed_wheel_trains_evaluates_and_reports(tmp_path):
    """Configs are found by name and by their path in a checkout."""
    run(sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", tmp_path, ROOT,
        place=tmp_path)  # fmt: skip
    (wheel,) = tmp_path.glob("*.whl")
    venv.create(tmp_path / "bare", with_pip=True)
    bare = tmp_path / "bare" / "bin"
    run(bare / "python", "-m", "pip", "install", "-q", "-c", ROOT / "constraints.txt", wheel,
        place=tmp_path)  # fmt: skip
    program, elsewhere = bare / "transformer-jax", tmp_path / "elsewhere"
    elsewhere.mkdir()
    where = run(bare / "python", "-c", "import transformer_jax as t; print(t.__file__)",
                place=elsewhere)  # fmt: skip
    assert Path(where.strip()).is_relative_to(tmp_path / "bare")

    overrides = [f"--config.{field}={value}" for field, value in TINY.items()]
    trained = run(program, "train", "--config=spelled_numbers", *overrides, place=elsewhere)
    workdir = "runs/spelled_numbers"
    assert f"next: transformer-jax evaluate --workdir={elsewhere}/{workdir}" in trained
    assert "exact match" in run(program, "evaluate", f"--workdir={workdir}", place=elsewhere)
    page = elsewhere / "page.html"
    run(program, "report", workdir, f"--output={page}", place=elsewhere)
    assert page.stat().st_size > 100_000
    plan = "plan", "--config=configs/table3.py:wmt_base:A-h1"  # a config that reads another
    assert "parameters: " in run(program, *plan, place=elsewhere)
