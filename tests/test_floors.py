"""The architecture, read off the source: floors, sizes, names of choices."""

import ast
import graphlib
import importlib
import re
import typing
from pathlib import Path

import pytest

import transformer_jax
from transformer_jax import config
from transformer_jax.config.words import TWO_WAY
from transformer_jax.data.augmenting import AUGMENTATIONS
from transformer_jax.data.masking import MASKS
from transformer_jax.nn.mixers.kinds import MIXERS
from transformer_jax.nn.mixers.recurrent import TwoWay

ROOT = Path(transformer_jax.__file__).parent
FILES = sorted(ROOT.rglob("*.py"))

# The floor of each room; imports go down only, and rooms of one floor do not see each other.
FLOORS = {
    "errors": 0, "vocabulary": 0, "arrays": 0, "config": 0, "door": 0.5, "choices": 0, "disk": 0,
    "directions": 0, "messages": 0, "progress": 0, "counting": 0, "allowed": 0, "resuming": 0.5,
    "parts": 0,
    "retention": 1, "integrity": 1,
    "nn": 1, "data": 1, "sharding": 1, "workdir": 1,
    "models": 2, "checkpoint": 2,
    "training": 3, "decoding": 3,
    "api": 3.5,
    "evaluation": 4, "export": 4, "plots": 4, "experiments": 4, "sweeps": 4, "reports": 4,
    "server": 5, "cli": 5.5,
}  # fmt: skip
# Who may use whom on the same floor. On the ground floor all may raise a UserError; on the fourth
# training validates, and begins as a directory of Hugging Face; sweeps are read by reports, and
# reports group sentences as they were scored; what is drawn of examples is made when these are.
NEIGHBOURS = {("config", "errors"), ("choices", "errors"), ("disk", "errors"),
              ("parts", "errors"), ("choices", "parts"),
              ("evaluation", "plots"), ("experiments", "evaluation"), ("experiments", "export"),
              ("reports", "sweeps"), ("reports", "evaluation")}  # fmt: skip
NO_JAX = (
    "data",
    "errors",
    "vocabulary",
    "config",
    "door",
    "choices",
    "parts",
    "workdir",
    "disk",
    "retention",
    "directions",
    "progress",
)


def room_of(path: Path) -> str:
    """Return the name of the file or folder just below the package; "" for the package itself."""
    name = path.relative_to(ROOT).parts[0].removesuffix(".py")
    return "" if name == "__init__" else name


