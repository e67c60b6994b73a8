"""The pieces of a conversation that a chat template has made one text of."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

from transformer_jax.data.codecs.codec import Codec
from transformer_jax.data.codecs.imported import LEAD, Imported


class Rendered(NamedTuple):
    """A conversation as one text."""

    text: str
    answers: list[tuple[int, int]]  # where what is predicted begins and ends
    contents: list[tuple[int, int]]  # where messages may not be read as the template's own pieces


class Named(NamedTuple):
    """The pieces of a codec that have names: <|im_end|>, EOS, <think>."""

    ids: Mapping[str, int]
    pattern: re.Pattern[str]
    # Those that no text has, as only a template writes them. Not among them are the pieces that a
    # tokenizer.json has added for texts themselves, such as <think>.
    control: re.Pattern[str]

    @classmethod
    def of(cls, codec: Codec) -> "Named":
        """Return those of a codec."""
        special = {name: number for name, number in codec.special.items() if name != LEAD}
        ids = dict(zip(codec.pieces(special.values()), special.values(), strict=True))
        symbols: Mapping[str, int] = getattr(codec, "symbols", {})
        written = {*ids, *getattr(codec, "control", symbols)}
        ids |= symbols
        return cls(ids, _any_of(ids), _any_of(written))

    def with_control(self, name: str | None) -> "Named":
        """Return them with one more that only a template writes."""
        if name is None or self.control.fullmatch(name):
            return self
        names = [one for one in self.ids if one == name or self.control.fullmatch(one)]
        return self._replace(control=_any_of(names))

    def matches(self, text: str) -> Iterator[re.Match[str]]:
        """Yield where they are in a text."""
        return self.pattern.finditer(text)


def _any_of(names: Iterable[str]) -> re.Pattern[str]:
    """Return a pattern of any of them, or of nothing if there are none."""
    longest = sorted(names, key=len, reverse=True)
    return re.compile("|".join(map(re.escape, longest)) or "(?!)")


def last_named(text: str, pattern: re.Pattern[str]) -> str | None:
    """Return the named piece that a text ends with, except for spaces; the first of several."""
    found: str | None = None
    end = len(text.rstrip())
    for match in reversed([*pattern.finditer(text)]):
        if text[match.end() : end].strip():
            break
        found, end = match[0], match.start()
    return found


def encoded(
    codec: Codec, several: Sequence[Rendered], named: Named, at_end: bool = False
) -> list[list[int]]:
    """Return the pieces of texts; those of answers, with number i, are ~i. The pieces before an
    answer are those of the prompt that it is written after. `at_end`: an answer follows.
    """
    runs: list[str] = []
    plans: list[list[tuple[int, bool]]] = []  # the number of a run, or a piece ~id
    wholes: list[list[int] | None] = [
        _as_one(codec, rendered, at_end) if isinstance(codec, Imported) else None
        for rendered in several
    ]
    for rendered, whole in zip(several, wholes, strict=True):
        plan: list[tuple[int, bool]] = []
        for text, piece, predicted in _runs(rendered, named) if whole is None else ():
            plan.append((len(runs) if piece is None else ~piece, predicted))
            runs += [text] if piece is None else []
        plans.append(plan)
    pieces = codec.encode(runs, eos=False)
    return [
        [
            ~piece if predicted else piece
            for number, predicted in plan
            for piece in (pieces[number] if number >= 0 else [~number])
        ] if whole is None else whole
        for plan, whole in zip(plans, wholes, strict=True)
    ]  # fmt: skip


def to_end(text: str, begin: int, end: int, named: Named) -> tuple[int, int]:
    """Return the span of an answer up to its last piece of control, or else the one behind it."""
    inside = [match.end() for match in named.control.finditer(text, begin, end)]
    behind = named.control.match(text, end)
    return begin, inside[-1] if inside else behind.end() if behind else end


def marked_to_end(text: str, begin: int, end: int, named: Named) -> tuple[int, int]:
    """Return what a template marks as it is, with the piece of control behind it if it has none."""
    return begin, max(end, to_end(text, begin, end, named)[1])


def _as_one(codec: Imported, rendered: Rendered, at_end: bool) -> list[int] | None:
    """Return the pieces as `transformers` makes them, of the text as a whole; None if those before
    an answer are then not those of its prompt, or a text has a named piece.
    """
    if rendered.contents:
        return None
    borders = [place for answer in rendered.answers for place in answer]
    whole = rendered.text[: None if at_end else borders[-1]] if borders else rendered.text
    ids, *parts = codec.named_too([whole, *(whole[:place] for place in borders)])
    if any(ids[: len(part)] != part for part in parts):
        return None
    sizes = [len(part) for part in parts]
    for begin, end in zip(sizes[::2], sizes[1::2], strict=True):
        ids[begin:end] = [~piece for piece in ids[begin:end]]
    return ids


def _runs(rendered: Rendered, named: Named) -> Iterator[tuple[str, int | None, bool]]:
    """Yield texts without named pieces, and named pieces, each with whether it is predicted. What a
    message spells like a named piece is cut, so that no tokenizer knows it again.
    """
    text, answers, contents = rendered
    cuts = {0, len(text), *(place for answer in answers for place in answer)}
    pieces: dict[int, int] = {}  # where each begins
    for match in named.matches(text):
        inside = any(begin <= match.start() < end for begin, end in contents)
        if inside and named.control.fullmatch(match[0]):
            cuts.add(match.start() + 1)
        else:
            cuts |= {match.start(), match.end()}
            pieces[match.start()] = named.ids[match[0]]
    for begin, end in pairwise(sorted(cuts)):
        predicted = any(first <= begin < last for first, last in answers)
        yield text[begin:end], pieces.get(begin), predicted
