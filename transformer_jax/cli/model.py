"""The trained model that a command uses, with settings changed on the command line."""

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, Union

from transformer_jax.base.errors import UserError
from transformer_jax.config import TAKE_PARTS, Experiment
from transformer_jax.config.convert import door, override, parse
from transformer_jax.config.parts import admit_named

if TYPE_CHECKING:
    from transformer_jax.api import TrainedEnsemble, TrainedModel


def adjusted(experiment: Experiment, overrides: Sequence[tuple[str, str]]) -> Experiment:
    """Return the experiment with overrides of settings that may change after training."""
    config = door(experiment)
    for field, text in overrides:
        if field in TAKE_PARTS:
            admit_named(text)
        override(config, field, text)
        if field.partition(".")[0] not in ("decoding", "evaluation", "data"):
            raise UserError(f"config.{field}: is part of the trained model and cannot change now")
    return parse(config)


def prepare_process() -> None:
    """Have this process search with all cores, and share compiled programs with others."""
    from transformer_jax.experiments.process import (
        keep_freed_memory,
        use_compilation_cache,
        use_every_core,
    )

    use_compilation_cache()
    use_every_core()
    keep_freed_memory()


def load_adjusted(
    workdirs: Sequence[str], checkpoint: str, experiment: Experiment
) -> Union["TrainedModel", "TrainedEnsemble"]:
    """Load a model, or several as an ensemble, with the settings of an experiment that may change
    after training.
    """
    from transformer_jax.api import load_ensemble

    trained = load_ensemble(workdirs, checkpoint)
    settings = {name: getattr(experiment, name) for name in ("decoding", "evaluation", "data")}
    trained.experiment = dataclasses.replace(trained.experiment, **settings)
    return trained
