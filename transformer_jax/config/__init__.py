"""The fields of an experiment; `manual.py` documents every one of them.

`choices/` says what is known about each of their words, `fields.py` how a field is declared,
`refusals/` rejects values that do not go together, and `bounds.py` has the checks for that.
"""

from transformer_jax.config.bounds import HELD_POSITIONS
from transformer_jax.config.manual import (
    CheckpointConfig,
    DataConfig,
    DecodingConfig,
    EvaluationConfig,
    Experiment,
    InitConfig,
    MeshConfig,
    MixerKind,
    ModelConfig,
    ObjectiveConfig,
    OptimizerConfig,
    ProfileConfig,
    SideConfig,
    SourceConfig,
    TokenizerConfig,
    TrainingConfig,
)
from transformer_jax.config.metrics import average_count

# Fields that also accept a user-defined part: "path/file.py:Name", see config/parts.py.
TAKE_PARTS = (
    "model.norm", "model.activation", "model.positions", "model.relative_positions",
    "model.encoder_pattern", "model.decoder_pattern", "src.codec", "tgt.codec", "objective.name",
    "objective.reward", "optimizer.algorithm", "optimizer.schedule", "evaluation.metrics",
    "data.environment",
)  # fmt: skip

__all__ = [
    "HELD_POSITIONS", "TAKE_PARTS", "CheckpointConfig", "DataConfig", "DecodingConfig",
    "EvaluationConfig", "Experiment", "InitConfig", "MeshConfig", "MixerKind", "ModelConfig",
    "ObjectiveConfig", "OptimizerConfig", "ProfileConfig", "SideConfig", "SourceConfig",
    "TokenizerConfig", "TrainingConfig", "average_count",
]  # fmt: skip
