"""Monolingual target-language text helps where pairs are few: a fifth of Multi30k's.

    P=data/back_translation M=MULTI30K; mkdir -p $P
    for x in en de; do head -5800 $M/train.lc.norm.tok.$x > $P/fifth.$x
      for split in val test_2016_flickr; do cp $M/$split.lc.norm.tok.$x $P/$split.$x; done; done
    tail -n +5801 $M/train.lc.norm.tok.de > $P/mono.de
    python train.py --config=configs/back_translation.py:back --workdir=runs/back
    transformer-jax translate --workdir=runs/back --input=$P/mono.de --output=$P/mono.en
    transformer-jax sweep --config=configs/back_translation.py --variants=alone,both \
      --workdir=runs/back_translation --evaluate=test

English to German with the model and recipe of configs/variants.py, 2,000 updates each.

alone  the 5,800 pairs.
back   the same from German to English.
both   the pairs, and 23,200 German captions with sources translated by "back", marked by a tag
       (Sennrich et al. 2016, arXiv:1511.06709; Caswell et al. 2019, arXiv:1906.06442).
"""

import runpy
from pathlib import Path

VARIANTS: dict = {"alone": {}, "back": {}, "both": {}}  # no published figures to compare with


def get_config(text: str = "both"):
    """Return the experiment of one of VARIANTS."""
    if text not in VARIANTS:
        raise ValueError(f"no variant {text!r}; there are {', '.join(VARIANTS)}")
    c = runpy.run_path(str(Path(__file__).with_name("variants.py")))["get_config"]()
    c.data.directory = "data/back_translation"
    c.data.how_to_get = "the commands at the top of configs/back_translation.py"
    c.data.train = ("fifth",)
    c.data.validation = ("val",)
    c.data.test = ("test_2016_flickr",)
    c.tokenizer.vocab_size = 5000
    c.model.dropout_rate = 0.3
    c.optimizer.schedule = "linear"
    c.evaluation.checkpoint = "best"
    if text == "back":
        c.data.source_language, c.data.target_language = "de", "en"
    elif text == "both":
        c.data.train = ("fifth", "mono")
        c.data.prefixes = ("mono=<BT>",)
        c.tokenizer.symbols = ("<BT>",)
    return c
