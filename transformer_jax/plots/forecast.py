"""The plot of a forecast: the input, the actual values, and the forecast with its deciles."""

from typing import Any

import numpy as np

from transformer_jax.arrays import Float


def draw(
    rows: Float[np.ndarray, "N C"],
    point: Float[np.ndarray, "T C"],
    deciles: Float[np.ndarray, "T C 9"] | None,
    last: int,
) -> Any:
    """Return the figure of the last `last` input rows and what follows them, a panel per channel.
    `rows` are the input and the actual values; they end with the forecast's last row.
    """
    from matplotlib.figure import Figure

    horizon, channels = point.shape
    columns = min(channels, 3)
    lines = -(-channels // columns)
    figure = Figure(figsize=(0.4 + 3.4 * columns, 0.7 + 1.9 * lines), layout="constrained")
    panels = figure.subplots(lines, columns, squeeze=False).ravel()
    ahead, seen = np.arange(1, horizon + 1), rows[-last - horizon :]
    for number, panel in enumerate(panels[:channels]):
        band = None if deciles is None else deciles[:, number]
        _bands(panel, ahead, band)
        panel.plot(ahead, point[:, number], color="0.35", linestyle=(0, (4, 2)), label="forecast")
        at = np.arange(len(seen)) - len(seen) + horizon + 1
        panel.plot(at, seen[:, number], color="black", linewidth=1, label="series")
        panel.axvline(0.5, color="0.6", linewidth=0.6)
        panel.set_title(f"channel {number + 1}", fontsize="medium", loc="left")
        panel.spines[["top", "right"]].set_visible(False)
    for panel in panels[channels:]:
        panel.set_axis_off()
    panels[0].set_xlabel("rows from the end of the input", fontsize="small")
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside upper center", ncols=4,
                  frameon=False)  # fmt: skip
    return figure


def _bands(panel: Any, ahead: np.ndarray, deciles: np.ndarray | None) -> None:
    """Shade the bands between deciles, the wider the lighter."""
    if deciles is None:
        return
    for low, shade, label in ((0, "0.9", "8 of 10"), (2, "0.78", "4 of 10")):
        panel.fill_between(
            ahead, deciles[:, low], deciles[:, -1 - low], color=shade, linewidth=0, label=label
        )
