"""SCAN: commands of a small language, written out as actions (Lake and Baroni 2018).

    python benchmarks/studies/scan.py SCAN --output=data/scan
    python train.py --config=configs/scan.py:simple
    python train.py --config=configs/scan.py:length
    python train.py --config=configs/scan.py:length_15-absolute
    python eval.py --workdir=runs/scan-length --split=test

SCAN is the directory of the data set (https://github.com/brendenlake/SCAN; arXiv:1711.00350), or of
its splits as .tsv. What counts is exact match, on commands that, except in `simple`, differ in kind
from those of training:

simple                 any other command
length                 more than 22 actions
addprim_jump           "jump", which training has only by itself, within commands
addprim_turn_left      the same of "turn left"
template_around_right  "around right", which training has not

There is no official validation. Here it is every 20th line of training, which does not train, and
which says nothing about the test of the last four; two cuts of training do, see the script:

length_15              trains on at most 15 actions, and validates on 16 to 22
addprim_look           the same as addprim_jump for "look"

`-absolute` has the paper's positions, `-universal` these before each layer; else they are relative,
as in Transformer-XL. The layers of a stack share their parameters, of which there are 0.13 M. In
`-repeats` these are 25 thousand, and actions that are repeated are written once, with a count
(tgt.codec=repeats): on length_15 68.2, 58.3 and 64.4 % with seeds 0, 1 and 2, 4 core-minutes each.
Looking up both halves of a command in training has 32.7 %, plain words 16.7, 23.5 and 27.7 %, wider
models with counts as much as looking up.

Published: LSTMs have 99.8 % on simple, 13.8 on length and 0.1 on addprim_jump (arXiv:1711.00350);
relative positions reach 100 on length where training goes up to 26 actions (Csordas et al. 2021,
arXiv:2108.12284). Not run here: the official tests. See results/notes/scan.md.
"""

from transformer_jax.config import Experiment
from transformer_jax.config.convert import door

SPLITS = ("simple", "length", "addprim_jump", "addprim_turn_left", "template_around_right")
CUTS = ("length_15", "addprim_look")
RECIPES: dict = {
    "relative": {"positions": "none", "relative_positions": "xlnet"},
    "absolute": {},
    "universal": {"layer_sharing": "universal"},
    "repeats": {
        "positions": "none",
        "relative_positions": "xlnet",
        "d_model": 32,
        "d_ff": 64,
        "tied_embeddings": "decoder",
    },
}


def get_config(variant: str = "simple"):
    """Return the experiment of one of SPLITS or CUTS, alone or with - and one of RECIPES."""
    split, _, recipe = variant.partition("-")
    recipe = recipe or "relative"
    if split not in SPLITS + CUTS or recipe not in RECIPES:
        names = ", ".join((*SPLITS, *CUTS))
        others = " and ".join(f"{SPLITS[0]}-{word}" for word in RECIPES)
        raise ValueError(f"no variant {variant!r}; there are {names}, {others}")
    c = door(Experiment())
    c.model.d_model, c.model.d_ff, c.model.num_heads = 64, 256, 4
    c.model.num_encoder_layers, c.model.num_decoder_layers = 3, 3
    c.model.layer_sharing = "all"
    c.model.residual = "pre_norm"
    for name, value in RECIPES[recipe].items():
        setattr(c.model, name, value)
    c.src.codec, c.tgt.codec = "words", "words"
    c.tokenizer.vocab_size = 23  # four named pieces, 13 words and six actions
    c.data.directory = "data/scan"
    c.data.source_language, c.data.target_language = "command", "actions"
    c.data.columns = ("source=1", "target=2")
    if split in CUTS:
        c.data.train, c.data.validation = (f"{split}.train.tsv",), (f"{split}.validation.tsv",)
        c.data.test = c.data.validation
    else:
        c.data.train = (f"{split}.train.tsv[!::20]",)
        c.data.validation = (f"{split}.train.tsv[::20]",)
        c.data.test = (f"{split}.test.tsv",)
    c.data.how_to_get = "benchmarks/studies/scan.py SCAN --output=data/scan"
    c.data.max_length = 64
    c.data.max_length_ratio = 64.0  # "jump around left thrice" is four words and 24 actions
    c.data.tokens_per_batch = 1024
    c.data.num_buckets = 2

    c.optimizer.algorithm, c.optimizer.update_rms = "muon", 0.4
    c.optimizer.schedule = "linear"
    c.optimizer.learning_rate = 2e-3
    c.optimizer.warmup_steps = 100
    c.optimizer.clip_norm = 1.0
    c.training.label_smoothing = 0.0
    c.training.steps = 1500
    c.training.ema_decay = 0.99
    c.checkpoint.every_steps, c.evaluation.every_steps = 250, 250
    c.checkpoint.keep_last = 1
    c.checkpoint.best_by = "loss"
    c.evaluation.bleu_sentences = 0
    c.evaluation.checkpoint = "last"  # validation differs in kind from training: nothing is chosen
    c.decoding.beam_size = 1
    c.decoding.max_length_ratio, c.decoding.max_extra_length = 8.0, 8
    if recipe == "repeats":
        c.tgt.codec = "repeats"
        c.tokenizer.joint = False
        c.tokenizer.vocab_size = 17  # of the commands
        if split in CUTS:
            c.data.train = (f"{split}.train.tsv[!::20]",)
            c.data.validation = (f"{split}.train.tsv[::20]",)
        c.optimizer.clip_norm = None
        c.optimizer.weight_decay = 0.3
        c.training.steps, c.training.ema_decay = 3000, 0.998
        c.checkpoint.every_steps = c.evaluation.every_steps = 500
    return c
