"""Validation of an objective."""

from typing import Any

from transformer_jax.config.bounds import check, default_unless, either, is_part
from transformer_jax.config.choices.objectives import COMBINED, JOINS, OBJECTIVES
from transformer_jax.config.choices.record import readers


def check_objective(objective: Any) -> None:
    """Reject windows that are too short, and parts that cannot be combined."""
    name = f"name={objective.name!r}"
    check(
        objective.kind in OBJECTIVES,
        f"like={objective.like!r}: must say which objective {name} is like, as in "
        f"--config.objective.like=language_model; one of {', '.join(OBJECTIVES)}",
    )
    check(
        objective.like is None or is_part(objective.name),
        f"like={objective.like!r}: is for user-defined parts, and {name} is not one; leave it at "
        "None",
    )
    _check_parts(objective)
    texts = [kind for kind in objective.kinds if "document" in OBJECTIVES[kind].reads]
    check(
        objective.document != "joined" or all(OBJECTIVES[kind].joins for kind in texts),
        f"document='joined': {name} reads documents separately; choose 'line', or "
        f"{' or '.join(f'name={other!r}' for other in JOINS)}",
    )
    least, what = OBJECTIVES[objective.kind].least
    check(
        objective.window >= least,
        f"window={objective.window}: {name} needs at least {least}: {what}",
    )


def check_objective_reads(objective: Any) -> None:
    """Reject fields that neither the objective nor one beside it reads."""
    for name, words in readers(OBJECTIVES).items():
        others = ("language_model",) if name in ("window", "document") else words
        default_unless(
            not objective.kinds.isdisjoint(words), objective, name,
            because=f"has no effect with name={objective.name!r}",
            otherwise=f"choose {' or '.join(f'name={other!r}' for other in others)}",
        )  # fmt: skip
    default_unless(
        objective.fim_rate > 0, objective, "fim_spm_rate",
        because="nothing is rearranged with fim_rate=0", otherwise="set fim_rate",
    )  # fmt: skip


def _check_parts(objective: Any) -> None:
    """Reject parts with an objective that cannot be combined with the main one."""
    beside = OBJECTIVES[objective.kind].beside
    named = [entry.partition("=")[0] for entry in objective.parts]
    for part, entry in zip(named, objective.parts, strict=True):
        check(
            bool(beside),
            f"parts={entry!r}: name={objective.name!r} cannot be combined with another; set parts "
            f"to (), or choose {either(COMBINED)}",
        )
        check(
            named.count(part) == 1 and entry.partition("=")[2] in beside,
            f"parts={entry!r}: must be PART=NAME, once for each part, with a NAME that can be "
            f"combined with name={objective.name!r}: {either(beside)}",
        )
    for name in objective.kinds - {objective.kind}:
        objective.alone(name)  # runs its own checks
