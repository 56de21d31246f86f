"""Mean waits of groups before and after a change."""

from __future__ import annotations

import pandas as pd

from simsched.report.figures.style import Drawn, new_figure, styled

#: Colours of the verdicts, told apart without red and green.
_COLOURS = {"gains": "#0072B2", "loses": "#D55E00", "as before": "#808080"}
_ROW_INCHES = 0.24


def wait_changes(groups: pd.DataFrame, *, title: str) -> Drawn:
    """Draw a line for each group from its mean wait before to that after; gains, losses and the rest by colour.

    `groups` has the columns `by, group, before_h, after_h, verdict`; it is the data drawn too.
    """
    count = len(groups)
    with styled():
        caption = "Ring: mean wait before the change. Dot: after it."
        figure = new_figure(6.4, 0.7 + _ROW_INCHES * count, title, caption)
        axes = figure.subplots()
        labels = [f"{by}: {name}" for by, name in zip(groups["by"], groups["group"], strict=True)]
        before, after = (groups[name].to_numpy("float64") for name in ("before_h", "after_h"))
        for place, verdict in enumerate(groups["verdict"]):
            colour, y = _COLOURS[str(verdict)], count - place
            axes.plot([before[place], after[place]], [y, y], color=colour, linewidth=2)
            axes.plot(before[place], y, "o", color=colour, markerfacecolor="white", markersize=6)
            axes.plot(after[place], y, "o", color=colour, markersize=6)
        for verdict, colour in _COLOURS.items():
            axes.plot([], [], "o-", color=colour, label=verdict)
        axes.set_yticks(range(count, 0, -1), labels)
        axes.set_ylim(0.4, count + 0.6)
        axes.set_xlim(left=0)
        axes.set_xlabel("mean wait (h)")
        axes.grid(visible=False, axis="y")
        axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0))
    return figure, groups
