"""Which jobs gain from sharing a GPU: measured speeds of pairs as a map."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.colors import TwoSlopeNorm

from simsched.report.figures.style import Drawn, new_figure, styled

#: Up to so many kinds of jobs every cell of the map shows its number.
_MOST_NUMBERS = 30


def pairs_map(data: pd.DataFrame, *, title: str) -> Drawn:
    """Draw the sum of the two speeds of every pair; above 1 the pair does more than either job alone.

    `data` has every pair both ways round: `application, batch_size, other_application, other_batch_size, sum`.
    """
    kinds = sorted(set(zip(data["application"], data["batch_size"], strict=True)))
    place = {kind: index for index, kind in enumerate(kinds)}
    sums = np.full((len(kinds), len(kinds)), np.nan)
    for row in data.itertuples(index=False):
        one, other = (row.application, row.batch_size), (row.other_application, row.other_batch_size)
        sums[place[one], place[other]] = row.sum
    names = [f"{name} {batch}" if batch else name for name, batch in kinds]
    side = 2.6 + 0.3 * len(kinds)
    paying = float(np.mean(data["sum"] > 1))
    caption = (
        f"Sum of the speeds of two jobs on one GPU, each relative to that when alone; blue pays (above 1: "
        f"{100 * paying:.0f} % of those measured), white cells were not measured or do not fit."
    )
    with styled():
        figure = new_figure(side + 0.8, side, title, caption)
        axes = figure.subplots()
        axes.grid(visible=False)
        image = axes.imshow(sums, cmap="RdBu", norm=TwoSlopeNorm(1.0, 0.0, 2.0))
        figure.colorbar(image, ax=axes, label="sum of the two speeds", shrink=0.8)
        ticks = range(len(kinds))
        axes.set_xticks(ticks, names, rotation=90, fontsize=6.5)
        axes.set_yticks(ticks, names, fontsize=6.5)
        if len(kinds) <= _MOST_NUMBERS:
            for y, x in np.argwhere(~np.isnan(sums)).tolist():
                colour = "white" if abs(sums[y, x] - 1) > 0.6 else "black"
                axes.text(x, y, f"{sums[y, x]:.1f}", ha="center", va="center", fontsize=5, color=colour)
    return figure, data
