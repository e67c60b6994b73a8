"""The big model of "Attention Is All You Need" (Vaswani et al. 2017, arXiv:1706.03762) on WMT14.

    python train.py --config=configs/wmt_big.py  # English to German
    python train.py --config=configs/wmt_big.py:en-fr  # English to French

Every number is the paper's (Table 3, sections 5 and 6.1); its scores on newstest2014 are 28.4 (de)
and 41.8 (fr), tokenised BLEU with compounds split, which sacreBLEU counts lower by 0.5 to 0.9. It
trained for 3.5 days on 8 P100. Score, time and machine of this program: not yet run.
"""

import runpy
from pathlib import Path


def get_config(pair: str = "en-de"):
    """Return the experiment for "en-de" or "en-fr"."""
    base = runpy.run_path(str(Path(__file__).with_name("wmt_base.py")))
    c = base["get_config"](pair)
    c.model.d_model = 1024
    c.model.d_ff = 4096
    c.model.num_heads = 16
    c.model.dropout_rate = 0.1 if pair == "en-fr" else 0.3

    c.training.steps = 300_000
    # A checkpoint every 10 minutes of 1.0 s steps, and the mean of the last 20 (6.1).
    c.checkpoint.every_steps = 600
    c.checkpoint.keep_last = 20
    c.evaluation.checkpoint = "average:20"
    return c
