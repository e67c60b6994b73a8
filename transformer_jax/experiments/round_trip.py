"""What codecs keep of a text: lines that are not written as they are, and unknown pieces."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from transformer_jax.config import Experiment, TokenizerConfig
from transformer_jax.data.codecs.chat import Named
from transformer_jax.data.codecs.codec import Codec, VectorCodec
from transformer_jax.data.codecs.pair import TokenizerPair
from transformer_jax.data.sources import Corpus
from transformer_jax.data.texts import first_difference, spread

_MOST_LINES = 10_000  # of a text that are looked at
_MOST_CHARACTERS = 4_000_000  # in these lines together
_CONVERSATIONS = 1000  # that are looked at
_SHARE = 0.01  # of lines, or of pieces, above which a note becomes a warning
_SHOWN = 30  # characters of an example, on either side of the first difference


class Kept(NamedTuple):
    """What a codec keeps of some lines."""

    lines: int
    changed: dict[str, list[tuple[str, str]]]  # lines before and after, by what is changed
    pieces: int
    unknown: int


def kept(codec: Codec, texts: Sequence[str]) -> Kept:
    """Encode lines spread over a text, so that the cost is bounded, and decode them."""
    lines = [*_some(texts)]
    unk = codec.special.get("unk", -1)
    changed: dict[str, list[tuple[str, str]]] = {}
    pieces = unknown = 0
    for line, ids in zip(lines, codec.encode(lines, eos=False), strict=True):
        pieces, unknown = pieces + len(ids), unknown + list(ids).count(unk)
        again = codec.decode(ids)
        if again != line:
            changed.setdefault(_change(line, again, unk in ids), []).append((line, again))
    return Kept(len(lines), changed, pieces, unknown)


def _some(texts: Sequence[str]) -> Iterator[str]:
    """Yield evenly spread lines; very long ones are cut at a space."""
    places = spread(len(texts), _MOST_LINES)
    most = _MOST_CHARACTERS // max(len(places), 1)
    for place in places:
        text = texts[place]
        if len(text) > most:
            space = text.rfind(" ", most // 2, most)
            text = text[: space if space > 0 else most]
        yield text


def _change(line: str, again: str, unknown: bool) -> str:
    """Return what a codec has changed."""
    if unknown:
        return "unknown"
    if line.split() == again.split():
        return "runs of spaces"
    if "".join(line.split()) == "".join(again.split()):
        return "spaces"
    return "case" if line.lower() == again.lower() else "characters"


def notes_and_warnings(
    experiment: Experiment, tokenizers: TokenizerPair, train: Corpus, held_out: Corpus
) -> tuple[list[str], list[str]]:
    """Return lines for the log about unknown pieces of the training text, and target lines that
    differ once encoded and decoded; and those lines that ask for a change of the config.
    """
    sides = [("source", tokenizers.src, train.src)] if len(train.src) else []
    trained, valid = (_texts(tokenizers, corpus.tgt) for corpus in (train, held_out))
    sides.append(("target", tokenizers.tgt, trained))
    of_sides = {
        name: kept(codec, texts)
        for name, codec, texts in sides
        if not isinstance(codec, VectorCodec) and codec.special and len(texts)
    }
    notes, warnings = _of_unknown(experiment, of_sides)
    objective = experiment.objective
    if "target" in of_sides and (objective.translates or objective.record.prompt):
        both = {"training": of_sides["target"], "validation": kept(tokenizers.tgt, valid)}
        for change in sorted({*both["training"].changed, *both["validation"].changed}):
            line, often = _of_change(experiment, change, both)
            (warnings if often else notes).append(line)
    return notes, warnings


def _texts(tokenizers: TokenizerPair, lines: Sequence[str]) -> Sequence[str]:
    """Return the texts of lines, or those of some conversations."""
    template = tokenizers.template
    if template is None:
        return lines
    chosen = [lines[place] for place in spread(len(lines), _CONVERSATIONS)]
    named = [piece for piece in Named.of(tokenizers.tgt).ids if piece]
    return template.learned(chosen, named)


def _of_unknown(experiment: Experiment, found: dict[str, Kept]) -> tuple[list[str], list[str]]:
    shares = {name: of.unknown / max(of.pieces, 1) for name, of in found.items()}
    if not shares:
        return [], []
    listed = ", ".join(f"{share:.2%} of the {name} side" for name, share in shares.items())
    line, codecs = f"unknown pieces: {listed}, in the training text", experiment.codecs
    often = [codecs[name == "target"] for name, share in shares.items() if share > _SHARE]
    if not often:
        return [line], []
    remedies = {codec: _remedy(codec, "unknown", experiment.tokenizer) for codec in often}
    return [], [f"{line}; the model cannot tell them apart; {'; '.join(remedies.values())}"]


def _of_change(experiment: Experiment, change: str, both: dict[str, Kept]) -> tuple[str, bool]:
    """Return a log line about target lines with a change, and whether scores suffer from it."""
    codec = experiment.tgt.codec
    counts = {name: len(of.changed.get(change, ())) for name, of in both.items()}
    listed = " and ".join(
        f"{counts[name]:,} of {of.lines:,} {name} lines" for name, of in both.items() if of.lines
    )
    examples = [pair for of in both.values() for pair in of.changed.get(change, ())]
    one, other = _around(*min(examples, key=lambda pair: len(pair[0])))
    line = (
        f"tgt.codec={codec!r}: {listed} differ once encoded and decoded, in "
        f"{'pieces that are unknown' if change == 'unknown' else change}: {one!r} becomes {other!r}"
    )
    objective = experiment.objective
    if change == "runs of spaces" and objective.translates:  # see `same` in evaluation/metrics.py
        return f"{line}, which scores ignore", False
    effect = "references stay as they are, so that scores count the difference"
    if not objective.translates:
        effect = "the model can only write the latter"
    if objective.record.likelihood:
        effect += ", and bits per character and per byte are left out"
    often = any(counts[name] > _SHARE * of.lines for name, of in both.items())
    return f"{line}; {effect}; {_remedy(codec, change, experiment.tokenizer)}", often


def _around(one: str, other: str) -> tuple[str, str]:
    """Return what is around the first difference of two texts."""
    first = first_difference(one, other)
    begin, end = max(first - _SHOWN, 0), first + _SHOWN
    return one[begin:end], other[begin:end]


def _remedy(codec: str, change: str, config: TokenizerConfig) -> str:
    """Return how to keep what a codec changes."""
    set_to = "set --config.tokenizer."
    if codec == "subwords" and config.model is None:
        if change == "unknown" and not config.byte_fallback:
            return f"{set_to}byte_fallback=True"
        if change in ("case", "characters") and config.normalization != "identity":
            return f"{set_to}normalization=identity, which changes none"
    if codec in ("wordpiece", "words"):
        if change == "unknown" and codec == "words":
            return f"raise tokenizer.vocab_size={config.vocab_size}, or choose 'subwords'"
        if config.lowercase and change in ("case", "characters"):
            scored = ", or --config.evaluation.lowercase=True"
            return f"{set_to}lowercase=False" + scored * (change == "case")
        return "choose 'subwords' or 'characters'"
    return "choose another codec, such as 'bytes', which changes none"
