"""How often the right answer is among the n most probable ones that beam search finds.

    python benchmarks/studies/top_n.py WORKDIR --split=test --n=5

For a model that translates, with the search of its config; prints the share for 1 to n, with Wilson
intervals of 95 %. Answers equal but for blanks at their ends count once.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

from transformer_jax.api import load
from transformer_jax.base.errors import UserError
from transformer_jax.data import sources
from transformer_jax.evaluation.metrics import interval


def ranks(answers: Sequence[Sequence[str]], references: Sequence[str]) -> list[int | None]:
    """Return the place of each reference among the distinct answers, from 0, or None."""
    places: list[int | None] = []
    for found, right in zip(answers, references, strict=True):
        distinct = list(dict.fromkeys(text.strip() for text in found))
        wanted = right.strip()
        places.append(distinct.index(wanted) if wanted in distinct else None)
    return places


def shares(places: Sequence[int | None], most: int) -> list[tuple[float, float, float]]:
    """Return the percentage with a place below 1 to `most`, and the ends of its interval."""
    rows = []
    for n in range(1, most + 1):
        count = sum(place is not None and place < n for place in places)
        low, high = interval(count, len(places))
        rows.append((100 * count / len(places), 100 * low, 100 * high))
    return rows


def main() -> None:
    """Print a line for each n."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("workdir", type=Path)
    parser.add_argument("--checkpoint", help="the config's by default")
    parser.add_argument("--split", choices=("validation", "test"), default="test")
    parser.add_argument("--n", type=int, default=5)
    parser.add_argument("--most", type=int, help="of the split's first rows; all by default")
    given = parser.parse_args()
    trained = load(given.workdir, given.checkpoint)
    decoding = trained.experiment.decoding
    if not 1 <= given.n <= decoding.hypotheses:
        raise UserError(
            f"--n={given.n}: must lie between 1 and decoding.beam_size={decoding.hypotheses}"
        )
    corpus = sources.load(trained.experiment.data, given.split, trained.experiment.objective)
    src, references = list(corpus.src)[: given.most], list(corpus.tgt)[: given.most]
    found = trained.translate(src, decoding, n_best=given.n)
    answers = [[item.text for item in items] for items in found]
    for n, (share, low, high) in enumerate(shares(ranks(answers, references), given.n), 1):
        print(f"top {n}: {share:.2f} %, 95 % interval {low:.2f} to {high:.2f}, of {len(src):,}")


if __name__ == "__main__":
    main()
