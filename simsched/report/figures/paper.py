"""Figures for a paper: as wide as one column or two, in letters of its size, without title, which the caption has."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.text import Text
from matplotlib.ticker import MaxNLocator

from simsched.outlets import cells_wide, latex_text
from simsched.report.figures.style import corner, take_words

#: The widths in inches, as most conferences have them.
WIDTHS: Mapping[str, float] = MappingProxyType({"one-column": 3.33, "two-columns": 7.0})

#: Letters of 9 points on a page have 7.5 in a paper, and none fewer than 6.
_SMALLER, _LEAST_SIZE = 7.5 / 9, 6.0
#: A narrow figure is somewhat taller than in proportion.
_TALLER = 1.2
_LEGEND_SIZE, _LEGEND_LINE, _LEGEND_HANDLE, _LEGEND_LETTER, _GAP = 7.0, 0.145, 0.42, 0.052, 0.04
_MOST_TICKS = 6
#: Inches of a line of a panel's title, beside a panel, and of a letter of one point.
_TITLE_LINE, _BESIDE, _LETTER = 0.12, 0.45, 0.55 / 72
_FEWEST_LETTERS = 8
#: So many panels side by side are so narrow in a paper that they are at least so many inches high.
_MANY, _LEAST_HEIGHT = 3, 1.5


def for_paper(figure: Figure, style: str, name: str) -> str:
    """Bring a figure into the form of a paper; return the LaTeX that sets it, with its title and caption."""
    width, words = WIDTHS[style], take_words(figure)
    before, height = figure.get_size_inches()
    engine: Any = figure.get_layout_engine()
    scale = width / before
    panels = height * engine.get()["rect"][3] * min(scale * _TALLER, 1.0)
    for text in figure.findobj(Text):
        text.set_fontsize(max(float(text.get_fontsize()) * _SMALLER, _LEAST_SIZE))
    grids = [place.get_gridspec() for axes in figure.axes if (place := axes.get_subplotspec()) is not None]
    if scale < 1 and any(grid.ncols >= _MANY for grid in grids):
        panels = max(panels, *(_LEAST_HEIGHT * grid.nrows for grid in grids))
    panels += _TITLE_LINE * (max((_break_title(axes, width) for axes in figure.axes), default=1) - 1)
    for line in figure.findobj(Line2D):
        line.set_linewidth(line.get_linewidth() * _SMALLER)
    if scale < 1:
        _fewer_ticks(figure)
    legend = _legend(figure, width)
    figure.set_size_inches(width, panels + legend)
    engine.set(rect=(0, 0, 1, panels / (panels + legend)))
    environment = "figure*" if style == "two-columns" else "figure"
    size = r"\textwidth" if style == "two-columns" else r"\columnwidth"
    return "\n".join(
        (
            rf"\begin{{{environment}}}",
            rf"  \includegraphics[width={size}]{{{name}}}",
            rf"  \caption{{{latex_text(f'{words.title}. {words.caption}')}}}",
            rf"  \label{{fig:{name}}}",
            rf"\end{{{environment}}}",
            "",
        )
    )


def _break_title(axes: Axes, width: float) -> int:
    """Break the title of a panel that is longer than the panel is wide; return its lines."""
    place, whole = axes.get_subplotspec(), axes.get_title(loc="left")
    columns = place.get_gridspec().ncols if place is not None else 1
    lines = 1
    for title in [one for one in axes.get_children() if isinstance(one, Text) and whole and one.get_text() == whole]:
        letters = max(int((width / columns - _BESIDE) / (_LETTER * float(title.get_fontsize()))), _FEWEST_LETTERS)
        broken = [line for part in whole.split("\n") for line in textwrap.wrap(part, letters) or [""]]
        title.set_text("\n".join(broken))
        lines = len(broken)
    return lines


def _fewer_ticks(figure: Figure) -> None:
    """Name every second tick where names that were given for places would meet, and fewer numbers."""
    for axes in figure.axes:
        height = axes.yaxis.get_major_locator()
        if isinstance(height, MaxNLocator):
            height.set_params(nbins=5)
        places, names = axes.get_xticks(), [label.get_text() for label in axes.get_xticklabels()]
        if axes.get_xscale() == "log" and len(places) > _MOST_TICKS and any(names):
            axes.set_xticks(places[::2], names[::2])


def _legend(figure: Figure, width: float) -> float:
    """Set the legend above the panels anew, in as many lines as it needs; return their inches."""
    if not figure.legends:
        return 0.0
    old: Any = figure.legends[0]
    handles, labels = old.legend_handles, [text.get_text() for text in old.get_texts()]
    old.remove()
    longest = max(map(cells_wide, labels))
    columns = max(1, min(len(labels), int((width - 0.1) / (_LEGEND_HANDLE + _LEGEND_LETTER * longest))))
    figure.legend(
        handles,
        labels,
        loc="upper left",
        bbox_to_anchor=(_GAP, -_GAP),
        bbox_transform=corner(figure, 1),
        ncols=columns,
        fontsize=_LEGEND_SIZE,
        borderpad=0,
        borderaxespad=0,
        columnspacing=1.0,
        handlelength=2.0,
    )
    return _LEGEND_LINE * -(-len(labels) // columns) + 2 * _GAP
