"""The reference: the fields of the manual, the words of each choice, what commands print for
--help, and docstrings, a page a room of the package (mkdocstrings reads them, and imports nothing).
"""

import contextlib
import dataclasses
import importlib
import io
import os
import re
import typing
from pathlib import Path
from unittest import mock

from gallery import papers

from transformer_jax.cli.config import comments
from transformer_jax.cli.main import COMMANDS, dispatch
from transformer_jax.config import TAKE_PARTS, Experiment
from transformer_jax.config.choices.record import Record
from transformer_jax.config.convert import OWN_PART, describe, kind_of

# Page: its title, what is on it, and its modules, or folders of modules, of the package.
ROOMS = {
    "python": (
        "Python interface",
        "`transformer_jax.load` and what it returns; [examples](../docs/decoding.md#from-python).",
        ["api/load.py", "api/trained.py", "api/reading.py", "api/ensemble.py"],
    ),
    "own_parts": (
        "Own parts",
        "[A part of your own](../docs/own_parts.md) is made of what the tables have: a "
        "[mixer][transformer_jax.nn.mixers.mixer.Mixer], for a state of constant size a "
        "[recurrence][transformer_jax.nn.mixers.recurrence.Recurrence]; an "
        "[activation][transformer_jax.nn.feedforward.Activation]; a "
        "[norm][transformer_jax.nn.norm]; a "
        "[schedule][transformer_jax.training.schedule]; a "
        "[codec][transformer_jax.data.codecs.codec.Codec]; an "
        "[objective][transformer_jax.data.objectives.objective.Objective]; a metric. Below: how a "
        "config names it, and metrics.",
        ["config/parts.py", "evaluation/metrics.py"],
    ),
    "models": ("Models", "Everything else sees a model by its interface, `Model`.", ["models"]),
    "mixers": ("Mixers", "What mixes values along a sequence.", ["nn/mixers"]),
    "nn": ("Components", "What layers are built from.", ["nn"]),
    "sources": ("Data sources", "Rows, as files or generators have them.", ["data/sources"]),
    "codecs": ("Codecs", "Values to ids or vectors, and back.", ["data/codecs"]),
    "objectives": ("Objectives", "What is predicted from what.", ["data/objectives"]),
    "batches": ("Stores and batches", "Encoded text, and which items make up a batch.",
                ["data/store", "data/batches"]),
    "search": ("Searches", "How a text is found.", ["decoding/search", "decoding/batching"]),
    "decoding": ("Decoding", "Lines of text, predictions, and weights for searches.",
                 ["decoding", "decoding/text"]),
    "training": ("Training", "The step, its programs, the loop.", ["training"]),
    "server": ("Server and harness", "[How to use them](../docs/serving.md).",
               ["server", "harness.py"]),
}  # fmt: skip
# The tables of choices: their module, their name there, and the field that has their words.
CHOICES = [
    ("architectures", "ARCHITECTURES", "model.architecture"),
    ("mixers", "MIXERS", "model.encoder_pattern` and `model.decoder_pattern"),
    ("positions", "POSITIONS", "model.positions"),
    ("positions", "RELATIVE_POSITIONS", "model.relative_positions"),
    ("positions", "ROPE_SCALINGS", "model.rope_scaling"),
    ("layers", "RESIDUALS", "model.residual"),
    ("layers", "FEED_FORWARDS", "model.feed_forward_pattern"),
    ("stems", "STEMS", "model.stem"),
    ("objectives", "OBJECTIVES", "objective.name"),
    ("codecs", "CODECS", "src.codec` and `tgt.codec"),
    ("sources", "SOURCES", "data.source"),
    ("sources", "AUGMENTATIONS", "data.augment"),
    ("searches", "SEARCHES", "decoding.search"),
    ("optimizers", "SCHEDULES", "optimizer.schedule"),
]

_CHOICES = """\
# Choices

A field of a choice has one of the words of its table. What is known about a word is its record, and
the code asks nobody else. What words mean is said at the [fields of the config](config/index.md). A
cell is empty where a record says what most do."""


def navigation(root: Path) -> list:
    """Return the entries of the pages."""
    config = [{"Config": [f"reference/config/{name}.md" for name in ("index", *_groups())]}]
    return ["reference/index.md", "reference/commands.md", *config, "reference/choices.md",
            *(f"reference/{name}.md" for name in ROOMS)]  # fmt: skip


def pages(root: Path) -> dict[str, str]:
    """Return {path on the site: Markdown}."""
    rooms = {name: _room(root, *about) for name, about in ROOMS.items()}
    groups = {f"config/{name}": _group(name, kind) for name, kind in _groups().items()}
    own = {"index": _index(), "commands": _commands(), "choices": _choices()}
    found = {**own, "config/index": _config(), **groups, **rooms}
    return {f"reference/{name}.md": text for name, text in found.items()}


def _index() -> str:
    rows = [
        ("commands", "Commands", "Every sub-command of `transformer-jax`, with its options."),
        ("config/index", "Config", "Every field of an experiment: type, default, meaning."),
        ("choices", "Choices", "The words of each choice, and what is known about them."),
        *((name, title, what) for name, (title, what, _) in ROOMS.items()),
    ]
    lines = [f"- **[{title}]({name}.md)**: {what}" for name, title, what in rows]
    return "\n".join(["# Reference\n", *lines, ""])


# --- docstrings ---------------------------------------------------------------------------------


