"""Language models by mixer: attention, two of today's recurrences and a hybrid, equal budgets.

    python train.py --config=configs/mixers.py:words-mamba2 --config.data.directory=PTB
    python train.py --config=configs/mixers.py:bytes-hybrid --config.data.directory=BOOKS
    python eval.py --workdir=runs/mixers-words-mamba2
    transformer-jax sweep --config=configs/mixers.py --variants=words-* --workdir=runs/mixers \
      --grid seed=0,1 --evaluate=test --config.data.directory=PTB

4 layers of width 128 and one recipe, that of configs/ptb.py; the width of the feed-forward layers
makes the numbers of parameters equal to 0.2 %. "full" has rotary positions, queries and keys
normalised per head; "hybrid" is three layers of Mamba-2 and one of attention, without positions.

words  the Penn Treebank of configs/ptb.py in windows of 128 words: 2.07 M parameters, 1,000 updates
       of 4,096 words. The perplexity a word of eval.py's loss L is exp(L x 77,130 / 73,760)
bytes  English novels, 1840 to 1920 (ELTeC), in windows of 512 bytes: 0.83 M parameters, 1,000
       updates of 4,096 bytes. The directory has train.txt and validation.txt, a paragraph a line;
       whole novels are held out. bzip2 has 2.22 bits a byte

The recipe was chosen with attention and is tuned for none. See results/notes/mixers.md.
"""

import runpy
from pathlib import Path

from transformer_jax.config import Experiment

RECURRENT = {"relative_positions": "none", "query_key_norm": "none", "state_size": 32}
MIXERS: dict = {
    "full": {"d_ff": 512},
    "mamba2": RECURRENT | {"decoder_pattern": ("mamba2",), "d_ff": 344},
    "gated_delta": RECURRENT | {"decoder_pattern": ("gated_delta",), "d_ff": 248},
    "hybrid": RECURRENT | {"decoder_pattern": ("mamba2", "mamba2", "mamba2", "full"), "d_ff": 384},
}
VARIANTS: dict = {f"{task}-{name}": {} for task in ("words", "bytes") for name in MIXERS}


def get_config(variant: str = "words-full"):
    """Return the experiment of one of VARIANTS."""
    if variant not in VARIANTS:
        raise ValueError(f"no variant {variant!r}; there are {', '.join(VARIANTS)}")
    task, _, mixer = variant.partition("-")
    path = Path(__file__).with_name("ptb.py")
    c = runpy.run_path(str(path))["get_config"]("words")
    c.model.num_decoder_layers, c.model.num_heads, c.model.d_model = 4, 4, 128
    c.model.dropout_rate = 0.2
    for name, value in MIXERS[mixer].items():
        setattr(c.model, name, value)
    c.training.steps = 1000
    if task == "bytes":
        c.model.dropout_rate = 0.0
        c.objective.window = c.data.max_length = 512
        c.tgt.codec = "bytes"
        c.tokenizer.vocab_size = Experiment().tokenizer.vocab_size  # unused with bytes
        c.data.directory = "data/books_en"
        c.data.train, c.data.validation = ("train[!1::500]",), ("train[1::500]",)
        c.data.how_to_get = "github.com/COST-ELTeC/ELTeC-eng: paragraphs, as train and validation"
    return c
