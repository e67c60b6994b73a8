"""Decisions as sequences: a Decision Transformer (Chen et al. 2021, arXiv:2106.01345), and
behaviour cloning.

    python train.py --config=configs/decisions.py
    python eval.py --workdir=runs/decisions
    transformer-jax plot returns --workdir=runs/decisions --output=returns.svg

shortest_paths    the paper's illustration (section 3): from any node of a random directed graph of
                  20 to the last one, at a reward of -1 for each step, learned from 1,000 random
                  walks of at most 10 steps.
cloning           the same by imitation: actions are drawn as the walks drew them.
best_tenth        imitation of the tenth of the walks with the highest returns.
stitching         walks of at most 4 steps; to act, there are 10.
cartpole          a cart balances a pole for at most 200 steps, in Gymnasium (extra `gymnasium`),
                  learned from 1,000 episodes, each by a random linear map of the observation.
cartpole_cloning  the same by imitation.

Two graphs and seeds, 100 episodes of the test, the last checkpoint; two to five minutes each:

                        return (mean)      the goal is reached
    asked for the best  -2.66   -2.47      100 %   100 %
    cloning             -8.64   -7.60       31      53
    best_tenth          -5.35   -5.58       57      53
    stitching           -4.36   -3.27       80      86
    at random           -8.33   -7.27       32      55
    the optimum         -2.66   -2.47

Every one of these 200 episodes is as short as it can be; so are those of a table of the step that
was followed by the highest return in any walk that arrived. cartpole, asked for 200 steps, balances
for 195.8 and 190.6, cartpole_cloning for 32.8 and 35.3; returns asked for and achieved correlate at
0.973 and 0.963. More: results/notes/decisions.md.
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
