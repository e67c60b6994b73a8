"""Descriptions of model families: tensor names and keys of config.json, for export and import.

A model can be exported if `Family.supported`, which follows from the keys, allows all its fields,
and imported if the table lists the value of each key.
"""

import itertools
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple, get_type_hints

import numpy as np

from transformer_jax.base.errors import UserError
from transformer_jax.config import ModelConfig
from transformer_jax.config.allowed import ANY, Allowed, among, refused
from transformer_jax.config.convert import checked
from transformer_jax.export.neutral import NEUTRAL

_REQUIRED = object()
LOGITS_BIAS = "final_logits_bias"  # the name of fairseq's families


class Word(NamedTuple):
    """A key of config.json that corresponds to one of our fields."""

    field: str
    pairs: tuple[tuple[Any, Any], ...] = ()  # (theirs, ours), the first match; (): the same value
    default: Any = _REQUIRED  # theirs if it is null; or a function of all keys, also if it lacks
    # The property that is written, or a function of the config; "": the field; None: nothing.
    written: str | Callable[[ModelConfig], Any] | None = ""
    read: bool = True  # False: it is only written
    only: tuple[str, tuple[str, ...]] | None = None  # a field, and its values where it is written
    each: bool = False  # a list with a value for each layer; ours is their pattern


class Part(NamedTuple):
    """A flag of config.json: whether a field of ours contains these words."""

    field: str
    words: tuple[str, ...]
    written: bool = True


class Fixed(NamedTuple):
    """A key of config.json of which only one value is supported."""

    value: Any
    written: bool = True
    default: Any = _REQUIRED  # a function of all keys, for a missing one
    only: tuple[str, tuple[str, ...]] | None = None  # as in Word


class Layout(NamedTuple):
    """Which leaves of ours are several tensors of theirs.

    apart: of our leaves by path, to theirs, by paths with a number for each.
    together: the inverse; of what `apart` returns, and our leaves' shapes.
    """

    apart: Callable[[Mapping[str, Any]], dict[str, Any]] = dict
    together: Callable[[Mapping[str, np.ndarray], Mapping[str, Any]], dict[str, np.ndarray]] = (
        lambda found, shapes: dict(found)
    )


class Family(NamedTuple):
    """One class of `transformers`. `modules` has "{}" for each number, as of a layer."""

    model_type: str
    architecture: str  # the class
    prefix: str  # of tensor names; absent from files of the model without its head
    modules: Mapping[str, str]  # our module -> theirs; several of ours may be joined into one
    words: tuple[tuple[str, Word | Part | Fixed], ...]  # "a.b": b in the group a
    fixed: Mapping[str, Any]  # fields that have a single value in this family
    defaults: Mapping[str, Any] = {}  # values of missing keys, as in this family's config class
    aliases: Mapping[str, str] = {}  # other names of keys -> the key, which they override
    # Of all keys: as the class reads them, with what older versions wrote in its newer place.
    standard: Callable[[Mapping[str, Any]], dict[str, Any]] = dict
    nearly: Mapping[str, tuple[Any, ...]] = {}  # other values of those that are close enough
    predicts: tuple[str, ...] = ("tokens",)  # of the objective
    whole_heads: bool = False  # num_heads must divide d_model, although heads may have any size
    fourfold: bool = False  # d_ff must be 4 d_model
    per_head: bool = False  # joined q, k and v are stored head by head; otherwise q, then k, then v
    offset: int = 0  # unused rows before the first learned position
    in_out: bool = False  # matrices are [in out]; otherwise [out in]
    tables: tuple[str, ...] = ()  # other names under which a tied embedding may be saved
    logits_bias: str | None = None  # the tensor of a bias of logits, [1 V], which is always saved
    halves: bool = False  # sinusoids are all sines, then all cosines; ours alternate
    sinusoids: tuple[str, ...] = ()  # names under which their table may be saved
    saves_sinusoids: bool = False
    caches_as_encoder: bool = False  # their decoder's cache has as many layers as the encoder
    drops: tuple[str, ...] = ()  # suffixes of tensor names that hold no parameters
    layout: Layout = Layout()
    # Fields that follow from others in a file, with the values that they may have.
    follows: Mapping[str, tuple[Any, ...]] = {}
    settle: Callable[[dict[str, Any]], dict[str, Any]] = dict  # of all fields: with these
    others: tuple[str, ...] = ()  # prefixes, after `prefix`, of other heads on the same body
    engine: str = "Hugging Face"  # whose family it is
    # Tensors that a file has besides, which follow from the config or hold what we have not.
    besides: Callable[[ModelConfig], dict[str, np.ndarray]] = lambda config: {}

    @property
    def supported(self) -> Allowed:
        """The models that are exported correctly."""
        allowed: dict[str, Any] = dict(NEUTRAL)
        allowed |= {field: (value,) for field, value in self.fixed.items()}
        allowed |= self.nearly
        allowed |= self.follows
        parts: dict[str, list[tuple[str, ...]]] = {}
        for _, word in self.words:
            if isinstance(word, Word):
                ours = tuple(ours for _, ours in word.pairs)
                allowed[word.field] = ours or ANY
            elif isinstance(word, Part):
                parts.setdefault(word.field, []).append(word.words)
        for field, words in parts.items():
            chosen = itertools.product(*[((), part) for part in words])
            allowed[field] = tuple(sum(choice, ()) for choice in chosen)
        return allowed

    @property
    def encodes(self) -> bool:
        """Whether there is an encoder."""
        return self.fixed["architecture"] == "encoder_decoder"

    @property
    def writes(self) -> bool:
        """Whether it generates text."""
        return self.fixed["architecture"] != "encoder"


