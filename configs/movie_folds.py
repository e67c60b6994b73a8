"""Does pre-training help to tell good reviews from bad ones? Ten folds, with it and without.

    python benchmarks/folds.py text --reviews=DIR --output=data/movie_folds
    transformer-jax sweep --config=configs/movie_folds.py --variants='adapted-*' \
      --workdir=runs/movie_folds
    transformer-jax sweep --config=configs/movie_folds.py --variants='tuned-*,scratch-*' \
      --workdir=runs/movie_folds --evaluate=test
    python benchmarks/folds.py table runs/movie_folds --output=results/movie_folds
    python train.py --config=configs/movie_folds.py:scratch-0

and likewise --variants='t5-adapted-*', --variants='t5-tuned-*,t5-scratch-*' and
`benchmarks/folds.py table runs/movie_folds --arms t5-tuned t5-scratch`.

1,800 reviews (configs/movie_reviews.py) in ten folds, each of which is once the test text and then
in no training, with labels or without; a tenth of the others, for validation, chooses the
checkpoint. runs/bert_brown is trained by configs/bert_brown.py, before.

adapted-K  the masked language model runs/bert_brown, trained further on the text of the reviews
           that fold K learns from: in windows as long as what is read of a review.
tuned-K    begins as runs/movie_folds/adapted-K, with its tokenizer; the pooler and the map to
           classes are new.
scratch-K  the same model and tokenizer settings, with nothing to begin from.
t5-...     the same with runs/t5_brown, of configs/t5_brown.py, text to text: it reads "sentiment:"
           and the review, and writes the label (Raffel et al. 2020, arXiv:1910.10683).
"""

import runpy
from pathlib import Path

from transformer_jax.config import Experiment
from transformer_jax.door import door

FOLDS = 10
ARMS = [model + arm for model in ("", "t5-") for arm in ("adapted", "tuned", "scratch")]
VARIANTS: dict = {f"{arm}-{k}": {} for arm in ARMS for k in range(FOLDS)}


def get_config(variant: str = "tuned-0"):
    """Return the experiment of one of VARIANTS."""
    if variant not in VARIANTS:
        raise ValueError(f"no variant {variant!r}; there are {', '.join(VARIANTS)}")
    arm, fold = variant.rsplit("-", 1)
    model, arm = "t5" if arm.startswith("t5-") else "bert", arm.removeprefix("t5-")
    parts = {split: f"fold-{fold}/{split}" for split in ("train", "validation", "test")}
    if arm == "adapted":
        c = _file(f"{model}_brown")()
        c.init.source = f"runs/{model}_brown"
        c.objective.window = 512
        c.data.max_length = 512
        c.data.tokens_per_batch = 16 * 512
        c.optimizer.warmup_steps = 50
        c.checkpoint.every_steps = 100
        c.evaluation.every_steps = 100
    else:
        c = _file("movie_reviews")("scratch") if model == "bert" else _text_to_text()
        if model == "t5":
            c.data.prefixes = tuple(f"{part}=sentiment:" for part in parts.values())
        if arm == "tuned":
            c.init.source = f"runs/movie_folds/{variant.replace('tuned', 'adapted')}"
    c.training.steps = 300
    c.data.directory = "data/movie_folds"
    c.data.how_to_get = "python benchmarks/folds.py text"
    for split, part in parts.items():
        c.data[split] = (part,)
    return c


def _text_to_text():
    """Return T5 that reads a text and writes its label."""
    c = _file("t5_brown")()
    reviews = _file("movie_reviews")("scratch")
    for section in ("data", "optimizer", "checkpoint", "evaluation"):
        c[section] = reviews[section]
    c.objective = door(Experiment().objective)
    c.data.long_sources = "cut"
    c.data.max_length_ratio = 512.0
    c.decoding.beam_size = 1
    c.decoding.max_length_ratio, c.decoding.max_extra_length = 0.0, 10
    c.checkpoint.best_by = "loss"
    return c


def _file(name: str):
    return runpy.run_path(str(Path(__file__).with_name(f"{name}.py")))["get_config"]
