"""Image classification: ViT (Dosovitskiy et al. 2021, arXiv:2010.11929), small, from scratch.

    python train.py --config=configs/pictures.py:mnist --config.data.directory=DIR
    python train.py --config=configs/pictures.py:cifar10 --config.data.directory=DIR
    python train.py --config=configs/pictures.py:mnist_perceiver --config.data.directory=DIR
    python eval.py --workdir=runs/pictures-mnist --split=validation

The directory holds train.npz and validation.npz, each with `images`, bytes [n rows columns] or [n
rows columns channels], and `labels` [n]; where there is an array `names`, labels index it.

mnist       28 x 28 pixels, patches of 4: 49 of them and the class token. 99.40 % of 5,000 pictures
            after 8,000 updates on 55,000 others, seed 0, last checkpoint; 103 minutes of a core.
cifar10     32 x 32 pixels in colour, patches of 4. 10,000 pictures, 2,500 updates, seed 0: 61.5 %
            of 2,000 others; 39 minutes of a core.
cifar10_conv  the same with two convolutions in place of one linear map of each patch (Xiao et al.
            2021, arXiv:2106.14881). 63.9 %, otherwise alike; 44 minutes.
cifar10_2d  cifar10 with sinusoids of rows and columns in place of learned positions.
cifar10_class  the class is read from the class token, by a map and tanh, not from the mean.
mnist_perceiver  patches of 2 x 2 pixels, 196 of them, to which 32 latents attend (Perceiver IO:
            Jaegle et al. 2021, arXiv:2107.14795).
"""

from transformer_jax.config import Experiment
from transformer_jax.config.convert import door

_SIDES = {
    "mnist": 28,
    "cifar10": 32,
    "cifar10_conv": 32,
    "cifar10_2d": 32,
    "cifar10_class": 32,
    "mnist_perceiver": 28,
}


def get_config(variant: str = "mnist"):
    """Return the experiment for a variant: see above."""
    if variant not in _SIDES:
        raise ValueError(f"no variant {variant!r}; there are {', '.join(_SIDES)}")
    c = door(Experiment())
    size = 2 if variant == "mnist_perceiver" else 4
    patches = (_SIDES[variant] // size) ** 2
    c.model.architecture = "encoder"
    c.model.stem = "linear"
    c.model.d_model, c.model.d_ff = 96, 192
    c.model.num_heads, c.model.num_encoder_layers = 3, 6
    c.model.positions, c.model.max_positions = "learned", patches + 1
    c.model.residual, c.model.activation = "pre_norm", "gelu"
    c.model.embedding_scale = False
    c.model.pooling, c.model.pooler = "mean", False
    if variant == "mnist_perceiver":
        c.model.architecture, c.model.num_latents = "perceiver", 32
        c.model.input_norm = True
        c.model.pooling, c.model.pooler = "first", True  # unused by a Perceiver
    if variant == "cifar10_conv":
        c.model.stem, c.model.grid = "convolution", (8, 8)
    elif variant == "cifar10_2d":
        c.model.positions, c.model.max_positions = "none", Experiment().model.max_positions
        c.model.grid_positions, c.model.grid = "sinusoidal", (8, 8)
    elif variant == "cifar10_class":
        c.model.pooling, c.model.pooler = "first", True

    c.objective.name, c.objective.window = "classify", patches + 1
    c.src.codec, c.src.patch_size = "patches", size
    c.tgt.codec = "classes"
    c.tokenizer.joint = False
    c.data.source = "arrays"
    c.data.source_language, c.data.target_language = "images", "labels"
    c.data.directory = "data/mnist" if _SIDES[variant] == 28 else "data/cifar10"
    c.data.how_to_get = (
        "write train.npz and validation.npz with `images` and `labels`, or add "
        "--config.data.source=folders for folders train/LABEL and validation/LABEL"
    )
    c.data.test = c.data.validation
    c.data.max_length = patches + 1
    c.data.tokens_per_batch = 256 * (patches + 1)
    c.data.num_buckets = 1
    c.data.augment = ("crop",) if _SIDES[variant] == 28 else ("crop", "flip")
    if _SIDES[variant] == 28:
        c.data.crop_padding = 2

    c.optimizer.schedule = "cosine"
    c.optimizer.learning_rate, c.optimizer.warmup_steps = 1e-3, 500
    c.optimizer.weight_decay = 0.05
    c.training.steps = 8000 if _SIDES[variant] == 28 else 2500
    c.training.label_smoothing, c.training.smoothing = 0.1, "uniform"
    c.checkpoint.every_steps, c.evaluation.every_steps = 500, 500
    c.checkpoint.best_by = "accuracy"
    c.evaluation.checkpoint = "last"  # the data has no third split: nothing is chosen by it
    c.evaluation.bleu_sentences = 0
    return c
