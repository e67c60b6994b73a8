"""A translation model of everyday sentences learns captions: full fine-tuning, or LoRA.

    transformer-jax sweep --config=configs/captions.py --variants=all --workdir=runs/captions \
      --evaluate=validation --config.data.directory=MULTI30K
    python train.py --config=configs/captions.py:lora --config.data.directory=MULTI30K

It starts from runs/tatoeba-en-de, a run of configs/tatoeba.py:en-de, and keeps its tokenizer;
MULTI30K is the directory of configs/multi30k.py's raw text.

full   every parameter is trained.
lora   low-rank matrices of rank 3 beside every map of every layer and the table of pieces (Hu et
       al. 2021, arXiv:2106.09685), and norms and biases: 1.97 % of the parameters, at a higher
       learning rate, for more updates and without dropout: 90 % of the other's gain in validation
       loss (results/notes/captions.md).
"""

import runpy
from pathlib import Path

from transformer_jax.config import Experiment

VARIANTS: dict = {"full": {}, "lora": {}}  # no published figures to compare with


def get_config(trained: str = "lora"):
    """Return the experiment of one of VARIANTS."""
    if trained not in VARIANTS:
        raise ValueError(f"no variant {trained!r}; there are {', '.join(VARIANTS)}")
    c = runpy.run_path(str(Path(__file__).with_name("tatoeba.py")))["get_config"]("en-de")
    c.init.source = "runs/tatoeba-en-de@best"
    c.data.directory = "data/multi30k"
    c.data.how_to_get = "git clone https://github.com/multi30k/dataset; its data/task1/raw has it"
    c.data.validation = ("val",)
    c.data.test = ("test_2016_flickr",)
    c.data.tokens_per_batch = 2048

    c.optimizer.algorithm = "adam"
    c.optimizer.update_rms = Experiment().optimizer.update_rms  # Muon only
    c.optimizer.learning_rate = 3e-4
    c.optimizer.warmup_steps = 100
    c.training.ema_decay = 0.99
    c.training.steps = 800
    c.checkpoint.every_steps = 200
    c.evaluation.every_steps = 200
    if trained == "lora":
        c.optimizer.learning_rate = 1e-2
        c.training.steps = 4500
        c.model.dropout_rate = 0.0
        c.optimizer.unfrozen = (".*norm/.*", ".*/bias")
        c.model.lora_rank = 3
        c.model.lora_maps = ("query", "key", "value", "output", "up", "down", "embedding")
    return c
