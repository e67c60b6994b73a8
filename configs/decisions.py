"""Decisions as sequences: a Decision Transformer (Chen et al. 2021, arXiv:2106.01345), and
behaviour cloning.

    python train.py --config=configs/decisions.py
    python eval.py --workdir=runs/decisions
"""

from transformer_jax.config import Experiment
from transformer_jax.config.convert import door

_VARIANTS = "shortest_paths", "cloning", "best_tenth", "stitching", "cartpole", "cartpole_cloning"


def get_config(variant: str = "shortest_paths"):
    """Return the experiment for a variant: see above."""
    if variant not in _VARIANTS:
        raise ValueError(f"no variant {variant!r}; there are {', '.join(_VARIANTS)}")
    c = door(Experiment())
    poles = variant.startswith("cartpole")
    clones = variant in ("cloning", "best_tenth", "cartpole_cloning")
    c.objective.name = "clone" if clones else "decide"
    c.src.codec, c.tgt.codec, c.tokenizer.joint = "states", "labels", False
    c.data.source = "environment"
    c.data.environment = "gymnasium" if poles else "shortest_paths"
    c.data.name = "CartPole-v1" if poles else ""
    c.data.num_examples = (1000, 100, 100)
    c.data.max_steps = 200 if poles else 4 if variant == "stitching" else 10
    c.data.best_share = 0.1 if variant == "best_tenth" else 1.0
    steps = 200 if poles else 10  # to act
    c.objective.window = 20 if poles else 10
    c.data.max_length = c.objective.window
    c.data.tokens_per_batch = 64 * c.objective.window
    c.data.num_buckets = 1

    c.model.architecture, c.model.stem = "decision_transformer", "trajectory"
    c.model.d_model, c.model.d_ff, c.model.num_heads = 64, 256, 4
    c.model.num_decoder_layers = 2
    c.model.positions, c.model.max_positions = "learned", steps
    c.model.residual, c.model.input_norm = "pre_norm", True
    c.model.norm_epsilon = 1e-5
    c.model.dropout_rate = 0.1

    c.optimizer.schedule = "cosine"
    c.optimizer.learning_rate, c.optimizer.warmup_steps = 1e-3, 100
    c.optimizer.weight_decay, c.optimizer.clip_norm = 1e-2, 0.25
    c.optimizer.b2 = 0.99
    c.training.steps = 1500 if poles else 2000
    c.training.label_smoothing = 0.0
    c.checkpoint.every_steps, c.evaluation.every_steps = 250, 250
    c.checkpoint.best_by = "loss"
    c.evaluation.checkpoint = "last"  # the loss of validation says little of how it acts
    c.evaluation.bleu_sentences = 0
    if clones:
        c.decoding.search = "sample"
    return c
