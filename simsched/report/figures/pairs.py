"""Which jobs gain from sharing a GPU: measured speeds of pairs as a map."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.colors import TwoSlopeNorm

from simsched.model.colocation.pairs import Kind, PairTable
from simsched.report.figures.style import Drawn, new_figure, styled

_COLUMNS = ["application", "batch_size", "other_application", "other_batch_size", "speed", "other_speed", "sum"]
#: Up to so many kinds of jobs every cell of the map shows its number.
_MOST_NUMBERS = 30


def pairs_data(table: PairTable, gpu_type: str) -> pd.DataFrame:
    """Gather the pairs measured on a GPU type, both ways round."""
    rows = []
    for (kind, one, other), (speed, other_speed) in sorted(table.pairs.items()):
        if kind == gpu_type:
            rows.append((*one, *other, speed, other_speed, speed + other_speed))
            if one != other:
                rows.append((*other, *one, other_speed, speed, speed + other_speed))
    return pd.DataFrame(rows, columns=_COLUMNS)


def pairs_map(data: pd.DataFrame, *, title: str) -> Drawn:
    """Draw the sum of the two speeds of every pair; above 1 the pair does more than either job alone."""
    named = zip(data["application"], data["batch_size"], strict=True)
    kinds = sorted({Kind(str(name), int(size)) for name, size in named})
    place = {kind: index for index, kind in enumerate(kinds)}
    sums = np.full((len(kinds), len(kinds)), np.nan)
    for row in data.to_dict("records"):
        one = Kind(str(row["application"]), int(row["batch_size"]))
        other = Kind(str(row["other_application"]), int(row["other_batch_size"]))
        sums[place[one], place[other]] = row["sum"]
    names = [f"{kind.application} {kind.batch_size}" if kind.batch_size else kind.application for kind in kinds]
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
