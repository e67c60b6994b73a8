"""Exact match of inflected forms, the mean over languages.

    python benchmarks/studies/inflection.py DIR/validation.tsv.gz runs/inflection-high/eval/FILE.hyp

The first file has rows of language, lemma, features and form, the second a form a line for each of
them, as eval.py writes it. Prints the share of right forms of each language, from the lowest, with
its number of forms; then the mean over languages and the share of all forms.
"""

import argparse
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

from transformer_jax.base.errors import UserError
from transformer_jax.data.sources.files import read_lines
from transformer_jax.data.sources.rows import Column, separated

_COLUMNS = Column("source", "1"), Column("target", "4")


def rows_of(path: Path) -> tuple[list[str], list[str]]:
    """Return the language and the form of each row.

    Raises:
      UserError: if the file cannot be read, or a row has another number of columns than the first.
    """
    languages: list[str] = []
    forms: list[str] = []
    for block in separated(path, _COLUMNS, "\t"):
        languages += block.columns[0]
        forms += block.columns[1]
    return languages, forms


def shares(
    languages: Sequence[str], forms: Sequence[str], found: Sequence[str]
) -> dict[str, tuple[float, int]]:
    """Return the percentage of right forms, and the number of forms, by language."""
    right: dict[str, list[bool]] = defaultdict(list)
    for language, form, text in zip(languages, forms, found, strict=True):
        right[language].append(form.strip() == text.strip())
    return {name: (100 * sum(each) / len(each), len(each)) for name, each in right.items()}


def main() -> None:
    """Print the shares."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", type=Path)
    parser.add_argument("forms", type=Path)
    given = parser.parse_args()
    languages, forms = rows_of(given.data)
    found = read_lines(given.forms)
    if len(found) != len(forms):
        raise UserError(
            f"{given.forms}: has {len(found)} lines, and {given.data} {len(forms)} rows; give what "
            "was written for just these rows"
        )
    each = shares(languages, forms, found)
    for name, (share, count) in sorted(each.items(), key=lambda item: item[1]):
        print(f"{share:6.2f} %  {name}, {count}")
    mean = sum(share for share, _ in each.values()) / len(each)
    right = sum(share * count for share, count in each.values()) / len(forms)
    print(f"{mean:6.2f} %  mean of {len(each)} languages; {right:.2f} % of {len(forms):,} forms")


if __name__ == "__main__":
    main()
