"""The fields of an experiment; `manual.py` documents every one of them.

`words.py` says which of their values belong together, `refusals/` rejects values that are
impossible or have no effect, and `bounds.py` has the checks for that.
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
    ModelConfig,
    ObjectiveConfig,
    OptimizerConfig,
    ProfileConfig,
    SideConfig,
    SourceConfig,
    TokenizerConfig,
    TrainingConfig,
)
from transformer_jax.config.words import (
    ARCHITECTURES,
    BESIDE,
    LABELS,
    NO_TEXT,
    SENTINEL,
    SIZED,
    TAKE_PARTS,
    VECTORS,
    MixerKind,
    average_count,
)

__all__ = [
    "ARCHITECTURES", "BESIDE", "HELD_POSITIONS", "LABELS", "NO_TEXT", "SENTINEL", "SIZED",
    "TAKE_PARTS", "VECTORS", "CheckpointConfig", "DataConfig", "DecodingConfig", "EvaluationConfig",
    "Experiment", "InitConfig", "MeshConfig", "MixerKind", "ModelConfig", "ObjectiveConfig",
    "OptimizerConfig", "ProfileConfig", "SideConfig", "SourceConfig", "TokenizerConfig",
    "TrainingConfig", "average_count",
]  # fmt: skip