def imports(path: Path) -> set[str]:
    """Return the dotted names of all that a file imports, wherever in it."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"{path}: relative import"
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return found


def rooms_used(path: Path) -> set[str]:
    """Return the rooms that a file imports from."""
    ours = (name.split(".") for name in imports(path))
    return {name[1] for name in ours if name[0] == "transformer_jax" and len(name) > 1}


def test_every_room_has_a_floor():
    """A new room says where it stands."""
    assert {room_of(path) for path in FILES} - {""} <= FLOORS.keys()


def test_the_readme_names_every_room():
    text = (ROOT.parent / "README.md").read_text(encoding="utf-8")
    house = text.split("## Code layout")[1].split("\n## ")[0]
    named = {name.removesuffix(".py").rstrip("/") for name in re.findall(r"\w+(?:/|\.py)", house)}
    assert FLOORS.keys() <= named


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_go_down(path):
    """A room uses itself, lower floors, and the few neighbours named above."""
    room = room_of(path)
    used = rooms_used(path)
    if not room:
        assert not used, "the package itself imports lazily, so that no jax starts with it"
        return
    wrong = {
        other
        for other in used - {room}
        if FLOORS[other] >= FLOORS[room] and (room, other) not in NEIGHBOURS
    }
    assert not wrong, f"{path} must not import from {sorted(wrong)}"


def test_neighbours_stand_on_one_floor_and_go_in_no_circle():
    """What `test_imports_go_down` allows beside going down cannot lead back to where it began."""
    assert all(FLOORS[one] == FLOORS[other] for one, other in NEIGHBOURS)
    tuple(graphlib.TopologicalSorter(
        {room: {other for one, other in NEIGHBOURS if one == room} for room in FLOORS}
    ).static_order())  # fmt: skip


@pytest.mark.parametrize("room", NO_JAX)
def test_without_jax(room):
    """Data is numpy, and reading a config starts no accelerator: none of it imports jax."""
    files = [path for path in FILES if room_of(path) == room]
    assert files
    for path in files:
        roots = {name.split(".")[0] for name in imports(path)}
        assert not roots & {"jax", "jaxlib", "flax", "optax", "orbax"}, path
        assert not rooms_used(path) & {"arrays", "counting"}, path  # which import it


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_files_are_short(path):
    """A file fits the eye: 250 lines, but for the manual."""
    lines = len(path.read_text(encoding="utf-8").splitlines())
    assert lines <= 250 or path.name == "manual.py", f"{path}: {lines} lines"


TABLES = {
    (config.ModelConfig, "residual"): "nn.residual.RESIDUALS",
    (config.ModelConfig, "norm"): "nn.norm.NORMS",
    (config.ModelConfig, "embedding_norm"): "nn.embedding.EMBEDDING_NORMS",
    (config.ModelConfig, "layer_sharing"): "models.sharing.SHARINGS",
    (config.ModelConfig, "initializer"): "models.initial_values.INITIALIZERS",
    (config.ModelConfig, "activation"): "nn.feedforward.ACTIVATIONS",
    (config.ModelConfig, "attention"): "nn.mixers.attention.KERNELS",
    (config.ModelConfig, "architecture"): "models.build.MODELS",
    (config.ModelConfig, "recurrence"): "nn.recurrences.RECURRENCES",
    (config.ModelConfig, "source_attention"): "nn.source_attention.SOURCE_ATTENTIONS",
    (config.ModelConfig, "pooling"): "models.encoder.POOLINGS",
    (config.ModelConfig, "positions"): "nn.positions.POSITIONS",
    (config.ModelConfig, "relative_positions"): "nn.relative_positions.RELATIVE_POSITIONS",
    (config.ModelConfig, "score_scale"): "nn.mixers.attention.SCORE_SCALES",
    (config.ModelConfig, "query_key_norm"): "nn.mixers.heads.QUERY_KEY_NORMS",
    (config.ModelConfig, "layer_loop"): "models.stack.LOOPS",
    (config.ModelConfig, "remat"): "models.stack.REMATS",
    (config.OptimizerConfig, "algorithm"): "training.optimizer.ALGORITHMS",
    (config.OptimizerConfig, "schedule"): "training.schedule.SCHEDULES",
    (config.CheckpointConfig, "best_by"): "directions.VALIDATION",
    (config.ModelConfig, "stem"): "nn.stems.STEMS",
    (config.ModelConfig, "grid_positions"): "nn.stems.GRID_POSITIONS",
    (config.ModelConfig, "distribution"): "nn.distributions.DISTRIBUTIONS",
    (config.SideConfig, "codec"): "data.codecs.pair.CODECS",
    (config.DataConfig, "source"): "data.sources.SOURCES",
    (config.DataConfig, "batching"): "data.batching.PLANS",
    (config.ObjectiveConfig, "name"): "data.objectives.OBJECTIVES",
    (config.DecodingConfig, "length_penalty"): "decoding.search.penalties.PENALTIES",
    (config.DecodingConfig, "constraint"): "decoding.search.constraints.CONSTRAINTS",
    (config.DecodingConfig, "rerank"): "decoding.text.rerank.RERANKERS",
    (config.DecodingConfig, "ensemble"): "decoding.stepper.ENSEMBLES",
}


@pytest.mark.parametrize(("place", "table"), TABLES.items(), ids=TABLES.values())
def test_choices_are_those_of_the_table(place, table):
    """What a config may name is what its table holds, in the same order."""
    kind, field = place
    module, name = table.rsplit(".", 1)
    entries = getattr(importlib.import_module(f"transformer_jax.{module}"), name)
    assert list(typing.get_args(typing.get_type_hints(kind)[field])) == list(entries)


def test_layers_of_a_pattern_are_those_of_the_table():
    """And those that read from both ends are refused where a text is being written."""
    assert list(typing.get_args(config.MixerKind)) == list(MIXERS)
    two_way = [name for name, kind in MIXERS.items() if issubclass(kind, TwoWay)]
    assert list(TWO_WAY) == two_way


def test_augmentations_are_those_of_the_table():
    (words,) = set(typing.get_args(typing.get_type_hints(config.DataConfig)["augment"])) - {...}
    assert list(typing.get_args(words)) == [*AUGMENTATIONS, *MASKS]


# Choices without a table: each is one branch, in the function named.
BRANCHES = {
    "tied_embeddings": "models.encoder_decoder",
    "compute_dtype": "jnp.dtype",
    "document": "data.sources.load",
    "long_sources": "data.batch.Ragged.cut",
    "algorithm": "sentencepiece",
    "normalization": "sentencepiece",
    "smoothing": "training.loss.smoothing_weights",
    "on_failed_save": "training.loop.train",
    "bleu_tokenize": "sacrebleu",
    "stop": "decoding.search.beam",
    "search": "decoding.text.translate",
    "cache": "decoding.text.generate",
}


def test_every_choice_is_accounted_for():
    """A new Literal gets a table, or a line above that says why it needs none."""
    kinds = [kind for kind in vars(config).values() if hasattr(kind, "__dataclass_fields__")]
    literal = {
        field
        for kind in kinds
        for field, hint in typing.get_type_hints(kind).items()
        if typing.get_origin(hint) is typing.Literal
    }
    assert literal == {field for _, field in TABLES} | BRANCHES.keys()


def test_every_objective_names_its_architecture():
    objectives = typing.get_type_hints(config.ObjectiveConfig)["name"]
    architectures = typing.get_type_hints(config.ModelConfig)["architecture"]
    assert config.ARCHITECTURES.keys() == set(typing.get_args(objectives))
    named = {name for names in config.ARCHITECTURES.values() for name in names}
    assert named == set(typing.get_args(architectures))
