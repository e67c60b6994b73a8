"""The plot of a forecast: the input, the actual values, and the forecast with its deciles."""

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any

import numpy as np

from transformer_jax.base.arrays import Float


def draw(
    rows: Float[np.ndarray, "N C"],
    point: Float[np.ndarray, "T C"],
    deciles: Float[np.ndarray, "T C 9"] | None,
    last: int,
    names: Sequence[str] = (),
    dates: Sequence[str] = (),
) -> Any:
    """Return the figure of the last `last` input rows and what follows them, a panel per channel.
    `rows` are the input and the actual values; they end with the forecast's last row. `names` are
    those of the channels, and `dates` those of the rows, if known.
    """
    from matplotlib.figure import Figure

    horizon, channels = point.shape
    columns = min(channels, 3)
    lines = -(-channels // columns)
    figure = Figure(figsize=(0.4 + 3.4 * columns, 0.7 + 1.9 * lines), layout="constrained")
    panels = figure.subplots(lines, columns, squeeze=False).ravel()
    seen = np.asarray(rows)[-last - horizon :]
    places, ticks = _places(dates[-len(seen) :], len(seen), horizon)
    ahead = places[-horizon:]
    for number, panel in enumerate(panels[:channels]):
        band = None if deciles is None else deciles[:, number]
        _bands(panel, ahead, band)
        panel.plot(ahead, point[:, number], color="0.35", linestyle=(0, (4, 2)), label="forecast")
        panel.plot(places, seen[:, number], color="black", linewidth=1, label="series")
        panel.axvline(places[-horizon - 1] + (ahead[0] - places[-horizon - 1]) / 2, color="0.6",
                      linewidth=0.6)  # fmt: skip
        title = names[number] if names else f"channel {number + 1}"
        panel.set_title(title, fontsize="medium", loc="left", parse_math=False)
        ticks(panel)
        panel.spines[["top", "right"]].set_visible(False)
    for panel in panels[channels:]:
        panel.set_axis_off()
    if not dates:
        panels[0].set_xlabel("rows from the end of the input", fontsize="small")
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside upper center", ncols=4,
                  frameon=False)  # fmt: skip
    return figure


def _places(
    dates: Sequence[str], count: int, horizon: int
) -> tuple[np.ndarray, Callable[[Any], None]]:
    """Return where each row stands on the horizontal axis, and what labels a panel's axis."""
    from matplotlib.dates import AutoDateLocator, ConciseDateFormatter, date2num

    rows = np.arange(count, dtype=np.float64) - count + horizon + 1
    if not dates:
        return rows, lambda panel: None
    try:
        times = np.array([date2num(datetime.fromisoformat(date)) for date in dates])
    except (ValueError, TypeError, OverflowError):
        times = np.zeros(count)
    if (np.diff(times) > 0).all():

        def label(panel: Any) -> None:
            locator = AutoDateLocator(minticks=3, maxticks=5)
            panel.xaxis.set_major_locator(locator)
            panel.xaxis.set_major_formatter(ConciseDateFormatter(locator))
            panel.tick_params(axis="x", labelsize="small")
            panel.xaxis.get_offset_text().set_fontsize("small")

        return times, label

    def quote(panel: Any) -> None:
        for text, side in zip(
            panel.set_xticks(rows[[0, -1]], [dates[0], dates[-1]], fontsize="small"),
            ("left", "right"),
            strict=True,
        ):
            text.label1.set_horizontalalignment(side)

    return rows, quote


def _bands(panel: Any, ahead: np.ndarray, deciles: np.ndarray | None) -> None:
    """Shade the bands between deciles, the wider the lighter."""
    if deciles is None:
        return
    for low, shade, label in ((0, "0.9", "8 of 10"), (2, "0.78", "4 of 10")):
        panel.fill_between(
            ahead, deciles[:, low], deciles[:, -1 - low], color=shade, linewidth=0, label=label
        )
