"""The Penn Treebank as Mikolov prepared it: the classical benchmark of language models.

    python train.py --config=configs/ptb.py:words --config.data.directory=DIR
    python train.py --config=configs/ptb.py:characters --config.data.directory=DIR
    python eval.py --workdir=runs/ptb-words --split=test

The directory holds train.txt and validation.txt, ptb.train.txt and ptb.valid.txt of Mikolov's
simple-examples.tgz: 42,068 and 3,370 sentences in lower case, 10,000 types with <unk> and the end
of a sentence (Mikolov et al. 2010). The text is LDC's, for research alone. The checkpoint is chosen
by each 20th sentence of training from the second, which does not train: no word is lost.

words       a piece is a word, <unk> and the end of a sentence too; sentences follow one another,
            and windows of 128 read across their ends. What is published is the perplexity a word,
            ends counted. We predict, besides, BOS after each end, at no loss to speak of: with
            eval.py's loss L a piece, it is exp(L x 77,130 / 73,760) on validation. Interpolated
            Kneser-Ney has 161.4 there with trigrams and 151.3 with 5-grams. On the official test,
            LSTMs have 115 (small) and 81 (large), Transformer-XL 54.5 (24 M parameters,
            arXiv:1901.02860).
characters  a piece is a character, the end of a sentence is one of them; for the same text without
            the spaces at both ends of lines: sed -i 's/^ //; s/ $//' train.txt validation.txt.
            R-Transformer reports 1.24 bits a character on the official test (arXiv:1907.05572).

Neither has been trained to its end: see results/notes/ptb.md.
"""

from transformer_jax.config import Experiment
from transformer_jax.config.convert import door

# For each: layers, heads, width, window, dropout.
SIZES = {"words": (6, 8, 256, 128, 0.5), "characters": (8, 8, 256, 256, 0.2)}


def get_config(variant: str = "words"):
    """Return the experiment of one of SIZES."""
    if variant not in SIZES:
        raise ValueError(f"no variant {variant!r}; there are {', '.join(SIZES)}")
    layers, heads, width, window, dropout = SIZES[variant]
    c = door(Experiment())
    c.model.architecture = "decoder"
    c.model.num_decoder_layers, c.model.num_heads = layers, heads
    c.model.d_model, c.model.d_ff = width, 4 * width
    c.model.residual = "pre_norm"
    c.model.positions, c.model.relative_positions = "none", "rope"
    c.model.query_key_norm, c.model.initializer = "per_head", "gpt2"
    c.model.dropout_rate = dropout
    c.model.compute_dtype = "bfloat16"

    c.objective.name = "language_model"
    c.objective.document = "joined"
    c.objective.window = window
    c.tgt.codec = variant
    if variant == "words":
        c.tokenizer.vocab_size = 10_002  # four named pieces, of which <unk> is a word, and 9,998
    c.data.directory = "data/ptb"
    c.data.target_language = "txt"
    c.data.train = ("train[!1::20]",)
    c.data.validation = ("train[1::20]",)
    c.data.test = ("validation",)
    c.data.how_to_get = "Mikolov's simple-examples.tgz: data/ptb.train.txt and ptb.valid.txt"
    c.data.max_length = window
    c.data.tokens_per_batch = 32 * 128
    c.data.num_buckets = 1

    c.optimizer.algorithm, c.optimizer.update_rms = "muon", 0.4
    c.optimizer.weight_decay = 0.1
    c.optimizer.schedule = "linear"
    c.optimizer.learning_rate, c.optimizer.warmup_steps = 2e-3, 200
    c.training.label_smoothing = 0.0
    c.training.ema_decay = 0.999
    c.training.steps = 6000
    c.checkpoint.every_steps, c.evaluation.every_steps = 250, 250
    c.checkpoint.best_by = "loss"
    c.checkpoint.keep_last = 1
    c.evaluation.bleu_sentences = 0
    c.decoding.search = "sample"
    return c
