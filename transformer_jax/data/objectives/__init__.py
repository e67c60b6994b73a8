"""Objectives: how encoded texts become examples, with inputs, targets and attention order."""

from transformer_jax.data.objectives.objective import BaseObjective, Objective
from transformer_jax.data.objectives.table import OBJECTIVES, noun_of, objective_named
from transformer_jax.data.objectives.translating import PrefixLM, Translate

__all__ = [
    "OBJECTIVES", "BaseObjective", "Objective", "PrefixLM", "Translate", "noun_of",
    "objective_named",
]  # fmt: skip
