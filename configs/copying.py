"""Letters in a random order, written as they are read: which models can copy, and how far.

    python train.py --config=configs/copying.py:linear
    python eval.py --workdir=runs/copying-linear
    transformer-jax sweep --config=configs/copying.py --variants=all --workdir=runs/copying_all \
      --evaluate=test

Built-in text, 20 to 60 letters; the score is the share of texts copied without an error. Encoders
and decoders of two layers each, of the mixers named, the decoder with cross-attention; "lstm" has
one state for everything it read, and "lstm-attention" attends to it as well.
"""

from transformer_jax.config import Experiment
from transformer_jax.config.convert import door

RECURRENT = {
    "architecture": "recurrent", "positions": "none", "residual": "post_norm", "d_ff": 2048,
    "num_heads": 8, "encoder_pattern": ("lstm",), "decoder_pattern": ("lstm",),
}  # fmt: skip
MODELS: dict = {
    "full": {},
    "local": {"window": 8},
    "linear": {},
    "random_features": {},
    "favor": {},
    "aft_simple": {},
    "lstm": RECURRENT | {"source_attention": "none", "input_feeding": False},
    "lstm-attention": RECURRENT,
}
VARIANTS: dict = {name: {} for name in MODELS}  # no published figures to compare with


def get_config(model: str = "full"):
    """Return the experiment of one of MODELS."""
    if model not in MODELS:
        raise ValueError(f"no variant {model!r}; there are {', '.join(MODELS)}")
    c = door(Experiment())
    c.model.num_encoder_layers = c.model.num_decoder_layers = 2
    c.model.d_model, c.model.d_ff, c.model.num_heads = 64, 128, 4
    c.model.residual = "pre_norm"
    if "architecture" not in MODELS[model]:
        c.model.encoder_pattern = c.model.decoder_pattern = (model,)
    for name, value in MODELS[model].items():
        setattr(c.model, name, value)
    c.src.codec = c.tgt.codec = "words"
    c.tokenizer.vocab_size = 4 + 26
    c.data.source = "copying"
    c.data.source_language, c.data.target_language = "read", "written"
    c.data.num_examples = (20_000, 500, 500)
    c.data.example_lengths = (20, 60)
    c.data.max_length = 64
    c.data.tokens_per_batch = 64 * 64
    c.data.num_buckets = 2
    c.optimizer.schedule, c.optimizer.learning_rate = "cosine", 2e-3
    c.optimizer.warmup_steps = 200
    c.training.label_smoothing = 0.0
    c.training.steps = 2000
    c.checkpoint.every_steps = c.evaluation.every_steps = 250
    c.checkpoint.best_by = "loss"
    c.evaluation.bleu_sentences = 0
    c.decoding.beam_size = 1
    return c
