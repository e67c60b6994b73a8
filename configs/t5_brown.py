"""Small encoder-decoders on the Brown corpus, from scratch: missing spans, or a text's ending.

    python train.py --config=configs/t5_brown.py --config.data.directory=DIR
    python train.py --config=configs/t5_brown.py:v1.1 --config.data.directory=DIR
    python train.py --config=configs/t5_brown.py:prefix --config.data.directory=DIR
    python train.py --config=configs/t5_brown.py:bart --config.data.directory=DIR
    python eval.py --workdir=runs/t5_brown --split=validation
    transformer-jax generate --workdir=runs/t5_brown --prompt='the <extra_id_0> said that'

Text, tokenizer, width, schedule and number of updates are those of configs/bert_brown.py; windows
of 128 pieces of running text; 4 + 4 layers. configs/movie_folds.py fine-tunes T5.

t5      15 % of the text is removed, in spans of 3, and written. T5 1.0's architecture (Raffel et
        al. 2020, arXiv:1910.10683): pre-norm with RMSNorm, no biases, ReLU, one table of pieces,
        one of relative positions per stack. Only initial values are BERT's, and so are the scales
        of scores and logits: with T5's the loss was 5.15 after 250 updates, and with these 4.78.
v1.1    the same with gated GELU, unscaled scores, and a separate table for the output (the authors'
        release).
prefix  T5's architecture; reads the first part of each window and writes the rest (section 3.2.3).
bart    sentences are shuffled and 30 % of the text is masked; all of it is written (Lewis et al.
        2020, arXiv:1910.13461): post-norm, learned positions, GELU, one table.
"""

import runpy
from pathlib import Path

from transformer_jax.config import Experiment

_SHAPES = ("t5", "v1.1", "prefix", "bart")


def get_config(shape: str = "t5"):
    """Return the experiment for a shape: see above."""
    if shape not in _SHAPES:
        raise ValueError(f"no variant {shape!r}; there are {', '.join(_SHAPES)}")
    c = runpy.run_path(str(Path(__file__).with_name("bert_brown.py")))["get_config"]()
    usual = Experiment().model
    c.model.token_types = usual.token_types
    c.model.architecture = "encoder_decoder"
    c.model.num_decoder_layers = 4
    c.objective.whole_words = False
    if shape == "bart":
        c.objective.name = "denoising"
        c.model.norm_epsilon = 1e-5
        c.model.positions, c.model.relative_positions = "learned", "none"
        return c
    c.objective.name = "text_continuation" if shape == "prefix" else "span_corruption"
    for name in ("input_norm", "activation"):
        c.model[name] = getattr(usual, name)
    c.model.residual, c.model.norm, c.model.norm_epsilon = "pre_norm", "rms_norm", 1e-6
    c.model.positions, c.model.relative_positions = "none", "t5"
    c.model.biases = ()
    if shape == "v1.1":
        c.model.activation, c.model.score_scale = "geglu_tanh", "none"
        c.model.tied_embeddings = "none"
    return c
