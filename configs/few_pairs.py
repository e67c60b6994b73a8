"""Does monolingual text help where pairs are few? Denoising, then a tenth of Multi30k.

    P=data/few_pairs M=MULTI30K; mkdir -p $P
    for x in en de; do head -2900 $M/train.lc.norm.tok.$x > $P/tenth.$x
      for split in val test_2016_flickr; do cp $M/$split.lc.norm.tok.$x $P/$split.$x; done; done
    (tail -n +2901 $M/train.lc.norm.tok.en; tail -n +2901 $M/train.lc.norm.tok.de
      tr A-Z a-z < BROWN/train.txt) > $P/text.txt
    cat $P/val.en $P/val.de > $P/val.txt
    python train.py --config=configs/few_pairs.py:denoised --workdir=runs/denoised
    transformer-jax sweep --config=configs/few_pairs.py --variants=tuned,scratch \
      --workdir=runs/few_pairs --evaluate=test

English to German with the model of configs/variants.py.

denoised  denoising pre-training on lines of both languages, those of Multi30k's other nine tenths
          and of Brown (BART: Lewis et al. 2020, arXiv:1910.13461; multilingual: Liu et al. 2020,
          arXiv:2001.08210).
tuned     2,900 pairs, starting from runs/denoised, with its tokenizer.
scratch   only the pairs.
"""

import runpy
from pathlib import Path

VARIANTS: dict = {"denoised": {}, "tuned": {}, "scratch": {}}  # no published figures


def get_config(variant: str = "tuned"):
    """Return the experiment of one of VARIANTS."""
    if variant not in VARIANTS:
        raise ValueError(f"no variant {variant!r}; there are {', '.join(VARIANTS)}")
    c = runpy.run_path(str(Path(__file__).with_name("variants.py")))["get_config"]()
    c.data.directory = "data/few_pairs"
    c.data.how_to_get = "the commands at the top of configs/few_pairs.py"
    c.data.train = ("tenth",)
    c.data.validation = ("val",)
    c.data.test = ("test_2016_flickr",)
    c.model.dropout_rate = 0.3
    c.optimizer.schedule = "linear"
    c.training.steps = 1000
    c.checkpoint.every_steps = c.evaluation.every_steps = 100
    c.evaluation.checkpoint = "best"
    c.tokenizer.vocab_size = 3000
    if variant == "denoised":
        c.objective.name = "denoising"
        c.objective.window = c.data.max_length
        c.data.train = ("text",)
        c.data.test = ("val",)
        c.data.target_language = "txt"
        c.tokenizer.vocab_size = 8000
        c.training.steps = 3000
        c.training.label_smoothing = 0.0
    elif variant == "tuned":
        c.init.source = "runs/denoised"
        c.tokenizer.vocab_size = 8000
    return c
