"""A classifier of reviews on reviews from elsewhere: of their beginnings, or of all their parts.

    python benchmarks/studies/other_reviews.py runs/imdb-pretrained --learned=IMDB \
      --reviews=DIR --output=results/other_reviews

IMDB is the directory that the model was trained from (configs/imdb.py), DIR that of
configs/movie_reviews.py (Pang and Lee 2004): train.* and validation.*, of which no text trains the
model. The beginning is what it reads at once; "parts" are as many pieces each, and the class is
that of the mean of their log-probabilities; "written" is the same of texts without the spaces that
these reviews have at punctuation, and those of IMDb have not. Beside them naive Bayes on single
words by presence (folds.py), trained on nine tenths of a ten-fold division of DIR, as in `folds.py
control`, or on IMDB. Each row is tested against the first. Printed besides: how many texts share a
tenth of their rows of eight words with those of IMDB.
"""

import argparse
import math
import re
from pathlib import Path

from folds import Labelled, classifier, deal, naive_bayes, write_rows

import transformer_jax
from transformer_jax.config import EvaluationConfig
from transformer_jax.data.sources.files import read_parallel
from transformer_jax.runs.workdir import WorkDir

_ROW = 8  # words


def parts_of(text: str, pieces: list[int], most: int) -> list[str]:
    """Return a text in as few parts of equal numbers of words as have about `most` pieces."""
    count, words = math.ceil(len(pieces) / most), text.split(" ")
    size = math.ceil(len(words) / count)
    return [" ".join(words[i : i + size]) for i in range(0, len(words), size)]


def by_parts(model: transformer_jax.TrainedModel, texts: list[str], most: int) -> list[str]:
    """Return the class of each text whose log-probability is highest in the mean of its parts."""
    pieces = model.tokenizers.src.encode(texts)
    parts = [parts_of(text, ids, most) for text, ids in zip(texts, pieces, strict=True)]
    each = iter(model.classify([part for of_text in parts for part in of_text]))
    said = []
    for of_text in parts:
        found = [next(each) for _ in of_text]
        score = {
            label: sum(math.log(max(probability[label], 1e-45)) for probability in found)
            for label in found[0]
        }
        said.append(max(score, key=score.__getitem__))
    return said


def in_folds(texts: Labelled) -> list[str]:
    """Return the class of each text by naive Bayes that was trained on other folds."""
    folds, said = deal(texts, 10), {}
    for test in folds:
        others = [item for fold in folds if fold is not test for item in fold]
        _, *learned = deal(others, 10)
        tested = [text for text, _ in test]
        found = naive_bayes([item for fold in learned for item in fold], tested, once=True)
        said |= dict(zip(tested, found, strict=True))
    return [said[text] for text, _ in texts]


def written(text: str) -> str:
    """Return a text of separate words as people write it."""
    text = re.sub(r" ([.,!?;:)\]])", r"\1", text)
    text = re.sub(r"([(\[]) ", r"\1", text)
    return re.sub(r'" ([^"]*) "', r'"\1"', text)


def rows_of(text: str) -> set[tuple[str, ...]]:
    """Return all words in a row of a text, in lower case and without punctuation."""
    words = "".join(x if x.isalnum() else " " for x in text.lower()).split()
    return set(zip(*(words[i:] for i in range(_ROW)), strict=False))


def shared(texts: list[str], learned: list[str]) -> int:
    """Return how many texts have a tenth or more of their words in a row in one of the others."""
    seen: set[tuple[str, ...]] = set().union(*map(rows_of, learned))
    return sum(len(rows & seen) >= 0.1 * len(rows) for rows in map(rows_of, texts) if rows)


def main() -> None:
    """Print and write the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("workdir", nargs="+", help="of a classifier of reviews")
    parser.add_argument("--learned", type=Path, required=True, help="reviews that trained it")
    parser.add_argument("--reviews", type=Path, required=True, help="others")
    parser.add_argument("--output", type=Path, required=True, help="without suffix")
    arguments = parser.parse_args()
    pairs: Labelled = []
    for part in ("train", "validation"):
        files = (arguments.reviews / f"{part}.{ending}" for ending in ("text", "label"))
        pairs += zip(*read_parallel(*files), strict=True)
    texts, right = map(list, zip(*pairs, strict=True))
    files = (_file(arguments.learned, ending) for ending in ("text", "label"))
    known = [*zip(*read_parallel(*files), strict=True)]
    said = {
        "naive Bayes, other folds": in_folds(pairs),
        "naive Bayes, IMDb": naive_bayes(known, texts, once=True),
    }
    for place in arguments.workdir:
        model = transformer_jax.load(place)
        most = WorkDir(place).experiment().data.max_length
        likeliest = [max(found, key=found.__getitem__) for found in model.classify(texts)]
        said |= {
            f"{place}, beginning": likeliest,
            f"{place}, parts": by_parts(model, texts, most),
            f"{place}, parts, written": by_parts(model, [*map(written, texts)], most),
        }
    print(f"{shared(texts, [text for text, _ in known])} of {len(texts)} texts share rows of words")
    systems = [classifier(name, found, right, EvaluationConfig()) for name, found in said.items()]
    write_rows(systems, arguments.output)


def _file(directory: Path, ending: str) -> Path:
    plain = directory / f"train.{ending}"
    return plain if plain.exists() else plain.with_name(f"{plain.name}.gz")


if __name__ == "__main__":
    main()
