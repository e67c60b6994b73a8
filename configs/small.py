"""Your own corpus, of about 5,000 to 200,000 pairs; a Transformer of 1.9 M parameters.

    python train.py --config=configs/small.py --config.data.directory=DIR

The directory holds train.en, train.de, validation.en, validation.de, test.en and test.de;
docs/data.md has the overrides for other languages and names. The settings follow
configs/multi30k.py (29,000 pairs) and configs/tatoeba.py (165,000 pairs, larger sizes), for fewer
updates; raise training.steps for more text. No published score. Only tried for 600 updates, on
10,000 pairs of Tatoeba German to English: 15.7 BLEU by greedy search on 500 validation sentences,
still rising. The whole training has not been run yet.
"""

from transformer_jax.config import Experiment
from transformer_jax.config.convert import door


def get_config():
    """Return the experiment."""
    c = door(Experiment())
    c.model.d_model = 128
    c.model.d_ff = 512
    c.model.num_heads = 4
    c.model.num_encoder_layers = 3
    c.model.num_decoder_layers = 3
    c.model.dropout_rate = 0.2
    c.model.residual = "pre_norm"

    c.tokenizer.vocab_size = 4000
    c.data.max_length = 128
    c.data.tokens_per_batch = 2048
    c.data.num_buckets = 4  # few programs to compile

    c.optimizer.algorithm = "muon"
    c.optimizer.update_rms = 0.4
    c.optimizer.weight_decay = 0.1
    c.optimizer.schedule = "linear"
    c.optimizer.learning_rate = 2e-3
    c.optimizer.warmup_steps = 200
    c.training.ema_decay = 0.999
    c.training.steps = 4000
    c.checkpoint.every_steps = 250
    c.evaluation.every_steps = 250
    c.evaluation.bleu_sentences = 500
    return c
