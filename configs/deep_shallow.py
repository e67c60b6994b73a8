"""A deep encoder with a shallow decoder (Kasai et al. 2020, arXiv:2006.10369), on Tatoeba.

    python train.py --config=configs/deep_shallow.py --config.data.directory=DIR  # 12 + 1 layers
    python train.py --config=configs/deep_shallow.py:6-6 --config.data.directory=DIR  # 6 + 6 layers

A sentence passes through the encoder once and through the decoder once per piece, so moving layers
from the decoder to the encoder makes decoding faster; the paper finds hardly any difference in
quality between these two. Data, schedule and all sizes but the depth are those of
configs/tatoeba.py. Score, time and machine of this program: not yet run.
"""

import runpy
from pathlib import Path


def get_config(depth: str = "12-1"):
    """Return the experiment for "12-1" or "6-6"."""
    if depth not in ("12-1", "6-6"):
        raise ValueError(f"no variant {depth!r}; there are '12-1' and '6-6'")
    base = runpy.run_path(str(Path(__file__).with_name("tatoeba.py")))
    c = base["get_config"]()
    c.model.num_encoder_layers, c.model.num_decoder_layers = map(int, depth.split("-"))
    return c
