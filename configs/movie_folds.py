"""Does pre-training help to tell good reviews from bad ones? Ten folds, with it and without.

    python benchmarks/folds.py text --reviews=DIR --output=data/movie_folds
    transformer-jax sweep --config=configs/movie_folds.py --variants='adapted-*' \
      --workdir=runs/movie_folds
    transformer-jax sweep --config=configs/movie_folds.py --variants='tuned-*,scratch-*' \
      --workdir=runs/movie_folds --evaluate=test
    python benchmarks/folds.py table runs/movie_folds --output=results/movie_folds
    python train.py --config=configs/movie_folds.py:scratch-0

1,800 reviews (configs/movie_reviews.py) in ten folds, each of which is once the test text and then
in no training, with labels or without; a tenth of the others, for validation, chooses the
checkpoint. runs/bert_brown is trained by configs/bert_brown.py, before.

adapted-K  the masked language model runs/bert_brown, trained further on the text of the reviews
           that fold K learns from: in windows as long as what is read of a review.
tuned-K    begins as runs/movie_folds/adapted-K, with its tokenizer; the pooler and the map to
           classes are new.
scratch-K  the same model and tokenizer settings, with nothing to begin from.
"""

import runpy
from pathlib import Path

FOLDS = 10
VARIANTS: dict = {f"{arm}-{k}": {} for arm in ("adapted", "tuned", "scratch") for k in range(FOLDS)}


def get_config(variant: str = "tuned-0"):
    """Return the experiment of one of VARIANTS."""
    if variant not in VARIANTS:
        raise ValueError(f"no variant {variant!r}; there are {', '.join(VARIANTS)}")
    arm, fold = variant.split("-")
    if arm == "adapted":
        c = _file("bert_brown")()
        c.init.source = "runs/bert_brown"
        c.objective.window = 512
        c.data.max_length = 512
        c.data.tokens_per_batch = 16 * 512
        c.optimizer.warmup_steps = 50
        c.training.steps = 300
        c.checkpoint.every_steps = 100
        c.evaluation.every_steps = 100
    else:
        c = _file("movie_reviews")("scratch")
        if arm == "tuned":
            c.init.source = f"runs/movie_folds/adapted-{fold}"
        c.training.steps = 300
    c.data.directory = "data/movie_folds"
    c.data.how_to_get = "python benchmarks/folds.py text"
    c.data.train = (f"fold-{fold}/train",)
    c.data.validation = (f"fold-{fold}/validation",)
    c.data.test = (f"fold-{fold}/test",)
    return c


def _file(name: str):
    return runpy.run_path(str(Path(__file__).with_name(f"{name}.py")))["get_config"]
