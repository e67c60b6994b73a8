"""The architecture, checked on the source: import levels, file sizes, names of choices."""

import ast
import graphlib
import importlib
import re
import typing
from pathlib import Path

import pytest

import transformer_jax
from transformer_jax import config
from transformer_jax.config.choices import objectives
from transformer_jax.config.choices.mixers import TWO_WAY
from transformer_jax.data.codecs.picture_augmentation import AUGMENTATIONS
from transformer_jax.data.codecs.spec_augment import MASKS
from transformer_jax.data.codecs.text_augmentation import ADDED
from transformer_jax.models.layers import FEED_FORWARDS
from transformer_jax.nn.mixers.kinds import MIXERS
from transformer_jax.nn.mixers.recurrent import TwoWay

ROOT = Path(transformer_jax.__file__).parent
FILES = sorted(ROOT.rglob("*.py"))

# The level of each component. Imports only go down; components of one level do not import each
# other.
LEVELS = {
    "base": 0,
    "config": 0.5, "door": 0.6,
    "nn": 1, "data": 1, "sharding": 1,
    "runs": 1.5,  # all processes write a checkpoint together
    "models": 2,
    "training": 3, "decoding": 3,
    "api": 3.5,
    "evaluation": 4, "export": 4, "plots": 4, "experiments": 4, "sweeps": 4, "reports": 4,
    "server": 5, "harness": 5, "cli": 5.5,
}  # fmt: skip
# Exceptions: (importer, imported) on the same level. On level 4, training validates, and can start
# from a Hugging Face directory; reports read sweeps, and group sentences as they were scored; plots
# of examples are drawn along with the examples.
SAME_LEVEL = {("evaluation", "plots"), ("experiments", "evaluation"), ("experiments", "export"),
              ("reports", "sweeps"), ("reports", "evaluation")}  # fmt: skip
WITH_JAX = ("base.arrays", "base.counting", "base.shares", "runs.checkpoint", "runs.integrity",
            "runs.reading")  # fmt: skip
NO_JAX = ("data", "config", "door", "base", "runs")  # but for these modules


def component_of(path: Path) -> str:
    """Return the top-level module or folder of a file; "" for the package itself."""
    name = path.relative_to(ROOT).parts[0].removesuffix(".py")
    return "" if name == "__init__" else name


def imports(path: Path) -> set[str]:
    """Return the dotted names of everything that a file imports, anywhere in it."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"{path}: relative import"
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return found


def components_used(path: Path) -> set[str]:
    """Return the components that a file imports from."""
    ours = (name.split(".") for name in imports(path))
    return {name[1] for name in ours if name[0] == "transformer_jax" and len(name) > 1}


def test_every_component_has_a_level():
    assert {component_of(path) for path in FILES} - {""} <= LEVELS.keys()


def test_the_readme_names_every_component():
    text = (ROOT.parent / "README.md").read_text(encoding="utf-8")
    section = text.split("## Code layout")[1].split("\n## ")[0]
    named = {name.removesuffix(".py").rstrip("/") for name in re.findall(r"\w+(?:/|\.py)", section)}
    assert LEVELS.keys() <= named


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_go_down(path):
    """A component imports itself, lower levels, and the few exceptions listed above."""
    component = component_of(path)
    used = components_used(path)
    if not component:
        assert not used, "the package itself imports lazily, so that no jax starts with it"
        return
    wrong = {
        other
        for other in used - {component}
        if LEVELS[other] >= LEVELS[component] and (component, other) not in SAME_LEVEL
    }
    assert not wrong, f"{path} must not import from {sorted(wrong)}"


def test_same_level_imports_are_acyclic():
    """The exceptions that `test_imports_go_down` allows cannot form a cycle."""
    assert all(LEVELS[one] == LEVELS[other] for one, other in SAME_LEVEL)
    tuple(graphlib.TopologicalSorter(
        {component: {other for one, other in SAME_LEVEL if one == component}
         for component in LEVELS}
    ).static_order())  # fmt: skip


def module_of(path: Path) -> str:
    """Return the dotted name of a file's module, without the package's."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(part for part in parts if part != "__init__")


