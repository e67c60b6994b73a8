"""A small model learns from a larger one's output: distillation on Multi30k.

    transformer-jax translate --workdir=runs/variants --input=DIR/train.lc.norm.tok.en \
      --output=DIR/taught.de
    cp DIR/train.lc.norm.tok.en DIR/taught.en
    python train.py --config=configs/distillation.py:taught --config.data.directory=DIR
    transformer-jax teach --workdir=runs/variants --config=configs/distillation.py:logits \
      --config.data.directory=DIR
    python train.py --config=configs/distillation.py:logits --config.data.directory=DIR
    transformer-jax sweep --config=configs/distillation.py --variants=all \
      --workdir=runs/distilled --evaluate=test --config.data.directory=DIR

runs/variants is a run of configs/variants.py, and DIR its training data. English to German, 2 + 1
layers instead of the 4 + 4 of configs/variants.py, with the same recipe.

taught  on the larger model's translations of the training sources (Kim and Rush 2016,
        arXiv:1606.07947).
real    on the human translations.
logits  on the human translations and, with the same weight, on what the larger model predicts at
        each of their pieces, at temperature 2 (Hinton et al. 2015, arXiv:1503.02531; word-level
        distillation in Kim and Rush). No scores yet.
both    the same on the larger model's translations. No scores yet.
"""

import runpy
from pathlib import Path

VARIANTS: dict = {"taught": {}, "real": {}, "logits": {}, "both": {}}  # none are published


def get_config(targets: str = "taught"):
    """Return the experiment of one of VARIANTS."""
    if targets not in VARIANTS:
        raise ValueError(f"no variant {targets!r}; there are {', '.join(VARIANTS)}")
    c = runpy.run_path(str(Path(__file__).with_name("variants.py")))["get_config"]()
    c.model.num_encoder_layers = 2
    c.model.num_decoder_layers = 1
    if targets in ("taught", "both"):
        c.data.train = ("taught",)
    if targets in ("logits", "both"):
        c.data.teacher = f"data/multi30k_{targets}"
        c.training.distillation_weight = 0.5
        c.training.distillation_temperature = 2.0
    return c
