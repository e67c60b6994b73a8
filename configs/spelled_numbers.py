"""The built-in default: numbers spelled out in German, translated into English.

    python train.py --config=configs/spelled_numbers.py  # German to English
    python train.py --config=configs/spelled_numbers.py:fr  # French, or any num2words language

No paper; a task that a small Transformer learns in minutes on two CPU cores.
"""

from transformer_jax.config import Experiment
from transformer_jax.config.convert import door


def get_config(language: str = "de"):
    """Return the experiment; `language` is a num2words code, the source."""
    c = door(Experiment())
    c.model.d_model = 128
    c.model.d_ff = 512
    c.model.num_heads = 4
    c.model.num_encoder_layers = 2
    c.model.num_decoder_layers = 2
    c.model.dropout_rate = 0.0

    c.tokenizer.vocab_size = 256
    c.data.source = "spelled_numbers"
    c.data.source_language = language
    c.data.target_language = "en"
    c.data.round_numbers = 1 / 8
    c.data.max_length = 80
    c.data.tokens_per_batch = 4096
    c.data.num_buckets = 2

    c.optimizer.schedule = "cosine"
    c.optimizer.learning_rate = 3e-3
    c.optimizer.warmup_steps = 60
    c.training.steps = 320
    c.training.log_every = 20
    c.checkpoint.every_steps = 160
    c.evaluation.every_steps = 160
    c.evaluation.bleu_sentences = 100
    return c
