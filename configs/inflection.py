"""Inflection: a word's form from its lemma and features, 52 languages with one model.

    python train.py --config=configs/inflection.py:high --config.data.directory=DIR
    python train.py --config=configs/inflection.py:medium --config.data.directory=DIR
    python train.py --config=configs/inflection.py:low --config.data.directory=DIR
    python eval.py --workdir=runs/inflection-high --split=test
    python benchmarks/studies/inflection.py DIR/validation.tsv.gz \
      runs/inflection-high/eval/test.best.hyp

The directory holds train_high.tsv.gz, train_medium.tsv.gz, train_low.tsv.gz and validation.tsv.gz,
rows of language, lemma, features and form, of the CoNLL-SIGMORPHON 2017 shared task (UniMorph, CC
BY-SA 3.0; https://github.com/sigmorphon/conll2017): up to 10,000, 1,000 and 100 words a language to
train, 47,450 to validate. Each 20th row of training selects the checkpoint and does not train;
validation.tsv.gz is scored as the test split. A row with another number of columns is reported by
file and line.

The language and each feature are a piece, all at position 0, and the characters of the lemma count
from 1: features have no order (Wu et al. 2021, arXiv:2005.10213, whose token type for features is
left out, as it adds nothing to pieces of their own). `--config.model.unordered_pieces=0` gives them
positions. What counts is exact match, the mean over languages, which the study computes. Copying
the lemma has 7.6 % on validation; a rule of the longest suffix 70.7, 61.8 and 37.6 %, learned from
high, medium and low. Wu et al. train a model for each language, and report that batches must be
large.

4 + 4 layers, width 256, 7.7 M parameters. Not trained to its end here: a smaller model has 49.1 %
of high after 500 updates, see results/notes/inflection.md.
"""

from transformer_jax.config import Experiment
from transformer_jax.config.convert import door

# For each: tags in the training rows, updates, positions of a batch, dropout.
SIZES = {
    "high": (268, 6000, 16_384, 0.1),
    "medium": (264, 4000, 8192, 0.3),
    "low": (246, 1500, 4096, 0.3),
}


def get_config(size: str = "high"):
    """Return the experiment of one of SIZES."""
    if size not in SIZES:
        raise ValueError(f"no variant {size!r}; there are {', '.join(SIZES)}")
    tags, steps, positions, dropout = SIZES[size]
    c = door(Experiment())
    c.model.d_model, c.model.d_ff, c.model.num_heads = 256, 1024, 4
    c.model.num_encoder_layers, c.model.num_decoder_layers = 4, 4
    c.model.residual, c.model.tied_embeddings = "pre_norm", "decoder"
    c.model.unordered_pieces = tags
    c.model.dropout_rate = dropout
    c.model.compute_dtype = "bfloat16"

    c.src.codec, c.tgt.codec = "tagged", "characters"
    c.tokenizer.joint = False
    c.data.directory = "data/inflection"
    c.data.source_language, c.data.target_language = "lemma", "form"
    c.data.columns = ("source=1", "source=3", "source=2", "target=4")
    c.data.train = (f"train_{size}.tsv.gz[!::20]",)
    c.data.validation = (f"train_{size}.tsv.gz[::20]",)
    c.data.test = ("validation.tsv.gz",)
    c.data.how_to_get = (
        "github.com/sigmorphon/conll2017, as rows of language, lemma, features, form"
    )
    c.data.max_length = 128
    c.data.max_length_ratio = 20.0
    c.data.tokens_per_batch = positions
    c.data.num_buckets = 4

    c.optimizer.algorithm, c.optimizer.update_rms = "muon", 0.4
    c.optimizer.weight_decay = 0.1
    c.optimizer.schedule = "linear"
    c.optimizer.learning_rate, c.optimizer.warmup_steps = 2e-3, 100
    c.training.label_smoothing = 0.1
    c.training.ema_decay = 0.995
    c.training.steps = steps
    c.checkpoint.every_steps = c.evaluation.every_steps = steps // 10
    c.checkpoint.best_by = "loss"
    c.checkpoint.keep_last = 1
    c.evaluation.metrics = ("CER",)  # exact match is always counted
    c.evaluation.bleu_sentences = 0
    c.decoding.beam_size = 4
    c.decoding.max_length_ratio, c.decoding.max_extra_length = 2.0, 20
    return c
