"""Table 3 of "Attention Is All You Need" (Vaswani et al. 2017, arXiv:1706.03762), row by row.

    transformer-jax sweep --config=configs/table3.py --variants=all --workdir=runs/table3 \
      --evaluate=validation --plot=runs/table3/table.svg --config.data.directory=DIR

    python train.py --config=configs/table3.py:A-h1  # one row, small, on Multi30k
    python train.py --config=configs/table3.py:wmt_base:A-h1  # the same row of the paper itself

A row is a change of the base model: its letter, the field in the paper's notation and the paper's
value. Applied to another base it keeps the paper's proportion: C-dff1024 is half the base's d_ff.
The base is any file in this folder, configs/wmt_base.py for the paper's own sizes, or by default a
model for a few minutes on two CPU cores: Multi30k, 3 + 3 layers, d_model 128, d_ff 512, 8 heads,
600 updates of 1024 positions for every row (the paper gave `big` three times as many). Figures,
time and machine: results/README.md.
"""

import runpy
from fractions import Fraction as F
from pathlib import Path

from transformer_jax.config import Experiment
from transformer_jax.config.convert import door

# Row: (what changes, and the paper's perplexity per word-piece, BLEU, millions of parameters on
# newstest2013, English to German, beam 4, no averaging; parameters where the paper prints them).
# A Fraction is relative to the base's size, anything else the value itself.
ROWS = {
    "base": ({}, 4.92, 25.8, 65),
    "A-h1": ({"num_heads": F(1, 8)}, 5.29, 24.9, None),
    "A-h4": ({"num_heads": F(1, 2)}, 5.00, 25.5, None),
    "A-h16": ({"num_heads": F(2)}, 4.91, 25.8, None),
    "A-h32": ({"num_heads": F(4)}, 5.01, 25.4, None),
    "B-dk16": ({"head_dim": F(1, 4)}, 5.16, 25.1, 58),
    "B-dk32": ({"head_dim": F(1, 2)}, 5.01, 25.4, 60),
    "C-N2": ({"num_encoder_layers": F(1, 3), "num_decoder_layers": F(1, 3)}, 6.11, 23.7, 36),
    "C-N4": ({"num_encoder_layers": F(2, 3), "num_decoder_layers": F(2, 3)}, 5.19, 25.3, 50),
    "C-N8": ({"num_encoder_layers": F(4, 3), "num_decoder_layers": F(4, 3)}, 4.88, 25.5, 80),
    "C-dmodel256": ({"d_model": F(1, 2)}, 5.75, 24.5, 28),  # d_k and d_v follow
    "C-dmodel1024": ({"d_model": F(2)}, 4.66, 26.0, 168),
    "C-dff1024": ({"d_ff": F(1, 2)}, 5.12, 25.4, 53),
    "C-dff4096": ({"d_ff": F(2)}, 4.75, 26.2, 90),
    "D-drop0.0": ({"dropout_rate": 0.0}, 5.77, 24.6, None),
    "D-drop0.2": ({"dropout_rate": 0.2}, 4.95, 25.5, None),
    "D-ls0.0": ({"label_smoothing": 0.0}, 4.67, 25.3, None),
    "D-ls0.2": ({"label_smoothing": 0.2}, 5.47, 25.7, None),
    "E-learned": ({"positions": "learned"}, 4.92, 25.7, None),
    "big": (
        {"d_model": F(2), "d_ff": F(2), "num_heads": F(2), "dropout_rate": 0.3}, 4.33, 26.4, 213,
    ),
}  # fmt: skip

# What `sweep --variants=all` runs, and the published figures that it compares with ours.
VARIANTS = {
    row: {"perplexity": perplexity, "BLEU": bleu, "parameters (M)": millions}
    for row, (_, perplexity, bleu, millions) in ROWS.items()
}


def get_config(variant: str = "base"):
    """Return the experiment for "ROW" or "FILE:ROW", FILE the name of a config in this folder."""
    file, _, row = variant.rpartition(":")
    if row not in ROWS:
        raise ValueError(f"no variant {row!r}; there are {', '.join(ROWS)}")
    c = _from_file(file) if file else _small()
    c.evaluation.checkpoint = "last"  # no averaging in this table
    _change(c, ROWS[row][0])
    return c


def _from_file(name: str):
    path = Path(__file__).with_name(f"{name}.py")
    if not path.is_file():
        raise ValueError(f"no file {path}; FILE:ROW takes the name of a config beside this one")
    return runpy.run_path(str(path))["get_config"]()


def _small():
    c = door(Experiment())
    c.model.d_model = 128
    c.model.d_ff = 512
    c.model.num_encoder_layers = 3
    c.model.num_decoder_layers = 3
    # Post-norm, the paper's own, spends most of so few updates before its attention aligns.
    c.model.residual = "pre_norm"

    c.data.directory = "data/multi30k"
    c.data.validation = ("val",)
    c.data.test = ("test_2016_flickr",)
    c.data.max_length = 128
    c.data.tokens_per_batch = 1024
    c.data.num_buckets = 6  # few programs to compile: every row has its own
    c.tokenizer.vocab_size = 4000

    c.optimizer.schedule = "linear"
    c.optimizer.learning_rate = 2e-3
    c.optimizer.warmup_steps = 200
    c.training.steps = 600
    c.checkpoint.every_steps = 300
    c.checkpoint.keep_last = 1
    c.checkpoint.best_by = "loss"
    c.evaluation.every_steps = 600
    c.evaluation.bleu_sentences = 0  # the sweep scores all of them at the end, with beam search
    return c


def _change(c, changes: dict) -> None:
    model = c.model
    d_k = model.d_model // model.num_heads
    for name, value in changes.items():
        if name == "head_dim":
            model.head_dim, model.v_head_dim = int(d_k * value), d_k  # row B: only d_k
        elif name == "label_smoothing":
            c.training.label_smoothing = value
        else:
            setattr(model, name, int(model[name] * value) if isinstance(value, F) else value)
    if model.positions == "learned":
        model.max_positions = max(model.max_positions, c.data.max_length)
