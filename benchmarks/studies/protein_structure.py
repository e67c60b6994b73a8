"""Secondary structure of protein chains: files for tagging, and controls without a network.

    python benchmarks/studies/protein_structure.py DIR --output=data/structure \
      --pretraining=data/proteins/train.fasta

reads train.tsv and validation.tsv of DIR: id, sequence, structure (H helix, E strand, C coil) and
whether a residue is resolved, 1 or 0, a letter for each residue. It writes PART.sequence and
PART.structure, where words are residues, H E or C the label of each: those of validation.tsv are
`test`, and of train.tsv a twentieth, by clusters of relatives as in protein_clusters.py, is
`validation`. A residue that is not resolved is read and not labelled: it belongs to the word of the
one before it, and a label is of the first letter of a word. Those before the first resolved one are
left out.

With --pretraining, the sequences of a masked language model, it counts the test chains with at
least three 7-mers in common with one of them, and writes the others as `unrelated`.

The controls see a window of residues around each: by logistic regression, the residue alone, all in
the window, and these with all pairs of neighbours in it (bigrams); the width of the window and the
decay of weights are chosen on validation. One JSON line each, with the accuracy of test residues.
"""

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import scipy.sparse
from protein_clusters import clusters, linked, read, split

_LETTERS = "ACDEFGHIKLMNPQRSTVWXY"
_STRUCTURES = "HEC"
_BATCH, _EPOCHS, _RATE = 4096, 3, 0.01


class Chain(NamedTuple):
    """A chain, a letter or a number for each residue."""

    sequence: str
    structure: str
    resolved: str