def refuse(family: Family, config: ModelConfig) -> None:
    """Raise a UserError that names the first choice that the family cannot express, if any."""
    supported = family.supported
    name = f"the export to {family.engine} as {family.model_type!r}"
    for field, value in refused(config, supported).items():
        raise UserError(
            f"config.model.{field}={value!r}: {name} does not support such a model; it supports "
            f"{field}={among(config, supported, field)}"
        )
    words = dict(family.words)
    free = any(isinstance(word, Word) and word.field == "head_dim" for word in words.values())
    width, key, value = config.d_model, config.key_size, config.value_size
    for field, given, good, wanted in (
        ("v_head_dim", value, key == value, f"value heads of the size of key heads, {key}"),
        ("num_heads", config.num_heads, not family.whole_heads or width % config.num_heads == 0,
         f"it to divide d_model={width}"),
        ("head_dim", key, free or key * config.num_heads == width,
         f"num_heads x head_dim = d_model, here {config.num_heads} x {key} and {width}"),
        ("d_ff", config.d_ff, not family.fourfold or config.d_ff == 4 * width, f"4 x {width}"),
        ("token_types", config.token_types, "type_vocab_size" not in words or config.token_types,
         "at least 1"),
    ):  # fmt: skip
        if not good:
            raise UserError(f"config.model.{field}={given}: {name} requires {wanted}")


def to_words(family: Family, config: ModelConfig) -> dict[str, Any]:
    """Return the keys of config.json that describe the model.

    Raises:
      UserError: if the family cannot express it; names the field.
    """
    refuse(family, config)
    found: dict[str, Any] = {}
    for name, word in family.words:
        if word.written in (None, False) or _is_other(word, config):
            continue
        if isinstance(word, Fixed):
            value: Any = word.value
        elif isinstance(word, Part):
            value = set(word.words) <= set(getattr(config, word.field))
        else:
            of = word.written
            ours = getattr(config, of or word.field) if not callable(of) else of(config)
            value = _theirs(word, ours)
            if word.each:
                kinds = itertools.islice(itertools.cycle(ours), config.num_decoder_layers)
                value = [_theirs(word, kind) for kind in kinds]
        *groups, last = name.split(".")
        if groups and value is None:
            continue
        place = found
        for group in groups:
            place = place.setdefault(group, {})
        if place.setdefault(last, value) != value:
            raise UserError(
                f"config.model.{word.field}={getattr(config, word.field)!r}: "  # type: ignore[union-attr]
                f"{family.model_type!r} of {family.engine} supports it only with another value of "
                f"{name}={place[last]!r} in config.json"
            )
    return found


def _theirs(word: Word, ours: Any) -> Any:
    return next((theirs for theirs, own in word.pairs if own == ours), ours)


def _is_other(word: Word | Part | Fixed, config: ModelConfig) -> bool:
    """Return whether a key is only for models other than this one."""
    if isinstance(word, Part) or word.only is None:
        return False
    field, values = word.only
    return getattr(config, field) not in values


