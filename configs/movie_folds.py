"""Does pre-training help classify movie reviews? Ten folds, with it and without.

    python benchmarks/studies/folds.py text --reviews=DIR --output=data/movie_folds
    transformer-jax sweep --config=configs/movie_folds.py --variants='adapted-*' \
      --workdir=runs/movie_folds
    transformer-jax sweep --config=configs/movie_folds.py --variants='tuned-*,scratch-*' \
      --workdir=runs/movie_folds --evaluate=test
    python benchmarks/studies/folds.py table runs/movie_folds --output=results/movie_folds
    python train.py --config=configs/movie_folds.py:scratch-0

and likewise --variants='t5-adapted-*', --variants='t5-tuned-*,t5-scratch-*' and
`benchmarks/studies/folds.py table runs/movie_folds --arms t5-tuned t5-scratch`; gpt- as well.
`benchmarks/studies/folds.py control data/movie_folds` gives the baseline of single words.

1,800 reviews (configs/movie_reviews.py) in ten folds, each of which is the test set once and is
then in no training, with labels or without; a tenth of the others, for validation, selects the
checkpoint. Train runs/bert_brown with configs/bert_brown.py first.

adapted-K  the masked language model runs/bert_brown, trained further on the training reviews of
           fold K: in windows as long as what is read of a review, READ pieces.
tuned-K    starts from runs/movie_folds/adapted-K, with its tokenizer; the pooler and the map to
           classes are new.
scratch-K  the same model and tokenizer settings, without pre-training.
t5-...     the same with runs/t5_brown, of configs/t5_brown.py, text to text: it reads "sentiment:"
           and the review, and writes the label (Raffel et al. 2020, arXiv:1910.10683). It is
           adapted in windows as long as those of pre-training: longer ones hold more missing spans
           than it has seen. From scratch it has T5's own scales and initial values, since with
           those of configs/t5_brown.py it does not learn in 300 updates.
gpt-...    likewise with runs/gpt_brown-llama, of configs/gpt_brown.py:llama: a decoder that reads
           the review in both directions and writes the label after it.

Seed 0, pre-trained and from scratch: BERT 60.4 and 62.4 %, Llama's decoder 62.8 and 64.6 %, both
without a significant difference; T5 57.6 and 61.4 %, p = 0.009. Naive Bayes has 71.7 % on as much
text (results/README.md).
"""

import runpy
from pathlib import Path

from transformer_jax.config import Experiment
from transformer_jax.config.convert import door

FOLDS = 10
READ = 256  # pieces of a review
MODELS = {"": "bert_brown", "t5-": "t5_brown", "gpt-": "gpt_brown:llama"}
ARMS = {
    prefix + arm: (model, arm)
    for prefix, model in MODELS.items()
    for arm in ("adapted", "tuned", "scratch")
}
VARIANTS: dict = {f"{arm}-{k}": {} for arm in ARMS for k in range(FOLDS)}


def get_config(variant: str = "tuned-0"):
    """Return the experiment of one of VARIANTS."""
    if variant not in VARIANTS:
        raise ValueError(f"no variant {variant!r}; there are {', '.join(VARIANTS)}")
    name, fold = variant.rsplit("-", 1)
    model, arm = ARMS[name]
    parts = {split: f"fold-{fold}/{split}" for split in ("train", "validation", "test")}
    c = _file(model)
    if arm == "adapted":
        c.init.source = f"runs/{model.replace(':', '-')}"
        if model == "t5_brown":
            c.optimizer.learning_rate = 1e-3
        else:
            c.objective.window = READ
        c.training.steps = 100
        c.checkpoint.every_steps = c.evaluation.every_steps = 50
        c.optimizer.warmup_steps = 50
    else:
        if model == "bert_brown":
            c = _file("movie_reviews:scratch")
            c.objective.window = READ
        else:
            _make_text_to_text(c)
            c.data.prefixes = tuple(f"{part}=sentiment:" for part in parts.values())
            if (model, arm) == ("t5_brown", "tuned"):
                c.optimizer.learning_rate = 5e-4  # the better of two on the first fold's validation
            if (model, arm) == ("t5_brown", "scratch"):
                c.model.initializer = "t5"
                c.model.score_scale, c.model.logits_scale = "none", True
        if arm == "tuned":
            c.init.source = f"runs/movie_folds/{variant.replace('tuned', 'adapted')}"
        c.training.steps = 300
    c.data.max_length = c.objective.window if arm == "adapted" else READ
    c.data.tokens_per_batch = 16 * READ
    c.data.directory = "data/movie_folds"
    c.data.how_to_get = "python benchmarks/studies/folds.py text"
    for split, part in parts.items():
        c.data[split] = (part,)
    return c


def _make_text_to_text(c) -> None:
    """Make a model text-to-text: it reads a text and writes its label."""
    reviews = _file("movie_reviews:scratch")
    for section in ("data", "optimizer", "checkpoint", "evaluation"):
        c[section] = reviews[section]
    c.objective = door(Experiment().objective)
    if c.model.architecture == "decoder":
        c.objective.name, c.objective.window = "prefix_lm", READ - 12  # the label has the rest
    c.data.long_sources = "cut"
    c.data.max_length_ratio = float(READ)
    c.decoding.beam_size = 1
    c.decoding.max_length_ratio, c.decoding.max_extra_length = 0.0, 10
    c.checkpoint.best_by = "loss"


def _file(spec: str):
    name, *variant = spec.split(":")
    return runpy.run_path(str(Path(__file__).with_name(f"{name}.py")))["get_config"](*variant)
