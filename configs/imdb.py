"""Movie reviews of IMDb, positive or negative: from bytes or subwords, pre-trained or not.

    python train.py --config=configs/imdb.py:bytes --config.data.directory=DIR
    python train.py --config=configs/imdb.py:subwords --config.data.directory=DIR
    python train.py --config=configs/imdb.py:masked --config.data.directory=DIR
    python train.py --config=configs/imdb.py:pretrained --config.data.directory=DIR
    python eval.py --workdir=runs/imdb-bytes --split=test

The directory holds train.text and train.label, validation.text and validation.label (or .gz of
them): a review a line, as it is, and its class, pos or neg. They are the 25,000 official training
reviews of the Large Movie Review Dataset (Maas et al. 2011,
https://ai.stanford.edu/~amaas/data/sentiment/), of which 2,660 of other movies validate. Each 20th
training review selects the checkpoint and does not train, though its movie may; validation is
scored as the test split.

bytes       the first 4,000 bytes, as in Long Range Arena (Tay et al. 2021, arXiv:2011.04006), whose
            Transformer has 64.3 % on the official test; here layers with a window of 64 bytes to
            either side, and full attention in the last. 0.6 M parameters.
subwords    the first 512 of 8,000 pieces: 4 layers, width 256, 5.2 M parameters.
masked      the same model predicts pieces of the training reviews, of which 15 % are masked, and
            reads no classes (self-pre-training: Amos et al. 2023, arXiv:2310.02980).
pretrained  subwords, from runs/imdb-masked (`--config.init.source`) with its tokenizer.

The majority has 55.0 % on validation, naive Bayes of words 81.5 %, with pairs of words 84.5 %. 16
of the 2,660 reviews are also in training. `:pretrained` has 83.9 %, and 400 updates of `:subwords`
have 83.4 %, seed 0: results/notes/imdb.md.
"""

from transformer_jax.config import Experiment
from transformer_jax.config.convert import door

VARIANTS: dict = {"bytes": {}, "subwords": {}, "masked": {}, "pretrained": {}}


def get_config(variant: str = "bytes"):
    """Return the experiment of one of VARIANTS."""
    if variant not in VARIANTS:
        raise ValueError(f"no variant {variant!r}; there are {', '.join(VARIANTS)}")
    c = door(Experiment())
    c.model.architecture = "encoder"
    c.model.num_encoder_layers, c.model.num_heads = 4, 4
    c.model.d_model, c.model.d_ff = 256, 1024
    c.model.residual, c.model.activation = "pre_norm", "gelu"
    c.model.positions, c.model.relative_positions = "none", "rope"
    c.model.embedding_scale, c.model.initializer = False, "gpt2"
    c.model.compute_dtype = "bfloat16"

    c.data.directory = "data/imdb"
    c.data.how_to_get = "https://ai.stanford.edu/~amaas/data/sentiment, as a review a line"
    c.data.train, c.data.validation = ("train[!::20]",), ("train[::20]",)
    c.data.test = ("validation",)
    c.tokenizer.vocab_size = 8000
    c.optimizer.algorithm, c.optimizer.update_rms = "muon", 0.4
    c.optimizer.weight_decay = 0.1
    c.optimizer.schedule = "linear"
    c.optimizer.learning_rate, c.optimizer.warmup_steps = 2e-3, 50
    c.training.label_smoothing = 0.0
    c.checkpoint.keep_last = 1
    c.evaluation.bleu_sentences = 0
    c.objective.document = "line"
    if variant == "masked":
        c.objective.name, c.objective.whole_words = "masked_lm", True
        c.objective.window = c.data.max_length = 256
        c.data.target_language = "text"
        c.data.tokens_per_batch, c.data.num_buckets = 32 * 256, 1
        c.training.steps = 700
        c.checkpoint.every_steps = c.evaluation.every_steps = 350
        c.checkpoint.best_by = "loss"
        return c

    c.objective.name = "classify"
    c.model.pooling = "mean"
    c.tgt.codec = "classes"
    c.tokenizer.joint = False
    c.data.source_language, c.data.target_language = "text", "label"
    c.checkpoint.best_by = "accuracy"
    if variant == "bytes":
        c.src.codec = "bytes"
        c.tokenizer.vocab_size = Experiment().tokenizer.vocab_size  # unused with bytes
        c.model.d_model, c.model.d_ff = 112, 448
        c.model.encoder_pattern, c.model.window = ("local", "local", "local", "full"), 64
        c.objective.window = c.data.max_length = 4000
        c.data.tokens_per_batch, c.data.num_buckets = 4 * 4000, 4
        c.data.rows_divisible_by = 4
        c.training.steps = 1400
    else:
        c.objective.window = c.data.max_length = 512
        c.data.tokens_per_batch, c.data.num_buckets = 16 * 512, 4
        c.training.steps = 700
    if variant == "pretrained":
        c.init.source = "runs/imdb-masked"
        c.optimizer.learning_rate = 1e-3
        c.training.steps = 400
    c.checkpoint.every_steps = c.evaluation.every_steps = c.training.steps // 5
    return c
