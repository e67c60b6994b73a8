"""A small GPT on the Brown corpus, from scratch: each piece from those before it.

    python train.py --config=configs/gpt_brown.py --config.data.directory=DIR
    python eval.py --workdir=runs/gpt_brown --split=validation

Text, tokenizer, sizes, schedule and number of updates are those of configs/bert_brown.py; windows
of 128 are of running text, with BOS and EOS around each sentence. GPT-2 in its shape (Radford et
al. 2019): pre-norm, GELU by tanh, learned positions, one table for what is read and written.
"""

import runpy
from pathlib import Path

from transformer_jax.config import Experiment


def get_config():
    """Return the experiment."""
    c = runpy.run_path(str(Path(__file__).with_name("bert_brown.py")))["get_config"]()
    usual = Experiment().model
    for name in ("num_encoder_layers", "token_types", "input_norm", "norm_epsilon"):
        c.model[name] = getattr(usual, name)
    c.model.architecture = "decoder"
    c.model.num_decoder_layers = 4
    c.model.residual = "pre_norm"
    c.model.activation = "gelu_tanh"
    c.model.positions, c.model.relative_positions = "learned", "none"
    c.objective.name = "language_model"
    c.objective.whole_words = False
    return c
