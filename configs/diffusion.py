"""Pictures from noise: diffusion transformers, small, from scratch.

    python train.py --config=configs/diffusion.py:mnist --config.data.directory=DIR
    transformer-jax draw --workdir=runs/diffusion-mnist --guidance=4 --num-samples=10
    python train.py --config=configs/diffusion.py:mnist_text --config.data.directory=DIR
    transformer-jax draw --workdir=runs/diffusion-mnist_text --text="a seven" --guidance=4

The directory holds train.npz and validation.npz, each with `images`, bytes [n rows columns] or [n
rows columns channels], and `labels` [n]; where there is an array `names`, labels index it.

mnist       DiT (Peebles and Xie 2022, arXiv:2212.09748), led by the class of a digit, trained as
            rectified flow. 28 x 28 pixels, patches of 4: 49 of them.
mnist_text  MM-DiT (Stable Diffusion 3: Esser et al. 2024, arXiv:2403.03206), led by a caption, "a
            seven", whose words are a second stream. 4,000 updates of 64 pictures, seed 0. Of 1,000
            captions of the test, drawn in 25 Euler steps with guidance 2, 99.6 % (99.0 to 99.8) are
            as asked for, by a classifier that is right about 97.3 % of their real digits (2,500
            updates of configs/pictures.py:mnist, 64 pictures each); the Frechet distance of its
            features is 0.51, where that of two sets of as many real digits is 0.41. The guidance
            was chosen on validation, after 3,000 updates: of 320, 89.7 % (85.9 to 92.6) without,
            99.7 % with 2 and all with 4, at distances of 0.81, 0.75 and 1.37 (real ones 1.09).
mnist_ddpm  mnist as DDPM: the noise is predicted, over 1,000 steps (Ho et al. 2020,
            arXiv:2006.11239). Not yet run to the end, nor is mnist.
cifar10     32 x 32 pixels in colour, patches of 2: 256 of them; for a GPU. Not yet run.
cifar10_small  the same with patches of 4, 64 of them, at the size of mnist with 6 layers. 2,000 of
            20,000 updates, seed 0: colours and layouts of classes, no objects yet; the Frechet
            distance falls, 7.1, 3.6 and 2.6 after 500, 1,000 and 2,000. See results/notes.
latents     mnist in the latents of our own autoencoder, 7 x 7 vectors of four numbers (latent
            diffusion: Rombach et al. 2022, arXiv:2112.10752). 4,000 updates, seed 0: of 1,000
            classes of validation, drawn in 25 steps with guidance 2, 99.3 % (98.6 to 99.7) are
            recognised, at a distance of 0.43, where two sets of real digits have 0.35.

How well the pictures show what was asked for is measured by a classifier, which
configs/pictures.py:mnist trains:

    python eval.py --workdir=runs/diffusion-mnist_text --split=validation \
      --config.decoding.guidance=2 --config.evaluation.classifier=runs/pictures-mnist

For latents, configs/picture_codes.py:mnist_latents trains the autoencoder, which encodes pictures;
drawings are decoded by it:

    for part in train validation; do transformer-jax pictures encode DIR/$part.npz \
      --codebook=runs/picture_codes-mnist_latents --output=data/latents/$part.npz; done
    python train.py --config=configs/diffusion.py:latents --config.data.directory=data/latents
    transformer-jax draw --workdir=runs/diffusion-latents --num-samples=10
"""

from transformer_jax.config import Experiment
from transformer_jax.config.convert import door

_VARIANTS = "mnist", "mnist_text", "mnist_ddpm", "cifar10", "cifar10_small", "latents"
_DIGITS = "zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"


def get_config(variant: str = "mnist"):
    """Return the experiment for a variant: see above."""
    if variant not in _VARIANTS:
        raise ValueError(f"no variant {variant!r}; there are {', '.join(_VARIANTS)}")
    c = door(Experiment())
    colour = variant == "cifar10"
    size, rows = (2, 16) if colour else (4, 7)
    c.model.architecture, c.model.stem = "diffusion_transformer", "linear"
    c.model.residual, c.model.activation = "adaptive_norm", "gelu_tanh"
    c.model.d_model, c.model.d_ff, c.model.num_heads = 128, 512, 4
    c.model.num_encoder_layers = 4
    c.model.grid, c.model.grid_positions = (rows, rows), "sinusoidal"
    c.model.positions = "none"
    c.model.embedding_scale, c.model.dropout_rate = False, 0.0
    if colour:
        c.model.d_model, c.model.d_ff, c.model.num_heads = 384, 1536, 6
        c.model.num_encoder_layers = 12
        c.model.compute_dtype = "bfloat16"

    c.objective.name = "diffusion"
    if variant == "latents":
        c.src.codec, c.decoding.autoencoder = "latents", "runs/picture_codes-mnist_latents"
    else:
        c.src.codec, c.src.patch_size, c.src.pixel_scale = "patches", size, "symmetric"
    c.tgt.codec = "classes"
    c.tokenizer.joint = False
    c.data.source = "arrays"
    c.data.source_language, c.data.target_language = "images", "labels"
    c.data.directory = "data/cifar10" if colour else "data/mnist"
    c.data.how_to_get = "write train.npz and validation.npz with `images` and `labels`"
    if variant == "latents":
        c.data.directory = "data/latents"
        c.data.how_to_get = "transformer-jax pictures encode, as configs/diffusion.py says"
    c.data.test = ("validation",)
    c.data.max_length = rows * rows
    c.data.tokens_per_batch = (256 if colour else 64) * rows * rows
    c.data.num_buckets = 1
    if colour:
        c.data.augment = ("flip",)
    if variant == "mnist_text":
        c.model.condition = "text"
        c.model.encoder_pattern = ("joint",) * 3 + ("joint_last",)
        c.model.query_key_norm = "per_head"
        c.tgt.codec, c.tokenizer.vocab_size = "words", 4 + 11
        c.data.label_texts = tuple(f"{i}=a {name}" for i, name in enumerate(_DIGITS))
    if variant == "cifar10_small":
        c.model.num_encoder_layers = 6
        c.model.grid, c.src.patch_size = (8, 8), 4
        c.data.directory, c.data.augment = "data/cifar10", ("flip",)
        c.data.max_length, c.data.tokens_per_batch = 64, 64 * 64
    if variant == "mnist_ddpm":
        c.objective.noise_schedule, c.objective.prediction = "linear", "epsilon"
        c.objective.times = "uniform"

    c.optimizer.schedule = "cosine"
    c.optimizer.learning_rate, c.optimizer.warmup_steps = 1e-3, 200
    c.optimizer.b2 = 0.99
    c.training.steps = 20_000 if colour else 4000
    c.training.label_smoothing = 0.0
    c.training.ema_decay = 0.999
    c.checkpoint.every_steps, c.evaluation.every_steps = 500, 500
    c.checkpoint.best_by = "loss"
    c.evaluation.checkpoint = "last"  # the loss of validation says little of what is drawn
    c.evaluation.bleu_sentences = 0
    c.decoding.search = "ancestral" if variant == "mnist_ddpm" else "euler"
    return c