@pytest.mark.parametrize("component", NO_JAX)
def test_jax_is_not_imported(component):
    """Data is NumPy, and reading a config starts no accelerator: none of this imports jax."""
    files = [path for path in FILES if component_of(path) == component]
    assert files
    for path in files:
        if module_of(path) in WITH_JAX:
            continue
        named = imports(path)
        roots = {name.split(".")[0] for name in named}
        assert not roots & {"jax", "jaxlib", "flax", "optax", "orbax"}, path
        ours = {name.removeprefix("transformer_jax.") for name in named}
        assert not any(name.startswith(WITH_JAX) for name in ours), path


def test_modules_import_one_another_without_circles():
    """Anywhere in a file, and also only for types."""
    modules = {module_of(path): path for path in FILES}
    graph = {
        name: {
            other
            for found in imports(path)
            if (other := found.removeprefix("transformer_jax.")) in modules and other != name
        }
        for name, path in modules.items()
    }
    tuple(graphlib.TopologicalSorter(graph).static_order())


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_files_are_short(path):
    """A file is as long as its one idea: at most 400 lines, the manual aside."""
    lines = len(path.read_text(encoding="utf-8").splitlines())
    assert lines <= 400 or path.name == "manual.py", f"{path}: {lines} lines"


TABLES = {
    (config.ModelConfig, "residual"): "nn.residual.RESIDUALS",
    (config.ModelConfig, "norm"): "nn.norm.NORMS",
    (config.ModelConfig, "embedding_norm"): "nn.embedding.EMBEDDING_NORMS",
    (config.ModelConfig, "layer_sharing"): "models.stack.SHARINGS",
    (config.ModelConfig, "multi_token"): "models.multi_token.MULTI_TOKENS",
    (config.ModelConfig, "initializer"): "models.initial_values.INITIALIZERS",
    (config.ModelConfig, "activation"): "nn.feedforward.ACTIVATIONS",
    (config.ModelConfig, "expert_scores"): "nn.experts.EXPERT_SCORES",
    (config.ModelConfig, "attention"): "nn.mixers.attention.KERNELS",
    (config.ModelConfig, "architecture"): "models.build.MODELS",
    (config.ModelConfig, "recurrence"): "models.recurrent.RECURRENCES",
    (config.ModelConfig, "source_attention"): "nn.source_attention.SOURCE_ATTENTIONS",
    (config.ModelConfig, "pooling"): "models.encoder.POOLINGS",
    (config.ModelConfig, "positions"): "nn.positions.POSITIONS",
    (config.ModelConfig, "relative_positions"): "nn.relative_positions.RELATIVE_POSITIONS",
    (config.ModelConfig, "rope_scaling"): "nn.relative_fixed.ROPE_SCALINGS",
    (config.ModelConfig, "score_scale"): "nn.mixers.attention.SCORE_SCALES",
    (config.ModelConfig, "attention_gate"): "nn.mixers.attention.GATES",
    (config.ModelConfig, "query_key_norm"): "nn.mixers.heads.QUERY_KEY_NORMS",
    (config.ModelConfig, "layer_loop"): "models.stack.LOOPS",
    (config.ModelConfig, "remat"): "models.stack.REMATS",
    (config.OptimizerConfig, "algorithm"): "training.optimizer.ALGORITHMS",
    (config.OptimizerConfig, "orthogonalization"): "training.muon.POLYNOMIALS",
    (config.OptimizerConfig, "schedule"): "training.schedule.SCHEDULES",
    (config.CheckpointConfig, "best_by"): "config.metrics.VALIDATION",
    (config.ModelConfig, "stem"): "nn.stems.STEMS",
    (config.ModelConfig, "grid_positions"): "nn.stems.GRID_POSITIONS",
    (config.ModelConfig, "series_norm"): "nn.stems.SERIES_NORMS",
    (config.ModelConfig, "distribution"): "nn.distributions.DISTRIBUTIONS",
    (config.SideConfig, "codec"): "data.codecs.pair.CODECS",
    (config.DataConfig, "source"): "data.sources.SOURCES",
    (config.DataConfig, "environment"): "data.environments.ENVIRONMENTS",
    (config.DataConfig, "batching"): "data.batches.batching.PLANS",
    (config.ObjectiveConfig, "name"): "data.objectives.OBJECTIVES",
    (config.ObjectiveConfig, "preference_loss"): "training.preference_losses.LOSSES",
    (config.ObjectiveConfig, "reward"): "data.rewards.REWARDS",
    (config.ObjectiveConfig, "policy_loss"): "data.objectives.reinforcing.SHARES",
    (config.ObjectiveConfig, "noise_schedule"): "data.diffusion.NOISE_SCHEDULES",
    (config.ObjectiveConfig, "prediction"): "data.diffusion.PREDICTIONS",
    (config.ObjectiveConfig, "times"): "data.diffusion.TIMES",
    (config.DecodingConfig, "length_penalty"): "decoding.search.penalties.PENALTIES",
    (config.DecodingConfig, "constraint"): "decoding.search.constraints.CONSTRAINTS",
    (config.DecodingConfig, "rerank"): "decoding.text.rerank.RERANKERS",
    (config.DecodingConfig, "ensemble"): "decoding.stepper.ENSEMBLES",
}


