"""Tiny Shakespeare by characters: the smallest GPT (nanoGPT's configuration for a CPU).

    python train.py --config=configs/shakespeare.py --config.data.directory=DIR
    transformer-jax generate --workdir=runs/shakespeare --prompt='To be'

The directory holds train.txt and validation.txt, the first 90 % and the last 10 % of input.txt of
https://github.com/karpathy/char-rnn (data/tinyshakespeare, public domain), cut by characters:
1,003,854 and 111,540 of them, 65 different ones.

4 layers, 4 heads, width 128, a context of 64 characters, 2,000 steps of 12 sequences: the sizes of
"I only have a macbook" in https://github.com/karpathy/nanoGPT, whose README reports a validation
loss of 1.88 nats a character. Ours is the mean over all of validation.txt in consecutive windows,
each character once: 1.828 nats, 2.638 bits, with seed 0, after 3 minutes of one core. The learning
rate is the better of two that were tried, by that same loss. See results/README.md.
"""

from transformer_jax.config import Experiment
from transformer_jax.door import door


def get_config():
    """Return the experiment."""
    c = door(Experiment())
    c.model.architecture = "decoder"
    c.model.num_decoder_layers = 4
    c.model.num_heads = 4
    c.model.d_model = 128
    c.model.d_ff = 512
    c.model.residual = "pre_norm"
    c.model.positions = "learned"
    c.model.max_positions = 64
    c.model.dropout_rate = 0.0

    c.objective.name = "language_model"
    c.objective.document = "file"
    c.objective.window = 64
    c.tgt.codec = "characters"
    c.data.directory = "data/shakespeare"
    c.data.target_language = "txt"
    c.data.how_to_get = (
        "cut input.txt of github.com/karpathy/char-rnn into train.txt, validation.txt"
    )
    c.data.test = ("validation",)
    c.data.max_length = 64
    c.data.tokens_per_batch = 12 * 64
    c.data.rows_divisible_by = 4
    c.data.num_buckets = 1  # the last window is shorter, and no batch of its own

    c.optimizer.schedule = "cosine"
    c.optimizer.learning_rate = 3e-3
    c.optimizer.warmup_steps = 100
    c.optimizer.b2 = 0.99
    c.optimizer.clip_norm = 1.0
    c.training.label_smoothing = 0.0
    c.training.steps = 2000
    c.checkpoint.every_steps = 250
    c.checkpoint.best_by = "loss"
    c.evaluation.every_steps = 250
    c.evaluation.bleu_sentences = 0
    c.decoding.search = "sample"
    c.decoding.temperature = 0.8
    return c
