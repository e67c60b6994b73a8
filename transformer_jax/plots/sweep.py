"""The plot of a sweep's table: scores against each swept field, or beside published figures."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from transformer_jax.base.errors import UserError
from transformer_jax.config.metrics import PREDICTION, TRANSLATION, VALIDATION, Metric
from transformer_jax.plots.picture import save

TITLES: dict[str, Metric] = {
    metric.title: metric
    for metrics in (VALIDATION, TRANSLATION, PREDICTION)
    for metric in metrics.values()
}  # the first with scores is plotted
_OURS, _THEIRS, _GRID = "#0b5fa5", "#c8500a", "#d9d9d9"


def draw_rows(rows: Sequence[Any], path: Path) -> None:
    """Plot the rows of `sweeps.table`, and write the file in the format of its suffix."""
    save(_beside(rows) if any(row.published for row in rows) else _against(rows), path)


def _score_column(rows: Sequence[Any], metric: str) -> str | None:
    """Return the column of a metric: on the evaluated split if there is one, else validation."""
    columns = list(dict.fromkeys(column for row in rows for column in row.measured))
    of_metric = [column for column in columns if column.partition(",")[0].endswith(f" {metric}")]
    return of_metric[-1] if of_metric else None


def _beside(rows: Sequence[Any]):
    """Plot a line per variant: its measured and its published difference from the first."""
    from matplotlib.figure import Figure

    pairs = [
        (name.removeprefix("published "), name, column)
        for name in dict.fromkeys(name for row in rows for name in row.published)
        if (column := _score_column(rows, name.removeprefix("published ")))
    ]
    if not pairs:
        raise UserError("--plot: no point has a score yet")
    figure = Figure(figsize=(2 + 4 * len(pairs), 1.4 + 0.27 * len(rows)), layout="constrained")
    panels = figure.subplots(1, len(pairs), sharey=True, squeeze=False)[0]
    names = [", ".join(row.settings.values()) for row in rows]
    heights = range(len(rows))
    for panel, (metric, name, column) in zip(panels, pairs, strict=True):
        ours = _differences([row.mean(column) for row in rows], metric)
        theirs = _differences([row.published.get(name, math.nan) for row in rows], metric)
        panel.hlines(heights, ours, theirs, color=_GRID, linewidth=2, zorder=1)
        panel.scatter(theirs, heights, marker="D", s=30, facecolors="white", edgecolors=_THEIRS,
                      label="published", zorder=2)  # fmt: skip
        panel.scatter(ours, heights, s=34, color=_OURS, label="measured", zorder=3)
        panel.axvline(0, color="0.4", linewidth=0.8, zorder=0)
        less = metric in TITLES and not TITLES[metric].greater_is_better
        panel.set_xlabel(
            f"{metric}, {'% above' if metric == 'perplexity' else 'difference from'} {names[0]}"
            + (" (lower is better)" if less else "")
        )
        panel.set_title(f"measured: {column}", fontsize="small", loc="left")
        _tidy(panel, "y")
    panels[0].set_yticks(list(heights), names)
    panels[0].invert_yaxis()
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside upper right", ncols=2,
                  frameon=False, fontsize="small")  # fmt: skip
    return figure


def _differences(values: Sequence[float], metric: str) -> list[float]:
    """Return differences from the first value; for perplexities, relative ones in per cent."""
    first = values[0]
    if metric == "perplexity":
        return [100 * (value / first - 1) for value in values]
    return [value - first for value in values]


def _against(rows: Sequence[Any]):
    """Plot a panel per swept field: the score of every row against its value."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    column = next((best for title in TITLES if (best := _score_column(rows, title))), None)
    if column is None:
        raise UserError("--plot: no point has a score yet")
    fields = list(rows[0].settings) or ["seed"]
    figure = Figure(figsize=(0.8 + 3.4 * len(fields), 3.2), layout="constrained")
    panels = figure.subplots(1, len(fields), sharey=True, squeeze=False)[0]
    scores = [row.mean(column) for row in rows]
    spreads = [row.spread(column) or 0.0 for row in rows]
    for panel, field in zip(panels, fields, strict=True):
        texts = [row.settings.get(field, "all") for row in rows]
        numbers = [number for text in texts if (number := _number(text)) is not None]
        if len(numbers) == len(texts):
            places: list[Any] = numbers
            if min(numbers) > 0 and max(numbers) / min(numbers) > 20:  # 0 has no logarithm
                panel.set_xscale("log")
            elif all(number.is_integer() for number in numbers):
                panel.xaxis.set_major_locator(MaxNLocator("auto", integer=True))  # no 2.5 heads
        else:
            names = list(dict.fromkeys(texts))
            places = [names.index(text) for text in texts]
            panel.set_xticks(range(len(names)), names, rotation=30 if len(names) > 3 else 0)
            panel.margins(x=0.2)
        panel.errorbar(places, scores, spreads, fmt="o", color=_OURS, ecolor=_GRID, alpha=0.8)
        panel.set_xlabel(field)
        _tidy(panel, "both")
    panels[0].set_ylabel(column)
    return figure


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _tidy(panel: Any, grid: Any) -> None:
    panel.spines[["top", "right"]].set_visible(False)
    panel.grid(axis=grid, color=_GRID, linewidth=0.5)
    panel.set_axisbelow(True)
