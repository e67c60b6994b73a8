"""Conversion of configs: from the manual through files and command lines, and back.

door(Experiment())                a locked ml_collections.ConfigDict with every field
configs/NAME.py                   get_config() starts from a door and states only differences
override(config, path, text)      --config.model.d_model=256 from a command line
parse(config)                     back to frozen dataclasses, validated; errors name the path
to_json / from_json               config.json, stored beside the checkpoints
"""

import dataclasses
import functools
import json
import logging
import math
import types
import typing
from typing import Any, Literal

from ml_collections import ConfigDict, config_dict

from transformer_jax.base.command_text import split, unquoted, unwrapped
from transformer_jax.base.errors import UserError
from transformer_jax.config import TAKE_PARTS, Experiment, parts
from transformer_jax.config.registry import did_you_mean

log = logging.getLogger("transformer_jax")

_ALIKE = 6  # most fields that an error names
OWN_PART = ", or FILE.py:NAME, a part of your own"  # after the entries of a table


def door(config: Any) -> ConfigDict:
    """Return the same fields as a locked ConfigDict, which rejects unknown fields."""
    fields: dict[str, Any] = {}
    hints = _hints(type(config))
    for item in dataclasses.fields(config):
        value = getattr(config, item.name)
        if dataclasses.is_dataclass(value):
            value = door(value)
        elif value is None:
            value = config_dict.placeholder(_without_none(hints[item.name]))
        fields[item.name] = value
    return ConfigDict(fields).lock()


def override(config: ConfigDict, path: str, text: str) -> None:
    """Set one field from a command line: `path` like "model.d_model", `text` its new value.

    Raises:
      UserError: if the field does not exist or the text does not fit its type.
    """
    *parents, name = path.split(".")
    kind = kind_of(path)
    node = config
    for parent in parents:
        node = node[parent]
    with node.ignore_type():
        node[name] = _read(f"config.{path}", text, kind)


def kind_of(path: str) -> Any:
    """Return the type of one field, `path` like "model.d_model".

    Raises:
      UserError: if the field does not exist or is a group of fields.
    """
    kind: Any = Experiment
    for name in path.split("."):
        hints = _hints(kind) if dataclasses.is_dataclass(kind) else {}
        if name not in hints:
            raise _unknown(path)
        kind = hints[name]
    if dataclasses.is_dataclass(kind):
        raise UserError(f"config.{path}: is a group of fields; set one of {sorted(_names(kind))}")
    return kind


def _hints(kind: Any) -> dict[str, Any]:
    """Return the types of a section's fields, evaluated from text at first."""
    if kind not in _HINTS:
        _HINTS[kind] = typing.get_type_hints(kind)
    return _HINTS[kind]


_HINTS: dict[Any, dict[str, Any]] = {}


def parse(config: ConfigDict | dict[str, Any], kind: Any = Experiment, path: str = "config") -> Any:
    """Return a ConfigDict, or a dict read from JSON, as the frozen dataclass `kind`.

    Raises:
      UserError: for an unknown or missing field, a wrong type or an impossible combination.
    """
    if not isinstance(config, ConfigDict | dict):
        raise UserError(f"{path}={config!r}: must be a group of fields")
    values = {key: config[key] for key in config}
    hints = _hints(kind)
    for key in values:
        if key not in hints:
            raise UserError(f"{path}.{key}: unknown field{did_you_mean(key, list(hints))}")
    ready = {}
    for key, hint in hints.items():
        if key not in values:
            raise UserError(f"{path}.{key}: missing")
        if dataclasses.is_dataclass(hint):
            ready[key] = parse(values[key], hint, f"{path}.{key}")
        else:
            ready[key] = checked(f"{path}.{key}", values[key], hint)
    try:
        made = kind(**ready)
        made.check_reads()
        return made
    except UserError as error:
        raise UserError(f"{path}.{error}") from None


def to_json(experiment: Experiment) -> str:
    """Return the text of config.json."""
    return json.dumps(dataclasses.asdict(experiment), indent=2) + "\n"


@functools.lru_cache(maxsize=64)  # so that the warning appears once, however often it is read
def from_json(text: str) -> Experiment:
    """Read the output of `to_json`, including that of versions that lacked some fields.

    Such a field gets its default, which keeps the behaviour; a warning names the first of them.

    Raises:
      UserError: if a field is unknown or has the wrong type, or groups are nested too deeply.
    """
    try:
        values, added = _filled(json.loads(text), dataclasses.asdict(Experiment()), "config")
        experiment = parse(values)
    except RecursionError:
        raise UserError("config: nested too deeply; groups of fields have one level") from None
    if added:
        more = f" and {len(added) - 5} more" * (len(added) > 5)  # an old file may lack a hundred
        named = ", ".join(added[:5]) + more
        log.warning("config.json is old and lacks %s: using the defaults", named)
    return experiment


def _filled(values: Any, defaults: dict[str, Any], path: str) -> tuple[Any, list[str]]:
    """Return the values with defaults for missing ones, and the paths of the missing ones."""
    if not isinstance(values, dict):
        return values, []
    whole, added = dict(values), []
    for key, default in defaults.items():
        if key not in values:
            whole[key] = default
            added.append(f"{path}.{key}")
        elif isinstance(default, dict):
            whole[key], deeper = _filled(values[key], default, f"{path}.{key}")
            added += deeper
    return whole, added


