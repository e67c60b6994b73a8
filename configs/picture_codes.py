"""Pictures as codes: a VQ-VAE (van den Oord et al. 2017, arXiv:1711.00937) of Transformers; or as
latents, by a VAE.

    python train.py --config=configs/picture_codes.py:mnist --config.data.directory=DIR
    python eval.py --workdir=runs/picture_codes-mnist --split=validation
    transformer-jax pictures encode DIR/train.npz --codebook=runs/picture_codes-mnist > train.codes

The directory holds train.npz and validation.npz with `images`, bytes [n rows columns] or [n rows
columns channels]. An encoder quantises each patch to one of 256 codes, and a decoder reconstructs
each patch from all codes, whereas k-means (transformer-jax pictures codebook) codes each patch by
itself.

mnist       28 x 28 pixels, patches of 4, 49 codes per picture. After 1,500 updates, seed 0, the
            root mean square error of a pixel in 5,000 other pictures is 18.13 of 255, and all 256
            codes are in use; about 12 minutes of a core. 256 codes of k-means have an error of
            18.07, at a perplexity of 13.8, where these have 25.1. With 16 channels for the look-up
            instead of 4, 139 codes were in use, and the loss was 0.082 instead of 0.055.
cifar10     32 x 32 pixels in colour, patches of 4, 64 codes.

    python train.py --config=configs/picture_codes.py:mnist_latents --config.data.directory=DIR
    transformer-jax pictures encode DIR/train.npz --codebook=runs/picture_codes-mnist_latents \
      --output=data/latents/train.npz

mnist_latents  mnist with four normal numbers for each patch in place of a code (VAE: Kingma and
            Welling 2013, arXiv:1312.6114), for configs/diffusion.py:latents. Not yet run to the
            end.
"""

from transformer_jax.config import Experiment
from transformer_jax.config.convert import door

_SIDES = {"mnist": 28, "cifar10": 32, "mnist_latents": 28}


def get_config(variant: str = "mnist"):
    """Return the experiment for "mnist", "cifar10" or "mnist_latents"."""
    if variant not in _SIDES:
        raise ValueError(f"no variant {variant!r}; there are {', '.join(_SIDES)}")
    c = door(Experiment())
    patches = (_SIDES[variant] // 4) ** 2
    c.model.architecture, c.model.stem = "autoencoder", "linear"
    c.model.d_model, c.model.d_ff, c.model.num_heads = 96, 192, 3
    c.model.num_encoder_layers = c.model.num_decoder_layers = 3
    c.model.positions, c.model.max_positions = "learned", patches
    c.model.residual, c.model.activation = "pre_norm", "gelu"
    c.model.embedding_scale, c.model.dropout_rate = False, 0.0
    c.model.num_codes, c.model.code_width = 256, 4
    if variant == "mnist_latents":
        c.model.architecture = "variational_autoencoder"

    c.objective.name = "reconstruct"
    c.src.codec = c.tgt.codec = "patches"
    c.src.patch_size = 4
    c.data.source = "arrays"
    c.data.target_language = "images"
    c.data.directory = f"data/{variant.removesuffix('_latents')}"
    c.data.how_to_get = "write train.npz and validation.npz with `images`"
    c.data.test = ("validation",)
    c.data.max_length = patches
    c.data.tokens_per_batch = 128 * patches
    c.data.num_buckets = 1
    if variant == "cifar10":
        c.data.augment = ("flip",)

    c.optimizer.schedule = "cosine"
    c.optimizer.learning_rate, c.optimizer.warmup_steps = 1e-3, 200
    c.training.steps = 1500
    c.training.label_smoothing = 0.0
    c.checkpoint.every_steps, c.evaluation.every_steps = 500, 500
    c.checkpoint.best_by = "loss"
    c.evaluation.checkpoint = "last"  # the data has no third split: nothing is chosen by it
    c.evaluation.bleu_sentences = 0
    return c
