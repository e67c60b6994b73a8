"""Markdown tables for the benchmarks."""

from collections.abc import Iterable, Sequence


def markdown(titles: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table whose first column is text and all others numbers."""
    marks = ["---"] + ["---:"] * (len(titles) - 1)
    return "".join(f"| {' | '.join(cells)} |\n" for cells in (titles, marks, *rows))
