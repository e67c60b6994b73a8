"""The plot of the returns that an agent achieves against those that it was asked for."""

from typing import Any

import numpy as np

from transformer_jax.base.arrays import Float


def draw(
    asked: Float[np.ndarray, " n"], achieved: Float[np.ndarray, " n"], best: float | None = None
) -> Any:
    """Return the figure of episodes: dots for them, the mean of those asked for the same with its
    95 % interval, the diagonal, on which they would be equal, and the best that there is, if known.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(4.2, 4), layout="constrained")
    panel = figure.subplots()
    each = np.unique(asked)
    groups = [achieved[asked == one] for one in each]
    means, halves = ([of(group) for group in groups] for of in (np.mean, half_interval))
    wish, got = np.unique(np.stack([asked, achieved]), axis=1)  # of equal ones, one is drawn
    panel.plot(each, each, color="0.6", linewidth=0.8, label="as asked")
    if best is not None:
        panel.axhline(best, color="0.6", linewidth=0.8, linestyle=(0, (4, 2)), label="mean optimum")
    panel.scatter(wish, got, s=6, color="0.75", label="episodes")
    panel.errorbar(
        each, means, halves, color="black", marker="o", markersize=4, linewidth=1.2, capsize=2,
        label="mean, 95 % interval",
    )  # fmt: skip
    panel.set_xlabel("return asked for")
    panel.set_ylabel("return achieved")
    panel.spines[["top", "right"]].set_visible(False)
    figure.legend(loc="outside upper center", ncols=2, frameon=False, fontsize="small")
    return figure


def half_interval(values: np.ndarray) -> float:
    """Return half of the 95 % interval of a mean, by the normal distribution; 0 for one value."""
    return float(1.96 * values.std(ddof=1) / len(values) ** 0.5) if len(values) > 1 else 0.0
