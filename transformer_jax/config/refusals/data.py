"""Validation of data and tokenizers."""

import re
from typing import TYPE_CHECKING

from transformer_jax.config.bounds import (
    SIZE,
    above,
    check,
    check_pattern,
    default_unless,
    either,
    rate,
    within,
)
from transformer_jax.config.words import MADE, VECTOR_FIELDS

if TYPE_CHECKING:
    from transformer_jax.config.manual import DataConfig, SourceConfig, TokenizerConfig


def check_source(source: "SourceConfig") -> None:
    """Reject vector settings that the codec does not read, and sizes out of bounds."""
    within(1, 2**12, patch_size=source.patch_size, num_mels=source.num_mels)
    within(1000, 10**6, sample_rate=source.sample_rate)
    within(2, 2**16, n_fft=source.n_fft)
    within(1, 2**16, hop_length=source.hop_length)
    for codec, names in VECTOR_FIELDS.items():
        means = f"has no effect with codec={source.codec!r}"
        default_unless(source.codec == codec, source, *names, because=means)


def check_tokenizer(tokenizer: "TokenizerConfig") -> None:
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
    default_unless(
        tokenizer.model is None, tokenizer, "algorithm", "vocab_size", "byte_fallback",
        "character_coverage", "normalization", "max_lines",
        because=f"follows from model={tokenizer.model!r}",
    )  # fmt: skip
    floor = 4 + 256 + 1 if tokenizer.byte_fallback else 5
    check(
        tokenizer.vocab_size >= floor,
        f"vocab_size={tokenizer.vocab_size}: must be at least {floor}"
        + (" with byte_fallback" if tokenizer.byte_fallback else ""),
    )
    check(
        0.9 <= tokenizer.character_coverage <= 1.0,
        f"character_coverage={tokenizer.character_coverage}: must lie between 0.9 and 1",
    )
    within(floor, SIZE, vocab_size=tokenizer.vocab_size)
    within(101, 10**9, max_lines=tokenizer.max_lines)  # at least 101: SentencePiece's own bound


def check_data(data: "DataConfig") -> None:
    """Reject data that cannot be read or batched."""
    rate(subword_dropout=data.subword_dropout)
    within(1, 1000, segmentations=data.segmentations, num_buckets=data.num_buckets)
    check(bool(data.train), "train=(): names no part to train on")
    within(0.1, 1000, mixing_temperature=data.mixing_temperature)
    within(1, 2**40, mixing_limit=data.mixing_limit)
    _check_augmentation(data)
    _check_labels(data)
    _check_batches(data)
    _check_parts(data)
    _check_made(data)


def _check_augmentation(data: "DataConfig") -> None:
    """Reject sizes of pictures and of augmentations that are out of bounds or have no effect."""
    within(1, 2**12, crop_padding=data.crop_padding, cutout_size=data.cutout_size)
    check(
        len(data.image_size) in (0, 2) and all(1 <= n <= 2**14 for n in data.image_size),
        f"image_size={data.image_size}: must be rows and columns, as in (64, 64)",
    )
    within(1, 2**12, frequency_mask_size=data.frequency_mask_size)
    within(1, 2**16, time_mask_size=data.time_mask_size)
    above(0, 1, time_mask_share=data.time_mask_share)
    for name, word in (
        ("crop_padding", "crop"), ("cutout_size", "cutout"),
        ("frequency_mask_size", "frequency_mask"), ("time_mask_size", "time_mask"),
        ("time_mask_share", "time_mask"),
    ):  # fmt: skip
        means = f"has no effect without {word!r} in augment={data.augment}"
        default_unless(word in data.augment, data, name, because=means)


def _check_batches(data: "DataConfig") -> None:
    """Reject batches too small for a row of full length."""
    within(2, SIZE, max_length=data.max_length)
    within(1, SIZE, max_length_ratio=data.max_length_ratio)
    within(1, SIZE, rows_divisible_by=data.rows_divisible_by)
    within(1, 2**28, tokens_per_batch=data.tokens_per_batch)
    need = data.max_length * data.rows_divisible_by
    check(
        data.tokens_per_batch >= need,
        f"tokens_per_batch={data.tokens_per_batch} is below max_length={data.max_length} x "
        f"rows_divisible_by={data.rows_divisible_by}: raise it to {need} or lower the others",
    )


def _check_made(data: "DataConfig") -> None:
    """Reject parts and sizes that do not fit generated data, and sizes for other sources."""
    for split in ("train", "validation", "test"):
        check(
            data.source not in MADE or getattr(data, split) == (split,),
            f"{split}={getattr(data, split)}: source={data.source!r} is generated, and its only "
            f"part is {split!r}; leave it at {(split,)}",
        )
    check(
        len(data.num_examples) == 3 and all(1 <= n <= 10**8 for n in data.num_examples),
        f"num_examples={data.num_examples}: must be three sizes of at least 1 and at most 10^8",
    )
    within(1, 10**18, max_number=data.max_number)
    rate(round_numbers=data.round_numbers)
    within(2, 100, list_depth=data.list_depth, list_arguments=data.list_arguments)
    check(
        len(data.example_lengths) == 2
        and 1 <= data.example_lengths[0] <= data.example_lengths[1] <= 10**6,
        f"example_lengths={data.example_lengths}: must be the smallest and the largest number of "
        "symbols, from 1 to 10^6",
    )
    for name, sources in (
        ("example_lengths", ("listops", "copying")), ("list_depth", ("listops",)),
        ("list_arguments", ("listops",)), ("image_size", ("folders",)),
        ("round_numbers", ("spelled_numbers",)),
    ):  # fmt: skip
        means = f"is for source={either(sources)}, not {data.source!r}"
        default_unless(data.source in sources, data, name, because=means)
    check(
        data.source != "spelled_numbers" or sum(data.num_examples) <= data.max_number,
        f"num_examples={data.num_examples}: more than max_number={data.max_number} in all",
    )


def _check_labels(data: "DataConfig") -> None:
    """Reject malformed or ineffective settings for the labels of audio files."""
    default_unless(
        data.source == "wavs", data, "label_pattern", "label_texts",
        because=f"is for source='wavs', not {data.source!r}",
    )  # fmt: skip
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


def _check_parts(data: "DataConfig") -> None:
    """Reject prefixes and weights for unknown parts, and mixtures of a single part."""
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
    for name in ("weights", "mixing_temperature", "mixing_limit"):
        default_unless(
            len(set(data.train)) == len(data.train) > 1, data, name,
            because=f"needs several parts, each named once, not train={data.train}",
        )  # fmt: skip
    default_unless(
        not data.weights, data, "mixing_temperature", "mixing_limit",
        because=f"weights={data.weights} already set the shares", otherwise="set weights to ()",
    )  # fmt: skip
