"""Validation of data and tokenizers."""

import re
from typing import Any

from transformer_jax.config.bounds import check, check_pattern, default_unless
from transformer_jax.config.choices.sources import check_source_kind


def check_tokenizer(tokenizer: Any) -> None:
    """Reject a vocabulary that cannot be trained."""
    for symbol in tokenizer.symbols:
        check(
            bool(symbol)
            and not re.search(r"\s|▁", symbol)
            and symbol not in ("<pad>", "<s>", "</s>", "<unk>")
            and tokenizer.symbols.count(symbol) == 1,
            f"symbols={tokenizer.symbols}: {symbol!r} must have no spaces, must not be a reserved "
            "piece, and must be named once",
        )
    floor = 4 + 256 + 1 if tokenizer.byte_fallback else 5
    check(
        tokenizer.vocab_size >= floor,
        f"vocab_size={tokenizer.vocab_size}: must be at least {floor}"
        + (" with byte_fallback" if tokenizer.byte_fallback else ""),
    )


def check_tokenizer_reads(tokenizer: Any) -> None:
    """Reject settings that an existing model already has."""
    default_unless(
        tokenizer.model is None, tokenizer, "algorithm", "vocab_size", "byte_fallback",
        "character_coverage", "normalization", "max_lines",
        because=f"follows from model={tokenizer.model!r}",
    )  # fmt: skip


def check_data(data: Any) -> None:
    """Reject data that cannot be read or batched."""
    check(bool(data.train), "train=(): names no part to train on")
    _check_sizes(data)
    _check_labels(data)
    _check_columns(data)
    _check_batches(data)
    _check_parts(data)
    check_source_kind(data)


def _check_sizes(data: Any) -> None:
    """Reject sizes of pictures and of generated data that are out of bounds."""
    check(
        len(data.image_size) in (0, 2) and all(1 <= n <= 2**14 for n in data.image_size),
        f"image_size={data.image_size}: must be rows and columns, as in (64, 64)",
    )
    check(
        len(data.num_examples) == 3 and all(1 <= n <= 10**8 for n in data.num_examples),
        f"num_examples={data.num_examples}: must be three sizes of at least 1 and at most 10^8",
    )
    check(
        len(data.example_lengths) == 2
        and 1 <= data.example_lengths[0] <= data.example_lengths[1] <= 10**6,
        f"example_lengths={data.example_lengths}: must be the smallest and the largest number of "
        "symbols, from 1 to 10^6",
    )


def _check_batches(data: Any) -> None:
    """Reject batches too small for a row of full length."""
    need = data.max_length * data.rows_divisible_by
    check(
        data.tokens_per_batch >= need,
        f"tokens_per_batch={data.tokens_per_batch} is below max_length={data.max_length} x "
        f"rows_divisible_by={data.rows_divisible_by}: raise it to {need} or lower the others",
    )


def _check_labels(data: Any) -> None:
    """Reject malformed settings for the labels of audio files."""
    if data.label_pattern:
        check_pattern("label_pattern", data.label_pattern)
        check(
            "label" in re.compile(data.label_pattern).groupindex,
            f"label_pattern={data.label_pattern!r}: has no group named 'label'; write "
            "(?P<label>...) where the label is",
        )
    named = [entry.partition("=")[0] for entry in data.label_texts]
    for label, entry in zip(named, data.label_texts, strict=True):
        check(
            named.count(label) == 1 and entry.partition("=")[2].strip() != "",
            f"label_texts={entry!r}: must be LABEL=TEXT, once for each label",
        )


def _check_columns(data: Any) -> None:
    """Reject columns of unknown sides."""
    named = [entry.partition("=")[0] for entry in data.columns]
    for side, entry in zip(named, data.columns, strict=True):
        check(
            side in ("source", "target") and entry[len(side) + 1 :] != "",
            f"columns={entry!r}: must be source=COLUMN or target=COLUMN",
        )
        check(
            named.count(side) == 1 or (side == "source" and data.source == "text"),
            f"columns={data.columns}: only the source side of source='text' can have several "
            f"columns; name {side!r} once",
        )


def _check_parts(data: Any) -> None:
    """Reject prefixes and weights for unknown parts."""
    for name, parts in (
        ("prefixes", (*data.train, *data.validation, *data.test)), ("weights", data.train),
    ):  # fmt: skip
        entries = getattr(data, name)
        named = [entry.partition("=")[0] for entry in entries]
        for part, entry in zip(named, entries, strict=True):
            check(
                part in parts and named.count(part) == 1 and entry.partition("=")[2] != "",
                f"{name}={entry!r}: must be PART={'TEXT' if name == 'prefixes' else 'NUMBER'}, "
                f"once for each of the parts {', '.join(dict.fromkeys(parts))}",
            )
    weights = data.named("weights")
    check(
        not weights or weights.keys() == set(data.train),
        f"weights={data.weights}: must name each part of train={data.train}",
    )
    for part, text in weights.items():
        check(
            bool(re.fullmatch(r"\d{1,9}(\.\d{1,9})?", text)) and float(text) > 0,
            f"weights='{part}={text}': must be PART=NUMBER, with a number above 0",
        )


def check_shares_read(data: Any) -> None:
    """Reject shares of a single part, and those that others already set."""
    for name in ("weights", "mixing_temperature", "mixing_limit"):
        default_unless(
            len(set(data.train)) == len(data.train) > 1, data, name,
            because=f"needs several parts, each named once, not train={data.train}",
        )  # fmt: skip
    default_unless(
        not data.weights, data, "mixing_temperature", "mixing_limit",
        because=f"weights={data.weights} already set the shares", otherwise="set weights to ()",
    )  # fmt: skip
