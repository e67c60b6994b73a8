"""Texts that are added to those of training: others that mean the same, or as much."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import accumulate, pairwise

import numpy as np

from transformer_jax.base.errors import UserError
from transformer_jax.config import Experiment
from transformer_jax.config.choices.sources import AUGMENTATIONS
from transformer_jax.data.codecs import notes
from transformer_jax.data.random import random
from transformer_jax.data.sources.corpus import Corpus
from transformer_jax.data.sources.fingerprint import fingerprint

Pair = tuple[str, ...]  # source and target; a text without a source is both
# From all pairs: those to add for each, in their order.
Added = Callable[[Sequence[Pair], Experiment], Iterator[list[Pair]]]


def transposed(pairs: Sequence[Pair], experiment: Experiment) -> Iterator[list[Pair]]:
    """Yield pairs whose music, on one side or both, is moved by up to `data.transpose_range`
    semitones down and up, as far as each voice stays in the range that it has in all texts of its
    side; none of a text with faults.
    """
    most, known = experiment.data.transpose_range, AUGMENTATIONS["transpose"].codecs
    found = [
        list(_in_other_keys([pair[side] for pair in pairs], most)) if codec in known else None
        for side, codec in enumerate(experiment.codecs)
    ]
    for number, pair in enumerate(pairs):
        sides = [None if side is None else side[number] for side in found]
        moved = [side for side in sides if side is not None]
        yield [
            tuple(
                text if side is None else side[by]
                for text, side in zip(pair, sides, strict=True)
            )
            for by in moved[0] if all(by in side for side in moved)
        ]  # fmt: skip


def _in_other_keys(texts: Sequence[str], most: int) -> Iterator[dict[int, str]]:
    """Yield each text by the semitones by which it can be moved."""
    voices = next((step.count(",") + 1 for text in texts for step in text.split()[:1]), 0)
    pieces = [None if notes.fault(text, voices) else notes.pitches(text) for text in texts]
    heard = [piece for piece in pieces if piece is not None and len(piece)]
    together = np.concatenate(heard) if heard else np.empty((0, voices), int)
    sounds = together != notes.SILENCE
    lowest = together.min(0, initial=notes.PITCHES, where=sounds)
    highest = together.max(0, initial=notes.SILENCE, where=sounds)
    for piece in pieces:
        found = {}
        if piece is not None and (piece != notes.SILENCE).any():
            sounds = piece != notes.SILENCE
            for by in (*range(-most, 0), *range(1, most + 1)):
                moved = np.where(sounds, piece + by, piece)
                if (~sounds | ((moved >= lowest) & (moved <= highest))).all():
                    found[by] = notes.written(moved)
        yield found


def random_smiles(pairs: Sequence[Pair], experiment: Experiment) -> Iterator[list[Pair]]:
    """Yield pairs whose source is spelled from other atoms on, at random (RDKit), the target as it
    is; none of those that RDKit cannot read.

    Raises:
      UserError: if RDKit is not installed.
    """
    try:
        from rdkit import Chem
        from rdkit.rdBase import BlockLogs
    except ImportError:
        raise UserError(
            "config.data.augment='random_smiles': needs RDKit; run pip install "
            "'transformer-jax[smiles]'"
        ) from None
    for number, (src, tgt) in enumerate(pairs):
        with BlockLogs():
            molecule = Chem.MolFromSmiles(src)
        if molecule is None:
            yield []
            continue
        draw = int(random(experiment.seed, number)[0] % np.uint64(2**31 - 1)) + 1
        spelled = Chem.MolToRandomSmilesVect(molecule, experiment.data.smiles_variants, draw)
        yield [(text, tgt) for text in dict.fromkeys(spelled) if text != src]


ADDED: dict[str, Added] = {"transpose": transposed, "random_smiles": random_smiles}


def enlarged(
    corpora: Mapping[str, Corpus], experiment: Experiment
) -> tuple[dict[str, Corpus], list[str]]:
    """Return training texts by their names, with those that `data.augment` adds, each behind its
    own; and log lines.

    Raises:
      UserError: if it adds none.
    """
    found, lines = dict(corpora), []
    for word in experiment.data.augment:
        if word in ADDED:
            before = found
            larger = {name: _with(word, corpus, experiment) for name, corpus in before.items()}
            found = {name: corpus for name, (corpus, _) in larger.items()}
            lines += [line for _, line in larger.values()]
            if all(len(found[name]) == len(corpus) for name, corpus in before.items()):
                first = next(text for x in before.values() for text in x.src or x.tgt)
                raise UserError(
                    f"config.data.augment={word!r}: adds nothing to any training text, of which "
                    f"the first is {first!r:.60}; leave it out, or correct the texts"
                )
    return found, lines


def _with(word: str, corpus: Corpus, experiment: Experiment) -> tuple[Corpus, str]:
    """Return a corpus with what a word adds, and a log line."""
    one_sided = not len(corpus.src)
    pairs = list(zip(corpus.tgt if one_sided else corpus.src, corpus.tgt, strict=True))
    added = list(ADDED[word](pairs, experiment))
    both = [one for pair, more in zip(pairs, added, strict=True) for one in (pair, *more)]
    ends = list(accumulate((1 + len(more) for more in added), initial=0))
    parts = pairwise(accumulate(corpus.sizes, initial=0))
    sizes = tuple(ends[end] - ends[begin] for begin, end in parts)
    src, tgt = ([pair[side] for pair in both] for side in (0, 1))
    src, tgt = ([], src) if one_sided else (src, tgt)
    larger = Corpus(src, tgt, fingerprint(src, tgt), sizes)
    without = sum(not more for more in added)
    line = f"{word}: {len(both) - len(pairs):,} texts beside {len(pairs):,}"
    return larger, line + (f", of which {without:,} have none" if without else "")
