"""What the step of a plan of parallel training is spent on."""

from __future__ import annotations

import pandas as pd

from simsched.report.figures.style import Drawn, legend_above, new_figure, styled

#: Computation is grey; the rest is what a better plan or network would save.
_COLOURS = {
    "compute": "#999999",
    "tensor": "#0072B2",
    "context": "#56B4E9",
    "pipeline": "#E69F00",
    "data": "#D55E00",
    "optimiser": "#000000",
}


def plan_parts(data: pd.DataFrame, *, title: str) -> Drawn:
    """Draw a bar for each plan, its seconds by part; `data` has a row a plan: `plan`, and the seconds by part."""
    with styled():
        figure = new_figure(7.2, 1.2 + 0.32 * len(data), title, "Seconds of a step that nothing else hides.")
        axes = figure.subplots()
        begun = pd.Series(0.0, index=data.index)
        for part, colour in _COLOURS.items():
            axes.barh(data.index, data[part], left=begun, color=colour, label=part, height=0.7)
            begun += data[part]
        axes.set_yticks(data.index, data["plan"])
        axes.invert_yaxis()
        axes.set_xlabel("seconds of a step")
        legend_above(figure, axes)
    return figure, data
