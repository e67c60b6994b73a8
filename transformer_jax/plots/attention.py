"""The plot of cross-attention: darker cells are larger weights."""

import warnings
from pathlib import Path
from typing import Any

import numpy as np

from transformer_jax.base.errors import UserError
from transformer_jax.decoding.text.attention import CrossAttention
from transformer_jax.plots.picture import save


def draw(attention: CrossAttention, path: Path, layer: int = -1, head: int | None = None) -> None:
    """Plot the attention of a layer, for one head or the mean of all, and write the file.

    Layers and heads count from 0; -1 is the last.

    Raises:
      UserError: if there is no such layer or head.
    """
    layers, heads = attention.weights.shape[:2]
    for name, number, count in (("layer", layer, layers), ("head", head or 0, heads)):
        if not -count <= number < count:
            raise UserError(f"--{name}={number}: there are {count}, from 0 to {count - 1}")
    weights = attention.weights[layer]
    figure = _panel(weights.mean(0) if head is None else weights[head], attention)
    which = "mean of all heads" if head is None else f"head {head % heads}"
    figure.axes[0].set_xlabel(f"source; layer {layer % layers}, {which}", fontsize="small")
    with warnings.catch_warnings():
        # Scripts missing from the font are drawn as boxes; an SVG still contains the text.
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        save(figure, path)


def _panel(weights: np.ndarray, attention: CrossAttention) -> Any:
    from matplotlib.figure import Figure

    rows, columns = weights.shape
    figure = Figure(figsize=(1.8 + 0.25 * columns, 1.4 + 0.25 * rows), layout="constrained")
    panel = figure.subplots()
    # From white to black, scaled to the largest weight; 0 is always white.
    image = panel.imshow(weights, cmap="Greys", vmin=0, aspect="equal")
    text: dict[str, Any] = {"parse_math": False, "fontsize": "small"}  # a piece may be $
    panel.set_xticks(range(columns), map(_shown, attention.source), rotation=90, **text)
    panel.set_yticks(range(rows), map(_shown, attention.target), **text)
    panel.set_ylabel("target", fontsize="small")
    panel.set_xticks(np.arange(columns - 1) + 0.5, minor=True)
    panel.set_yticks(np.arange(rows - 1) + 0.5, minor=True)
    panel.grid(which="minor", color="0.85", linewidth=0.5)
    panel.tick_params(length=0, which="both", top=False)
    bar = figure.colorbar(image, ax=panel, shrink=0.6, aspect=12, pad=0.02)
    bar.ax.tick_params(labelsize="small")
    return figure


def _shown(piece: str) -> str:
    """Return a piece with unprintable characters replaced."""
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in piece)
