"""A small T5 on the Brown corpus, from scratch: spans that a text has lost.

    python train.py --config=configs/t5_brown.py --config.data.directory=DIR
    python eval.py --workdir=runs/t5_brown --split=validation

Text, tokenizer, width, schedule and number of updates are those of configs/bert_brown.py; windows
of 128 of running text, without 15 % of it, in spans of 3. T5 1.0 in its shape (Raffel et al. 2020,
arXiv:1910.10683): pre-norm by RMSNorm, no biases, ReLU, one table of relative positions for each
stack, scores without a scale; 4 + 4 layers. configs/movie_folds.py fine-tunes it.
"""

import runpy
from pathlib import Path

from transformer_jax.config import Experiment


def get_config():
    """Return the experiment."""
    c = runpy.run_path(str(Path(__file__).with_name("bert_brown.py")))["get_config"]()
    usual = Experiment().model
    for name in ("token_types", "input_norm", "activation"):
        c.model[name] = getattr(usual, name)
    c.model.architecture = "encoder_decoder"
    c.model.num_decoder_layers = 4
    c.model.residual, c.model.norm, c.model.norm_epsilon = "pre_norm", "rms_norm", 1e-6
    c.model.positions, c.model.relative_positions = "none", "t5"
    c.model.biases = ()
    c.model.score_scale = "none"
    c.model.logits_scale = True
    c.model.initializer = "t5"
    c.objective.name = "span_corruption"
    c.objective.whole_words = False
    return c
