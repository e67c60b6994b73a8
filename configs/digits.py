"""Pictures of digits, written like text: small models of ImageGPT's, DALL-E's and Parti's kind.

    python configs/digits.py DIR [WORKDIR]
    python train.py --config=configs/digits.py:dalle --config.data.directory=DIR
    python eval.py --workdir=runs/digits-dalle --split=validation --codebook=DIR/codebook.npz
    transformer-jax report runs/digits-dalle --split=validation --output=report.html
    for d in zero one two three four five six seven eight nine; do echo "a $d"; done \
      | transformer-jax generate --workdir=runs/digits-dalle --num-samples=10 > digits.codes
    transformer-jax pictures decode digits.codes --codebook=DIR/codebook.npz --output=digits.png
    for d in 0 1 2 3 4 5 6 7 8 9; do for i in 1 2 3 4 5 6 7 8 9 10; do echo $d; done; done > labels
    transformer-jax pictures decode digits.codes --codebook=DIR/codebook.npz --labels=labels \
      --output=DIR/made.npz
    python eval.py --workdir=runs/pictures-mnist --config.data.directory=DIR --config.data.test=made

The directory holds train.npz and validation.npz with `images`, bytes [n 28 28], and `labels` [n].
The first command finds 256 codes for patches of 4 x 4 pixels by k-means and writes, beside them,
PART.codes, a picture of 49 words per line, and PART.text, what it shows: "a three". With the work
directory of configs/picture_codes.py:mnist it uses the codes learned there, and --codebook is that
too.

gpt     only codes, each after those before it (ImageGPT: Chen et al. 2020, ICML).
dalle   text, then codes, one decoder and one vocabulary (Ramesh et al. 2021, arXiv:2102.12092).
parti   an encoder reads the text, a decoder writes codes (Yu et al. 2022, arXiv:2206.10789).

How probable pictures are, in bits each, 1/784 of which are the bits per pixel:

    transformer-jax score --workdir=runs/digits-dalle --source=DIR/validation.text \
      --target=DIR/validation.codes > scores

How well they show what was asked for is measured by a classifier of configs/pictures.py, in the
last of these commands. The other models write with

    transformer-jax generate --workdir=runs/digits-gpt --prompt='' --num-samples=100
    echo 'a seven' | transformer-jax translate --workdir=runs/digits-parti

dalle, seed 0, about an hour of a core: 1.010 nats per word of validation. Of 500 digits that it
drew, 50 of each, 94.4 % (92.0 to 96.1) are as asked for, by a classifier that is right about 97.0 %
of real ones in these codes; 96.8 % (94.9 to 98.0) with --config.decoding.temperature=0.8, and
97.4 % (95.6 to 98.5) with 0.6. At temperature 1, one line of 500 was not a whole picture, and
counts as wrong. After half as many updates: 1.058 nats, 93.4 and 94.0 %.
"""

import sys
from pathlib import Path

from transformer_jax.config import Experiment
from transformer_jax.config.convert import door

_NAMES = "zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"


def get_config(variant: str = "dalle"):
    """Return the experiment for "gpt", "dalle" or "parti"."""
    if variant not in ("gpt", "dalle", "parti"):
        raise ValueError(f"no variant {variant!r}; there are 'gpt', 'dalle' and 'parti'")
    c = door(Experiment())
    c.model.d_model, c.model.d_ff, c.model.num_heads = 128, 384, 4
    c.model.num_decoder_layers = 6
    c.model.residual, c.model.norm, c.model.activation = "pre_norm", "rms_norm", "swiglu"
    c.model.positions, c.model.max_positions = "learned", 64
    c.model.initializer = "gpt2"
    if variant == "parti":
        c.model.num_encoder_layers = 2
    else:
        c.model.architecture = "decoder"
        c.model.num_encoder_layers = 6
        c.objective.name = "language_model" if variant == "gpt" else "prefix_lm"

    c.src.codec = c.tgt.codec = "words"
    if variant == "gpt":
        c.src.codec = "subwords"
    c.tokenizer.vocab_size = 4 + 256 + (0 if variant == "gpt" else 11)
    c.data.source_language, c.data.target_language = "text", "codes"
    c.data.directory = "data/mnist"
    c.data.how_to_get = "python configs/digits.py DIR"
    c.data.test = ("validation",)
    c.data.max_length, c.data.num_buckets = 64, 1
    c.data.max_length_ratio = 100.0
    if variant == "gpt":
        c.objective.window = 64
    c.data.tokens_per_batch = 128 * 64

    c.optimizer.schedule = "cosine"
    c.optimizer.learning_rate, c.optimizer.warmup_steps = 1e-3, 300
    c.training.steps = 3200
    c.training.label_smoothing = 0.0
    c.checkpoint.every_steps, c.evaluation.every_steps = 500, 500
    c.checkpoint.best_by = "loss"
    c.evaluation.checkpoint = "last"  # the data has no third split: nothing is chosen by it
    c.evaluation.bleu_sentences = 0
    c.decoding.search, c.decoding.beam_size = "sample", 1
    return c


def write(directory: Path, workdir: str | None = None) -> None:
    """Write codes and texts of both parts, and a codebook unless a work directory is given."""
    import numpy as np

    from transformer_jax.api import load
    from transformer_jax.data.codecs.codebook import Codebook, as_lines

    book = None if workdir is None else load(workdir).picture_codes
    for part in ("train", "validation"):
        with np.load(directory / f"{part}.npz") as file:
            images, labels = file["images"], file["labels"]
        if book is None:
            book = Codebook.of(images, codes=256, patch=4)
            book.save(directory / "codebook.npz")
        texts = [f"a {_NAMES[label]}" for label in labels]
        for ending, lines in (("codes", as_lines(book.encode(images))), ("text", texts)):
            content = "".join(f"{line}\n" for line in lines)
            (directory / f"{part}.{ending}").write_text(content, encoding="utf-8")


if __name__ == "__main__":
    write(Path(sys.argv[1]), *sys.argv[2:3])
