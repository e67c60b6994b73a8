"""The picture of a coordinate check: changes by size, a panel for each parametrization."""

from collections.abc import Mapping
from pathlib import Path

from transformer_jax.plots.picture import save

_INKS = ("black", "0.45", "0.2", "0.6")
_DASHES = ("-", (0, (5, 2)), (0, (1.5, 1.5)), (0, (7, 2, 1.5, 2)), (0, (10, 3)))
_SHAPES = ("o", "s", "^", "D", "v", "X", "P")


def draw(found: Mapping[str, Mapping[int, Mapping[str, float]]], axis: str, path: Path) -> None:
    """Plot changes {title: {size: {what: change}}} on logarithmic axes, and write the file."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(0.8 + 3.6 * len(found), 4.4), layout="constrained")
    panels = figure.subplots(1, len(found), squeeze=False, sharey=True)[0]
    for panel, (title, by_size) in zip(panels, found.items(), strict=True):
        sizes = [*by_size]
        for number, name in enumerate(by_size[sizes[0]]):
            panel.plot(
                sizes, [by_size[size][name] for size in sizes], label=name, linewidth=1.2,
                color=_INKS[number % len(_INKS)], linestyle=_DASHES[number % len(_DASHES)],
                marker=_SHAPES[number % len(_SHAPES)], markersize=4,
            )  # fmt: skip
        panel.set_xscale("log", base=2)
        panel.set_yscale("log")
        panel.set_title(title, fontsize="medium", loc="left")
        panel.set_xlabel(axis)
        panel.spines[["top", "right"]].set_visible(False)
        panel.grid(color="0.88", linewidth=0.5)
    panels[0].set_ylabel("change (root mean square)")
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=2,
                  frameon=False, fontsize="small", handlelength=4)  # fmt: skip
    save(figure, path)
