"""The plot of trees over one sentence: a line over the span of each bracket."""

from collections.abc import Sequence
from typing import Any

_WORD, _LEVEL = 0.42, 0.24  # inches: the width of a word, and the height of a level


def draw(words: Sequence[str], trees: Sequence[tuple[str, Sequence[tuple[str, int, int]]]]) -> Any:
    """Return the figure of titled trees, one above the other, with brackets (label, first word,
    one past the last), inner ones before those that enclose them.
    """
    from matplotlib.figure import Figure

    levels = [_levels(brackets) for _, brackets in trees]
    heights = [1 + max(level, default=1) for level in levels]
    longest = max(map(len, words))
    size = (0.4 + _WORD * len(words), 0.07 * longest + _LEVEL * (sum(heights) + len(trees)))
    figure = Figure(figsize=size, layout="constrained")
    panels = figure.subplots(len(trees), 1, sharex=True, squeeze=False, height_ratios=heights)
    for panel, (title, brackets), level, height in zip(
        panels[:, 0], trees, levels, heights, strict=True
    ):
        for (label, first, behind), at in zip(brackets, level, strict=True):
            panel.plot([first + 0.08, behind - 0.08], [at, at], color="0.45", linewidth=0.9)
            panel.text(
                (first + behind) / 2, at, label, ha="center", va="center", fontsize=7,
                bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.6},
            )  # fmt: skip
        panel.set_title(title, fontsize="small", loc="left")
        panel.set(xlim=(0, len(words)), ylim=(0.4, height), yticks=[])
        panel.spines[["top", "right", "left", "bottom"]].set_visible(False)
        panel.tick_params(length=0)
    centres = [i + 0.5 for i in range(len(words))]
    panels[-1, 0].set_xticks(centres, words, rotation=90, fontsize=7)
    return figure


def _levels(brackets: Sequence[tuple[str, int, int]]) -> list[int]:
    """Return the level of each bracket: above all earlier ones inside it."""
    levels: list[int] = []
    for place, (_, first, behind) in enumerate(brackets):
        inside = [levels[i] for i, (_, a, b) in enumerate(brackets[:place])
                  if first <= a and b <= behind]  # fmt: skip
        levels.append(1 + max(inside, default=0))
    return levels
