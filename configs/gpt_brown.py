"""Small language models on the Brown corpus, from scratch: each piece from those before it.

    python train.py --config=configs/gpt_brown.py --config.data.directory=DIR
    python train.py --config=configs/gpt_brown.py:llama --config.data.directory=DIR
    python train.py --config=configs/gpt_brown.py:prefix --config.data.directory=DIR
    python train.py --config=configs/gpt_brown.py:xlnet --config.data.directory=DIR
    python train.py --config=configs/gpt_brown.py:elmo --config.data.directory=DIR
    python eval.py --workdir=runs/gpt_brown --split=validation

Text, tokenizer, sizes, schedule and number of updates are those of configs/bert_brown.py; windows
are 128 pieces of running text, with BOS and EOS around each sentence.

gpt2    GPT-2's architecture (Radford et al. 2019): pre-norm, GELU by tanh, learned positions, one
        table for input and output.
llama   Llama's (Touvron et al. 2023, arXiv:2302.13971): RMSNorm, SwiGLU, rotary positions, no
        biases, two tables; two key heads for four query heads, as in the larger models.
prefix  the same, predicting the rest of each window from its first part, which is read in both
        directions (Raffel et al. 2020, arXiv:1910.10683, section 3.2.3).
xlnet   each window in a random order, with two streams (Yang et al. 2019, arXiv:1906.08237).
elmo    from either end with LSTM layers (Peters et al. 2018, arXiv:1802.05365).
"""

import runpy
from pathlib import Path

from transformer_jax.config import Experiment

_SHAPES = ("gpt2", "llama", "prefix", "xlnet", "elmo")


def get_config(shape: str = "gpt2"):
    """Return the experiment for a shape: see above."""
    if shape not in _SHAPES:
        raise ValueError(f"no variant {shape!r}; there are {', '.join(_SHAPES)}")
    c = runpy.run_path(str(Path(__file__).with_name("bert_brown.py")))["get_config"]()
    usual = Experiment().model
    for name in ("num_encoder_layers", "token_types", "input_norm", "norm_epsilon"):
        c.model[name] = getattr(usual, name)
    c.model.architecture = "decoder"
    c.model.num_decoder_layers = 4
    c.model.residual = "pre_norm"
    c.model.activation = "gelu_tanh"
    c.objective.name = "text_prefix_lm" if shape == "prefix" else "language_model"
    c.objective.whole_words = False
    if shape == "gpt2":
        c.model.positions, c.model.relative_positions = "learned", "none"
    elif shape in ("llama", "prefix"):
        c.model.norm, c.model.biases, c.model.tied_embeddings = "rms_norm", (), "none"
        c.model.activation, c.model.d_ff, c.model.num_kv_heads = "swiglu", 688, 2
    elif shape == "xlnet":
        c.model.architecture, c.objective.name = "two_stream", "permutation_lm"
        c.model.relative_positions, c.model.activation = "xlnet", "gelu"
        c.objective.document = "line"
    else:
        c.model.architecture, c.objective.name = "elmo", "bidirectional_lm"
        for name in ("num_decoder_layers", "d_ff", "num_heads", "residual"):
            c.model[name] = getattr(usual, name)
        c.model.activation, c.model.initializer = usual.activation, usual.initializer
        c.model.num_encoder_layers, c.model.encoder_pattern = 2, ("lstm",)
        c.model.relative_positions = "none"
        c.objective.document = "line"
    return c