def from_words(family: Family, words: Mapping[str, Any]) -> ModelConfig:
    """Return the model that a config.json describes.

    Raises:
      UserError: if our model cannot express it; names the key.
    """
    fields, problems = _fields(family, words)
    for problem in problems:
        raise problem
    try:
        return replace(ModelConfig(dropout_rate=0.0), **fields)
    except UserError as error:  # which names our field
        field = str(error).partition("=")[0]
        keys = [key for key, word in family.words if getattr(word, "field", None) == field]
        raise UserError(f"{keys[0]}: {error}" if keys else str(error)) from None


def problems(family: Family, words: Mapping[str, Any]) -> list[UserError]:
    """Return an error for each key for which a config.json does not describe such a model."""
    return _fields(family, words)[1]


def _fields(family: Family, words: Mapping[str, Any]) -> tuple[dict[str, Any], list[UserError]]:
    """Return what a config.json says about our fields, and its errors."""
    fields: dict[str, Any] = dict(family.fixed)
    seen: dict[str, tuple[str, Any]] = {}
    known, said = _by_key(family, family.standard(words))
    found = []
    for key, word in family.words:
        if isinstance(word, Word) and not word.read:
            continue
        name = said.get(key, key)  # as in the file
        try:
            theirs = _look_up(family, known, key, word)
            if isinstance(word, Fixed):
                _check_fixed(name, word, theirs)
            elif isinstance(word, Part):
                fields[word.field] = fields.get(word.field, ()) + (word.words if theirs else ())
            else:
                ours = fields[word.field] = _ours(name, word, theirs)
                layers = fields.get("num_decoder_layers")
                if word.each and layers not in (None, len(theirs)):
                    raise UserError(f"{name}: names {len(theirs)} layers, and there are {layers}")
                first, same = seen.setdefault(word.field, (name, ours))
                if same != ours:
                    raise UserError(f"{name}={theirs!r}: can only be imported if {first} is equal")
        except UserError as error:
            found.append(error)
    return family.settle(fields), found


def _by_key(family: Family, words: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, str]]:
    """Return a config.json with aliases as keys, and {key: alias} of those."""
    said = {key: alias for alias, key in family.aliases.items() if alias in words}
    return {**words, **{key: words[alias] for key, alias in said.items()}}, said


def _look_up(family: Family, words: Mapping[str, Any], name: str, word: Word | Part | Fixed) -> Any:
    found: Any = words
    for part in name.split("."):
        found = found.get(part, _REQUIRED) if isinstance(found, Mapping) else _REQUIRED
    if found is not _REQUIRED and not (found is None and isinstance(word, Word)):
        return found  # otherwise null means a default, too
    default: Any = _REQUIRED if isinstance(word, Part) else word.default
    if isinstance(default, Callable):  # type: ignore[arg-type]
        return default({**family.defaults, **words})
    if found is None and default is not _REQUIRED:
        return default
    neutral = word.value if isinstance(word, Fixed) else default
    found = family.defaults.get(name, neutral)
    if found is _REQUIRED:
        raise UserError(f"{name}: missing")
    return found


def _check_fixed(name: str, word: Fixed, theirs: Any) -> None:
    if theirs != word.value:
        raise UserError(f"{name}={theirs!r}: only {word.value!r} can be imported")


def _ours(name: str, word: Word, theirs: Any) -> Any:
    if word.each:
        if not isinstance(theirs, list) or not theirs:
            raise UserError(f"{name}={theirs!r}: must be a list with a word for each layer")
        kinds = tuple(_ours(name, word._replace(each=False), one) for one in theirs)
        return _period(kinds)
    if not word.pairs:
        return checked(name, theirs, get_type_hints(ModelConfig)[word.field])
    for value, ours in word.pairs:
        if value == theirs:
            return ours
    known = " or ".join(dict.fromkeys(repr(value) for value, _ in word.pairs))
    raise UserError(f"{name}={theirs!r}: only {known} can be imported")


def _period(kinds: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return the shortest pattern that these repeat."""
    sizes = range(1, len(kinds) + 1)
    size = next(n for n in sizes if all(a == b for a, b in zip(kinds, kinds[n:], strict=False)))
    return kinds[:size]