def main() -> None:
    """Write the parts, and print the controls."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("directory", type=Path)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--pretraining", type=Path, help="FASTA")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    chains, test = (chains_of(arguments.directory / f"{x}.tsv") for x in ("train", "validation"))
    texts = [chain.sequence for chain in chains]
    part = split(texts, clusters(texts), 0.05, arguments.seed)
    # `split` leaves as much again to its own test part, which trains here.
    parts = {
        "train": [chain for chain, to in zip(chains, part, strict=True) if to != 1],
        "validation": [chain for chain, to in zip(chains, part, strict=True) if to == 1],
        "test": test,
    }
    written = dict(parts)
    if arguments.pretraining is not None:
        known = related([chain.sequence for chain in test], [*read(arguments.pretraining)])
        written["unrelated"] = [chain for i, chain in enumerate(test) if i not in known]
    arguments.output.mkdir(parents=True, exist_ok=True)
    for name, members in written.items():
        pairs = [words(chain) for chain in members if "1" in chain.resolved]
        for ending, lines in zip(("sequence", "structure"), zip(*pairs, strict=True), strict=True):
            text = "".join(f"{line}\n" for line in lines)
            (arguments.output / f"{name}.{ending}").write_text(text)
        print(json.dumps({"part": name, "chains": len(members),
                          "residues": sum(x.resolved.count("1") for x in members)}))  # fmt: skip
    counts = np.bincount(np.concatenate([labels(x) for x in parts["train"]]), minlength=3)
    truth = np.concatenate([labels(chain) for chain in test])
    share = float((truth == counts.argmax()).mean())
    print(json.dumps({"control": "most frequent", "test": round(100 * share, 2)}))
    wide = 7, 9, 12
    for name, radii, pairs in (
        ("residue alone", (0,), False), ("window", wide, False), ("bigrams", wide, True)
    ):  # fmt: skip
        found = [control(parts, r, pairs, decay) for r in radii for decay in (0.0, 1e-5)]
        best = max(found, key=lambda x: x["validation"])
        print(json.dumps({"control": name, **best}), flush=True)


def chains_of(path: Path) -> list[Chain]:
    """Return the chains in a file."""
    return [Chain(*line.split("\t")[1:4]) for line in path.read_text().splitlines()]


def related(texts: Sequence[str], others: Sequence[str]) -> set[int]:
    """Return the numbers of texts that have enough 7-mers in common with one of the others."""
    both = zip(*linked([*texts, *others]), strict=True)
    return {min(pair) for pair in both if min(pair) < len(texts) <= max(pair)}


def words(chain: Chain) -> tuple[str, str]:
    """Return words of residues, each with the unresolved ones after it, and a label for each."""
    first = chain.resolved.index("1")
    kept = "".join(
        f" {letter}" if seen == "1" else letter
        for letter, seen in zip(chain.sequence[first:], chain.resolved[first:], strict=True)
    )
    said = (x for x, seen in zip(chain.structure, chain.resolved, strict=True) if seen == "1")
    return kept.strip(), " ".join(said)


def labels(chain: Chain) -> np.ndarray:
    """Return the numbers of the structures of resolved residues."""
    every = np.array([_STRUCTURES.index(letter) for letter in chain.structure])
    return every[np.array([*chain.resolved]) == "1"]


def control(
    parts: dict[str, list[Chain]], radius: int, pairs: bool, decay: float
) -> dict[str, float]:
    """Return the accuracies (%) of logistic regression on a window of 2 radius + 1 residues."""
    weights = fitted(*table(parts["train"], radius, pairs), decay)
    found: dict[str, float] = {"window": 2 * radius + 1, "decay": decay}
    for name in ("validation", "test"):
        rows, truth = table(parts[name], radius, pairs)
        found[name] = round(100 * float(((rows @ weights).argmax(1) == truth).mean()), 2)
    return found


def table(
    chains: Sequence[Chain], radius: int, pairs: bool
) -> tuple[scipy.sparse.csr_matrix, np.ndarray]:
    """Return what is seen of each resolved residue, zeros and ones [n F], and its structure."""
    size, columns = len(_LETTERS) + 1, []  # and beyond the ends
    for chain in chains:
        ids = np.array([max(_LETTERS.find(x), -1) % size for x in chain.sequence])
        wide = np.pad(ids, radius, constant_values=size - 1)
        seen = np.lib.stride_tricks.sliding_window_view(wide, 2 * radius + 1)
        seen = seen[np.array([*chain.resolved]) == "1"]
        both = seen[:, :-1] * size + seen[:, 1:] + size * seen.shape[1]
        places = size * np.arange(seen.shape[1])
        more = both + size**2 * np.arange(both.shape[1])
        columns.append(np.hstack([seen + places, more] if pairs else [seen + places]))
    column = np.concatenate(columns).astype(np.int32)
    ends = np.arange(len(column) + 1) * column.shape[1]
    width = 2 * radius + 1
    total = size * width + pairs * size**2 * (width - 1)
    ones = np.ones(column.size, np.float32)
    rows = scipy.sparse.csr_matrix((ones, column.ravel(), ends), (len(column), total))
    return rows, np.concatenate([labels(chain) for chain in chains])


def fitted(rows: scipy.sparse.csr_matrix, truth: np.ndarray, decay: float) -> np.ndarray:
    """Return the weights [F 3] of logistic regression, by Adam with a falling rate."""
    weights = np.zeros((rows.shape[1], 3), np.float32)
    mean, square = np.zeros_like(weights), np.zeros_like(weights)
    draw = np.random.default_rng(0)
    order = np.concatenate([draw.permutation(len(truth)) for _ in range(_EPOCHS)])
    steps = len(order) // _BATCH
    for step in range(steps):
        at = order[step * _BATCH : (step + 1) * _BATCH]
        part = rows[at]
        logits = part @ weights
        chance = np.exp(logits - logits.max(1, keepdims=True))
        chance /= chance.sum(1, keepdims=True)
        chance[np.arange(len(at)), truth[at]] -= 1
        gradient = part.T @ chance / len(at) + decay * weights
        mean += 0.1 * (gradient - mean)
        square += 0.01 * (np.square(gradient) - square)
        scale = np.sqrt(square / (1 - 0.99 ** (step + 1))) + 1e-8
        weights -= _RATE * (1 - step / steps) * mean / (1 - 0.9 ** (step + 1)) / scale
    return weights


if __name__ == "__main__":
    main()
