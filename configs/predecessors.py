"""The Transformer and the translation models before it, on Multi30k: equal budgets, one recipe.

    python train.py --config=configs/predecessors.py:rnnsearch --config.data.directory=DIR
    python eval.py --workdir=runs/predecessors-rnnsearch
    transformer-jax sweep --config=configs/predecessors.py --variants=all \
      --workdir=runs/predecessors_all --evaluate=test --config.data.directory=DIR

lc-tok, English to German, as in configs/multi30k.py:lc, whose model is "transformer". The others:
sutskever    LSTM layers that read the source backwards, and others that start from their final
             state (arXiv:1409.3215); sutskever-forward reads the source forwards
cho          the same with GRU, and the summary of the source at every step (arXiv:1406.1078)
rnnsearch    bidirectional GRU layers, and attention before each step (arXiv:1409.0473)
luong        LSTM layers, and attention after each step, fed to the next one (arXiv:1508.04025);
             luong-dot, luong-local (a predicted window) and luong-forward, which reads the source
             forwards as the others do
gnmt         four layers each, the first of the encoder bidirectional (arXiv:1609.08144)
rnmt-plus    the Transformer's encoder, and the decoder of RNMT+ (arXiv:1804.09849)
encoder-rnn  the Transformer's encoder, and a decoder with GRU in place of self-attention
ssru         the same with the simpler simple recurrent unit
"""

import runpy
from pathlib import Path

CELLS = {
    "architecture": "recurrent", "d_model": 256, "positions": "none", "residual": "post_norm",
    "d_ff": 2048, "num_heads": 8,  # without meaning there
}  # fmt: skip
LSTM = CELLS | {
    "encoder_pattern": ("lstm",), "decoder_pattern": ("lstm",), "num_encoder_layers": 2,
    "num_decoder_layers": 2, "reverse_source": True,
}  # fmt: skip
GRU = CELLS | {
    "encoder_pattern": ("bigru",), "decoder_pattern": ("gru",), "num_encoder_layers": 1,
    "num_decoder_layers": 1, "recurrence": "bahdanau", "source_attention": "additive",
    "input_feeding": False,
}  # fmt: skip
MODELS: dict = {
    "transformer": {},
    "sutskever": LSTM | {"source_attention": "none", "input_feeding": False},
    "sutskever-forward": LSTM
    | {"source_attention": "none", "input_feeding": False, "reverse_source": False},
    "cho": GRU | {"encoder_pattern": ("gru",), "source_attention": "none"},
    "rnnsearch": GRU,
    "luong": LSTM,
    "luong-dot": LSTM | {"source_attention": "dot"},
    "luong-local": LSTM | {"source_attention": "local_predictive", "window": 5},
    "luong-forward": LSTM | {"reverse_source": False},
    "gnmt": LSTM
    | {
        "encoder_pattern": ("bilstm", "lstm", "lstm", "lstm"), "num_encoder_layers": 4,
        "num_decoder_layers": 4, "recurrence": "gnmt", "source_attention": "additive",
        "input_feeding": False, "reverse_source": False,
    },
    "rnmt-plus": {
        "architecture": "recurrent", "recurrence": "rnmt_plus", "decoder_pattern": ("lstm",),
        "source_attention": "multi_head_additive", "input_feeding": False, "num_decoder_layers": 4,
    },
    "encoder-rnn": {"decoder_pattern": ("gru",)},
    "ssru": {"decoder_pattern": ("ssru",)},
}  # fmt: skip
VARIANTS: dict = {name: {} for name in MODELS}  # published figures are for other data


def get_config(model: str = "rnnsearch"):
    """Return the experiment of one of MODELS."""
    if model not in MODELS:
        raise ValueError(f"no variant {model!r}; there are {', '.join(MODELS)}")
    path = Path(__file__).with_name("multi30k.py")
    c = runpy.run_path(str(path))["get_config"]("lc")
    for name, value in MODELS[model].items():
        setattr(c.model, name, value)
    return c