@pytest.mark.parametrize(("place", "table"), TABLES.items(), ids=TABLES.values())
def test_choices_match_the_table(place, table):
    """A field accepts exactly the entries of its table, in the same order."""
    kind, field = place
    module, name = table.rsplit(".", 1)
    entries = getattr(importlib.import_module(f"transformer_jax.{module}"), name)
    assert list(typing.get_args(typing.get_type_hints(kind)[field])) == list(entries)


def test_kinds_of_mixers_match_the_table():
    """And TWO_WAY, which decoders refuse, lists the bidirectional ones."""
    assert list(typing.get_args(config.MixerKind)) == list(MIXERS)
    two_way = [name for name, kind in MIXERS.items() if issubclass(kind, TwoWay)]
    assert list(TWO_WAY) == two_way


def test_kinds_of_feed_forward_layers_match_the_table():
    hint = typing.get_type_hints(config.ModelConfig)["feed_forward_pattern"]
    assert typing.get_args(typing.get_args(hint)[0]) == (*FEED_FORWARDS,)


def test_augmentations_match_the_tables():
    (words,) = set(typing.get_args(typing.get_type_hints(config.DataConfig)["augment"])) - {...}
    assert list(typing.get_args(words)) == [*AUGMENTATIONS, *MASKS, *ADDED]


# Choices without a table: each is a branch in the function named.
BRANCHES = {
    "tied_embeddings": "models.encoder_decoder",
    "condition": "models.diffusion_transformer",
    "parametrization": "models.parametrization",
    "actions": "models.decision_transformer",
    "pixel_scale": "data.codecs.patches.train",
    "compute_dtype": "jnp.dtype",
    "document": "data.sources.load",
    "channels": "data.objectives.forecasting.Forecast.items",
    "long_sources": "data.batches.batch.Ragged.cut",
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
    """A new Literal gets a table, or an entry above that says why it needs none."""
    kinds = [kind for kind in vars(config).values() if hasattr(kind, "__dataclass_fields__")]
    literal = {
        field
        for kind in kinds
        for field, hint in typing.get_type_hints(kind).items()
        if typing.get_origin(hint) is typing.Literal
    }
    assert literal == {field for _, field in TABLES} | BRANCHES.keys()


def test_every_objective_names_its_architecture():
    architectures = typing.get_type_hints(config.ModelConfig)["architecture"]
    named = {name for known in objectives.OBJECTIVES.values() for name in known.architectures}
    assert named == set(typing.get_args(architectures))


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_text_files_have_an_encoding_that_the_locale_does_not_choose(path):
    for call in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(call, ast.Call) and _is_text(call):
            assert "encoding" in {word.arg for word in call.keywords}, (path, call.lineno)


def _is_text(call: ast.Call) -> bool:
    """Return whether a call opens a file or a pipe as text."""
    name = getattr(call.func, "id", getattr(call.func, "attr", None))
    modes = [*call.args[1:2], *(word.value for word in call.keywords if word.arg == "mode")]
    binary = any("b" in str(getattr(mode, "value", "b")) for mode in modes)
    if isinstance(call.func, ast.Name) and name == "open":
        return not binary
    if name in ("run", "Popen", "check_output"):
        return any(word.arg in ("text", "universal_newlines") for word in call.keywords)
    return isinstance(call.func, ast.Attribute) and name == "read_text" and not call.args
