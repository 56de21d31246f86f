"""Names written onto rising curves, where there are too many to be told apart by a legend alone."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.patheffects import withStroke

from simsched.report.figures.style import Look

#: Up to so many curves a legend is enough.
MOST_WITHOUT = 4
_LOWEST, _HIGHEST = 0.15, 0.92
_FONT_SIZE = 7.5
#: Longer names would hide the curves; the legend has them.
_LONGEST = 28


def label_rising(
    axes: Axes,
    curves: Mapping[str, tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]],
    styles: Mapping[str, Look],
) -> None:
    """Write the name of each rising curve onto it, each at a height of its own so that no two names meet.

    `curves` maps labels to (x, y), y rising from 0 to 1 as a share; the axis shows per cent. Curves further left get
    their names higher up, where they have more room on their left. Draws nothing for few curves, nor long names.
    """
    if len(curves) <= MOST_WITHOUT or max(map(len, curves)) > _LONGEST:
        return
    middle = {label: x[min(int(np.searchsorted(y, 0.5)), len(x) - 1)] for label, (x, y) in curves.items()}
    heights = np.linspace(_HIGHEST, _LOWEST, len(curves))
    for height, label in zip(heights, sorted(curves, key=lambda label: (middle[label], label)), strict=True):
        x, y = curves[label]
        place = x[min(int(np.searchsorted(y, height)), len(x) - 1)]
        axes.annotate(
            label,
            (place, 100 * height),
            ha="center",
            va="center",
            size=_FONT_SIZE,
            color=styles[label].colour,
            weight="bold",
            path_effects=[withStroke(linewidth=2.5, foreground="white")],
            zorder=5,
        )
