"""The base of all records, and the checks that follow from any of them."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from transformer_jax.config import parts
from transformer_jax.config.bounds import check, default_unless, either, is_part

R = TypeVar("R", bound="Record")


@dataclass(frozen=True)
class Need:
    """The values that another field must have beside a word, and why."""

    field: str
    values: tuple[Any, ...]
    because: str  # "{has}" is the word and the field that has it


@dataclass(frozen=True, kw_only=True)
class Record:
    """What is known about a word, whatever it chooses.

    reads: fields that not all words of its table read, declared with `of` that table.
    needs: values that other fields of its section must have.
    check: an odd check, called with its section and the name of the field that has the word.
    """

    reads: tuple[str, ...] = ()
    needs: tuple[Need, ...] = ()
    check: Callable[[Any, str], None] | None = None


def known(records: Mapping[str, R], words: Iterable[str], field: str = "") -> dict[str, R]:
    """Return the records of a table, and those of the user-defined parts among some words, all in
    one field, that declare one.

    Raises:
      UserError: if it is of another kind than the table's.
    """
    kind = type(next(iter(records.values())))
    own = {word: parts.record_of(word) for word in words if is_part(word)}
    for word, record in own.items():
        check(
            record is None or isinstance(record, kind),
            f"{field}={word!r}: its record is {record!r}; make it a {kind.__name__} of "
            f"{kind.__module__}",
        )
    return {**records, **{word: record for word, record in own.items() if record is not None}}


def with_(records: Mapping[str, Any], **known: Any) -> tuple[str, ...]:
    """Return the words whose records have these values."""
    return tuple(
        word
        for word, record in records.items()
        if all(getattr(record, name) == value for name, value in known.items())
    )


def readers(records: Mapping[str, Any]) -> dict[str, tuple[str, ...]]:
    """Return {field: the words that read it}."""
    words: dict[str, tuple[str, ...]] = {}
    for word, record in records.items():
        for name in record.reads:
            words[name] = (*words.get(name, ()), word)
    return words


def check_needs(section: Any, field: str, records: Mapping[str, Any], words: Iterable[str]) -> None:
    """Check what the records of some words, all in one field of a section, need."""
    words = [*dict.fromkeys(words)]
    records = known(records, words, field)
    for word in words:
        record = records.get(word)
        if record is None:  # a user-defined part that declares none
            continue
        has = f"{word!r} in {field}={getattr(section, field)}"
        for need in record.needs:
            value = getattr(section, need.field)
            default = type(section).__dataclass_fields__[need.field].default
            usual = need.values == (default,)
            remedy = f"leave it at {default!r}" if usual else f"choose {either(need.values)}"
            check(
                value in need.values,
                f"{need.field}={value!r}: {need.because.format(has=has)}; {remedy}",
            )
        if record.check is not None:
            record.check(section, field)


def check_read(
    section: Any,
    records: Mapping[str, Any],
    words: Iterable[str],
    because: Callable[[tuple[str, ...]], str],
    otherwise: Callable[[tuple[str, ...]], str] = lambda _: "",
) -> None:
    """Reject values other than the default for fields that none of these words reads; `because` and
    `otherwise` are said of the words that would. A user-defined part without a record may read all.
    """
    words = {*words}
    records = known(records, words)
    if any(is_part(word) and word not in records for word in words):
        return
    for name, reading in readers(records).items():
        default_unless(
            not words.isdisjoint(reading), section, name,
            because=because(reading), otherwise=otherwise(reading),
        )  # fmt: skip