def value_at(config: Any, path: str) -> Any:
    """Return the value of a field of a config in any form, `path` like "model.d_model"."""
    for name in path.split("."):
        config = getattr(config, name)
    return config


def own_parts(experiment: Experiment) -> dict[str, str]:
    """Return {part: path of its field} for the user-defined parts of an experiment."""
    return {
        word: f"config.{path}"
        for path in TAKE_PARTS
        for word, _ in parts.words(value_at(experiment, path))
    }


def differences(one: Experiment, other: Experiment) -> dict[str, tuple[Any, Any]]:
    """Return {path: (value in one, value in other)} for the fields that differ."""
    left, right = flat(one), flat(other)
    return {path: (left[path], right[path]) for path in left if left[path] != right[path]}


def flat(experiment: Experiment) -> dict[str, Any]:
    """Return {path: value} for all fields."""
    return _flat(dataclasses.asdict(experiment))


def _flat(values: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in values.items():
        nested = isinstance(value, dict)
        flat |= _flat(value, f"{prefix}{key}.") if nested else {prefix + key: value}
    return flat


def _names(kind: Any) -> list[str]:
    return [item.name for item in dataclasses.fields(kind)]


def _unknown(path: str) -> UserError:
    known = list(_flat(dataclasses.asdict(Experiment())))
    last = path.rpartition(".")[2]
    homes = [name for name in known if name.rpartition(".")[2] == last]  # in the wrong group
    hint = did_you_mean(path, homes or known)
    if homes and not hint:
        hint = f" (did you mean {homes[0]!r}?)"
    if not hint and len(last) > 2 and (alike := [x for x in known if last in x]):
        hint = f" (there are {', '.join(alike[:_ALIKE])}{', ...' * (len(alike) > _ALIKE)})"
    return UserError(f"config.{path}: unknown field{hint}")


def _without_none(kind: Any) -> Any:
    if isinstance(kind, types.UnionType):
        (kind,) = (option for option in typing.get_args(kind) if option is not types.NoneType)
    return kind


def describe(kind: Any) -> str:
    if isinstance(kind, types.UnionType):
        return f"{describe(_without_none(kind))} or None"
    if typing.get_origin(kind) is Literal:
        return "one of " + ", ".join(map(repr, typing.get_args(kind)))
    if typing.get_origin(kind) is tuple:
        return f"{describe(typing.get_args(kind)[0])}, or several separated by commas"
    return {int: "a whole number", float: "a number", bool: "True or False", str: "text"}[kind]


def checked(path: str, value: Any, kind: Any) -> Any:
    """Return `value` as `kind`, with integers widened to float and lists converted to tuples."""
    if isinstance(value, int) and value.bit_length() > 63:  # too long to print, or for a float
        digits = int(value.bit_length() * math.log10(2)) + 1
        raise UserError(f"{path}: a number of about {digits} digits, more than any field takes")
    if isinstance(kind, types.UnionType):
        return None if value is None else checked(path, value, _without_none(kind))
    if typing.get_origin(kind) is Literal:
        field = path.removeprefix("config.").partition("[")[0]
        if field in TAKE_PARTS and parts.read(value):
            return parts.pinned(value, path)
        if value not in typing.get_args(kind):
            near = did_you_mean(str(value), [str(x) for x in typing.get_args(kind)])
            raise UserError(f"{_wrong(path, value, kind)}{OWN_PART * (field in TAKE_PARTS)}{near}")
        return value
    if typing.get_origin(kind) is tuple:
        if not isinstance(value, list | tuple):
            raise _wrong(path, value, kind)
        element = typing.get_args(kind)[0]
        return tuple(checked(f"{path}[{i}]", item, element) for i, item in enumerate(value))
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        value = float(value)
    if type(value) is not kind or (kind is float and not math.isfinite(value)):
        raise _wrong(path, value, kind)
    return value


def _wrong(path: str, value: Any, kind: Any) -> UserError:
    return UserError(f"{path}={value!r}: must be {describe(kind)}")


def _read(path: str, text: str, kind: Any) -> Any:
    """Read command-line text as `kind`."""
    if isinstance(kind, types.UnionType):
        return None if text in ("None", "none") else _read(path, text, _without_none(kind))
    if typing.get_origin(kind) is tuple:
        inner = unwrapped(text)
        values = split(inner.removesuffix(",")) if inner else []
        if not all(map(str.strip, values)):
            raise UserError(
                f"{path}={text}: commas separate values, and one of these is empty; quote a value "
                "that has commas, as in '\",\"'"
            )
        element = typing.get_args(kind)[0]
        return tuple(_read(f"{path}[{i}]", unquoted(x), element) for i, x in enumerate(values))
    value: Any = text
    if kind is bool:
        value = {"true": True, "1": True, "false": False, "0": False}.get(text.lower(), text)
    elif kind in (int, float):
        try:
            value = kind(text)
        except ValueError:
            value = text
    return checked(path, value, kind)
