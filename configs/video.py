"""Video: ViViT (Arnab et al. 2021, arXiv:2103.15691), TimeSformer (Bertasius et al. 2021,
arXiv:2102.05095) and diffusion over frames, small, on generated clips of moving digits.

    python train.py --config=configs/video.py:directions
    python eval.py --workdir=runs/video-directions --split=test
    python train.py --config=configs/video.py:larger
    python train.py --config=configs/video.py:factorised
    python train.py --config=configs/video.py:divided
    python train.py --config=configs/video.py:generate
    python train.py --config=configs/video.py:generate_text
    transformer-jax draw --workdir=runs/video-generate --guidance=2 --output=moving.gif

A clip has 8 frames of 32 x 32 pixels, in which digits move 2 pixels a frame in one of 8 directions,
on a torus: one frame says nothing of the direction, and frames out of order leave two of them.
Tubelets of 2 frames and 8 x 8 pixels make 64 vectors.

directions  the direction of one digit; attention among all tubelets (ViViT's model 1). 100.0 % of
            2,000 test clips (99.8 to 100.0) after 400 updates, seed 0: 2.1 core-minutes.
larger      two digits: the direction of that of the larger value, which has to be read as well.
            Not yet run to the end.
factorised  larger by ViViT's factorised encoder: 4 layers of each time's tubelets, 2 of times.
            72.2 % (70.2 to 74.1) after 1,000 updates, seed 0, and still rising.
divided     larger by TimeSformer's layers: attention along time, then within frames. Not yet run
            to the end.
generate    clips of 16 x 16 pixels drawn from noise, led by a direction: a diffusion transformer
            over tubelets, with sines and cosines of time, row and column. After 2,300 updates, a
            classifier sees 97.2 % (94.7 to 98.5) of 320 clips move as asked for with guidance 4,
            73.4 % without; they are strokes that move, not yet digits.
generate_text  the same led by a text, "a three moves up left", by MM-DiT's layers. Not yet run to
            the end.

What it sees in frames that are shuffled, or in one of them, says

    python benchmarks/studies/moving_digits.py test runs/video-directions

Other clips: --config.data.source=clips reads --config.data.directory, with folders
train/LABEL/CLIP/FRAME.png or files train/LABEL/CLIP.gif, --config.data.source=arrays files
train.npz with `clips`, bytes [n frames rows columns] or [n frames rows columns channels], and
`labels`.

How well drawn clips move as asked for is said by a classifier of such clips:

    python train.py --config=configs/video.py:directions --config.data.image_size=16,16 \
      --config.src.patch_size=4 --workdir=runs/video-directions16
    python eval.py --workdir=runs/video-generate --split=test \
      --config.evaluation.classifier=runs/video-directions16 --config.decoding.guidance=2
"""

from transformer_jax.config import Experiment
from transformer_jax.config.convert import door

_VARIANTS = "directions", "larger", "factorised", "divided", "generate", "generate_text"
_GRID = 4, 4, 4  # times, rows and columns of tubelets


def get_config(variant: str = "directions"):
    """Return the experiment for a variant: see above."""
    if variant not in _VARIANTS:
        raise ValueError(f"no variant {variant!r}; there are {', '.join(_VARIANTS)}")
    c = door(Experiment())
    generates = variant.startswith("generate")
    c.model.architecture, c.model.stem = "encoder", "linear"
    c.model.d_model, c.model.d_ff, c.model.num_heads = 128, 256, 4
    c.model.num_encoder_layers = 4
    c.model.residual, c.model.activation = "pre_norm", "gelu"
    c.model.positions, c.model.max_positions = "learned", 65
    c.model.embedding_scale, c.model.pooler = False, False
    if variant == "factorised":
        c.model.architecture, c.model.grid = "factorised_encoder", _GRID
        c.model.num_time_layers = 2
    if variant == "divided":
        c.model.grid, c.model.grid_positions = _GRID, "learned"
        c.model.positions, c.model.encoder_pattern = "none", ("divided",)
        c.model.max_positions = Experiment().model.max_positions
    if generates:
        c.model.architecture, c.model.residual = "diffusion_transformer", "adaptive_norm"
        c.model.activation, c.model.dropout_rate = "gelu_tanh", 0.0
        c.model.grid, c.model.grid_positions = _GRID, "sinusoidal"
        c.model.positions, c.model.pooler = "none", True  # a pooler is for classes
        c.model.max_positions = Experiment().model.max_positions

    c.objective.name = "diffusion" if generates else "classify"
    if not generates:
        c.objective.window = 65
    c.src.codec, c.src.patch_size = "tubelets", 4 if generates else 8
    if generates:
        c.src.pixel_scale = "symmetric"
    c.tgt.codec = "classes"
    c.tokenizer.joint = False
    c.data.source, c.data.target_language = "moving_digits", "direction"
    c.data.source_language = "clips"  # the array, with data.source="arrays"
    c.data.num_digits = 1 if generates or variant == "directions" else 2
    if generates:
        c.data.image_size = (16, 16)
    c.data.num_examples = (20_000, 1000, 2000)
    c.data.max_length = 65
    c.data.tokens_per_batch = 64 * (64 if generates else 65)
    c.data.num_buckets = 1

    c.optimizer.schedule = "cosine"
    c.optimizer.learning_rate, c.optimizer.warmup_steps = 1e-3, 100
    c.optimizer.weight_decay = 0.0 if generates else 0.05
    c.training.steps = {"directions": 400}.get(variant, 4000 if generates else 1500)
    c.training.label_smoothing = 0.0
    c.checkpoint.every_steps = c.evaluation.every_steps = 100 if variant == "directions" else 250
    c.checkpoint.best_by = "loss" if generates else "accuracy"
    c.evaluation.checkpoint = "last"
    c.evaluation.bleu_sentences = 0
    if variant == "generate_text":
        c.model.condition, c.model.query_key_norm = "text", "per_head"
        c.model.encoder_pattern = ("joint",) * 3 + ("joint_last",)
        c.tgt.codec, c.tokenizer.vocab_size = "words", 4 + 17
        c.data.target_language = "text"
    if generates:
        c.training.ema_decay = 0.995
        c.decoding.search = "euler"
    return c
