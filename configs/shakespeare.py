"""Small character-level GPTs on Tiny Shakespeare.

    python train.py --config=configs/shakespeare.py --config.data.directory=DIR
    python train.py --config=configs/shakespeare.py:modern --config.data.directory=DIR
    transformer-jax generate --workdir=runs/shakespeare --prompt='To be'

The directory holds train.txt and validation.txt, the first 90 % and the last 10 % of input.txt of
https://github.com/karpathy/char-rnn (data/tinyshakespeare, public domain), by characters: 1,003,854
and 111,540 of them, 65 distinct ones.

cpu     4 layers, 4 heads, width 128, a context of 64 characters, 2,000 steps of 12 sequences: the
        sizes of "I only have a macbook" in https://github.com/karpathy/nanoGPT, whose README
        reports a validation loss of 1.88 nats per character. Ours is the mean over all of
        validation.txt in consecutive windows, each character once: 1.828 nats, 2.638 bits, with
        seed 0, after 3 minutes of one core. The learning rate is the better of two tried, by that
        same loss. See results/README.md.
baby    6 layers, 6 heads, width 384, a context of 256: the sizes of nanoGPT's "baby GPT", whose
        README reports 1.4697 after 5,000 steps of 64 sequences on a GPU. Hours on a CPU.
modern  6 layers, 4 heads, width 256, the same context, with rotary positions, normalised queries
        and keys, GPT-2's initialisation and Muon: 1.458 nats after 98 minutes of one core.
"""

from transformer_jax.config import Experiment
from transformer_jax.config.convert import door

# For each: layers, heads, width, context, sequences per batch, steps.
SIZES = {
    "cpu": (4, 4, 128, 64, 12, 2000),
    "baby": (6, 6, 384, 256, 64, 5000),
    "modern": (6, 4, 256, 256, 32, 2000),
}


def get_config(variant: str = "cpu"):
    """Return the experiment of one of SIZES."""
    if variant not in SIZES:
        raise ValueError(f"no variant {variant!r}; there are {', '.join(SIZES)}")
    layers, heads, width, context, sequences, steps = SIZES[variant]
    c = door(Experiment())
    c.model.architecture = "decoder"
    c.model.num_decoder_layers = layers
    c.model.num_heads = heads
    c.model.d_model = width
    c.model.d_ff = 4 * width
    c.model.residual = "pre_norm"
    c.model.positions = "learned"
    c.model.max_positions = context
    c.model.dropout_rate = 0.0 if variant == "cpu" else 0.2

    c.objective.name = "language_model"
    c.objective.document = "file"
    c.objective.window = context
    c.tgt.codec = "characters"
    c.data.directory = "data/shakespeare"
    c.data.target_language = "txt"
    c.data.how_to_get = (
        "cut input.txt of github.com/karpathy/char-rnn into train.txt, validation.txt"
    )
    c.data.test = ("validation",)
    c.data.max_length = context
    c.data.tokens_per_batch = sequences * context
    c.data.rows_divisible_by = 4
    c.data.num_buckets = 1  # the last, shorter window gets no batch of its own

    c.optimizer.schedule = "cosine"
    c.optimizer.learning_rate = 1e-3 if variant == "baby" else 3e-3
    c.optimizer.warmup_steps = 100
    c.optimizer.b2 = 0.99
    c.optimizer.clip_norm = 1.0
    c.training.label_smoothing = 0.0
    c.training.steps = steps
    c.checkpoint.every_steps = 250
    c.checkpoint.best_by = "loss"
    c.evaluation.every_steps = 250
    c.evaluation.bleu_sentences = 0
    c.decoding.search = "sample"
    c.decoding.temperature = 0.8
    if variant == "modern":
        c.model.positions, c.model.relative_positions = "none", "rope"
        c.model.max_positions = Experiment().model.max_positions
        c.model.query_key_norm, c.model.initializer = "per_head", "gpt2"
        c.model.compute_dtype = "bfloat16"
        c.optimizer.algorithm, c.optimizer.update_rms = "muon", 0.4
        c.optimizer.weight_decay = 0.1
        c.optimizer.schedule = "linear"
        c.optimizer.b2, c.optimizer.clip_norm = Experiment().optimizer.b2, None
        c.training.ema_decay = 0.995
    return c
