"""Bach's chorales in four voices, note by note, with and without relative positions.

python train.py --config=configs/chorales.py --config.data.directory=DIR
python train.py --config=configs/chorales.py:relative --config.data.directory=DIR
python train.py --config=configs/chorales.py:absolute --config.data.directory=DIR
python eval.py --workdir=runs/chorales --split=test

The directory holds train.txt and validation.txt, 229 and 76 chorales of JSB Chorales on a grid of
sixteenths (https://github.com/czhuang/JSB-Chorales-dataset): a chorale a line, steps S,A,T,B of
MIDI pitches. Each 20th of train selects the checkpoint and does not train; validation.txt is scored
as the test split.

transposed  3 layers of width 128 with relative positions (Shaw et al. 2018) beside sinusoids; reads
            the chorales in other keys, too, up to six semitones away, as far as the ranges of
            voices allow. 4,000 updates of 8 windows of 256 notes.
relative    the same without other keys, 1,200 updates.
absolute    sinusoids alone, without other keys, 1,200 updates.

Results beside controls: results/notes/chorales.md.
"""

from transformer_jax.config import Experiment
from transformer_jax.config.convert import door

RELATIVE = {"relative_positions": "shaw", "relative_clip": 128}
POSITIONS: dict = {"transposed": RELATIVE, "relative": RELATIVE, "absolute": {}}
VARIANTS: dict = {name: {} for name in POSITIONS}


def get_config(variant: str = "transposed"):
    """Return the experiment of one of POSITIONS."""
    if variant not in POSITIONS:
        raise ValueError(f"no variant {variant!r}; there are {', '.join(POSITIONS)}")
    c = door(Experiment())
    c.model.architecture = "decoder"
    c.model.num_decoder_layers = 3
    c.model.d_model, c.model.d_ff, c.model.num_heads = 128, 512, 4
    c.model.residual = "pre_norm"
    c.model.compute_dtype = "bfloat16"
    for name, value in POSITIONS[variant].items():
        setattr(c.model, name, value)

    c.objective.name = "language_model"
    c.objective.window = 256
    c.tgt.codec = "notes"
    c.data.directory = "data/chorales"
    c.data.target_language = "txt"
    c.data.how_to_get = "write github.com/czhuang/JSB-Chorales-dataset as lines of S,A,T,B steps"
    c.data.train = ("train[!::20]",)
    c.data.validation = ("train[::20]",)
    c.data.test = ("validation",)
    c.data.max_length = c.objective.window
    c.data.tokens_per_batch = 2048
    c.data.num_buckets = 1

    c.model.dropout_rate = 0.2
    c.optimizer.algorithm = "muon"
    c.optimizer.update_rms = 0.4
    c.optimizer.schedule = "linear"
    c.optimizer.learning_rate = 2e-3
    c.optimizer.warmup_steps = 100
    c.optimizer.weight_decay = 0.1
    c.training.label_smoothing = 0.0
    c.training.ema_decay = 0.995
    c.training.steps = 1200
    if variant == "transposed":
        c.data.augment = ("transpose",)
        c.training.steps = 4000
    c.checkpoint.every_steps = c.evaluation.every_steps = c.training.steps // 10
    c.checkpoint.best_by = "loss"
    c.checkpoint.keep_last = 1
    c.evaluation.bleu_sentences = 0
    c.decoding.search = "sample"
    return c
