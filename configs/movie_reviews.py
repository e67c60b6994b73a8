"""Movie reviews, positive or negative: the small BERT of configs/bert_brown.py, fine-tuned.

    python train.py --config=configs/movie_reviews.py --config.data.directory=DIR
    python train.py --config=configs/movie_reviews.py:scratch --config.data.directory=DIR
    python train.py --config=configs/movie_reviews.py:masked --config.data.directory=DIR
    python train.py --config=configs/movie_reviews.py:pretrained --config.data.directory=DIR
    python train.py --config=configs/movie_reviews.py:bytes --config.data.directory=DIR
    python eval.py --workdir=runs/movie_reviews --split=validation

The directory holds train.text and train.label, validation.text and validation.label: a review of
about 760 words per line, and its class, pos or neg (polarity v2.0, Pang and Lee 2004,
https://www.cs.cornell.edu/people/pabo/movie-review-data/).

tuned       starts from runs/bert_brown (`--config.init.source`), with its tokenizer; the pooler and
            the map to classes are new. Distances beyond its windows are new to it too.
scratch     the same model and tokenizer settings, without pre-training.
masked      self-pre-training (Amos et al. 2023, arXiv:2310.02980): the model predicts pieces of
            the training reviews, of which a tenth is masked, and reads no classes.
pretrained  starts from runs/movie_reviews-masked.
These read the first 512 pieces of each review, and "masked" the others in windows of their own.
bytes       the first 2,000 bytes (Long Range Arena's text classification, arXiv:2011.04006), with
            local and full attention layers in turn, from scratch; model.encoder_pattern names
            others.
"""

import runpy
from pathlib import Path

from transformer_jax.config import Experiment


def get_config(start: str = "tuned"):
    """Return the experiment of a variant."""
    variants = "tuned", "scratch", "masked", "pretrained", "bytes"
    if start not in variants:
        raise ValueError(f"no variant {start!r}; there are {', '.join(variants)}")
    c = runpy.run_path(str(Path(__file__).with_name("bert_brown.py")))["get_config"]()
    if start == "tuned":
        c.init.source = "runs/bert_brown"
    elif start == "pretrained":
        c.init.source = "runs/movie_reviews-masked"
    c.data.directory = "data/movie_reviews"
    c.data.how_to_get = "write a review a line, and its class a line, from polarity v2.0"
    if start == "masked":
        c.objective.document, c.objective.mask_rate = "line", 0.1
        c.objective.window = c.data.max_length = 512
        c.data.target_language = "text"
        c.data.tokens_per_batch = 16 * 512
        return c

    c.objective.name = "classify"
    c.objective.document = "line"
    c.objective.whole_words = False
    c.objective.window = 512
    c.tgt.codec = "classes"
    c.tokenizer.joint = False
    c.data.source_language = "text"
    c.data.target_language = "label"
    c.data.max_length = 512
    c.data.tokens_per_batch = 16 * 512

    c.optimizer.algorithm = "adam"
    c.optimizer.update_rms = Experiment().optimizer.update_rms  # Muon only
    c.optimizer.learning_rate = 2e-4
    c.optimizer.warmup_steps = 50
    c.training.steps = 500
    c.checkpoint.every_steps = 50
    c.checkpoint.best_by = "accuracy"
    c.evaluation.every_steps = 50
    if start == "bytes":
        c.src.codec = "bytes"
        c.tokenizer.vocab_size = Experiment().tokenizer.vocab_size  # unused with bytes
        c.model.encoder_pattern, c.model.window = ("local", "full"), 64
        c.model.d_model, c.model.d_ff = 128, 256
        c.objective.window = c.data.max_length = 2000
        c.data.tokens_per_batch = 8 * 2000
    return c
