"""ETTh1."""

from transformer_jax.config import Experiment
from transformer_jax.door import door

_WINDOW, _LENGTH, _STRIDE = 336, 16, 8


def get_config(variant: str = "point"):
    """Return the experiment for "point", "normal", "student_t" or "quantiles"."""
    kinds = "point", "normal", "student_t", "quantiles"
    if variant not in kinds:
        raise ValueError(f"no variant {variant!r}; there are {', '.join(kinds)}")
    c = door(Experiment())
    c.seed = 1
    c.objective.name, c.objective.window, c.objective.horizon = "forecast", _WINDOW, 96
    c.tgt.codec = "series"
    c.data.source, c.data.directory = "series", "data/etth1"
    c.data.train = ("ETTh1[0:8640]",)
    c.data.validation = ("ETTh1[8640:11520]",)
    c.data.test = ("ETTh1[11520:14400]",)
    c.data.target_language = "csv"
    c.data.how_to_get = "https://github.com/zhouhaoyi/ETDataset has ETTh1.csv"

    c.model.architecture, c.model.stem = "encoder", "series"
    c.model.patch_length, c.model.patch_stride = _LENGTH, _STRIDE
    c.model.distribution = variant
    c.model.d_model, c.model.d_ff = 16, 128
    c.model.num_heads, c.model.num_encoder_layers = 4, 3
    c.model.positions = "learned"
    c.model.max_positions = (_WINDOW - _LENGTH) // _STRIDE + 1
    c.model.embedding_scale = False
    c.model.residual, c.model.activation = "pre_norm", "gelu"
    c.model.dropout_rate = 0.3

    rows = 448
    c.data.max_length, c.data.tokens_per_batch = _WINDOW, rows * _WINDOW
    c.data.num_buckets = 1
    c.optimizer.schedule = "cosine"
    c.optimizer.learning_rate, c.optimizer.warmup_steps = 1e-3, 100
    c.training.steps = 1500
    c.training.label_smoothing = 0.0
    c.training.loss_spike = None
    c.checkpoint.every_steps, c.evaluation.every_steps = 100, 100
    c.checkpoint.best_by = "loss"
    c.evaluation.bleu_sentences = 0
    return c
