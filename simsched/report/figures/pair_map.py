"""Which jobs gain from sharing a GPU: measured speeds of pairs as a map."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import TwoSlopeNorm
from matplotlib.image import AxesImage

from simsched.report.figures.style import Drawn, Plan, new_figure, styled
from simsched.results import Run
from simsched.results.analyses import pair_speeds

#: Up to this many kinds of jobs, every cell of the map shows its number.
_MOST_NUMBERS = 30
#: Up to this many kinds of jobs, a cell also shows both speeds.
_MOST_SPEEDS = 8

_Kind = tuple[str, int]


def pair_figures(run: Run) -> Iterator[tuple[str, Plan]]:
    """Plan the map of the pairs that shared a GPU, if their speeds come from a table of measured pairs."""
    measured = [cell for cell in run.cells if (cell.manifest.get("sharing") or {}).get("model") == "pairs"]
    cells = [cell for cell in measured if cell.has("allocations")]
    data = pair_speeds(cells) if cells else None
    if data is not None and len(data):
        yield "pairs", partial(pairs_map, data, title=f"{run.name}: which pairs of jobs gain from sharing a GPU")


def pairs_map(data: pd.DataFrame, *, title: str) -> Drawn:
    """Draw the sum of the two speeds of every pair; above 1 the pair does more than either job alone.

    `data` has every pair in both orders: `application, batch_size, other_application, other_batch_size, speed, sum`.
    With `gpu_type` there is a map for each type.
    """
    kinds = sorted(set(zip(data["application"], data["batch_size"], strict=True)))
    types = list(dict.fromkeys(data["gpu_type"])) if "gpu_type" in data else [""]
    cell = 0.5 if len(kinds) <= _MOST_SPEEDS else 0.3
    side = 2.6 + cell * len(kinds)
    with styled():
        figure = new_figure((side - 1.2) * len(types) + 2.0, side, title, _caption(data, kinds, types))
        panels = figure.subplots(1, len(types), sharey=True, squeeze=False)[0]
        for axes, kind in zip(panels, types, strict=True):
            part = data[data["gpu_type"] == kind] if kind else data
            image = _map(axes, part, kinds)
            if len(types) > 1:
                axes.set_title(f"{kind.upper()}: {_paying(part):.0f} % pay")
        figure.colorbar(image, ax=list(panels), label="sum of the two speeds", shrink=0.8)
        panels[0].set_yticks(range(len(kinds)), _names(kinds), fontsize=8 if len(kinds) <= _MOST_SPEEDS else 6.5)
    return figure, data


def _caption(data: pd.DataFrame, kinds: Sequence[_Kind], types: Sequence[str]) -> str:
    small = " Small: the speed of the job of the row, beside that of the column." if len(kinds) <= _MOST_SPEEDS else ""
    share = "" if len(types) > 1 else f": {_paying(data):.0f} % of those here"
    return (
        "Sum of the speeds of two jobs on one GPU, each relative to that when alone; blue pays (above 1"
        f"{share}), red does not; white cells with a cross are not known or do not fit.{small}"
    )


def _paying(data: pd.DataFrame) -> float:
    """Return the percentage of the pairs, each counted once, whose sum is above 1."""
    one = list(zip(data["application"], data["batch_size"], strict=True))
    other = list(zip(data["other_application"], data["other_batch_size"], strict=True))
    once = data[[a <= b for a, b in zip(one, other, strict=True)]]
    return 100 * float(np.mean(once["sum"] > 1))


def _names(kinds: Sequence[_Kind]) -> list[str]:
    return [f"{name} {batch}" if batch else name for name, batch in kinds]


def _map(axes: Axes, data: pd.DataFrame, kinds: Sequence[_Kind]) -> AxesImage:
    """Draw the sums of one GPU type."""
    place: dict[Any, int] = {kind: index for index, kind in enumerate(kinds)}
    sums, speeds = (np.full((len(kinds), len(kinds)), np.nan) for _ in range(2))
    columns = ["application", "batch_size", "other_application", "other_batch_size", "sum", "speed"]
    for a, a_size, b, b_size, total, speed in data[columns].itertuples(index=False, name=None):
        at = place[a, a_size], place[b, b_size]
        sums[at], speeds[at] = total, speed
    few = len(kinds) <= _MOST_SPEEDS
    axes.grid(visible=False)
    image = axes.imshow(sums, cmap="RdBu", norm=TwoSlopeNorm(1.0, 0.0, 2.0))
    slant = {"rotation": 45, "ha": "right", "rotation_mode": "anchor"} if few else {"rotation": 90}
    axes.set_xticks(range(len(kinds)), _names(kinds), fontsize=8 if few else 6.5, **slant)
    missing = np.argwhere(np.isnan(sums)).tolist()
    axes.plot([x for _, x in missing], [y for y, _ in missing], "x", color="#BBBBBB", markersize=3)
    if len(kinds) <= _MOST_NUMBERS:
        for y, x in np.argwhere(~np.isnan(sums)).tolist():
            colour = "white" if abs(sums[y, x] - 1) > 0.6 else "black"
            centre: dict[str, Any] = {"ha": "center", "va": "center", "color": colour}
            axes.text(x, y - 0.12 * few, f"{sums[y, x]:.{1 + few}f}", fontsize=8 if few else 5, **centre)
            if few:
                axes.text(x, y + 0.25, f"{speeds[y, x]:.2f}", fontsize=5.5, **centre)
    return image
