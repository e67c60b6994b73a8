"""Movie reviews, positive or negative: the small BERT of configs/bert_brown.py, fine-tuned.

    python train.py --config=configs/movie_reviews.py --config.data.directory=DIR
    python train.py --config=configs/movie_reviews.py:scratch --config.data.directory=DIR
    python eval.py --workdir=runs/movie_reviews --split=validation

The directory holds train.text and train.label, validation.text and validation.label: a review of
about 760 words a line, and its class, pos or neg (polarity v2.0, Pang and Lee 2004,
https://www.cs.cornell.edu/people/pabo/movie-review-data/).

tuned    begins as runs/bert_brown (`--config.init.source`), with its tokenizer; the pooler and the
         map to classes are new. Positions beyond those of the windows there are new to it as well.
scratch  the same model and tokenizer settings, with nothing to begin from.
Of each review the first 512 pieces are read.
"""

from transformer_jax.config import Experiment
from transformer_jax.door import door


def get_config(start: str = "tuned"):
    """Return the experiment for "tuned" or "scratch"."""
    if start not in ("tuned", "scratch"):
        raise ValueError(f"no variant {start!r}; there are 'tuned' and 'scratch'")
    c = door(Experiment())
    c.model.architecture = "encoder"
    c.model.num_encoder_layers = 4
    c.model.num_heads = 4
    c.model.d_model = 256
    c.model.d_ff = 1024
    c.model.activation = "gelu"
    c.model.norm_epsilon = 1e-12
    c.model.positions = "learned"
    c.model.max_positions = 512
    c.model.token_types = 2
    c.model.input_norm = True
    c.model.embedding_scale = False
    c.model.initializer = "gpt2"
    if start == "tuned":
        c.init.source = "runs/bert_brown"

    c.objective.name = "classify"
    c.objective.window = 512
    c.tgt.codec = "classes"
    c.tokenizer.joint = False
    c.tokenizer.vocab_size = 8000
    c.data.directory = "data/movie_reviews"
    c.data.source_language = "text"
    c.data.target_language = "label"
    c.data.test = ("validation",)
    c.data.max_length = 512
    c.data.tokens_per_batch = 16 * 512
    c.data.num_buckets = 1

    c.optimizer.schedule = "linear"
    c.optimizer.learning_rate = 2e-4
    c.optimizer.warmup_steps = 50
    c.optimizer.b2 = 0.98
    c.optimizer.weight_decay = 0.01
    c.optimizer.clip_norm = 1.0
    c.training.label_smoothing = 0.0
    c.training.steps = 500
    c.checkpoint.every_steps = 50
    c.checkpoint.keep_last = 1
    c.checkpoint.best_by = "accuracy"
    c.evaluation.every_steps = 50
    c.evaluation.bleu_sentences = 0
    return c