def _room(root: Path, title: str, what: str, places: list[str]) -> str:
    names = [name for place in places for name in _modules(root / "transformer_jax", place)]
    return (
        "\n\n".join([f"# {title}", what, *(f"::: transformer_jax.{name}" for name in names)]) + "\n"
    )


def _modules(package: Path, place: str) -> list[str]:
    """Return the modules of a file or of a folder; those that only gather others are left out."""
    path = package / place
    files = [path] if path.suffix else sorted(path.glob("[a-z]*.py"))
    return [".".join(file.relative_to(package).with_suffix("").parts) for file in files]


# --- the manual ---------------------------------------------------------------------------------


def _groups() -> dict[str, typing.Any]:
    hints = typing.get_type_hints(Experiment)
    fields = {field.name: hints[field.name] for field in dataclasses.fields(Experiment)}
    return {name: kind for name, kind in fields.items() if dataclasses.is_dataclass(kind)}


def _config() -> str:
    groups = _groups()
    lines = [f"- **[{name}]({name}.md)**: {_about(kind)}" for name, kind in groups.items()]
    others = [field.name for field in dataclasses.fields(Experiment) if field.name not in groups]
    return "\n".join([
        "# Config\n",
        "A config file sets what differs from these defaults, the paper's base model, and "
        "`--config.model.d_model=256` overrides one field. `transformer-jax config model.d_model` "
        "prints what is here.\n",
        *lines, "", *(_entry(Experiment(), name, "") for name in others),
    ])  # fmt: skip


def _group(name: str, kind: typing.Any) -> str:
    fields = [_entry(kind(), field.name, f"{name}.") for field in dataclasses.fields(kind)]
    return "\n".join([f"# {name}\n", f"{_about(kind)}\n", *fields])


def _about(kind: typing.Any) -> str:
    return " ".join((kind.__doc__ or "").split())


def _entry(owner: typing.Any, name: str, group: str) -> str:
    path = f"{group}{name}"
    kind = describe(kind_of(path)) + OWN_PART * (path in TAKE_PARTS)
    about = _meaning(comments(type(owner))[name])
    head = f"## {path} {{ #{path.replace('.', '-')} data-toc-label='{name}' }}"
    return f"{head}\n\n`{getattr(owner, name)!r}` by default; {_prose(kind)}\n\n{about}\n"


def _meaning(text: str) -> str:
    """Return a comment as Markdown: a list, where it explains one word after the other."""
    first, *words = re.split(r'(?:^|(?<=[.;] ))(?=(?:"[\w.]+"(?:, | and )?)+: )', text)
    if len(words) < 2:
        return papers(_prose(text))
    items = (f"- {_prose(item.strip())}" for item in words)
    return papers("\n".join([f"{_prose(first)}\n", *items]))


def _prose(text: str) -> str:
    """Return a comment as Markdown: nothing in it is markup but `code`."""
    parts = text.split("`")
    return "`".join(part if i % 2 else _plain(part) for i, part in enumerate(parts))


def _plain(text: str) -> str:
    text = text.replace("<", "&lt;").replace(">", "&gt;")
    return re.sub(r"[\\*_\[\]|]", r"\\\g<0>", text)


# --- choices ------------------------------------------------------------------------------------


def _choices() -> str:
    parts = [_CHOICES]
    for module, table, field in CHOICES:
        found = importlib.import_module(f"transformer_jax.config.choices.{module}")
        parts += [
            f"## {table.capitalize().replace('_', ' ')}",
            f"`{field}`",
            _table(getattr(found, table)),
        ]
    parts += ["## Records", "What the columns say."]
    parts += [
        f"::: transformer_jax.config.choices.{name}\n    options:\n      heading_level: 3"
        for name in ("record", "objective", *dict.fromkeys(module for module, _, _ in CHOICES))
        if name != "objectives"  # whose records have the class of "objective"
    ]
    return "\n\n".join(parts) + "\n"


def _table(records: dict[str, Record]) -> str:
    kind = type(next(iter(records.values())))
    fields = [
        field for field in dataclasses.fields(kind)
        if field.name not in ("check", "fields", "needs")  # functions, and long lists
        and any(getattr(x, field.name) != field.default for x in records.values())
    ]  # fmt: skip
    names = ["word", *(field.name for field in fields)]
    rows = [[f"`{word}`", *(_cell(record, field) for field in fields)]
            for word, record in records.items()]  # fmt: skip
    return "\n".join("| " + " | ".join(row) + " |" for row in [names, ["---"] * len(names), *rows])


def _cell(record: Record, field: typing.Any) -> str:
    value = getattr(record, field.name)
    if value == field.default:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, tuple):
        return ", ".join(f"`{item}`" for item in value) or "none"
    return "depends on the model" if callable(value) else _plain(str(value))


# --- commands -----------------------------------------------------------------------------------


def _commands() -> str:
    parts = ["# Commands", "`python train.py` is `transformer-jax train`, and `python eval.py` is "
             "`transformer-jax evaluate`."]  # fmt: skip
    for name, what in COMMANDS.items():
        parts += [f"## {name}", f"{what[0].upper()}{what[1:]}.", f"```text\n{_help(name)}\n```"]
    return "\n\n".join(parts) + "\n"


def _help(command: str) -> str:
    printed = io.StringIO()
    with mock.patch.dict(os.environ, COLUMNS="90"), contextlib.redirect_stdout(printed):
        with contextlib.suppress(SystemExit):
            dispatch([command, "--help"])
    return printed.getvalue().strip()
