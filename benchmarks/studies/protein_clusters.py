"""Split protein sequences by clusters of relatives, and n-gram controls of the parts.

    python benchmarks/studies/protein_clusters.py DB.fasta.gz --output=data/proteins

reads FASTA, or tables (.tsv) whose second column holds sequences, and writes train.fasta,
validation.fasta and test.fasta. Proteins come in families: in a random split, n-grams and models
recognise relatives of test sequences, and what is measured is memory. So exact repeats are removed,
sequences with at least three 7-mers in common are linked, and all that are linked directly or in a
chain, a cluster, go to the same part: in a random order, clusters of at most 1 % of all residues
to test, then to validation, until each has its share, and all others to train. A 7-mer in more than
100 sequences links each of them to the next alone.

The controls are perplexities per residue, the end of a sequence not counted: unigrams, bigrams and
trigrams of the training part, each order interpolated with the one below it by `strength` counts
(additive smoothing towards the lower order), which is chosen on validation. One JSON line each.
"""

import argparse
import json
import math
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from transformer_jax.data.sources.fasta import records

_LETTERS = "LAGVSERTIDPKQNFYMHWCXBUZO.-"
_K = 7
_COMMON = 3  # 7-mers that link two sequences
_MANY = 100  # sequences of a 7-mer of which not all pairs are counted
_STRENGTHS = (1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1000.0, 3000.0)
PARTS = ("train", "validation", "test")


def main() -> None:
    """Write the parts, and print the controls."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--share", type=float, default=0.05, help="of validation, and of test")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    found = [*dict.fromkeys(text.upper() for path in arguments.files for text in read(path))]
    cluster = clusters(found)
    part = split(found, cluster, arguments.share, arguments.seed)
    arguments.output.mkdir(parents=True, exist_ok=True)
    sizes = np.bincount(cluster)
    print(json.dumps({"sequences": len(found), "clusters": len(sizes),
                      "largest": int(sizes.max())}))  # fmt: skip
    texts = {}
    for number, name in enumerate(PARTS):
        members = np.flatnonzero(part == number)
        texts[name] = [found[i] for i in members]
        lines = (f">{i} cluster={cluster[i]}\n{found[i]}\n" for i in members)
        (arguments.output / f"{name}.fasta").write_text("".join(lines))
        print(json.dumps({"part": name, "sequences": len(members),
                          "residues": sum(map(len, texts[name]))}))  # fmt: skip
    for order in (1, 2, 3):
        scores = [perplexities(texts, order, strength) for strength in _STRENGTHS]
        best = min(range(len(scores)), key=lambda i: scores[i]["validation"])
        rounded = {name: round(value, 2) for name, value in scores[best].items()}
        print(json.dumps({"n": order, "strength": _STRENGTHS[best], **rounded}), flush=True)


def read(path: Path) -> Iterator[str]:
    """Yield the sequences of a file."""
    if path.suffix == ".tsv":
        yield from (line.split("\t")[1] for line in path.read_text().splitlines())
    else:
        yield from (record.sequence for record in records(path))


def clusters(texts: Sequence[str]) -> np.ndarray:
    """Return the number of each sequence's cluster [n]."""
    parent = np.arange(len(texts))

    def root(i: int) -> int:
        while parent[i] != i:
            parent[i] = parent[parent[i]]
            i = parent[i]
        return i

    for one, other in zip(*linked(texts), strict=True):
        parent[root(one)] = root(other)
    return np.unique([root(i) for i in range(len(texts))], return_inverse=True)[1]


def linked(texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
    """Return the pairs of sequences that have enough 7-mers in common."""
    keys, owners = [], []
    for number, text in enumerate(texts):
        ids = np.array([_LETTERS.find(letter) for letter in text], np.int64)
        if len(ids) < _K:
            continue
        windows = np.lib.stride_tricks.sliding_window_view(ids, _K)
        found = np.unique(windows @ (32 ** np.arange(_K)))
        keys.append(found)
        owners.append(np.full(len(found), number))
    key, owner = np.concatenate(keys), np.concatenate(owners)
    order = np.argsort(key, kind="stable")
    key, owner = key[order], owner[order]
    pairs = []
    for step in range(1, _MANY):  # each sequence of a 7-mer, and the one `step` behind it
        same = np.flatnonzero(key[step:] == key[:-step])
        if not len(same):
            break
        if step > 1:
            size = np.searchsorted(key, key[same], "right") - np.searchsorted(key, key[same])
            same = same[size <= _MANY]
        pairs.append(owner[same] * len(texts) + owner[same + step])
    pair, count = np.unique(np.concatenate(pairs), return_counts=True)
    return np.divmod(pair[count >= _COMMON], len(texts))


def split(texts: Sequence[str], cluster: np.ndarray, share: float, seed: int) -> np.ndarray:
    """Return the part of each sequence, as an index of PARTS [n]."""
    lengths = np.array([*map(len, texts)])
    size = np.bincount(cluster, lengths)
    order = np.random.default_rng(seed).permutation(len(size))
    order = order[size[order] <= 0.01 * lengths.sum()]
    filled = np.cumsum(size[order]) / lengths.sum()
    part = np.zeros(len(size), int)
    part[order[filled <= share]] = 2
    part[order[(filled > share) & (filled <= 2 * share)]] = 1
    return part[cluster]


def perplexities(texts: dict[str, list[str]], order: int, strength: float) -> dict[str, float]:
    """Return those of n-grams of the training part on the two others."""
    size = len(_LETTERS) + 1  # and the beginning
    counts = [np.zeros((size,) * n) for n in range(1, order + 1)]
    for text in texts["train"]:
        for n, count in enumerate(counts, 1):
            np.add.at(count, tuple(_grams(text, n).T), 1)
    chance = (counts[0] + 1) / (counts[0] + 1).sum()
    for count in counts[1:]:
        total = count.sum(-1, keepdims=True)
        chance = (count + strength * chance) / (total + strength)
    found = {}
    for name in PARTS[1:]:
        nats = [-np.log(chance[tuple(_grams(text, order).T)]) for text in texts[name]]
        found[name] = math.exp(np.concatenate(nats).mean())
    return found


def _grams(text: str, n: int) -> np.ndarray:
    """Return each letter with the n - 1 before it [length n], beginnings where there are none."""
    ids = [len(_LETTERS)] * (n - 1) + [_LETTERS.find(letter) for letter in text]
    return np.lib.stride_tricks.sliding_window_view(np.array(ids), n)


if __name__ == "__main__":
    main()
