"""Warnings about settings that are valid but do not suit each other or the data, with remedies."""

import math

from transformer_jax.config import Experiment, parts
from transformer_jax.config.choices.codecs import SIZED
from transformer_jax.config.choices.optimizers import OPTIMIZERS
from transformer_jax.config.choices.record import readers
from transformer_jax.data.batches.batching import longer_side
from transformer_jax.experiments.prepare import Prepared

_LIFE = 0.2  # of the slower mean of gradients, in updates of training; the proposed one has 0.03
_BATCHES = 20  # fewest that the training text should fill; the proposed value gives at least 50
_OCCURRENCES = 20  # fewest per piece, on average; the proposed value gives about 50
_PARAMETERS = 50  # most per token of the training text; configs/small.py has 20 for 10,000 pairs


def misfits(experiment: Experiment, prepared: Prepared, parameters: int) -> list[str]:
    """Return a line for each unsuitable setting, with a better value; often none.

    `parameters` is the model's number of parameters.
    """
    lengths = [side[prepared.selection.pairs] for side in prepared.train.lengths]
    source, target = (int(side.sum()) * prepared.items // len(prepared.train) for side in lengths)
    most = (source, target)[longer_side(prepared.plan)]
    return [
        *_of_steps(experiment),
        *_of_memory(experiment),
        *_of_batches(experiment, most),
        *_of_vocabulary(experiment, source, target),
        *_of_size(parameters, most),
    ]


def _of_steps(experiment: Experiment) -> list[str]:
    steps, warmup = experiment.training.steps, experiment.optimizer.warmup_steps
    every = experiment.evaluation.every_steps
    tenth = max(steps // 10, 1)
    lines = []
    own = parts.read(experiment.optimizer.schedule) is not None  # with a warm-up of its own, if any
    if warmup >= steps > 1 and not own:
        lines.append(
            f"optimizer.warmup_steps={warmup}: the learning rate is still rising when training "
            f"ends at training.steps={steps}; try --config.optimizer.warmup_steps={tenth}"
        )
    if every > steps:
        lines.append(
            f"evaluation.every_steps={every}: there is no validation before the end at "
            f"training.steps={steps}; try --config.evaluation.every_steps={tenth} "
            f"--config.checkpoint.every_steps={tenth}"
        )
    return lines


def _of_memory(experiment: Experiment) -> list[str]:
    config, steps = experiment.optimizer, experiment.training.steps
    if config.algorithm not in readers(OPTIMIZERS)["b3"] or not 0 < config.b3 < 1:
        return []
    life = math.log(0.5) / math.log(config.b3)
    if life <= max(_LIFE * steps, 1):
        return []
    shorter = 0.5 ** (1 / max(0.03 * steps, 1))  # as its authors' for their 256,000 updates
    return [
        f"optimizer.b3={config.b3}: the slower mean of gradients forgets half of one in "
        f"{life:,.0f} updates, and training.steps={steps}, so that the first ones move the model "
        f"to the end; try --config.optimizer.b3={shorter:.4f}"
    ]


def _of_batches(experiment: Experiment, tokens: int) -> list[str]:
    data = experiment.data
    fitting = max(1 << (tokens // 50).bit_length() >> 1, data.max_length * data.rows_divisible_by)
    if tokens >= _BATCHES * data.tokens_per_batch or fitting >= data.tokens_per_batch:
        return []
    return [
        f"data.tokens_per_batch={data.tokens_per_batch}: the training data of {tokens:,} "
        f"tokens fills only {-(-tokens // data.tokens_per_batch)} such batches, so an epoch has "
        f"hardly more updates; try --config.data.tokens_per_batch={fitting}"
    ]


def _of_vocabulary(experiment: Experiment, source: int, target: int) -> list[str]:
    size, sides = (
        experiment.tokenizer.vocab_size,
        zip(experiment.codecs, (source, target), strict=True),
    )
    counts = [tokens for codec, tokens in sides if codec in SIZED]
    tokens = sum(counts) if experiment.tokenizer.joint else min(counts, default=0)
    if not counts or tokens >= _OCCURRENCES * size:
        return []
    fitting = max(int(float(f"{tokens / 50:.1g}")), 100)
    remedy = f"; try --config.tokenizer.vocab_size={fitting}" if fitting < size else ""
    return [
        f"tokenizer.vocab_size={size}: a piece occurs {tokens / size:.1f} times in the training "
        f"text on average, too few to learn it from{remedy}"
    ]


def _of_size(parameters: int, tokens: int) -> list[str]:
    if parameters <= _PARAMETERS * tokens:
        return []
    return [
        f"model: {parameters:,} parameters for {tokens:,} tokens of training data, which it "
        "can memorise; configs/small.py has sizes for a small corpus"
    ]
