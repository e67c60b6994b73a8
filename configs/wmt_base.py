"""The base model of "Attention Is All You Need" (Vaswani et al. 2017, arXiv:1706.03762) on WMT14.

    python train.py --config=configs/wmt_base.py  # English to German
    python train.py --config=configs/wmt_base.py:en-fr  # English to French

Every number is the paper's (sections 5.1 to 5.4 and 6.1, Table 3); its scores on newstest2014 are
27.3 (de) and 38.1 (fr), tokenised BLEU with compounds split, which sacreBLEU counts lower by 0.5 to
0.9. It trained for 12 hours on 8 P100. Score, time and machine of this program: not yet run.

The data comes from TensorFlow Datasets, which prepares it without TensorFlow: the first start
explains how. The encoder's and the decoder's batches hold 25,000 positions each.
"""

from transformer_jax.config import Experiment
from transformer_jax.config.convert import door

_PAIRS = {
    # variant: (TFDS name, source, target, vocabulary)
    "en-de": ("wmt14_translate/de-en", "en", "de", 37_000),
    "en-fr": ("wmt14_translate/fr-en", "en", "fr", 32_000),
}


def get_config(pair: str = "en-de"):
    """Return the experiment for "en-de" or "en-fr"."""
    c = door(Experiment())
    if pair not in _PAIRS:
        raise ValueError(f"no variant {pair!r}; there are {sorted(_PAIRS)}")
    name, source, target, vocabulary = _PAIRS[pair]
    c.data.source = "tfds"
    c.data.name = name
    c.data.source_language, c.data.target_language = source, target
    c.data.tokens_per_batch = 25_000
    c.data.num_buckets = 16
    c.tokenizer.vocab_size = vocabulary

    c.training.steps = 100_000
    # A checkpoint every 10 minutes of 0.4 s steps, and the mean of the last 5 (6.1).
    c.checkpoint.every_steps = 1500
    c.checkpoint.keep_last = 5
    c.evaluation.every_steps = 3000
    c.evaluation.checkpoint = "average:5"
    return c
