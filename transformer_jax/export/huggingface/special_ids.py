"""Which pieces of an imported model are special, and what it reads before and after a text."""

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from transformer_jax.base.errors import UserError
from transformer_jax.data.codecs.codec import Codec, special_of
from transformer_jax.data.codecs.imported import Imported

log = logging.getLogger("transformer_jax")

# By model_type, the ids of pad_token_id and so on where a config.json lacks the key; a key that is
# null there means that there is no such piece.
_LLAMA = {"bos": 1, "eos": 2}
_GPT2 = {"bos": 50256, "eos": 50256}
_GEMMA = {"pad": 0, "bos": 2, "eos": 1}
DEFAULTS: Mapping[str, Mapping[str, int]] = {
    "gpt2": _GPT2, "starcoder2": _GPT2, "llama": _LLAMA, "mistral": _LLAMA, "mixtral": _LLAMA,
    "bloom": _LLAMA, "qwen2": {}, "qwen3": {}, "qwen3_moe": {}, "qwen3_next": {},
    "olmo2": {"pad": 1, "eos": 50279}, "olmoe": {"pad": 1, "eos": 50279}, "phi": _LLAMA,
    "phi3": {"pad": 32000, "bos": 1, "eos": 32000}, "cohere": {"pad": 0, "bos": 5, "eos": 255001},
    "gemma": _GEMMA, "gemma2": _GEMMA, "gemma3_text": _GEMMA,
    "mamba": {"pad": 0, "bos": 0, "eos": 0}, "mamba2": {"pad": 1, "bos": 0, "eos": 2},
    "opt": {"pad": 1, "bos": 2, "eos": 2}, "gpt_neox": {"bos": 0, "eos": 2},
    "stablelm": {"bos": 0, "eos": 0},
    "marian": {"pad": 58100, "eos": 0, "decoder_start": 58100},
    "pegasus": {"pad": 0, "eos": 1, "decoder_start": 0},
    "bart": {"pad": 1, "bos": 0, "eos": 2, "decoder_start": 2},
    "mbart": {"pad": 1, "bos": 0, "eos": 2}, "t5": {"pad": 0, "eos": 1}, "bert": {"pad": 0},
    "esm": {"eos": 2},
}  # fmt: skip


def special_ids(words: Mapping[str, Any], rows: int, architecture: str) -> dict[str, int]:
    """Return the ids of the special pieces that exist, by our names; `words` is the content of all
    configs. As in `transformers`, PAD is EOS if there is none, and outputs that have no beginning
    of their own begin with BOS.

    Raises:
      UserError: if an id is not that of a piece, or one is missing that a text needs.
    """
    defaults = DEFAULTS.get(words.get("model_type", ""), {})
    names = ("pad", "bos", "eos", "decoder_start")
    found = {name: _id(words, f"{name}_token_id", rows, defaults.get(name)) for name in names}
    start = found.pop("decoder_start")
    special = {name: piece for name, piece in found.items() if piece is not None}
    if architecture == "encoder":
        return special  # its own are found by their spelling
    if architecture == "encoder_decoder":
        special |= {} if start is None else {"bos": start}
        if "bos" not in special:
            raise UserError(
                "decoder_start_token_id: missing from config.json, and bos_token_id too; name the "
                "piece that every output begins with, which in T5 is that of pad_token_id"
            )
    if "eos" not in special:
        raise UserError(
            "eos_token_id: missing from config.json; name the piece that ends a text, by its "
            "number in tokenizer.json"
        )
    return {"pad": special["eos"]} | special


def _id(words: Mapping[str, Any], name: str, rows: int, default: int | None) -> int | None:
    """Return the first of the ids that a config may name, or None. There, a negative number means
    that there is none.
    """
    if name not in words:
        return default if default is not None and default < rows else None
    ids = words[name]
    first = next(iter(ids), None) if isinstance(ids, list) else ids
    if first is None:
        return None
    if type(first) is not int or first >= rows:
        raise UserError(f"{name}={ids!r}: must be the number of a piece, less than {rows}")
    return first if first >= 0 else None


def begins(codec: Imported, special: Mapping[str, int]) -> tuple[list[int], dict[str, int]]:
    """Return what each document of a decoder begins with, which its tokenizer decides, and the
    special pieces, where BOS is then the piece that is read.
    """
    before, _ = codec.around
    return before, dict(special) | ({"bos": before[0]} if before else {})


def reads(codec: Codec, architecture: str) -> str:
    """Return what an imported model reads, as a log line."""
    assert isinstance(codec, Imported)
    read, bos = _spelled(codec, *_around(codec, architecture)), special_of(codec).bos
    if architecture == "encoder_decoder":
        (first,) = codec.pieces([special_of(codec).begin])
        return f"a source is read as {read}, and an output begins with {first}"
    if architecture == "encoder":
        return f"a text is read as {read}"
    if codec.begins:
        return f"a prompt is read as {read}"
    empty = "is refused" if bos is None else f"is read as {codec.pieces([bos])[0]}"
    return f"a prompt is read as {read}, as the tokenizer adds no BOS; an empty one {empty}"


def warn_of_others(path: Path, codec: Imported, architecture: str) -> None:
    """Warn if `transformers` reads other pieces around a text than we do."""
    theirs, ours = codec.around, _around(codec, architecture)
    if any(theirs) and theirs != ours:
        log.warning(
            "%s: Hugging Face reads a text as %r, but here it is read as %r: outputs will differ",
            path, _spelled(codec, *theirs), _spelled(codec, *ours),
        )  # fmt: skip


def _around(codec: Imported, architecture: str) -> tuple[list[int], list[int]]:
    """Return the pieces that are read before and after a text."""
    special = special_of(codec)
    if architecture == "encoder_decoder":
        return [*codec.leads().values()], [special.end]
    if architecture == "encoder":
        return [special.begin], [special.end]
    return codec.begins, []


def _spelled(codec: Imported, before: Sequence[int], after: Sequence[int]) -> str:
    return " ".join([*codec.pieces(before), "TEXT", *codec.pieces(after)])
