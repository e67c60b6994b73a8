"""Optimizers and schedules of the learning rate."""

from dataclasses import dataclass, replace
from typing import Any

from transformer_jax.config.bounds import check, either
from transformer_jax.config.choices.record import Record, check_needs, check_read, known


@dataclass(frozen=True, kw_only=True)
class Optimizer(Record):
    """What is known about an optimizer.

    ignores: fields that may have any value, though it does not read them: runs from before they
      were refused have some.
    highest: what a peak of the learning rate must be below; more is a mistake.
    averages: whether it trains where no model is used, and its parameters for use are a mean.
    entrywise: whether each number of a parameter moves by about the learning rate, as Adam's do,
      whatever the sizes of the parameter and its gradient.
    """

    ignores: tuple[str, ...] = ()
    highest: float = 0.1
    averages: bool = False
    entrywise: bool = False


_ADAM = "b1", "b2", "epsilon"
OPTIMIZERS = {
    "adam": Optimizer(reads=_ADAM, entrywise=True, ignores=("momentum", "update_rms")),
    "muon": Optimizer(reads=(*_ADAM, "momentum", "update_rms", "orthogonalization")),
    "sgd": Optimizer(reads=("momentum",), highest=100.0),
    "lion": Optimizer(reads=("b1", "b2"), entrywise=True),
    "adafactor": Optimizer(highest=1.0),
    "ademamix": Optimizer(reads=(*_ADAM, "b3", "slow_weight", "slow_warmup"), entrywise=True),
    "schedule_free": Optimizer(reads=_ADAM, averages=True, entrywise=True),
    "shampoo": Optimizer(reads=(*_ADAM, "precondition_every")),
    "soap": Optimizer(reads=(*_ADAM, "precondition_every")),
}


def optimizer_record(word: str) -> Optimizer:
    """Return the record of an optimizer; a user-defined one need not declare any."""
    return known(OPTIMIZERS, (word,), "algorithm").get(word, Optimizer())


@dataclass(frozen=True, kw_only=True)
class Schedule(Record):
    """What is known about a schedule.

    factor: whether `learning_rate` is a factor of a rate that follows from the model's width; else
      it is the peak.
    """

    factor: bool = False


SCHEDULES = {
    "paper": Schedule(factor=True),
    "inverse_sqrt": Schedule(),
    "linear": Schedule(),
    "cosine": Schedule(),
    "constant": Schedule(),
    "wsd": Schedule(reads=("decay_share",)),
    "one_cycle": Schedule(),
}


def check_optimizer_choices(optimizer: Any) -> None:
    """Reject a peak that was meant as a factor, or the other way round, and what an optimizer or a
    schedule cannot do.
    """
    check_needs(optimizer, "algorithm", OPTIMIZERS, (optimizer.algorithm,))
    check_needs(optimizer, "schedule", SCHEDULES, (optimizer.schedule,))
    schedule = SCHEDULES.get(optimizer.schedule)
    said = f"learning_rate={optimizer.learning_rate}: with schedule={optimizer.schedule!r} it is"
    if schedule is not None and schedule.factor:
        check(optimizer.learning_rate >= 0.01, f"{said} a factor, about 1; must be at least 0.01")
        return
    highest = optimizer_record(optimizer.algorithm).highest
    check(
        optimizer.learning_rate < highest,
        f"{said} the peak, about 0.001; must be below {highest:g}",
    )


def check_optimizer_read(optimizer: Any) -> None:
    """Reject fields that neither the optimizer nor the schedule reads."""
    word, records = optimizer.algorithm, {**OPTIMIZERS}
    if mine := OPTIMIZERS.get(word):
        records[word] = replace(mine, reads=mine.reads + mine.ignores)
    check_read(
        optimizer, records, (word,),
        because=lambda _: f"has no effect with algorithm={word!r}",
        otherwise=lambda words: f"choose {either(words)}",
    )  # fmt: skip
    check_read(
        optimizer, SCHEDULES, (optimizer.schedule,),
        because=lambda _: f"has no effect with schedule={optimizer.schedule!r}",
        otherwise=lambda words: f"choose {either(words)}",
    )  # fmt: skip
