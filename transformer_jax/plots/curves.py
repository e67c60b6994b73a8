"""The plot of training curves, a panel per measure; runs differ by dashes and shades."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from transformer_jax.config.metrics import GAUGES, NOISE, ROLLOUTS, VALIDATION
from transformer_jax.plots.picture import save

# Keys are the columns that reports.curves.curves returns.
TITLES = {
    "loss": "training loss",
    "nll": "training loss without smoothing",
    "accuracy": "training accuracy",
    "grad_norm": "gradient norm",
    **{name: gauge.title for name, gauge in GAUGES.items()},
    **NOISE,
    **ROLLOUTS,
    "learning_rate": "learning rate",
    "validation_loss": "validation loss",
    **{f"validation_{name}": f"validation {metric.title}"
       for name, metric in VALIDATION.items() if name != "loss"},
    "target_tokens_per_s": "target tokens per second",
}  # fmt: skip
_LOSSES = ("loss", "nll", "validation_loss")
ACROSS = {"step": "step", "tokens": "target tokens", "minutes": "minutes of training"}
# Shades that print well; adjacent runs never share dashes and marker.
_INKS = ("black", "0.45", "0.2", "0.6")
_DASHES: tuple[Any, ...] = ("-", (0, (5, 2)), (0, (1.5, 1.5)), (0, (7, 2, 1.5, 2)), (0, (10, 3)))
_SHAPES = ("o", "s", "^", "D", "v", "X", "P")


def draw(
    runs: Mapping[str, Mapping[str, Any]],
    path: Path,
    measures: Sequence[str],
    across: str = "step",
    log: bool = False,
    nats: bool = True,
) -> None:
    """Plot `measures` of `runs`, name -> columns by group, and write the file.

    `log` makes the vertical axis logarithmic; `nats` says that losses are in nats per token.
    """
    from matplotlib.figure import Figure
    from matplotlib.ticker import EngFormatter

    columns = min(len(measures), 3)
    lines = -(-len(measures) // columns)
    figure = Figure(figsize=(0.4 + 3.4 * columns, 0.7 + 2.5 * lines), layout="constrained")
    panels = figure.subplots(lines, columns, squeeze=False).ravel()
    for panel, measure in zip(panels, measures, strict=False):
        for number, (name, groups) in enumerate(runs.items()):
            _line(panel, number, name, groups, measure, across)
        unit = ", nats per token" * (nats and measure in _LOSSES)
        panel.set_title(TITLES[measure] + unit, fontsize="medium", loc="left")
        panel.set_xlabel(ACROSS[across])
        panel.xaxis.set_major_formatter(EngFormatter(sep=""))
        panel.set_yscale("log" if log else "linear")
        panel.spines[["top", "right"]].set_visible(False)
        panel.grid(color="0.88", linewidth=0.5)
        panel.set_axisbelow(True)
    for panel in panels[len(measures) :]:
        panel.set_axis_off()
    if len(runs) > 1:
        figure.legend(*panels[0].get_legend_handles_labels(), loc="outside upper center",
                      ncols=min(len(runs), 4), frameon=False, handlelength=4)  # fmt: skip
    save(figure, path)


def _line(
    panel: Any, number: int, name: str, groups: Mapping[str, Any], measure: str, across: str
) -> None:
    table = next(columns for columns in groups.values() if measure in columns)
    known = [i for i, value in enumerate(table[measure]) if value is not None]
    # Mark every point if there are few, else about eight, at different places on each line.
    every = max(len(known) // 8, 1)
    panel.plot(
        [table[across][i] for i in known], [table[measure][i] for i in known],
        color=_INKS[number % len(_INKS)], linestyle=_DASHES[number % len(_DASHES)], linewidth=1.3,
        marker=_SHAPES[number % len(_SHAPES)], markersize=4,
        markevery=(number * every // 3 % every, every),
        label=name if not name.startswith("_") else f" {name}",  # matplotlib hides _names
    )  # fmt: skip
